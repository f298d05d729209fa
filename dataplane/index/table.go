package index

import (
	"math/bits"
	"sync/atomic"
	"unsafe"

	"warmpath/dataplane/prefix"
)

// A word is one unit: a fingerprint of its hash over a reference to its
// holders. One atomic word holds both, so no reader can see the one with
// another's other.
//
//	fingerprint:43 | reference:21
//
// A word of 0 is free. References: 0 nobody, 1 … positions the only holder
// (position + 1), from firstRow a row of the row store.
const (
	refBits         = 21
	refMask         = 1<<refBits - 1
	fingerprintBits = 64 - refBits
	fingerprintMask = 1<<fingerprintBits - 1
	firstRow        = positions + 1
)

// bucketWords and the counter before them fill a cache line.
const bucketWords = 7

// bucket is one cache line of words. overflow counts the units that found
// this bucket full on the way from their home and went on to a later one; as
// long as it is 0 nobody need look further.
type bucket struct {
	overflow atomic.Uint64
	words    [bucketWords]atomic.Uint64
}

// middles are the 16 bits of each key above its fingerprint. Readers have no
// use for them (they come to a bucket by these bits); the writer needs them to
// move a word to a larger segment.
type middles [bucketWords]uint16

const bucketBytes = 64 + 2*bucketWords

// Sizes of segments, in buckets. A segment grows by a third until it is large,
// then is split, so that each step copies a bounded number of words.
const (
	smallSegment = 16
	largeSegment = 1536
)

// minDepth bits of a key are known from the segment it is in, at the least;
// with the 16 of middles and the fingerprint that makes all 64.
const minDepth = 64 - 16 - fingerprintBits

// segment is one part of the table: all units whose key starts with the same
// depth bits. Words never move inside a segment. A segment that is replaced is
// first copied, then unlinked, then marked retired; nothing is written to its
// words after it was copied.
type segment struct {
	buckets []bucket // immutable slice, atomic contents
	depth   uint8    // immutable
	top     uint8    // immutable: the first minDepth bits of its keys
	retired atomic.Bool

	middles []middles // writer-owned, as all below
	count   int       // words in use
}

// directory finds the segment of a key. Its size is fixed; the writer stores
// segments into the directory in force only.
type directory struct {
	shift uint8 // 64 - bits of the directory's index
	segs  []atomic.Pointer[segment]
}

// spread turns a hash into a key. It is a bijection that moves the hash's bits
// upward, so that even small consecutive numbers fall into different segments
// and buckets.
func spread(h prefix.Hash) uint64 { return uint64(h) * 0x9E3779B97F4A7C15 }

// unspread undoes spread: its factor is the inverse modulo 2^64.
func unspread(key uint64) prefix.Hash { return prefix.Hash(key * 0xF1DE83E19937733D) }

func (d *directory) segment(key uint64) *segment {
	return d.segs[key>>(d.shift&63)].Load()
}

// home returns the bucket where a key belongs.
func (s *segment) home(key uint64) (bucket uint64) {
	return (key << (s.depth & 63) >> 32) * uint64(len(s.buckets)) >> 32
}

// after returns the bucket where the search for a key goes on that found its
// first k full: first the other one of its home's pair, which processors fetch
// together from memory, then those that follow the pair. The number of buckets
// is even.
func after(home uint64, k, buckets int) uint64 {
	i := home ^ 1
	if k > 1 {
		i = home&^1 + uint64(k)
	}
	if i >= uint64(buckets) {
		i -= uint64(buckets)
	}
	return i
}

// find returns a key's word and where it stands, 0 and nil if there is none.
// Any goroutine may call it.
func (s *segment) find(key uint64) (word uint64, at *atomic.Uint64) {
	want := key << refBits
	home := s.home(key)
	i := home
	for k := range s.buckets {
		b := &s.buckets[i]
		for m := b.match(want); m != 0; m &= m - 1 {
			at := &b.words[bits.TrailingZeros64(m)%bucketWords]
			if w := at.Load(); w != 0 && w>>refBits == want>>refBits {
				return w, at
			}
		}
		if b.overflow.Load() == 0 {
			return 0, nil
		}
		i = after(home, k+1, len(s.buckets))
	}
	return 0, nil
}

