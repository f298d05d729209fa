package index

import "warmpath/dataplane/prefix"

// learnInOrder is Learn for all orders. Room is made first, among the units
// that are not in the chain: an engine locks what a request uses.
func (w *Writer) learnInOrder(slot int, n *node, chain []prefix.Hash, tick uint32, priority int) {
	missing := w.mark(slot, n, chain)
	w.evictOthers(slot, n, n.weight+missing-n.capacity)
	stay := w.fixed(n)
	parent, front := uint32(0), uint32(0)
	for i, h := range chain {
		id := w.known[i]
		if id == isReported {
			continue
		}
		isNew := id == 0
		if isNew {
			var ok bool
			if id, ok = w.learnNew(slot, n, spread(h), w.weightOf(i)); !ok {
				w.counts.refused += int64(len(chain) - i)
				break
			} else if id == 0 {
				continue
			}
			w.known[i] = id
		}
		e := w.pool.at(id)
		if parent != 0 && isNew {
			w.pool.at(parent).adopt()
		}
		front = w.place(n, id, e, place{isNew, i < stay, missing > 0, front, priority})
		e.c = tick
		parent = id
	}
	for _, id := range w.known {
		if id != 0 && id != isReported {
			w.pool.at(id).b &^= flagBusy
		}
	}
}

// isReported stands in Writer.known for a unit that the node reports.
const isReported = maxID + 1

// mark finds the learned units of a chain, keeps them from being evicted, and
// returns the weight of those that are missing.
func (w *Writer) mark(slot int, n *node, chain []prefix.Hash) (missing int) {
	w.known = w.known[:0]
	parent := uint32(0)
	for i, h := range chain {
		key := spread(h)
		id := n.find(&w.pool, parent, key)
		switch {
		case id == 0 && w.reports(slot, n, key):
			id = isReported
		case id == 0:
			missing += w.weightOf(i)
		default:
			w.pool.at(id).b |= flagBusy
			parent = id
		}
		w.known = append(w.known, id)
	}
	return missing
}

// evictOthers evicts units of so much weight that are not busy.
func (w *Writer) evictOthers(slot int, n *node, weight int) {
	for i := range n.lists {
		for id := n.lists[i].oldest; id != 0 && weight > 0; {
			e := w.pool.at(id)
			newer := e.newer()
			if !e.is(flagBusy) {
				weight -= e.weight()
				w.discard(slot, n, id)
				w.counts.evicted++
			}
			id = newer
		}
	}
}

// learnNew makes a learned entry, busy and in no list. ok is false if there is
// no room; the id is 0 if the chain names a unit twice.
func (w *Writer) learnNew(slot int, n *node, key uint64, weight int) (id uint32, ok bool) {
	if n.units.find(key, &w.pool) != 0 {
		return 0, true
	}
	if id = w.admit(slot, n, key, weight, 0); id == 0 {
		return 0, false
	}
	w.pool.at(id).b |= flagBusy
	return id, true
}

// adopt notes that one more unit follows this one.
func (e *entry) adopt() {
	if e.is(flagParent) {
		e.b |= flagForked
	}
	e.b |= flagParent
}

// fixed returns how many leading units of the marked chain keep their place
// whatever happens, which only MRU asks: all that are known if the chain ends
// at one that others follow, else those up to the last that forks, now or
// before.
func (w *Writer) fixed(n *node) (stay int) {
	if n.order != MRU {
		return 0
	}
	for i, id := range w.known {
		if id == 0 || id == isReported {
			continue
		}
		last := i == len(w.known)-1
		e := w.pool.at(id)
		if e.is(flagForked) || e.is(flagParent) && (last || w.known[i+1] == 0) {
			stay = i + 1
		}
	}
	return stay
}

// place says what is known of a unit that is to be put in its place.
type place struct {
	isNew    bool
	stays    bool   // MRU: it is one of the fixed
	grows    bool   // the chain has new units
	front    uint32 // the unit before it that was put to the front of its list
	priority int
}

// place puts a unit of the chain into the list and the place that the node's
// order has for it, and returns the unit that the next one goes behind.
func (w *Writer) place(n *node, id uint32, e *entry, p place) (front uint32) {
	switch n.order {
	case LFU:
		level := 0
		if !p.isNew {
			level = min(e.level()+1, maxLevel)
		}
		w.lift(n, id, e, level, p)
	case Priority:
		level := p.priority
		if !p.isNew {
			level = max(level, e.level())
		}
		w.lift(n, id, e, level, p)
	case MRU, FILO:
		if p.isNew || n.order == MRU && !p.stays {
			w.stack(n, id, e, p.isNew)
		}
	default:
		if p.grows {
			w.lift(n, id, e, 0, p)
		}
	}
	return id
}

// lift puts a unit to the front of the list of a level, behind the unit before
// it if that is there too.
func (w *Writer) lift(n *node, id uint32, e *entry, level int, p place) {
	if p.front == id {
		return // a chain that names a unit twice
	}
	if !p.isNew {
		n.lists[e.level()].unlink(&w.pool, e)
	}
	front := p.front
	if front != 0 && w.pool.at(front).level() != level {
		front = 0
	}
	n.lists[level].link(&w.pool, front, id, e)
	e.setLevel(level)
}

// stack puts a unit to the end of the list where eviction begins.
func (w *Writer) stack(n *node, id uint32, e *entry, isNew bool) {
	l := &n.lists[0]
	if !isNew {
		l.unlink(&w.pool, e)
	}
	l.link(&w.pool, l.oldest, id, e)
}
