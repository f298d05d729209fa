package index

import (
	"unsafe"

	"warmpath/dataplane/prefix"
)

// digest sums up a set of blocks, in whatever order they came.
type digest struct{ xor, sum uint64 }

// Stored records that the engine of slot says it has stored a block in a tier.
// block is the engine's own name of it, parts are the hashes of the units that
// it fills, mostly one, in order; the last stands for the block in Last.
//
// Engines store a block under one name more than once (vLLM has no
// de-duplication, engines.md 1.3.3): each is one copy, and Removed takes one.
// Beyond 128 copies more are not counted. Blocks of different names may fill
// the same unit; the slot holds it until the last of them goes. A name is 64
// bits of a hash, and removals may be lost: a block that is known with another
// last unit, in whatever tier, is forgotten first, all copies of it.
//
// It reports whether the block is known now: not without parts, not at a
// dropped slot that was not swept, nor when memory is full of blocks.
func (w *Writer) Stored(slot int, tier Tier, block uint64, parts []prefix.Hash) bool {
	blocks := [1]uint64{block}
	known, _ := w.StoredRun(slot, tier, blocks[:], parts, false)
	return known == 1
}

// StoredRun is Stored for blocks that fill the same number of units each, several
// times as fast: the cache misses of up to sixteen units overlap. units are those
// of all blocks, in order. With again the engine tells of blocks that it may have
// told of before: those that the tier has get no other copy.
//
// It returns how many of the blocks are known now, and how many names meant
// another block before. It stops at the first block that is not taken.
func (w *Writer) StoredRun(slot int, tier Tier, blocks []uint64, units []prefix.Hash, again bool) (known, replaced int) {
	each := len(units) / max(1, len(blocks))
	if len(units) != each*len(blocks) {
		panic("BUG: index: StoredRun of blocks that fill different numbers of units")
	}
	n, r := w.tier(slot, tier)
	if each == 0 || !w.ready(slot, n) {
		w.refuse(max(len(units), len(blocks)))
		return 0, 0
	}
	step := max(1, batch/each) // blocks
	w.expect(r, blocks, units, 0, step)
	for i, block := range blocks {
		if i%step == 0 {
			w.expect(r, blocks, units, i+step, step)
		}
		parts := units[i*each : (i+1)*each]
		id, other := w.lookUp(slot, n, tier, block, parts[each-1])
		if other {
			replaced++
		}
		if id == 0 {
			if !w.store(slot, tier, n, r, block, parts) {
				break
			}
		} else if e := w.pool.at(id); !again && e.copies() < maxCopies {
			e.c++
		}
		known++
	}
	w.publishSlot(slot)
	w.publish()
	return known, replaced
}

// lookUp returns the entry of a block in a tier, 0 if there is none. other says
// that the name was another block's, which was forgotten.
func (w *Writer) lookUp(slot int, n *node, tier Tier, block uint64, last prefix.Hash) (id uint32, other bool) {
	for t := range n.reported {
		r := &n.reported[t]
		found := r.blocks.find(block, (*blockPool)(&w.pool))
		switch {
		case found == 0:
		case w.pool.at(found).hash() != last:
			w.dropBlock(slot, r, Tier(t), found)
			w.counts.removed++
			other = true
		case Tier(t) == tier:
			id = found
		}
	}
	return id, other
}

// expect asks for what storing the blocks from one on will look at: so many
// blocks, of sixteen units together, or one. StoredRun is at the blocks before
// them, so that what it does and what it waits for overlap.
func (w *Writer) expect(r *reported, blocks []uint64, units []prefix.Hash, from, step int) {
	if from >= len(blocks) || len(units) == 1 {
		return
	}
	each := len(units) / len(blocks)
	var names, words, rest lines
	blocks = blocks[from:min(from+step, len(blocks))]
	for i, block := range blocks {
		names[i%batch] = r.blocks.line(block)
	}
	prefetch(&names, len(blocks))
	units = units[from*each : min(from*each+batch, len(units))]
	for i, u := range units {
		words[i%batch], rest[i%batch] = w.x.table.lines(spread(u))
	}
	prefetch(&words, len(units))
	prefetch(&rest, len(units))
}

