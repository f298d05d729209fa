package index

import (
	"math"

	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prefix"
)

// The bound of memory is kept by counting. Each part costs at most so many
// bytes an entry (a unit held by a node), however entries came and went; the
// measured sum is half to two thirds of it.
const (
	// entryCost: an entry; an id table that is three tenths full; a segment
	// that is half full.
	entryCost = entryBytes + idBucketBytes*10/(idEntries*3) + 1 + bucketBytes*2/bucketWords
	// fixedBytes: what an index has with no entry in it, and the smallest
	// tables of all slots.
	fixedBytes = 1 << 20
	// rowShare: one part in so many of the memory is for rows.
	rowShare = 8
)

// Writer makes all changes to an Index. Its methods are called by one
// goroutine, the indexer's, and never block.
type Writer struct {
	x          *Index
	pool       pool
	nodes      [fleet.MaxSlots]node
	maximum    int // entries
	slots      int // no slot from here on was ever used
	baseNs     int64
	started    bool
	tick       uint32
	expireSlot int // where Expire goes on
	sweepSlot  int // where Sweep goes on
	fullest    int // slot that gives way when memory is full …
	fullestFor int // … for so many more entries
	idBytes    int64
	counts     counts
}

func newWriter(x *Index) *Writer {
	w := &Writer{x: x}
	entries := (x.options.MemoryBytes - x.options.MemoryBytes/rowShare - fixedBytes) / entryCost
	w.maximum = int(min(entries, maxID))
	for i := range w.nodes {
		w.nodes[i].capacity = x.options.Capacity
	}
	w.publish()
	return w
}

// tickShift makes ticks of 134 ms, so that 32 bits of them last for 18 years.
const tickShift = 27

// now moves the writer's clock. It never goes back, so that a node's list is
// in the order of its ticks.
func (w *Writer) now(nowNs int64) uint32 {
	if !w.started {
		w.started, w.baseNs = true, nowNs
	}
	if t := (nowNs - w.baseNs) >> tickShift; t > int64(w.tick) {
		w.tick = uint32(min(t, math.MaxUint32))
	}
	return w.tick
}

// Learn records that a prompt was sent to slot, so that the node there holds
// its units from now on. nowNs is any clock that all calls share; one that
// goes back is taken to stand still. A chain longer than the node's capacity
// counts as far as the node can hold it. A dropped slot learns nothing until
// it has been swept.
//
// When the node is full its least recently used units go; when the index is
// full those of the node with the most units.
func (w *Writer) Learn(slot int, chain []prefix.Hash, nowNs int64) {
	checkSlot(slot)
	n := &w.nodes[slot]
	if n.dropped {
		w.counts.refused += int64(len(chain))
		w.publish()
		return
	}
	w.slots = max(w.slots, slot+1)
	tick := w.now(nowNs)
	// Each unit goes right behind its parent, the first one to the front. Those
	// that the node has come first in the chain, so they are out of the way
	// of evictions before the first new one needs room.
	parent := uint32(0)
	for i, h := range chain[:min(len(chain), n.capacity)] {
		key := spread(h)
		id := n.find(&w.pool, parent, key)
		if id == 0 {
			if id = w.add(slot, n, parent, key); id == 0 {
				w.counts.refused += int64(len(chain) - i)
				break
			}
		}
		e := w.pool.at(id)
		n.move(&w.pool, parent, id, e)
		e.tick = tick
		parent = id
	}
	w.counts.learned++
	w.publishSlot(slot)
	w.publish()
}

// add makes an entry behind parent and returns its id, 0 if there is no room
// for it.
func (w *Writer) add(slot int, n *node, parent uint32, key uint64) uint32 {
	for range 2 { // two, so that a node whose capacity fell gets there
		if n.entries.count >= n.capacity && n.oldest != parent {
			w.evict(slot, n)
			w.counts.evicted++
		}
	}
	if w.pool.live >= w.maximum && !w.makeRoom(n, parent) {
		return 0
	}
	if !w.hold(key, slot) {
		return 0
	}
	id, e := w.pool.take(key)
	n.link(&w.pool, parent, id, e)
	w.idBytes += n.entries.insert(key, id, &w.pool)
	return id
}

