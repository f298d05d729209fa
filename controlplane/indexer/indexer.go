package indexer

import (
	"context"
	"runtime"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/beat"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

const (
	batchNotes   = 256                    // notes of one ring before the next ring's turn
	sweepUnits   = 4096                   // units looked at between two batches while something is to be swept
	awakeFor     = 20 * time.Millisecond  // polling goes on so long after the last note
	pollEvery    = 2 * time.Millisecond   // meanwhile: more often costs a busy loop time, less often it fills its overlay
	expireEvery  = 100 * time.Millisecond // a slice of the walk over aged entries
	commandQueue = 4 * fleet.MaxSlots     // a command and an answer a slot, and room
	workQueue    = 1024                   // pieces of work by others; who finds it full comes again
	batchWork    = 64                     // pieces of work before the rings have a turn
)

// Ring is where notes come from: a *dataplane.NoteRing.
type Ring interface {
	Take(scratch []prefix.Hash, apply func(dataplane.Note)) ([]prefix.Hash, bool)
}

// Bell wakes the indexer when a note came: a *dataplane.Doorbell.
type Bell interface {
	Sleep() <-chan struct{}
	Wake()
}

// Options are fixed for the life of an Indexer.
type Options struct {
	Index    *index.Index
	Fleet    *fleet.Holder
	Notes    []Ring               // may be given later, by Attach
	Bell     Bell                 // … with them
	NowNs    func() int64         // any clock that does not run backwards
	LearnTTL func() time.Duration // age at which entries go; read again and again
	// Swept is called on the indexer's goroutine when nothing of a dropped
	// slot's tenant is left. It must not block.
	Swept func(slot int, generation uint32)
	// Sent is called on the indexer's goroutine for prompts sent to a node whose
	// reporter names them by their tokens. It returns how many leading units it
	// has taken to itself.
	Sent func(dataplane.Note) (units int)
	// Forgot is called there when all that is known of a slot goes.
	Forgot func(slot int)
	// Echo is called on the indexer's goroutine for prompts of which a rank had
	// to report a unit that it did not hold: ok says that it did. It must not
	// block.
	Echo func(slot int, generation uint32, class uint8, ok bool)
}

// Indexer applies notes, and what others have to change in the index. All its
// methods but Run may be called by any goroutine.
type Indexer struct {
	opt      Options
	writer   *index.Writer
	commands chan command
	others   chan work
	scratch  []prefix.Hash
	snap     *fleet.Snapshot // whose capacities are set
	sweeping []command
	echoes   []echo // in the order in which they are due
	tap      func(dataplane.Note)
	aheadNs  int64 // of NowNs before the clock of the notes in the rings
}

type command struct {
	slot       int
	generation uint32
	keep       bool // the tenant stays: only what is known of it goes
}

// work is what somebody else changes in the index, on the indexer's goroutine.
type work struct {
	slot       int
	generation uint32
	do         func(tenant bool)
}

// New returns an Indexer; Run makes it work.
func New(opt Options) *Indexer {
	if opt.Bell == nil {
		opt.Bell = noBell{}
	}
	return &Indexer{
		opt: opt, writer: opt.Index.Writer(), commands: make(chan command, commandQueue), others: make(chan work, workQueue),
		snap: opt.Fleet.Load(),
	}
}

// Writer is the index's only writer. It may be used in functions that are given
// to Try and Do, and nowhere else.
func (x *Indexer) Writer() *index.Writer { return x.writer }

// Try has do called on the indexer's goroutine, in the order of the calls, if
// there is room for it now. tenant says whether the slot is still that
// incarnation's: if not, do must not touch it.
func (x *Indexer) Try(slot int, generation uint32, do func(tenant bool)) bool {
	select {
	case x.others <- work{slot, generation, do}:
		return true
	default:
		return false
	}
}

// Do is Try that waits for room, and until do has returned. The error is ctx's;
// then do may still be called later.
func (x *Indexer) Do(ctx context.Context, slot int, generation uint32, do func(tenant bool)) error {
	done := make(chan struct{})
	select {
	case x.others <- work{slot, generation, func(tenant bool) { defer close(done); do(tenant) }}:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// noBell is rung by nobody.
type noBell struct{}

func (noBell) Sleep() <-chan struct{} { return nil }
func (noBell) Wake()                  {}

// Attach takes up the rings of a data plane that was started after the indexer.
// Times in their notes are so much behind NowNs. It is called once, while Run
// runs; the error is ctx's.
func (x *Indexer) Attach(ctx context.Context, notes []Ring, bell Bell, aheadNs int64) error {
	return x.Do(ctx, 0, 0, func(bool) { x.opt.Notes, x.opt.Bell, x.aheadNs = notes, bell, aheadNs })
}

// Tap has f called on the indexer's goroutine for each note that is applied, from
// when Tap has returned on; nil ends that. f must not block, and the note's
// slices are borrowed. The error is ctx's.
func (x *Indexer) Tap(ctx context.Context, f func(dataplane.Note)) error {
	return x.Do(ctx, 0, 0, func(bool) { x.tap = f })
}

// Note applies a note that came by no ring, if its slot is still that
// incarnation's. It waits for room, and until that is done. The error is ctx's.
func (x *Indexer) Note(ctx context.Context, n dataplane.Note) error {
	return x.Do(ctx, n.Slot, n.Generation, func(tenant bool) {
		if tenant {
			x.learn(n)
		}
	})
}

// Drop forgets the slot's tenant, which is gone; Options.Swept follows.
func (x *Indexer) Drop(slot int, generation uint32) { x.commands <- command{slot, generation, false} }

// Clear forgets what is known of the slot's tenant, which goes on with an
// empty cache.
func (x *Indexer) Clear(slot int, generation uint32) { x.commands <- command{slot, generation, true} }

// Run works until ctx ends.
func (x *Indexer) Run(ctx context.Context) {
	expire := time.NewTimer(beat.Wait(expireEvery))
	defer expire.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	quietSince := time.Now()
	for {
		if x.work() {
			quietSince = time.Now()
		}
		var rung <-chan struct{}
		tick := poll.C
		if len(x.sweeping) == 0 && time.Since(quietSince) > awakeFor {
			rung, tick = x.opt.Bell.Sleep(), nil
			if x.work() { // what came before the bell was armed
				quietSince = time.Now()
				tick = poll.C
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-rung:
			quietSince = time.Now()
		case <-tick:
		case <-expire.C:
			expire.Reset(beat.Wait(expireEvery))
			x.writer.Expire(x.opt.NowNs(), int64(x.opt.LearnTTL()), sweepUnits)
			x.checkEchoes()
		case c := <-x.commands:
			x.obey(c)
		case w := <-x.others:
			x.change(w)
			quietSince = time.Now()
		}
		x.opt.Bell.Wake()
	}
}

// work applies what waits in the rings and sweeps a little; it reports whether
// there was anything to do.
func (x *Indexer) work() (busy bool) {
	x.capacities()
	busy = x.notes()
	for range batchWork {
		select {
		case w := <-x.others:
			x.change(w)
			busy = true
			continue
		default:
		}
		break
	}
	if len(x.sweeping) > 0 {
		x.sweep()
		busy = true
	}
	return busy
}

// notes applies what waits in the rings, a batch of each at most.
func (x *Indexer) notes() (busy bool) {
	for _, ring := range x.opt.Notes {
		for range batchNotes {
			var took bool
			if x.scratch, took = ring.Take(x.scratch, x.noted); !took {
				break
			}
			busy = true
		}
	}
	return busy
}

// change does somebody else's work. Prompts that were sent before come first:
// what says that one is gone must not be undone by the note that it was sent.
func (x *Indexer) change(w work) {
	x.notes()
	w.do(x.takes(w.slot, w.generation))
	runtime.Gosched() // on a machine of two processors a loop may wait for this one
}

// noted applies one note of a ring.
func (x *Indexer) noted(n dataplane.Note) {
	n.AtNs += x.aheadNs
	x.learn(n)
}

// learn applies one note, unless its node has gone meanwhile.
func (x *Indexer) learn(n dataplane.Note) {
	if !x.takes(n.Slot, n.Generation) {
		return
	}
	if x.tap != nil {
		x.tap(n)
	}
	switch n.Kind {
	case dataplane.NoteExpected:
		x.writer.Speculate(n.Slot, n.Chain, n.AtNs)
	case dataplane.NoteBegun:
		x.writer.Settle(n.Slot, n.Chain, n.AtNs)
		if n.Echo {
			x.awaitEcho(n)
		}
	case dataplane.NoteLearnedText:
		x.writer.LearnText(n.Slot, n.Chain, n.AtNs)
	default:
		if len(n.IDs) > 0 && x.opt.Sent != nil {
			n.Chain = n.Chain[x.opt.Sent(n):]
		}
		x.writer.Learn(n.Slot, n.Chain, n.AtNs)
	}
}

// takes reports whether the slot is that incarnation's and not being swept of
// what was there before.
func (x *Indexer) takes(slot int, generation uint32) bool {
	if !x.isTenant(slot, generation) {
		x.capacities() // it may be of a snapshot that is newer than ours
	}
	return x.isTenant(slot, generation) && !x.isSweeping(slot)
}

// isTenant reports whether the slot, of whichever rank, is that incarnation's
// in the snapshot.
func (x *Indexer) isTenant(slot int, generation uint32) bool {
	n := x.snap.Owner(slot)
	return n != nil && n.Generation == generation
}

func (x *Indexer) isSweeping(slot int) bool {
	for _, c := range x.sweeping {
		if c.slot == slot && !c.keep { // what was cleared learns anew at once
			return true
		}
	}
	return false
}

// capacities bounds every node's learned entries by what its cache can hold.
func (x *Indexer) capacities() {
	snap := x.opt.Fleet.Load()
	if snap == x.snap {
		return
	}
	was := x.snap
	x.snap = snap
	for slot := range snap.Nodes {
		if n := snap.Owner(slot); n == nil || was == nil || was.Owner(slot) != n { // else it is what it was
			x.capacity(slot)
		}
	}
}

// capacity sets what one rank can hold, if that is known: in units of tokens
// where prompts are known by them there, else in units of text.
func (x *Indexer) capacity(slot int) {
	n := x.snap.Owner(slot)
	if n == nil || n.CacheTokens <= 0 {
		return
	}
	unit := int64(prefix.TextUnitTokens)
	if n.Exact != 0 {
		unit = int64(max(n.UnitTokens, 1))
	}
	x.writer.SetCapacity(slot, int(max(1, n.CacheTokens/unit)))
}

func (x *Indexer) obey(c command) {
	if c.keep {
		if x.capacities(); !x.isTenant(c.slot, c.generation) {
			return // it went, and what it had with it
		}
	}
	if x.opt.Forgot != nil {
		x.opt.Forgot(c.slot)
	}
	if c.keep {
		x.writer.Clear(c.slot)
	} else {
		x.writer.Drop(c.slot)
	}
	x.sweeping = append(x.sweeping, c)
	x.sweep()
}

// sweep goes on sweeping and ends what is swept. A tenant that is gone is still
// in the snapshot until the next one is published, and until then its notes
// would be taken: its slot is not given free before.
func (x *Indexer) sweep() {
	x.writer.Sweep(sweepUnits)
	x.capacities()
	left := x.sweeping[:0]
	for _, c := range x.sweeping {
		switch {
		case !x.writer.Swept(c.slot) || !c.keep && x.isTenant(c.slot, c.generation):
			left = append(left, c)
		case !c.keep:
			x.opt.Swept(c.slot, c.generation)
		}
	}
	x.sweeping = left
}
