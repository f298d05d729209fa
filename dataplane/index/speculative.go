package index

import (
	"unsafe"

	"warmpath/dataplane/prefix"
)

// maxAheadNs is how far ahead a speculative unit may be due: an hour.
const maxAheadNs = int64(3600e9)

// dueBits of a tick are kept in a speculative entry, beside its slot. They last
// for six days, so that nothing that is due within an hour is mistaken.
const (
	dueBits = 22
	dueMask = 1<<dueBits - 1
)

func (e *entry) slot() int { return int(e.c >> dueBits) }

func (e *entry) setDue(slot int, tick uint32) { e.c = uint32(slot)<<dueBits | tick&dueMask }

// until returns in how many ticks a speculative entry is due.
func (e *entry) until(tick uint32) int32 { return int32((e.c-tick)<<(32-dueBits)) >> (32 - dueBits) }

// wheel holds the speculative entries of all slots, in lists by the tick at
// which they are due, modulo their number, and in one table: dispatching fills
// and reports empty it all the time, so it has its full size from the start.
type wheel struct {
	lists   [wheelSize]list
	at      uint32 // ticks before it were looked at
	units   ids    // by key and slot, see keyOf
	maximum int
	pool    *pool
	marks   *[positions]uint64
}

const wheelSize = 256

func (h *wheel) init(p *pool, marks *[positions]uint64, maximum int) {
	h.pool, h.marks, h.maximum = p, marks, maximum
}

// keyOf returns what an entry is found by: its key, made different by its slot.
func (h *wheel) keyOf(id uint32) uint64 {
	e := h.pool.at(id)
	return e.key() ^ h.marks[e.slot()]
}

func (h *wheel) line(id uint32) unsafe.Pointer { return h.pool.line(id) }

// find returns the speculative entry of a key at a slot, 0 if there is none.
func (h *wheel) find(n *node, slot int, key uint64) uint32 {
	if n.speculative == 0 {
		return 0
	}
	return h.units.find(key^h.marks[slot], h)
}

func (h *wheel) list(e *entry) *list { return &h.lists[e.c%wheelSize] }

// first returns an entry that is due about first, 0 if there is none.
func (h *wheel) first() uint32 {
	if h.units.count == 0 {
		return 0
	}
	for i := uint32(0); ; i++ {
		if id := h.lists[(h.at+i)%wheelSize].oldest; id != 0 {
			return id
		}
	}
}

// due returns the tick at which what was said to be due at untilNs is: the
// first that begins after it, so never early, and never one that was looked at.
func (w *Writer) due(untilNs int64) uint32 {
	tick := w.since(untilNs) + 1
	return uint32(min(max(tick, int64(w.tick)+1), int64(w.tick)+maxAheadNs>>tickShift))
}

// Speculate records that a prompt was sent to slot, whose engine will report
// its units as soon as it has them. Until untilNs, on Learn's clock and at most
// an hour ahead, they count as if it had; a report makes them reported.
// Units that the slot holds in Device already stay what they are; if they are
// speculative, the later time counts. A dropped slot takes nothing until it has
// been swept, and beyond a sixteenth of all entries none is speculative.
func (w *Writer) Speculate(slot int, chain []prefix.Hash, untilNs int64) {
	checkSlot(slot)
	n := &w.nodes[slot]
	if !w.ready(slot, n) {
		w.refuse(len(chain))
		return
	}
	due := w.due(untilNs)
	for i, h := range chain {
		key := spread(h)
		if id := w.wheel.find(n, slot, key); id != 0 {
			if e := w.pool.at(id); e.until(due) < 0 {
				w.postpone(slot, id, e, due)
			}
			continue
		}
		if w.has(slot, key) {
			continue
		}
		if !w.speculate(slot, n, key, due) {
			w.counts.refused += int64(len(chain) - i)
			break
		}
	}
	w.counts.speculated++
	w.publishSlot(slot)
	w.publish()
}

