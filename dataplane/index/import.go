package index

// Import takes up a piece that Export made of the same slot, or of another one,
// in this process or another; pieces of one export in their order. What the slot
// knows by itself stays as it is. Blocks and units for which there is no room are
// left out, those that would go first before others. It returns how many entries
// it made.
func (w *Writer) Import(slot int, p *Piece, nowNs int64) (taken int) {
	checkSlot(slot)
	n := &w.nodes[slot]
	if !w.ready(slot, n) {
		return 0
	}
	tick := w.now(nowNs)
	for i := range p.Runs {
		taken += w.importRun(slot, &p.Runs[i])
	}
	taken += w.importLearned(slot, n, p, tick)
	for _, x := range p.Expected {
		before := n.speculative
		// What is due at the tick after a time is due so many ticks from now.
		w.Speculate(slot, x.Units, w.baseNs+(int64(tick)+int64(x.Left)-1)<<tickShift)
		taken += n.speculative - before
	}
	w.publishSlot(slot)
	w.publish()
	return taken
}

func (w *Writer) importRun(slot int, r *Run) (taken int) {
	if len(r.Blocks) == 0 {
		return 0
	}
	taken, _ = w.StoredRun(slot, r.Tier, r.Blocks, r.Units, true)
	if r.Copies == nil {
		return taken
	}
	blocks := &w.nodes[slot].reported[r.Tier].blocks
	for i, block := range r.Blocks {
		if id := blocks.find(block, (*blockPool)(&w.pool)); id != 0 {
			e := w.pool.at(id)
			e.c += min(uint32(r.Copies[i]), maxCopies-e.copies())
		}
	}
	return taken
}

// importLearned puts units where eviction begins, one before the other, so that
// they lie as they lay. Those of another order keep that in which they would
// have gone.
func (w *Writer) importLearned(slot int, n *node, p *Piece, tick uint32) (taken int) {
	for i, u := range p.Learned {
		weight := 1 << (2 * (u.Flags >> learnedWeight))
		if n.weight+weight > n.capacity || w.pool.live >= w.maximum {
			w.counts.refused += int64(len(p.Learned) - i)
			return taken
		}
		key := spread(u.Unit)
		if n.units.find(key, &w.pool) != 0 || w.reports(slot, n, key) {
			continue
		}
		id := w.admit(slot, n, key, weight, 0)
		if id == 0 {
			w.counts.refused += int64(len(p.Learned) - i)
			return taken
		}
		w.placeImported(n, id, u, p.Order, tick)
		taken++
	}
	return taken
}

func (w *Writer) placeImported(n *node, id uint32, u Learned, order Eviction, tick uint32) {
	e := w.pool.at(id)
	level := int(u.Level)
	if order != n.order || level >= len(n.lists) {
		level, u.Flags = 0, learnedParent|learnedForked // what is not known is taken for true
	}
	if u.Flags&learnedParent != 0 {
		e.b |= flagParent
	}
	if u.Flags&learnedForked != 0 {
		e.b |= flagForked
	}
	e.c = tick - min(u.Age, tick)
	l := &n.lists[level]
	if l.oldest != 0 && n.order.sorted() {
		e.c = min(e.c, w.pool.at(l.oldest).c)
	}
	l.link(&w.pool, l.oldest, id, e)
	e.setLevel(level)
}
