package kvevent

import (
	"slices"

	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// Tracker turns the events of one rank into operations on the index. It is
// pure but for the Index it writes to, and is used by the goroutine that owns
// that.
//
// An engine names blocks by hashes of its own; the index knows units by prefix
// hashes. A run of blocks says which block it follows, so the Tracker goes on
// from the prefix hash at that block's end. What it needs for that is in the
// index already (Index.Last), except where a block ends inside a unit: such
// tails are kept here, bounded by TrackerOptions.TailBytes.
//
// A unit counts for the block that completes it. Engines free what follows
// before what it follows, so a unit whose earlier pages are gone is gone too.
type Tracker struct {
	opt     TrackerOptions
	to      Index
	tails   tails
	group   int           // the cache group that counts; NotSaid until one was seen
	size    int           // tokens of the last block that counted
	parts   []prefix.Hash // scratch: the units of one block, or of a run
	pending []uint32      // scratch: tokens behind the last whole unit
	counts  Counts
	orphans uint64 // since the last Clear
}

// Index is what a Tracker writes to: an *index.Writer. Blocks are named by the
// engine's hashes.
type Index interface {
	// StoredRun adds blocks and the units they complete, the same number each.
	// The same block may be stored several times, with again not set; it goes
	// with its last removal. A block that is known with another last unit is
	// replaced. StoredRun stops where there is no room; it returns how many are
	// known and how many were replaced.
	StoredRun(slot int, tier index.Tier, blocks []uint64, units []prefix.Hash, again bool) (known, replaced int)
	// RemovedRun takes one of each away and returns how many there were.
	RemovedRun(slot int, tier index.Tier, blocks []uint64) int
	// Last is the prefix hash at the end of a block, in whatever tier.
	Last(slot int, block uint64) (prefix.Hash, bool)
	// Clear forgets all of a slot.
	Clear(slot int)
}

// TrackerOptions are fixed for the life of a Tracker.
type TrackerOptions struct {
	Slot       int    // the rank's own position in the fleet
	UnitTokens int    // tokens of an index entry of this model
	Seed       uint64 // of the fleet
	Model      string // canonical name
	// TailBytes bounds what is kept of blocks that end inside a unit; 0 is 64
	// MiB, enough for the pages of a million tokens at a page size of 1.
	TailBytes int
}

const defaultTailBytes = 64 << 20

// NewTracker returns a Tracker of a rank of which nothing is known.
func NewTracker(o TrackerOptions, x Index) *Tracker {
	if o.UnitTokens < 1 {
		panic("BUG: kvevent: a unit of no tokens")
	}
	if o.TailBytes <= 0 {
		o.TailBytes = defaultTailBytes
	}
	t := &Tracker{opt: o, to: x, group: NotSaid}
	t.tails.init(o.UnitTokens, o.TailBytes)
	return t
}

// Counts are the figures since NewTracker.
func (t *Tracker) Counts() Counts {
	c := t.counts
	c.Replaced += t.tails.replaced
	return c
}

// BlockTokens is the engine's block size as its last stored run had it, 0 if
// there was none.
func (t *Tracker) BlockTokens() int { return t.size }

// Orphans is how many runs could not be placed since the last Clear, for want
// of what they follow. A Subscriber.Resync may bring them back.
func (t *Tracker) Orphans() uint64 { return t.orphans }

// Clear forgets all blocks of the rank.
func (t *Tracker) Clear() {
	t.to.Clear(t.opt.Slot)
	t.tails.clear()
	t.group, t.orphans = NotSaid, 0
}

// Apply applies a batch, in order. Nothing of it is kept.
func (t *Tracker) Apply(b *Batch) {
	t.counts.Batches++
	for i, n := range b.Dropped {
		t.counts.Dropped[i] += n
	}
	for i := range b.Events {
		e := &b.Events[i]
		switch e.Kind {
		case Stored:
			if reason := t.stored(e); reason != reasons {
				t.counts.Dropped[reason] += uint64(e.Merged)
			} else {
				t.counts.Stored += uint64(e.Merged)
				t.counts.StoredBlocks += uint64(len(e.Hashes))
			}
		case Removed:
			t.removed(e)
		case Cleared:
			t.Clear()
			t.counts.Clears += uint64(e.Merged)
		}
	}
}

// refuse says why a stored run does not count, reasons if it does.
func (t *Tracker) refuse(e *Event) Reason {
	switch {
	case e.Remote:
		return RemoteBlocks
	case e.Spec == SpecOther, e.Spec == SpecNotSaid && e.Group > 0, t.otherGroup(e):
		return OtherGroup
	case e.Medium >= OtherMedium:
		return UnknownMedium
	case len(e.Hashes) == 0 || len(e.Tokens) == 0 || e.BlockTokens == 0:
		return Placeholder
	case len(e.Tokens) != len(e.Hashes)*e.BlockTokens:
		return Unaligned
	case e.HasParent && slices.Contains(e.Hashes, e.Parent):
		return SelfParent
	}
	return reasons
}

// otherGroup reports whether the event is about another group than the one
// that counts: the same hash is published once for each group.
func (t *Tracker) otherGroup(e *Event) bool {
	return e.Group != NotSaid && t.group != NotSaid && e.Group != t.group
}

// stored places a run. It returns why it could not, reasons if it could.
func (t *Tracker) stored(e *Event) Reason {
	if reason := t.refuse(e); reason != reasons {
		return reason
	}
	t.pending = t.pending[:0]
	own, ok := t.start(e)
	if !ok {
		t.orphans++
		return Orphan
	}
	if e.Group != NotSaid {
		t.group = e.Group
	}
	t.size = e.BlockTokens
	again := t.announced(e)
	if again {
		t.counts.Reannounced += uint64(len(e.Hashes))
	}
	if len(t.pending) == 0 && len(t.tails.entries) == 0 && e.BlockTokens%t.opt.UnitTokens == 0 {
		return t.placeRun(e, own, again)
	}
	for i := range e.Hashes {
		t.parts = t.parts[:0]
		own = t.units(own, e.block(i), e.Extra(i))
		if !t.place(e.Medium.tier(), e.Hashes[i:i+1], own, again) {
			return NoRoom
		}
	}
	return reasons
}

// keptParts is the most units that are kept the memory of for the next run: a
// prompt of a million tokens.
const keptParts = 1 << 16

// placeRun puts a run into the index whose blocks are whole units.
func (t *Tracker) placeRun(e *Event, own prefix.Hash, again bool) Reason {
	if t.parts = t.parts[:0]; cap(t.parts) > keptParts {
		t.parts = nil
	}
	for i := range e.Hashes {
		own = t.units(own, e.block(i), e.Extra(i))
	}
	known, replaced := t.to.StoredRun(t.opt.Slot, e.Medium.tier(), e.Hashes, t.parts, again)
	t.counts.Replaced += uint64(replaced)
	if known < len(e.Hashes) {
		return NoRoom
	}
	return reasons
}

// start returns the prefix hash from which a run goes on, and puts what lies
// between it and the run's start into t.pending.
func (t *Tracker) start(e *Event) (prefix.Hash, bool) {
	if !e.HasParent {
		return prefix.ChainStart(t.opt.Seed, []byte(t.opt.Model), []byte(e.Adapter), []byte(e.Salt)), true
	}
	if own, tokens, ok := t.tails.get(e.Parent); ok {
		t.pending = append(t.pending, tokens...)
		return own, true
	}
	return t.to.Last(t.opt.Slot, e.Parent)
}

// announced reports whether a run tells of blocks that were there before, as
// vLLM does for a prompt's cached part when a request asks for it
// (kv_cache_report_mode). Nothing marks such a run. It starts at the root, and
// one whose first block is known cannot be new: its blocks would have been
// found. The exception, a prompt of just one block that is computed again
// because its last token must be, has one block.
func (t *Tracker) announced(e *Event) bool {
	if e.HasParent || len(e.Hashes) < 2 {
		return false
	}
	if _, _, known := t.tails.get(e.Hashes[0]); known {
		return true
	}
	_, known := t.to.Last(t.opt.Slot, e.Hashes[0])
	return known
}

// units adds a block's tokens to the chain: the units it completes go behind
// t.parts, t.pending is what is left. It returns the last whole unit's hash.
//
// Extra keys belong to the first unit of a block. Where the block starts or
// ends inside a unit they are folded in front of it, which nothing but other
// blocks of the same engine has to match.
func (t *Tracker) units(own prefix.Hash, tokens []uint32, extra []byte) prefix.Hash {
	unit := t.opt.UnitTokens
	if len(extra) > 0 && (len(t.pending) > 0 || len(tokens) < unit) {
		own, extra = prefix.NextUnit(own, nil, extra), nil
	}
	if n := len(t.pending); n > 0 {
		fill := min(unit-n, len(tokens))
		t.pending = append(t.pending, tokens[:fill]...)
		tokens = tokens[fill:]
		if n+fill < unit {
			return own
		}
		own = prefix.NextUnit(own, t.pending, nil)
		t.parts = append(t.parts, own)
		t.pending = t.pending[:0]
	}
	for len(tokens) >= unit {
		own = prefix.NextUnit(own, tokens[:unit], extra)
		t.parts = append(t.parts, own)
		tokens, extra = tokens[unit:], nil
	}
	t.pending = append(t.pending, tokens...)
	return own
}

// place puts a block, whose units are in t.parts, into the index, and what is
// left of it into the tails. It reports whether there was room.
func (t *Tracker) place(tier index.Tier, block []uint64, own prefix.Hash, again bool) bool {
	if len(t.parts) > 0 {
		known, replaced := t.to.StoredRun(t.opt.Slot, tier, block, t.parts, again)
		t.counts.Replaced += uint64(replaced)
		if known == 0 {
			return false
		}
	}
	if len(t.pending) == 0 {
		t.tails.forget(block[0])
		return true
	}
	return t.tails.put(block[0], tier, own, t.pending, again)
}

// removed takes blocks out.
func (t *Tracker) removed(e *Event) {
	switch {
	case e.Remote:
		t.counts.Dropped[RemoteBlocks] += uint64(e.Merged)
		return
	case t.otherGroup(e):
		t.counts.Dropped[OtherGroup] += uint64(e.Merged)
		return
	case e.Medium >= OtherMedium:
		t.counts.Dropped[UnknownMedium] += uint64(e.Merged)
		return
	}
	t.counts.Removed += uint64(e.Merged)
	tier := e.Medium.tier()
	if len(t.tails.entries) == 0 {
		t.removedOf(len(e.Hashes), t.to.RemovedRun(t.opt.Slot, tier, e.Hashes))
		return
	}
	for i, block := range e.Hashes {
		known := t.to.RemovedRun(t.opt.Slot, tier, e.Hashes[i:i+1])
		if t.tails.remove(block, tier) {
			known = 1
		}
		t.removedOf(1, known)
	}
}

// removedOf counts so many blocks, and those that were known.
func (t *Tracker) removedOf(blocks, known int) {
	t.counts.RemovedBlocks += uint64(known)
	t.counts.Dropped[UnknownBlock] += uint64(blocks - known)
}
