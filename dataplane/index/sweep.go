package index

// Drop says that the node of a slot is gone. From now on the slot counts for
// nothing and takes nothing; Sweep removes its entries. The slot may be given
// to another node when Swept says so, and what is meant for the former node
// must not reach the Writer after that.
func (w *Writer) Drop(slot int) {
	checkSlot(slot)
	n := &w.nodes[slot]
	n.dropped, n.lost = true, 0
	w.SetCapacity(slot, 0)
	if n.held() == 0 {
		w.unblind(slot, n)
		return
	}
	w.blind(slot)
}

// Clear says that the node of a slot holds nothing any more, in one step for
// readers. Sweep removes the entries; what is stored or learned before that is
// done sweeps the rest of the slot first.
func (w *Writer) Clear(slot int) {
	checkSlot(slot)
	n := &w.nodes[slot]
	n.lost = 0
	if n.held() > 0 && !n.dropped {
		n.clearing = true
		w.blind(slot)
	}
}

// Swept reports whether nothing is left of a slot that was dropped or cleared.
func (w *Writer) Swept(slot int) bool {
	checkSlot(slot)
	return !w.nodes[slot].dropped && !w.nodes[slot].clearing
}

// blind makes readers pass over a slot.
func (w *Writer) blind(slot int) {
	word := &w.x.blind[slot>>6]
	word.Store(word.Load() | 1<<(slot&63))
}

// unblind ends the sweeping of a slot of which nothing is left.
func (w *Writer) unblind(slot int, n *node) {
	if n.dropped {
		w.SetEviction(slot, w.x.options.Eviction)
	}
	n.dropped, n.clearing = false, false
	word := &w.x.blind[slot>>6]
	word.Store(word.Load() &^ (1 << (slot & 63)))
	w.publishSlot(slot)
}

// sweepSome removes an entry or a few of a slot that has any, and returns how
// many.
func (w *Writer) sweepSome(slot int, n *node) (count int) {
	count = 1
	switch {
	case n.units.count > 0:
		id, at := n.units.next(n.sweepAt)
		n.sweepAt = at
		w.discard(slot, n, id)
	case n.speculative > 0:
		count = w.giveUpSome(slot, n)
	default:
		n.sweepAt = w.dropAnyBlock(slot, n, n.sweepAt)
	}
	w.counts.swept += int64(count)
	return count
}

// Sweep removes entries of slots that were dropped or cleared, and learned
// units beyond a node's capacity, at most limit of them, and reports whether
// none are left.
func (w *Writer) Sweep(limit int) (done bool) {
	defer w.publish()
	for range w.slots {
		w.sweepSlot %= w.slots
		if !w.sweepNode(w.sweepSlot, &w.nodes[w.sweepSlot], &limit) {
			w.publishSlot(w.sweepSlot)
			return false
		}
		w.sweepSlot++
	}
	return true
}

// sweepNode is Sweep of one slot.
func (w *Writer) sweepNode(slot int, n *node, limit *int) (done bool) {
	if n.dropped || n.clearing {
		for n.held() > 0 {
			if *limit <= 0 {
				return false
			}
			*limit -= w.sweepSome(slot, n)
		}
		w.unblind(slot, n)
		return true
	}
	if n.weight <= n.capacity {
		return true
	}
	for ; n.weight > n.capacity; *limit-- {
		if *limit <= 0 {
			return false
		}
		w.discard(slot, n, n.victim(&w.pool, 0))
		w.counts.swept++
	}
	w.publishSlot(slot)
	return true
}

// Expire removes learned units that were not used for ttlNs and speculative
// ones that are due, at most limit of them, and reports whether none are left.
// It is exact to a tick of 134 ms, and never early. Call it again with the same
// or a later time to go on.
func (w *Writer) Expire(nowNs, ttlNs int64, limit int) (done bool) {
	defer w.publish()
	w.now(nowNs)
	limit, done = w.lapse(limit)
	if !done {
		return false
	}
	cutoff := (nowNs-w.baseNs-ttlNs)>>tickShift - 1
	for range w.slots {
		w.expireSlot %= w.slots
		n := &w.nodes[w.expireSlot]
		if n.units.count > 0 {
			if n.order.sorted() {
				done = w.expireSorted(w.expireSlot, n, cutoff, &limit)
			} else {
				done = w.expireAll(w.expireSlot, n, cutoff, &limit)
			}
			w.publishSlot(w.expireSlot)
			if !done {
				return false
			}
		}
		w.expireSlot++
		w.expireAt = 0
	}
	return true
}

// expireSorted expires from lists whose oldest entries are the least recently
// used.
func (w *Writer) expireSorted(slot int, n *node, cutoff int64, limit *int) (done bool) {
	for i := range n.lists {
		l := &n.lists[i]
		for l.oldest != 0 && int64(w.pool.at(l.oldest).c) <= cutoff {
			if *limit <= 0 {
				return false
			}
			*limit--
			w.discard(slot, n, l.oldest)
			w.counts.expired++
		}
	}
	return true
}

// expireAll looks at each entry of the one list of a node, a limited number at
// a time. It begins where eviction does, so units that follow others go first.
func (w *Writer) expireAll(slot int, n *node, cutoff int64, limit *int) (done bool) {
	id := w.expireAt
	if id == 0 {
		id = n.lists[0].oldest
	}
	for id != 0 {
		if *limit <= 0 {
			w.expireAt = id
			return false
		}
		*limit--
		e := w.pool.at(id)
		newer := e.newer()
		if int64(e.c) <= cutoff {
			w.discard(slot, n, id)
			w.counts.expired++
		}
		id = newer
	}
	return true
}
