package index

import "warmpath/dataplane/prefix"

// digest sums up a set of blocks, in whatever order they came.
type digest struct{ xor, sum uint64 }

// Stored records that the engine of slot says it has stored a block in a tier.
// block is the engine's own name of it, parts are the hashes of the units that
// it fills, mostly one, in order; the last stands for the block in Last.
//
// Engines store a block under one name more than once (vLLM has no
// de-duplication, engines.md 1.3.3): each is one copy, and Removed takes one.
// Beyond 128 copies more are not counted. Blocks of different names may fill
// the same unit; the slot holds it until the last of them goes.
//
// It reports whether the block is known now: not without parts, not at a
// dropped slot that was not swept, nor when memory is full of blocks.
func (w *Writer) Stored(slot int, tier Tier, block uint64, parts []prefix.Hash) bool {
	n, r := w.tier(slot, tier)
	known := w.store(slot, tier, n, r, block, parts)
	w.publishSlot(slot)
	w.publish()
	return known
}

// StoredRun is Stored for blocks of one unit each, several times as fast: the
// cache misses of up to sixteen blocks overlap. It returns how many of them are
// known now.
func (w *Writer) StoredRun(slot int, tier Tier, blocks []uint64, units []prefix.Hash) (known int) {
	if len(blocks) != len(units) {
		panic("BUG: index: StoredRun of blocks and units of different number")
	}
	n, r := w.tier(slot, tier)
	for len(blocks) > 0 {
		some := min(len(blocks), batch)
		for i, block := range blocks[:some] {
			w.touched ^= r.blocks.touch(block)
			w.x.table.touch(spread(units[i]))
		}
		for i, block := range blocks[:some] {
			if w.store(slot, tier, n, r, block, units[i:i+1]) {
				known++
			}
		}
		blocks, units = blocks[some:], units[some:]
	}
	w.publishSlot(slot)
	w.publish()
	return known
}

// store is Stored without showing figures.
func (w *Writer) store(slot int, tier Tier, n *node, r *reported, block uint64, parts []prefix.Hash) bool {
	if !w.ready(slot, n) || len(parts) == 0 {
		w.counts.refused += int64(max(1, len(parts)))
		return false
	}
	if id := r.blocks.find(block, (*blockPool)(&w.pool)); id != 0 {
		if e := w.pool.at(id); e.copies() < maxCopies {
			e.c++
		}
		return true
	}
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
	for len(blocks) > 0 {
		some := min(len(blocks), batch)
		if some > 1 {
			w.fetch(r, blocks[:some])
		}
		for _, block := range blocks[:some] {
			if w.remove(slot, tier, r, block) {
				known++
			}
		}
		blocks = blocks[some:]
	}
	w.publishSlot(slot)
	w.publish()
	return known
}

// fetch touches what remove will look at. Each step takes all blocks at once,
// so that what they wait for overlaps.
func (w *Writer) fetch(r *reported, blocks []uint64) {
	for _, block := range blocks {
		w.touched ^= r.blocks.touch(block)
	}
	var ids [batch]uint32
	for i, block := range blocks {
		ids[i%batch] = r.blocks.guess(block)
	}
	for _, id := range ids[:len(blocks)] {
		if id != 0 {
			w.x.table.touch(w.pool.at(id).key())
		}
	}
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