// match returns which words have the fingerprint of want, one bit each; a free
// word has fingerprint 0. It does without branches: where a word stands in its
// bucket cannot be foreseen.
func (b *bucket) match(want uint64) (m uint64) {
	w := &b.words
	return zero((w[0].Load()^want)>>refBits) | zero((w[1].Load()^want)>>refBits)<<1 |
		zero((w[2].Load()^want)>>refBits)<<2 | zero((w[3].Load()^want)>>refBits)<<3 |
		zero((w[4].Load()^want)>>refBits)<<4 | zero((w[5].Load()^want)>>refBits)<<5 |
		zero((w[6].Load()^want)>>refBits)<<6
}

// free returns which words are free, one bit each.
func (b *bucket) free() (m uint64) {
	w := &b.words
	return zero(w[0].Load()) | zero(w[1].Load())<<1 | zero(w[2].Load())<<2 | zero(w[3].Load())<<3 |
		zero(w[4].Load())<<4 | zero(w[5].Load())<<5 | zero(w[6].Load())<<6
}

// zero returns 1 for 0, and 0 for all else.
func zero(x uint64) uint64 { return ^(x | -x) >> 63 }

// insert adds a word for a key that is not in the segment, where there must be
// a free one. Only the writer calls it. Counters are raised before the word
// appears, so a reader that could find it is never told to stop before it.
func (s *segment) insert(key, ref uint64) {
	i, j := s.vacancy(key, true)
	s.count++
	s.middles[i][j] = uint16(key >> fingerprintBits)
	s.buckets[i].words[j].Store(key<<refBits | ref)
}

// fill is insert for a segment that no reader knows as yet. Its stores need not
// be atomic, which is most of what they would cost.
func (s *segment) fill(key, ref uint64) {
	i, j := s.vacancy(key, false)
	s.count++
	s.middles[i][j] = uint16(key >> fingerprintBits)
	*(*uint64)(unsafe.Pointer(&s.buckets[i].words[j])) = key<<refBits | ref
}

// vacancy finds the first free word for a key, from its home on, and counts the
// overflow of the buckets it passes.
func (s *segment) vacancy(key uint64, shared bool) (i, j uint64) {
	home := s.home(key)
	i = home
	for k := range s.buckets {
		b := &s.buckets[i]
		if m := b.free(); m != 0 {
			return i, uint64(bits.TrailingZeros64(m)) % bucketWords
		}
		if shared {
			b.overflow.Add(1)
		} else {
			*(*uint64)(unsafe.Pointer(&b.overflow))++
		}
		i = after(home, k+1, len(s.buckets))
	}
	panic("BUG: index: no free word in a segment that is not full")
}

// remove frees a key's word. Only the writer calls it. Counters are lowered
// after the word is gone.
func (s *segment) remove(key uint64, at *atomic.Uint64) {
	at.Store(0)
	s.count--
	home := s.home(key)
	i := home
	for k := 1; ; k++ {
		b := &s.buckets[i]
		if d := uintptr(unsafe.Pointer(at)) - uintptr(unsafe.Pointer(b)); d < unsafe.Sizeof(*b) {
			return
		}
		b.overflow.Add(^uint64(0))
		i = after(home, k, len(s.buckets))
	}
}

// full reports whether the segment wants to grow: five sixths are in use.
func (s *segment) full() bool { return s.count*6 >= len(s.buckets)*bucketWords*5 }

// newSegment makes a segment that count words fill to five eighths.
func newSegment(depth, top uint8, count int) *segment {
	n := max(smallSegment, count*8/(bucketWords*5)+2) &^ 1
	return &segment{depth: depth, top: top, buckets: make([]bucket, n), middles: make([]middles, n)}
}

func (s *segment) bytes() int64 { return int64(len(s.buckets)) * bucketBytes }

