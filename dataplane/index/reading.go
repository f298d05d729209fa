package index

import (
	"sync/atomic"
	"unsafe"

	"warmpath/dataplane/prefix"
)

// reading is a set of holders that was read, without the set: the reference
// that stood for it and, if that is a row, the row's version. The zero reading
// stands for nobody.
type reading struct {
	ref     uint64
	version *atomic.Uint64
	seen    uint64
}

// current reports whether the row was not written since it was read: then every
// word that was found since and names the row stood for the set that was read.
func (r *reading) current() bool { return r.ref < firstRow || r.version.Load() == r.seen }

// holding is a set of holders as readers see it: the slots that hold a unit in
// any tier and, where some hold it in another tier than Device only, those of
// the better tiers. Only the words that the reader asked for are valid.
type holding struct {
	any          SlotSet
	device, host SlotSet // valid if tiered
	tiered       bool
}

// one makes it the set of a single holder, or of none for a reference of 0.
func (h *holding) one(ref uint64, width int) {
	clear(h.any[:width])
	h.tiered = false
	if ref == 0 {
		return
	}
	slot, tier := slotOf(int(ref-1)), tierOf(int(ref-1))
	if slot>>6 >= width {
		return
	}
	h.any[slot>>6] = 1 << (slot & 63)
	if tier == Device {
		return
	}
	h.tiered = true
	clear(h.device[:width])
	clear(h.host[:width])
	if tier == Host {
		h.host[slot>>6] = h.any[slot>>6]
	}
}

// copy takes the words of a row over, not to be trusted before the row's
// version was seen unchanged.
func (h *holding) copy(c *rowChunk, row []atomic.Uint64, width int) {
	h.tiered = c.tiers > 1
	n := min(width, c.width)
	clear(h.any[n:width])
	if !h.tiered {
		for k := range row[:n] {
			h.any[k] = row[k].Load()
		}
		return
	}
	clear(h.device[n:width])
	clear(h.host[n:width])
	for k := range n {
		device, host := row[k].Load(), row[c.width+k].Load()
		h.device[k], h.host[k] = device, host
		h.any[k] = device | host | row[2*c.width+k].Load()
	}
}

// read fills to with the first width words of the holders that row ref has, for
// a reader that found ref in the word at, in segment s. ok is false if the unit
// may have changed meanwhile; then the reader looks it up again. See doc.go
// for why this order is enough.
func (s *rows) read(seg *segment, at *atomic.Uint64, word uint64, to *holding, width int) (r reading, ok bool) {
	c, i := s.at(word & refMask)
	r, ok = c.begin(i, at, word)
	if !ok {
		return r, false
	}
	to.copy(c, c.row(i), width)
	return r, r.confirm(seg)
}

// begin starts to read row i for the word at.
func (c *rowChunk) begin(i int, at *atomic.Uint64, word uint64) (r reading, ok bool) {
	r = reading{word & refMask, &c.versions[i], c.versions[i].Load()}
	return r, r.seen&1 == 0 && at.Load() == word
}

// confirm reports whether what was read since begin was the row's set, and the
// unit's, whose word is in segment s.
func (r *reading) confirm(s *segment) bool { return r.current() && !s.retired.Load() }

// attempts bounds how often a reader looks up one unit that keeps changing
// under it. After that the unit counts as held by nobody.
const attempts = 8

// holders fills to with the first width words of the set of slots that hold a
// unit. The reading is zero for nobody.
func (x *Index) holders(key uint64, to *holding, width int) reading {
	for range attempts {
		seg := x.table.dir.Load().segment(key)
		word, at := seg.find(key)
		ref := word & refMask
		if ref >= firstRow {
			if r, ok := x.rows.read(seg, at, word, to, width); ok {
				return r
			}
			continue
		}
		to.one(ref, width)
		return reading{ref: ref}
	}
	to.one(0, width)
	return reading{}
}

// batch is how many units of a chain are looked at before anything depends on
// what was found, so that their cache misses overlap: with an index larger than
// the caches that is most of the time of a look-up.
const batch = 16

// run returns how many of the next hashes, at most batch, stand for the set of
// last. Each was the set of its unit at some moment of the call; see doc.go.
func (x *Index) run(hashes []prefix.Hash, last *reading) (n int) {
	dir := x.table.dir.Load() // anew: it must be in force after last was read
	hashes = hashes[:min(len(hashes), batch)]
	var ahead [batch]struct {
		in   *bucket
		word uint64
	}
	var l lines
	for i, h := range hashes {
		key := spread(h)
		seg := dir.segment(key)
		b := seg.home(key)
		p := &ahead[i%batch]
		p.in, p.word = &seg.buckets[b], key<<refBits|last.ref
		l[i%batch] = unsafe.Pointer(p.in)
	}
	prefetch(&l, len(hashes))
	for i, h := range hashes {
		p := &ahead[i%batch]
		// All words are compared without a branch, for where a unit stands in its
		// bucket cannot be foreseen. The first bit of x|-x says that x is not 0.
		w, want := &p.in.words, p.word
		x0, x1, x2, x3 := w[0].Load()^want, w[1].Load()^want, w[2].Load()^want, w[3].Load()^want
		x4, x5, x6 := w[4].Load()^want, w[5].Load()^want, w[6].Load()^want
		if int64((x0|-x0)&(x1|-x1)&(x2|-x2)&(x3|-x3)&(x4|-x4)&(x5|-x5)&(x6|-x6)) < 0 {
			key := spread(h)
			if word, _ := dir.segment(key).find(key); word != want {
				break
			}
		}
		n++
	}
	if !last.current() {
		return 0
	}
	return n
}