// store adds a block that the tier has not, if there is room for it.
func (w *Writer) store(slot int, tier Tier, n *node, r *reported, block uint64, parts []prefix.Hash) bool {
	// For each unit an entry, and another one if blocks share it.
	if w.pool.live+2*len(parts) > w.maximum && !w.room(2*len(parts), kindReported, n, 0) {
		w.counts.refused += int64(len(parts))
		return false
	}
	at := position(slot, tier)
	next := uint32(0)
	for i, h := range parts {
		key := spread(h)
		w.claim(n, r, at, key)
		id, e := w.pool.take(key)
		e.setNextPart(next)
		next = id
		if i == len(parts)-1 {
			e.setBlock(block)
			w.idBytes += r.blocks.insert(block, id, (*blockPool)(&w.pool))
		}
	}
	r.digest.xor ^= block
	r.digest.sum += block
	w.counts.stored++
	return true
}

// claim makes a unit reported at a position, whatever it was there before.
func (w *Writer) claim(n *node, r *reported, at int, key uint64) {
	got := w.hold(key, at)
	if got == heldNot {
		w.counts.refused++
		return
	}
	if tierOf(at) == Device {
		if id := w.wheel.find(n, at, key); id != 0 {
			w.unspeculate(n, id, w.pool.at(id))
			w.counts.confirmed++
			return
		}
		if id := n.units.find(key, &w.pool); id != 0 {
			w.unlearn(n, id, w.pool.at(id))
			return
		}
	}
	if got == heldNow {
		return
	}
	id := r.shared.find(key, &w.pool)
	if id == 0 {
		id, _ = w.pool.take(key)
		w.idBytes += r.shared.insert(key, id, &w.pool)
	}
	w.pool.at(id).c++
}

// disclaim undoes claim for one block.
func (w *Writer) disclaim(r *reported, at int, key uint64) {
	if id := r.shared.find(key, &w.pool); id != 0 {
		e := w.pool.at(id)
		if e.c--; e.c == 0 {
			w.idBytes -= r.shared.remove(key, id, &w.pool)
			w.pool.give(id, e)
		}
		return
	}
	w.release(key, at)
}

// Removed records that the engine of slot says it has removed one copy of a
// block from a tier. It reports whether the block was known.
func (w *Writer) Removed(slot int, tier Tier, block uint64) bool {
	blocks := [1]uint64{block}
	return w.RemovedRun(slot, tier, blocks[:]) == 1
}

// RemovedRun is Removed for many blocks, several times as fast, as StoredRun
// is. It returns how many were known.
func (w *Writer) RemovedRun(slot int, tier Tier, blocks []uint64) (known int) {
	n, r := w.tier(slot, tier)
	if n.dropped || n.clearing {
		return 0
	}
	if r.blocks.count == 0 {
		w.counts.unknown += int64(len(blocks))
	} else if len(blocks) > 1 {
		known = w.removeRun(slot, tier, r, blocks)
	} else if len(blocks) == 1 && w.remove(slot, tier, r, blocks[0]) {
		known = 1
	}
	w.publishSlot(slot)
	w.publish()
	return known
}

// removeRun removes blocks. What it looks at for one hangs on what it found
// before: the table names the entry, the entry its unit, and that the word. So
// it asks for the three at different times, sixteen blocks at a time, while it
// is at other blocks.
func (w *Writer) removeRun(slot int, tier Tier, r *reported, blocks []uint64) (known int) {
	p := removal{blocks: blocks}
	p.expectNames(r, 0)
	p.expectNames(r, 1)
	p.expectEntries(w, r, 0)
	p.expectNames(r, 2)
	p.expectEntries(w, r, 1)
	p.expectWords(w, 0)
	for i, block := range blocks {
		if i%batch == 0 {
			p.expectWords(w, i/batch+1)
			p.expectEntries(w, r, i/batch+2)
			p.expectNames(r, i/batch+3)
		}
		if w.remove(slot, tier, r, block) {
			known++
		}
	}
	return known
}

// removal is a run of blocks and what is on its way for it.
type removal struct {
	blocks  []uint64
	entries [2][batch]*entry // of sixteen blocks, and of the next
}

// part returns the i-th sixteen blocks.
func (p *removal) part(i int) []uint64 {
	from := min(i*batch, len(p.blocks))
	return p.blocks[from:min(from+batch, len(p.blocks))]
}

