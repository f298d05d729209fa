package index

import (
	"math/bits"

	"warmpath/dataplane/prefix"
)

// Match walks chain from its first unit as long as some slot of live holds
// all units so far, in whatever tier. For every slot of live it stores into
// units[slot] how many leading units that slot holds; other elements are not
// touched. It returns the largest of them. units must reach beyond the highest
// slot of live.
//
// Every unit counted for a slot was held by it at some moment during the
// call. It allocates nothing, waits for nobody and keeps none of its arguments.
func (x *Index) Match(chain []prefix.Hash, live *SlotSet, units []uint32) (longest int) {
	return x.MatchTiers(chain, live, units, nil)
}

// MatchTiers is Match that says as well what those units are worth: for every
// slot of live it stores into credits[slot] the sum, over the leading units, of
// the credit of the best tier that the unit was found in, in quarters of a unit
// (CreditDevice and so on). credits may be nil.
func (x *Index) MatchTiers(chain []prefix.Hash, live *SlotSet, units, credits []uint32) (longest int) {
	var w Walk
	w.Start(x, live, units, credits)
	w.Extend(chain)
	return w.Finish()
}

// Walk is a Match that is given its chain piece by piece, so that a caller can
// stop making hashes at the first unit that nobody holds:
//
//	w.Start(index, &live, units, nil)
//	for more && w.Extend(next) { … }
//	longest := w.Finish()
//
// One goroutine uses it at a time; it may be used again and again. The zero
// Walk is one whose chain has ended.
type Walk struct {
	x       *Index
	units   []uint32 // the caller's, as credits, until Finish
	credits []uint32
	alive   SlotSet // slots that hold all units so far
	width   int     // words of alive that count, 0 when the walk is over
	n       int     // units so far
	last    reading // what alive was last cut by …
	since   int     // … from which unit on
	held    holding // … and its set
}

// Start begins a chain. live is copied; units and credits (which may be nil)
// are kept until Finish and are as MatchTiers has them. A slot that was cleared
// counts for nothing until it was swept.
func (w *Walk) Start(x *Index, live *SlotSet, units, credits []uint32) {
	w.x, w.units, w.credits = x, units, credits
	w.alive, w.width = *live, live.width()
	w.n, w.since, w.last, w.held.tiered = 0, 0, reading{}, false
	var blind uint64
	for k := range w.alive[:w.width] {
		if credits != nil {
			for set := w.alive[k]; set != 0; set &= set - 1 {
				credits[k<<6+bits.TrailingZeros64(set)] = 0
			}
		}
		b := x.blind[k].Load()
		w.held.any[k] = ^b
		blind |= b
	}
	if blind != 0 {
		w.cut(w.held.any[:w.width])
	}
}

// Extend goes on with the next units of the chain and reports whether some
// slot still holds all units so far. When it says false, more units change
// nothing.
func (w *Walk) Extend(hashes []prefix.Hash) (alive bool) {
	for i := 0; i < len(hashes) && w.width > 0; {
		if w.last.ref != 0 {
			k := w.x.run(hashes[i:], &w.last)
			i += k
			w.n += k
			if k == batch {
				continue
			}
		}
		if i < len(hashes) {
			w.step(hashes[i])
			i++
		}
	}
	return w.width > 0
}

// step takes one unit by itself.
func (w *Walk) step(h prefix.Hash) {
	w.charge()
	w.last = w.x.holders(spread(h), &w.held, w.width)
	w.cut(w.held.any[:w.width])
	if w.width > 0 {
		w.n++
	}
}

// charge writes down what the units since the last change of holders fall short
// of Device, slot by slot: in credits, which hold that until a slot is cut.
func (w *Walk) charge() {
	run := uint32(w.n - w.since)
	w.since = w.n
	if !w.held.tiered || w.credits == nil {
		return
	}
	for k, alive := range w.alive[:w.width] {
		for lower := alive &^ w.held.device[k]; lower != 0; lower &= lower - 1 {
			i := bits.TrailingZeros64(lower)
			short := uint32(CreditDevice - CreditDisk)
			if w.held.host[k]>>i&1 != 0 {
				short = CreditDevice - CreditHost
			}
			w.credits[k<<6+i] += run * short
		}
	}
}

// cut takes the slots that are not in held out of alive and stores what they
// have come to.
func (w *Walk) cut(held []uint64) {
	var left uint64
	for k, h := range held {
		for gone := w.alive[k] &^ h; gone != 0; gone &= gone - 1 {
			slot := k<<6 + bits.TrailingZeros64(gone)
			w.units[slot] = uint32(w.n)
			if w.credits != nil {
				w.credits[slot] = CreditDevice*uint32(w.n) - w.credits[slot]
			}
		}
		w.alive[k] &= h
		left |= w.alive[k]
	}
	if left == 0 {
		w.width = 0
	}
}

// Finish ends the walk: it stores units and credits of the slots that hold the
// whole chain and returns the largest number of units. The Walk lets go of the
// slices.
func (w *Walk) Finish() (longest int) {
	if w.width > 0 {
		w.charge()
		var none SlotSet
		w.cut(none[:w.width])
	}
	w.x, w.units, w.credits = nil, nil, nil
	return w.n
}