// has reports whether a slot holds a unit in Device.
func (w *Writer) has(slot int, key uint64) bool {
	_, word, _ := w.x.table.find(key)
	return w.x.rows.has(word&refMask, slot)
}

// speculate makes a speculative entry, if there is room.
func (w *Writer) speculate(slot int, n *node, key uint64, due uint32) bool {
	h := &w.wheel
	if h.units.count >= h.maximum || !w.room(1, kindSpeculative, n, 0) || w.hold(key, slot) == heldNot {
		return false
	}
	if h.units.buckets == nil {
		w.idBytes += h.units.reserve(h.maximum)
	}
	id, e := w.pool.take(key)
	e.setDue(slot, due)
	h.list(e).link(&w.pool, 0, id, e)
	h.units.insert(key^h.marks[slot], id, h)
	n.speculative++
	return true
}

// unspeculate removes a speculative entry; the unit stays with the slot.
func (w *Writer) unspeculate(n *node, id uint32, e *entry) {
	w.wheel.list(e).unlink(&w.pool, e)
	w.wheel.units.remove(w.wheel.keyOf(id), id, &w.wheel)
	n.speculative--
	w.pool.give(id, e)
}

// giveUp removes a speculative entry, and the unit from its slot.
func (w *Writer) giveUp(id uint32) (slot int) {
	e := w.pool.at(id)
	slot = e.slot()
	w.release(e.key(), slot)
	w.unspeculate(&w.nodes[slot], id, e)
	return slot
}

// Settle says until when the units of a prompt that was sent to slot count if
// they are not reported, now that it is known: a while after the first token.
// It adds none and changes none but speculative ones.
func (w *Writer) Settle(slot int, chain []prefix.Hash, untilNs int64) {
	checkSlot(slot)
	n := &w.nodes[slot]
	due := w.due(untilNs)
	for _, h := range chain {
		if n.speculative == 0 || !w.Swept(slot) {
			return
		}
		if id := w.wheel.find(n, slot, spread(h)); id != 0 {
			w.postpone(slot, id, w.pool.at(id), due)
		}
	}
}

// Expected reports whether a unit that slot was expected to report is still
// neither reported nor lapsed.
func (w *Writer) Expected(slot int, h prefix.Hash) bool {
	checkSlot(slot)
	return w.wheel.find(&w.nodes[slot], slot, spread(h)) != 0
}

// postpone changes when a speculative entry is due.
func (w *Writer) postpone(slot int, id uint32, e *entry, due uint32) {
	w.wheel.list(e).unlink(&w.pool, e)
	e.setDue(slot, due)
	w.wheel.list(e).link(&w.pool, 0, id, e)
}

// giveUpSome removes the speculative entries of a slot from one list, the next
// from n.sweepAt on that has any, and returns how many.
func (w *Writer) giveUpSome(slot int, n *node) (count int) {
	for count == 0 {
		l := &w.wheel.lists[n.sweepAt%wheelSize]
		for id := l.oldest; id != 0; {
			e := w.pool.at(id)
			newer := e.newer()
			if e.slot() == slot {
				w.giveUp(id)
				count++
			}
			id = newer
		}
		n.sweepAt++
	}
	return count
}

// lapse removes speculative entries that are due, at most limit of them, and
// returns how many more there may be.
func (w *Writer) lapse(limit int) (left int, done bool) {
	h := &w.wheel
	if w.tick-h.at >= wheelSize && int32(w.tick-h.at) > 0 {
		h.at = w.tick - wheelSize + 1 // every list is looked at once
	}
	for ; int32(w.tick-h.at) >= 0; h.at++ {
		for id := h.lists[h.at%wheelSize].oldest; id != 0; {
			e := w.pool.at(id)
			newer := e.newer()
			if e.until(w.tick) <= 0 {
				if limit <= 0 {
					return 0, false
				}
				limit--
				w.publishSlot(w.giveUp(id))
				w.counts.lapsed++
			}
			id = newer
		}
	}
	return limit, true
}
