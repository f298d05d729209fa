package report

import (
	"context"
	"errors"

	"warmpath/controlplane/report/message"
	"warmpath/dataplane/index"
)

// Target is where the reports of a worker go.
type Target struct {
	Slot       int    // of rank 0; the others follow
	Generation uint32 // of the slot's tenant
	Ranks      int    // data-parallel ranks; at least 1
	Model      string // canonical name, as chains are made with it
	UnitTokens int    // of the model's chains
	Scheme     string // nodes.hash_scheme of minimal reporters; "" = they are refused
}

// elsewhere reports whether what was applied for t says nothing for o: another
// tenant has the slot, or chains are made in another way.
func (t *Target) elsewhere(o *Target) bool {
	return t.Slot != o.Slot || t.Generation != o.Generation || t.Model != o.Model || t.UnitTokens != o.UnitTokens
}

// Errors of a Directory.
var (
	ErrUnknownWorker = errors.New("no node of that name")
	ErrUnknownModel  = errors.New("the node does not serve that model")
	ErrNotYet        = errors.New("not known yet") // … and will be in a moment
)

// Directory knows the fleet. It is called by many goroutines.
type Directory interface {
	// Find returns where reports of a worker go. model is what the report says,
	// "" for the one model that the node serves. The error is ErrUnknownWorker,
	// ErrUnknownModel or ErrNotYet, perhaps wrapped.
	Find(worker, model string) (Target, error)
}

// Batch is what one report changes, and what it asks. Its parts are applied in
// the order of the fields, as one step: nobody sees half of it. It is immutable
// once it is handed over.
type Batch struct {
	Slot       int // rank included
	Generation uint32
	Model      string
	Scheme     string // of a minimal reporter, else ""
	Tier       index.Tier

	Clear     bool            // forget all tiers of the slot: an epoch begins
	Replace   bool            // Active is all that the tier holds
	Active    []uint64        // with Replace
	Stored    []message.Block // appeared; each counts one reference
	Described []message.Block // what the tier holds already, with its tokens
	Removed   []uint64        // went; each takes one reference
	Wants     int             // ask for at most so many hashes whose tokens are missing

	active map[uint64]struct{} // Active as a set; made before the batch is handed over, and used up
}

// prepare does what need not be done on the goroutine that owns the index.
func (b *Batch) prepare() {
	if b.Replace {
		b.activeSet()
	}
}

// activeSet is Active without its order. Whoever applies the batch uses it up.
func (b *Batch) activeSet() map[uint64]struct{} {
	if b.active == nil {
		b.active = make(map[uint64]struct{}, len(b.Active))
		for _, hash := range b.Active {
			b.active[hash] = struct{}{}
		}
	}
	return b.active
}

// Result is what the index holds of the batch's slot and tier afterwards.
type Result struct {
	Digest message.Digest
	Wanted []uint64 // held by the node, as it says, with tokens that we do not know
}

// ErrGone says that the slot has another tenant than the batch is for.
var ErrGone = errors.New("the node has been removed")

// Index applies batches on the goroutine that owns the index.
type Index interface {
	// Apply returns when the batch is applied, or ctx ends; then it may still be
	// applied later. The error is ErrGone, or ctx's.
	Apply(ctx context.Context, b *Batch) (Result, error)
}

// Doer runs functions on the goroutine that owns the index: an *indexer.Indexer.
type Doer interface {
	// Do returns when do has returned, or ctx ends; then do may still be called
	// later. tenant says whether the slot is still that incarnation's.
	Do(ctx context.Context, slot int, generation uint32, do func(tenant bool)) error
}

// On is the Index of a Placer that belongs to the goroutine behind d.
func On(d Doer, p *Placer) Index { return onDoer{d, p} }

type onDoer struct {
	doer   Doer
	placer *Placer
}

func (x onDoer) Apply(ctx context.Context, b *Batch) (Result, error) {
	type outcome struct {
		got  Result
		gone bool
	}
	is := new(outcome) // the function's own: it may run when nobody waits any more
	err := x.doer.Do(ctx, b.Slot, b.Generation, func(tenant bool) {
		if is.gone = !tenant; tenant {
			is.got = x.placer.Apply(b)
		}
	})
	switch {
	case err != nil:
		return Result{}, err
	case is.gone:
		return Result{}, ErrGone
	}
	return is.got, nil
}
