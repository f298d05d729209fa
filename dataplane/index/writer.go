package index

import (
	"math"

	"warmpath/dataplane/fleet"
)

// Writer makes all changes to an Index. Its methods are called by one
// goroutine, the indexer's, and never block. None keeps its arguments.
type Writer struct {
	x       *Index
	pool    pool
	nodes   [fleet.MaxSlots]node
	maximum int // entries
	slots   int // no slot from here on was ever used
	clock
	wheel wheel

	known      []uint32 // scratch of learnInOrder
	text       bool     // the chain that is being learned is one of text
	expireSlot int      // where Expire goes on …
	expireAt   uint32   // … and at which entry of an order that is not sorted
	sweepSlot  int      // where Sweep goes on
	squeeze    squeeze
	idBytes    int64 // id tables and lists of all slots
	counts     counts
}

func newWriter(x *Index) *Writer {
	w := &Writer{x: x}
	entries := (x.options.MemoryBytes - x.options.MemoryBytes/rowShare - fixedBytes) / entryCost
	w.maximum = int(min(entries, maxID))
	w.wheel.init(&w.pool, &x.rows.marks, w.maximum/wheelShare)
	for i := range w.nodes {
		w.nodes[i].capacity = x.options.Capacity
		w.idBytes += w.nodes[i].setOrder(x.options.Eviction)
	}
	w.publish()
	return w
}

// clock counts ticks since the writer heard of a time first.
type clock struct {
	baseNs  int64
	started bool
	tick    uint32
}

// tickShift makes ticks of 134 ms, so that 32 bits of them last for 18 years.
const tickShift = 27

// since returns the ticks from the base to a time. The first time ever handed
// in is an hour after the base, because it may be one that is still to come.
func (c *clock) since(ns int64) int64 {
	if !c.started {
		c.started, c.baseNs = true, ns-maxAheadNs
	}
	return (ns - c.baseNs) >> tickShift
}

// now moves the clock. It never goes back, so that a node's list is in the
// order of its ticks.
func (c *clock) now(nowNs int64) uint32 {
	if t := c.since(nowNs); t > int64(c.tick) {
		c.tick = uint32(min(t, math.MaxUint32))
	}
	return c.tick
}

// held says what hold found.
type held uint8

const (
	heldNow     held = iota // the bit was not set and is now
	heldAlready             // the bit was set
	heldNot                 // there is no room for the row
)

// hold adds a position to the holders of a unit.
func (w *Writer) hold(key uint64, position int) held {
	t, r := &w.x.table, &w.x.rows
	_, word, at := t.find(key)
	if at == nil {
		t.insert(key, uint64(position+1))
		return heldNow
	}
	from := word & refMask
	to := r.with(from, position)
	switch to {
	case from:
		return heldAlready
	case 0:
		return heldNot
	}
	at.Store(word&^refMask | to)
	r.release(from)
	return heldNow
}

// release takes a position out of the holders of a unit. Where the row store
// has no place for those that remain, the unit is forgotten for all of them: it
// is better to know less than to name a node that holds nothing.
func (w *Writer) release(key uint64, position int) {
	t, r := &w.x.table, &w.x.rows
	seg, word, at := t.find(key)
	if at == nil {
		return // forgotten before
	}
	from := word & refMask
	to, full := r.without(from, position)
	if full {
		w.counts.forgotten++
	}
	switch to {
	case from:
		return
	case 0:
		t.remove(seg, key, at)
	default:
		at.Store(word&^refMask | to)
	}
	r.release(from)
}

// discard removes a learned entry, and the unit from the slot.
func (w *Writer) discard(slot int, n *node, id uint32) {
	e := w.pool.at(id)
	w.release(e.key(), slot)
	w.unlearn(n, id, e)
}

// unlearn removes a learned entry; the unit stays with the slot.
func (w *Writer) unlearn(n *node, id uint32, e *entry) {
	if id == w.expireAt {
		w.expireAt = e.newer()
	}
	n.lists[e.level()].unlink(&w.pool, e)
	w.idBytes -= n.units.remove(e.key(), id, &w.pool)
	n.weight -= e.weight()
	w.pool.give(id, e)
}

// ready reports whether a slot takes entries. One that is being cleared is
// swept to the end first, which takes a fraction of a microsecond an entry; who
// would rather wait asks Swept.
func (w *Writer) ready(slot int, n *node) bool {
	w.slots = max(w.slots, slot+1)
	if n.dropped {
		return false
	}
	if n.clearing {
		for n.held() > 0 {
			w.sweepSome(slot, n)
		}
		w.unblind(slot, n)
	}
	return true
}

// refuse counts units that were not taken.
func (w *Writer) refuse(units int) {
	w.counts.refused += int64(units)
	w.publish()
}