// split returns copies of s, one for each value of the bit after the depth
// bits that s stands for; or, with parts of 1, one larger copy.
func (s *segment) split(parts int) [2]*segment {
	shift := 63 - s.depth
	var counts [2]int
	s.each(func(key, _ uint64) { counts[key>>shift&1]++ })
	var to [2]*segment
	if parts == 1 {
		to[0] = newSegment(s.depth, s.top, s.count)
		to[1] = to[0]
	} else {
		to[0] = newSegment(s.depth+1, s.top, counts[0])
		to[1] = newSegment(s.depth+1, s.top, counts[1])
	}
	s.each(func(key, ref uint64) { to[key>>shift&1].fill(key, ref) })
	return to
}

// each calls f with the key and the reference of every word. Writer only.
func (s *segment) each(f func(key, ref uint64)) {
	for i := range s.buckets {
		for j := range s.buckets[i].words {
			if w := s.buckets[i].words[j].Load(); w != 0 {
				f(uint64(s.top)<<(64-minDepth)|uint64(s.middles[i][j])<<fingerprintBits|w>>refBits, w&refMask)
			}
		}
	}
}

// table is the forward half of the index: which slots hold a unit. Everything
// but dir is writer-owned.
type table struct {
	dir      atomic.Pointer[directory]
	segments int
	units    int
	bytes    int64
}

func (t *table) init() {
	d := &directory{shift: 64 - minDepth, segs: make([]atomic.Pointer[segment], 1<<minDepth)}
	for i := range d.segs {
		s := newSegment(minDepth, uint8(i), 0)
		d.segs[i].Store(s)
		t.bytes += s.bytes()
	}
	t.segments = len(d.segs)
	t.bytes += int64(len(d.segs)) * 8
	t.dir.Store(d)
}

// find returns a key's segment and word for the writer.
func (t *table) find(key uint64) (s *segment, word uint64, at *atomic.Uint64) {
	s = t.dir.Load().segment(key)
	word, at = s.find(key)
	return s, word, at
}

// lines are where find looks for a key first, and what insert writes beside it.
func (t *table) lines(key uint64) (words, rest unsafe.Pointer) {
	s := t.dir.Load().segment(key)
	b := s.home(key)
	return unsafe.Pointer(&s.buckets[b]), unsafe.Pointer(&s.middles[b])
}

// insert adds a unit that is not in the table, making room first.
func (t *table) insert(key, ref uint64) {
	s := t.dir.Load().segment(key)
	for s.full() {
		t.grow(s, key)
		s = t.dir.Load().segment(key)
	}
	s.insert(key, ref)
	t.units++
}

func (t *table) remove(s *segment, key uint64, at *atomic.Uint64) {
	s.remove(key, at)
	t.units--
}

// grow replaces a full segment by a larger one or, if it is large already, by
// two. A directory that would become sparse (hashes that do not spread) is
// not doubled: the segment grows on.
func (t *table) grow(s *segment, key uint64) {
	d := t.dir.Load()
	parts := 2
	atBottom := s.depth == 64-d.shift
	if len(s.buckets) < largeSegment || atBottom && len(d.segs) > 4*t.segments {
		parts = 1
	}
	if parts == 2 && atBottom {
		d = t.double(d)
	}
	to := s.split(parts)
	// The entries of s are a run of the directory that starts where its
	// depth bits are followed by zeros.
	run := 1 << (64 - d.shift - s.depth)
	first := int(key>>d.shift) &^ (run - 1)
	for i := range run {
		d.segs[first+i].Store(to[i*2/run&1])
	}
	s.retired.Store(true)
	t.bytes += to[0].bytes() - s.bytes()
	if parts == 2 {
		t.bytes += to[1].bytes()
		t.segments++
	}
}

// double publishes a directory of twice the size over the same segments.
func (t *table) double(d *directory) *directory {
	to := &directory{shift: d.shift - 1, segs: make([]atomic.Pointer[segment], 2*len(d.segs))}
	for i := range to.segs {
		to.segs[i].Store(d.segs[i/2].Load())
	}
	t.bytes += int64(len(d.segs)) * 8
	t.dir.Store(to)
	return to
}
