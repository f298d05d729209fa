package dataplane

import (
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

const (
	overlaySlots = 1 << 15 // units; direct-mapped, a collision forgets the older one (of one note: the later unit)
	recentSlots  = 1 << 10
	recentNs     = int64(1e9) // the resolution of "recently used" that the index needs
)

// overlay is what a loop dispatched and the indexer has not applied yet, so
// that a burst of the same new prefix finds its node at once. It is asked only
// where notes were pending when the index was. Loop-owned.
type overlay struct {
	units  [overlaySlots]overlayUnit
	recent [recentSlots]recentChain
}

type overlayUnit struct {
	hash prefix.Hash
	slot int32
	end  uint32 // low bits of the ring's head after the note: applied when tail is there
}

type recentChain struct {
	last prefix.Hash
	slot int
	gen  uint32
	atNs int64
}

// seen reports whether this very chain went to this very node less than a
// second ago; then the index already knows it and it need not be told again.
func (o *overlay) seen(last prefix.Hash, slot int, gen uint32, nowNs int64) bool {
	r := &o.recent[uint64(last)&(recentSlots-1)]
	if r.last == last && r.slot == slot && r.gen == gen && nowNs-r.atNs < recentNs {
		return true
	}
	*r = recentChain{last, slot, gen, nowNs}
	return false
}

// overlayUnits bounds what is remembered of one note, and looked at for one
// prompt: both are the work of a loop's turn. A longer prompt is found by what
// the index has of it, milliseconds later.
const overlayUnits = overlaySlots / 8

// add remembers the first units of a note that was just put into ring, the last
// of them first: where two fall on one place the earlier keeps it, for nothing
// counts behind a gap.
func (o *overlay) add(ring *NoteRing, chain []prefix.Hash, slot int) {
	end := uint32(ring.head.Load())
	for i := min(len(chain), overlayUnits) - 1; i >= 0; i-- {
		o.units[uint64(chain[i])&(overlaySlots-1)] = overlayUnit{chain[i], int32(slot), end}
	}
}

// extend lets units[slot], the number of leading units held, grow by what was
// pending when the index was asked: applied is NoteRing.applied of before that.
// Taken later it would lose a note that is applied in between: the index had only
// part of it, or nothing, and the overlay would leave it to the index. A note may
// outlive its node: only slots of live count. Of a long match only what follows it
// is looked at: it can grow, shorter ones cannot.
func (o *overlay) extend(applied uint64, chain []prefix.Hash, longest int, live *index.SlotSet, units []uint32) {
	tail := uint32(applied)
	from := 0
	if longest > overlayUnits {
		from = longest
	}
	for i := from; i < min(len(chain), from+2*overlayUnits); i++ {
		h := chain[i]
		u := &o.units[uint64(h)&(overlaySlots-1)]
		pending := u.hash == h && int32(u.end-tail) > 0 && live.Has(int(u.slot))
		if pending && units[u.slot] == uint32(i) {
			units[u.slot]++
		}
		if !pending && i >= longest {
			return
		}
	}
}