// makeRoom evicts one entry of the node with the most entries, and of a
// dropped one before that. It fails if that entry is the parent of the one
// that needs the room: then the index holds this chain and nothing else.
func (w *Writer) makeRoom(n *node, parent uint32) bool {
	const batch = 64 // evictions between two searches for the fullest
	f := &w.nodes[w.fullest]
	if w.fullestFor == 0 || f.entries.count == 0 {
		most := -1
		for i := range w.nodes[:w.slots] {
			count := w.nodes[i].entries.count
			if w.nodes[i].dropped && count > 0 {
				count = math.MaxInt
			}
			if count > most {
				w.fullest, most = i, count
			}
		}
		w.fullestFor = batch
		f = &w.nodes[w.fullest]
	}
	w.fullestFor--
	if f == n && f.oldest == parent {
		return false
	}
	w.evict(w.fullest, f)
	w.counts.squeezed++
	if f != n {
		w.publishSlot(w.fullest)
	}
	return true
}

// evict removes a node's least recently used entry.
func (w *Writer) evict(slot int, n *node) {
	id := n.oldest
	e := w.pool.at(id)
	key := e.key()
	w.release(key, slot)
	n.unlink(&w.pool, e)
	w.idBytes -= n.entries.remove(key, id, &w.pool)
	w.pool.give(id, e)
}

// hold adds slot to the holders of a unit. It fails if the row store is full.
func (w *Writer) hold(key uint64, slot int) bool {
	t, r := &w.x.table, &w.x.rows
	_, word, at := t.find(key)
	if at == nil {
		t.insert(key, uint64(slot+1))
		return true
	}
	from := word & refMask
	to := r.with(from, slot)
	if to == 0 {
		return false
	}
	if to != from {
		at.Store(word&^refMask | to)
		r.release(from)
	}
	return true
}

// release takes slot out of the holders of a unit. Where the row store has no
// place for those that remain, the unit is forgotten for all of them: it is
// better to know less than to name a node that holds nothing.
func (w *Writer) release(key uint64, slot int) {
	t, r := &w.x.table, &w.x.rows
	seg, word, at := t.find(key)
	if at == nil {
		return // forgotten before
	}
	from := word & refMask
	to, full := r.without(from, slot)
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

// SetCapacity bounds the entries of a node, in units; 0 or less means unknown
// and gives it the default. A node that has more loses them with its next
// chains and in Sweep.
func (w *Writer) SetCapacity(slot, units int) {
	checkSlot(slot)
	if units <= 0 {
		units = w.x.options.Capacity
	}
	w.nodes[slot].capacity = units
	w.x.figures.slotCapacity[slot].Store(int64(units))
}

// Drop says that the node of a slot is gone. Readers leave it out by their
// live set at once; Sweep removes its entries. The slot may be given to
// another node when Swept says so, and notes that are meant for the former
// node must not reach Learn after that.
func (w *Writer) Drop(slot int) {
	checkSlot(slot)
	w.nodes[slot].dropped = w.nodes[slot].entries.count > 0
	w.SetCapacity(slot, 0)
}

// Swept reports whether nothing is left of a dropped slot.
func (w *Writer) Swept(slot int) bool {
	checkSlot(slot)
	return !w.nodes[slot].dropped
}

// Sweep removes entries of dropped slots, and those beyond a node's capacity,
// at most limit of them, and reports whether none are left.
func (w *Writer) Sweep(limit int) (done bool) {
	defer w.publish()
	for range w.slots {
		w.sweepSlot %= w.slots
		n := &w.nodes[w.sweepSlot]
		keep := n.capacity
		if n.dropped {
			keep = 0
		}
		before := limit
		for ; n.entries.count > keep; limit-- {
			if limit <= 0 {
				w.publishSlot(w.sweepSlot)
				return false
			}
			w.evict(w.sweepSlot, n)
			w.counts.swept++
		}
		n.dropped = false
		if limit < before {
			w.publishSlot(w.sweepSlot)
		}
		w.sweepSlot++
	}
	return true
}

// Expire removes entries that were not used for ttlNs, at most limit of them,
// and reports whether none are left. It is exact to a tick of 134 ms, and
// never early. Call it again with the same or a later time to go on.
func (w *Writer) Expire(nowNs, ttlNs int64, limit int) (done bool) {
	defer w.publish()
	w.now(nowNs)
	cutoff := (nowNs-w.baseNs-ttlNs)>>tickShift - 1
	for range w.slots {
		w.expireSlot %= w.slots
		n := &w.nodes[w.expireSlot]
		before := limit
		for n.oldest != 0 && int64(w.pool.at(n.oldest).tick) <= cutoff {
			if limit <= 0 {
				w.publishSlot(w.expireSlot)
				return false
			}
			limit--
			w.evict(w.expireSlot, n)
			w.counts.expired++
		}
		if limit < before {
			w.publishSlot(w.expireSlot)
		}
		w.expireSlot++
	}
	return true
}
