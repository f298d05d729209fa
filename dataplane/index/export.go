package index

// Export returns all that is known of a slot, for Import in another process. It
// is true of one moment, takes a fraction of a microsecond an entry, and shares no
// memory with the index. A slot that is being swept has nothing to tell.
func (w *Writer) Export(slot int, nowNs int64) []*Piece {
	checkSlot(slot)
	n := &w.nodes[slot]
	if n.dropped || n.clearing || n.held() == 0 {
		return nil
	}
	x := exporter{w: w, order: n.order, tick: w.now(nowNs)}
	for t := range n.reported {
		x.blocks(&n.reported[t], Tier(t))
	}
	for level := len(n.lists) - 1; level >= 0; level-- { // those that go last first
		for id := n.lists[level].newest; id != 0; id = w.pool.at(id).older() {
			x.learned(w.pool.at(id))
		}
	}
	x.speculative(slot, n.speculative)
	return x.pieces
}

// exporter fills pieces.
type exporter struct {
	w      *Writer
	order  Eviction
	tick   uint32
	pieces []*Piece
	room   int // units, in the last piece
}

// piece is where so many more units go.
func (x *exporter) piece(units int) *Piece {
	if x.room <= 0 {
		x.pieces, x.room = append(x.pieces, &Piece{Order: x.order}), pieceUnits
	}
	x.room -= units
	return x.pieces[len(x.pieces)-1]
}

func (x *exporter) blocks(r *reported, tier Tier) {
	r.blocks.eachApart(func(id uint32) {
		e := x.w.pool.at(id)
		each := 1
		for part := e.nextPart(); part != 0; part = x.w.pool.at(part).nextPart() {
			each++
		}
		if each <= blockUnitsMost { // else it is none that an engine has
			x.piece(each).run(tier, each).add(&x.w.pool, e, each)
		}
	})
}

// eachApart calls f with every id, those of neighbouring buckets far apart. A
// table that is filled in the order of another one would fill up at its front
// first, where every key would have to pass all before it.
func (t *ids) eachApart(f func(id uint32)) {
	count := len(t.buckets)
	stride := max(1, int(float64(count)*0.6180339887)) // the golden section spreads best
	for commonDivisor(stride, count) > 1 {
		stride++
	}
	for i, at := 0, 0; i < count; i, at = i+1, (at+stride)%count {
		for j := range idEntries {
			if e := t.buckets[at].entry(j); e != 0 {
				f(e & idMask)
			}
		}
	}
}

// run returns where a block of so many units goes: the last run, if it is of the
// kind, or a new one.
func (p *Piece) run(tier Tier, each int) *Run {
	if last := len(p.Runs) - 1; last >= 0 {
		if r := &p.Runs[last]; r.Tier == tier && len(r.Units) == each*len(r.Blocks) {
			return r
		}
	}
	p.Runs = append(p.Runs, Run{Tier: tier})
	return &p.Runs[len(p.Runs)-1]
}

// add appends a block. Its entry has the last unit, and leads to those before.
func (r *Run) add(p *pool, e *entry, each int) {
	if copies := uint8(e.copies()); copies > 0 || r.Copies != nil {
		for len(r.Copies) < len(r.Blocks) {
			r.Copies = append(r.Copies, 0)
		}
		r.Copies = append(r.Copies, copies)
	}
	r.Blocks = append(r.Blocks, e.block())
	from := len(r.Units)
	for range each {
		r.Units = append(r.Units, 0)
	}
	for i := from + each - 1; ; i-- {
		r.Units[i] = e.hash()
		if e.nextPart() == 0 {
			return
		}
		e = p.at(e.nextPart())
	}
}

func commonDivisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (x *exporter) learned(e *entry) {
	u := Learned{Unit: e.hash(), Age: x.tick - min(e.c, x.tick), Level: uint8(e.level())}
	if e.is(flagParent) {
		u.Flags |= learnedParent
	}
	if e.is(flagForked) {
		u.Flags |= learnedForked
	}
	u.Flags |= uint8(e.b>>weightBits&3) << learnedWeight
	p := x.piece(1)
	p.Learned = append(p.Learned, u)
}

// speculative takes the count entries of a slot that are in the wheel with all
// others'.
func (x *exporter) speculative(slot, count int) {
	for at := uint32(0); at < wheelSize && count > 0; at++ {
		for id := x.w.wheel.lists[at].oldest; id != 0 && count > 0; {
			e := x.w.pool.at(id)
			id = e.newer()
			if e.slot() != slot {
				continue
			}
			count--
			if left := e.until(x.tick); left > 0 {
				x.piece(1).expect(uint32(left), e)
			}
		}
	}
}

func (p *Piece) expect(left uint32, e *entry) {
	last := len(p.Expected) - 1
	if last < 0 || p.Expected[last].Left != left {
		p.Expected = append(p.Expected, Expected{Left: left})
		last++
	}
	p.Expected[last].Units = append(p.Expected[last].Units, e.hash())
}
