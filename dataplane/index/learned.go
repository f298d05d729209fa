package index

import "warmpath/dataplane/prefix"

// Learn records that a prompt was sent to slot, so that the node there holds
// its units from now on. It is for engines that do not report their cache.
// nowNs is any clock that all calls share; one that goes back is taken to stand
// still. A chain longer than the node's capacity counts as far as the node can
// hold it. A dropped slot learns nothing until it has been swept.
//
// When the node is full, units go in its eviction order; when the index is full
// those of the node with the most. Units that the node reports are not learned.
func (w *Writer) Learn(slot int, chain []prefix.Hash, nowNs int64) {
	w.learn(slot, chain, 0, nowNs, false)
}

// LearnText is Learn of a chain of text, whose units grow with depth: each
// counts by its weight (prefix.TextUnitWeight) against the capacity.
func (w *Writer) LearnText(slot int, chain []prefix.Hash, nowNs int64) {
	w.learn(slot, chain, 0, nowNs, true)
}

// LearnPriority is Learn of a prompt that has a priority, 0 (Learn's) to 127:
// under the order Priority a unit has the highest that it was used with.
func (w *Writer) LearnPriority(slot int, chain []prefix.Hash, priority int, nowNs int64) {
	w.learn(slot, chain, priority, nowNs, false)
}

func (w *Writer) learn(slot int, chain []prefix.Hash, priority int, nowNs int64, text bool) {
	checkSlot(slot)
	n := &w.nodes[slot]
	if !w.ready(slot, n) {
		w.refuse(len(chain))
		return
	}
	tick := w.now(nowNs)
	w.text = text
	chain = chain[:w.fitting(len(chain), n.capacity)]
	if n.order == LRU {
		w.learnLRU(slot, n, chain, tick)
	} else {
		w.learnInOrder(slot, n, chain, tick, min(max(priority, 0), maxLevel))
	}
	w.counts.learned++
	w.publishSlot(slot)
	w.publish()
}

// weightOf returns the weight of a unit of the chain that is being learned.
func (w *Writer) weightOf(i int) int {
	if w.text {
		return prefix.TextUnitWeight(i)
	}
	return 1
}

// fitting returns how many of n units of the chain a node can hold at all.
func (w *Writer) fitting(n, capacity int) int {
	if !w.text || prefix.TextWeight(n) <= capacity {
		return min(n, capacity)
	}
	for n > 0 && prefix.TextWeight(n) > capacity {
		n--
	}
	return n
}

// learnLRU puts each unit right behind its parent, the first one to the front.
// Those that the node has come first in the chain, so they are out of the way
// of evictions before the first new one needs room.
func (w *Writer) learnLRU(slot int, n *node, chain []prefix.Hash, tick uint32) {
	parent := uint32(0)
	for i, h := range chain {
		key := spread(h)
		id := n.find(&w.pool, parent, key)
		if id == 0 {
			if w.reports(slot, n, key) {
				continue
			}
			weight := w.weightOf(i)
			for range 1 + weight { // one more than it takes, so that a node whose capacity fell gets there
				w.evict(slot, n, weight, parent)
			}
			if id = w.admit(slot, n, key, weight, parent); id == 0 {
				w.counts.refused += int64(len(chain) - i)
				return
			}
			n.lists[0].link(&w.pool, parent, id, w.pool.at(id))
		}
		e := w.pool.at(id)
		n.lists[0].move(&w.pool, parent, id, e)
		e.c = tick
		parent = id
	}
}

// reports reports whether the node reports a unit that it has not learned.
func (w *Writer) reports(slot int, n *node, key uint64) bool {
	if n.reported[Device].blocks.count == 0 || w.wheel.find(n, slot, key) != 0 {
		return false
	}
	return w.has(slot, key)
}

// evict makes room for one more learned unit at a node, if it has none for so
// much weight.
func (w *Writer) evict(slot int, n *node, weight int, keep uint32) bool {
	if n.weight+weight <= n.capacity {
		return false
	}
	id := n.victim(&w.pool, keep)
	if id == 0 {
		return false
	}
	w.discard(slot, n, id)
	w.counts.evicted++
	return true
}

// admit makes a learned entry, in no list yet, for a unit that the node does
// not report; a speculative one gives way to it. It returns 0 if there is no
// room. The entry keep stays.
func (w *Writer) admit(slot int, n *node, key uint64, weight int, keep uint32) (id uint32) {
	if id = w.wheel.find(n, slot, key); id != 0 {
		w.unspeculate(n, id, w.pool.at(id))
	} else if !w.room(1, kindLearned, n, keep) || w.hold(key, slot) == heldNot {
		return 0
	}
	id, e := w.pool.take(key)
	e.setWeight(weight)
	n.weight += weight
	w.idBytes += n.units.insert(key, id, &w.pool)
	return id
}

// SetCapacity bounds the learned units of a node, by weight; 0 or less means unknown and
// gives it the default. A node that has more loses them with its next chains
// and in Sweep.
func (w *Writer) SetCapacity(slot, units int) {
	checkSlot(slot)
	if units <= 0 {
		units = w.x.options.Capacity
	}
	w.nodes[slot].capacity = units
	w.x.figures.slotCapacity[slot].Store(int64(units))
}

// SetEviction gives a node its own order. Learned units that it has keep the
// order in which they would have gone.
func (w *Writer) SetEviction(slot int, order Eviction) {
	checkSlot(slot)
	if order >= evictions {
		panic("BUG: index: unknown eviction order")
	}
	n := &w.nodes[slot]
	if n.order == order {
		return
	}
	var all list
	for level := range n.lists { // the lowest goes first: it ends up as oldest
		for id := n.lists[level].oldest; id != 0; {
			e := w.pool.at(id)
			next := e.newer()
			all.link(&w.pool, 0, id, e)
			e.setLevel(0)
			e.b |= flagParent | flagForked // what is not known is taken for true
			id = next
		}
	}
	w.idBytes += n.setOrder(order)
	n.lists[0] = all
	w.publish()
}