func (p *removal) expectNames(r *reported, i int) {
	var l lines
	blocks := p.part(i)
	for j, block := range blocks {
		l[j%batch] = r.blocks.line(block)
	}
	prefetch(&l, len(blocks))
}

func (p *removal) expectEntries(w *Writer, r *reported, i int) {
	var l lines
	blocks := p.part(i)
	for j, block := range blocks {
		e := w.pool.at(r.blocks.guess(block))
		p.entries[i%2][j%batch] = e
		l[j%batch] = unsafe.Pointer(e)
	}
	prefetch(&l, len(blocks))
}

func (p *removal) expectWords(w *Writer, i int) {
	var l lines
	blocks := p.part(i)
	for j := range blocks {
		l[j%batch], _ = w.x.table.lines(p.entries[i%2][j%batch].key())
	}
	prefetch(&l, len(blocks))
}

// remove takes one copy of a block, if it is known.
func (w *Writer) remove(slot int, tier Tier, r *reported, block uint64) bool {
	id := r.blocks.find(block, (*blockPool)(&w.pool))
	if id == 0 {
		w.counts.unknown++
		return false
	}
	if e := w.pool.at(id); e.copies() > 0 {
		e.c--
		return true
	}
	w.dropBlock(slot, r, tier, id)
	w.counts.removed++
	return true
}

// dropBlock forgets a reported block, all copies of it.
func (w *Writer) dropBlock(slot int, r *reported, tier Tier, id uint32) {
	block := w.pool.at(id).block()
	w.idBytes -= r.blocks.remove(block, id, (*blockPool)(&w.pool))
	r.digest.xor ^= block
	r.digest.sum -= block
	for id != 0 {
		e := w.pool.at(id)
		next := e.nextPart()
		w.disclaim(r, position(slot, tier), e.key())
		w.pool.give(id, e)
		id = next
	}
}

// dropAnyBlock forgets a reported block of the lowest tier that has one: the
// next in the table from a bucket on. It returns that block's bucket.
func (w *Writer) dropAnyBlock(slot int, n *node, from int) (bucket int) {
	for t := Disk; ; t-- {
		r := &n.reported[t]
		if r.blocks.count > 0 {
			id, bucket := r.blocks.next(from)
			w.dropBlock(slot, r, t, id)
			return bucket
		}
	}
}

// Last returns the hash of the last unit of a block that slot has in any tier:
// what the blocks that follow it are chained to.
func (w *Writer) Last(slot int, block uint64) (prefix.Hash, bool) {
	checkSlot(slot)
	n := &w.nodes[slot]
	if n.dropped || n.clearing {
		return 0, false
	}
	for t := range n.reported {
		if id := n.reported[t].blocks.find(block, (*blockPool)(&w.pool)); id != 0 {
			return w.pool.at(id).hash(), true
		}
	}
	return 0, false
}

// Digest sums up the blocks that slot has in a tier by the engine's names: how
// many, and their exclusive or and sum modulo 2^64. A block of several copies
// counts once.
func (w *Writer) Digest(slot int, tier Tier) (count, xor, sum uint64) {
	n, r := w.tier(slot, tier)
	if n.dropped || n.clearing {
		return 0, 0, 0
	}
	return uint64(r.blocks.count), r.digest.xor, r.digest.sum
}

// Blocks calls yield with each block that slot has in a tier, by the engine's
// name and in no order, until it returns false. yield must not change the
// index.
func (w *Writer) Blocks(slot int, tier Tier, yield func(block uint64) bool) {
	n, r := w.tier(slot, tier)
	if n.dropped || n.clearing {
		return
	}
	r.blocks.each(func(id uint32) bool { return yield(w.pool.at(id).block()) })
}

// Lost returns how many reported blocks of slot went for want of memory since
// it was cleared. While it is not 0 the slot's digest need not be its engine's.
func (w *Writer) Lost(slot int) int64 {
	checkSlot(slot)
	return w.nodes[slot].lost
}

// tier returns what is known of a slot and of one of its tiers.
func (w *Writer) tier(slot int, tier Tier) (*node, *reported) {
	checkSlot(slot)
	if tier >= Tiers {
		panic("BUG: index: unknown tier")
	}
	n := &w.nodes[slot]
	return n, &n.reported[tier]
}
