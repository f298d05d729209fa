package index

import (
	"math/bits"
	"sync/atomic"

	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prefix"
)

// Bounds of an index. DefaultCapacity is what a node is taken to hold while
// nobody has said: two million tokens in text units of 64 tokens.
const (
	DefaultMemoryBytes = 1 << 30
	MinMemoryBytes     = 4 << 20
	DefaultCapacity    = 31250
)

// Eviction is the order in which the entries of a full node go. It should be
// the order of the engine itself.
type Eviction uint8

// LRU drops what was least recently routed there; a unit never goes before
// the units that follow it.
const LRU Eviction = iota

// Options configure an Index. The zero Options are the defaults.
type Options struct {
	// MemoryBytes bounds everything that the index allocates; 0 means
	// DefaultMemoryBytes, less than MinMemoryBytes means that.
	MemoryBytes int64
	// Capacity bounds the units of a node whose capacity is unknown; 0 means
	// DefaultCapacity.
	Capacity int
	// Eviction is the order of all nodes.
	Eviction Eviction
}

// Index knows which nodes hold which units of which chains. Match, Holds and
// the counters may be used by any goroutine at any time; all changes go
// through the one Writer.
type Index struct {
	table   table
	rows    rows
	figures figures
	claimed atomic.Bool
	options Options
}

// New returns an empty index.
func New(o Options) *Index {
	if o.MemoryBytes == 0 {
		o.MemoryBytes = DefaultMemoryBytes
	}
	if o.Capacity <= 0 {
		o.Capacity = DefaultCapacity
	}
	if o.Eviction != LRU {
		panic("BUG: index: unknown eviction order")
	}
	o.MemoryBytes = max(o.MemoryBytes, MinMemoryBytes)
	x := &Index{options: o}
	x.table.init()
	x.rows.init(o.MemoryBytes / rowShare)
	for i := range x.figures.slotCapacity {
		x.figures.slotCapacity[i].Store(int64(o.Capacity))
	}
	return x
}

// attempts bounds how often a reader looks up one unit that keeps changing
// under it. After that the unit counts as held by nobody.
const attempts = 8

// Match walks chain from its first unit as long as some slot of live holds
// all units so far. For every slot of live it stores into units[slot] how many
// leading units that slot holds; other elements are not touched. It returns
// the largest of them. units must reach beyond the highest slot of live.
//
// Every unit counted for a slot was held by it at some moment during the
// call. It allocates nothing, waits for nobody and keeps none of its arguments.
func (x *Index) Match(chain []prefix.Hash, live *SlotSet, units []uint32) (longest int) {
	alive := *live
	width := alive.width()
	if width == 0 {
		return 0
	}
	var held SlotSet
	var last reading // what alive was last cut by
	dir := x.table.dir.Load()
	var ahead [lookAhead]probe
	for i := range chain {
		if i%lookAhead == 0 {
			dir.fetch(chain[i:], &ahead)
		}
		p := &ahead[i%lookAhead]
		word := p.at.Load()
		if word>>refBits != p.key&fingerprintMask || word == 0 {
			word, _ = p.seg.find(p.key)
		}
		if word != 0 && last.standsFor(word, p.seg) {
			continue
		}
		last = reading{}
		if word != 0 {
			last = x.holders(p.key, held[:width])
		}
		if last.ref == 0 {
			settle(&alive, width, units, i)
			return i
		}
		if !cut(&alive, held[:width], units, i) {
			return i
		}
	}
	settle(&alive, width, units, len(chain))
	return len(chain)
}

// reading is a set of holders that was read, without the set: the reference
// that stood for it and, if that is a row, the row's version.
type reading struct {
	ref     uint64
	version *atomic.Uint64
	seen    uint64
}

// standsFor reports whether the set that was read is also that of a unit whose
// word was loaded from segment s after it.
func (r *reading) standsFor(word uint64, s *segment) bool {
	return word&refMask == r.ref && (r.ref < firstRow || r.version.Load() == r.seen && !s.retired.Load())
}

// lookAhead is how many units of a chain Match asks memory for at once. The
// hashes of a chain are all known, so their cache misses can overlap: with an
// index larger than the caches that is most of the time of a look-up.
const lookAhead = 16

// probe is where a unit should stand.
type probe struct {
	key uint64
	seg *segment
	at  *atomic.Uint64
}

// fetch finds out where the first units of a chain should stand, and touches
// those words. No branch depends on what it loads, so the loads run ahead.
func (d *directory) fetch(chain []prefix.Hash, ahead *[lookAhead]probe) {
	for i, h := range chain[:min(len(chain), lookAhead)] {
		key := spread(h)
		seg := d.segment(key)
		b, j := seg.home(key)
		at := &seg.buckets[b].words[j]
		at.Load()
		ahead[i] = probe{key, seg, at}
	}
}

// cut takes the slots that are not in held out of alive, having matched n
// units, and reports whether any are left.
func cut(alive *SlotSet, held []uint64, units []uint32, n int) bool {
	var left uint64
	for k, h := range held {
		for gone := alive[k] &^ h; gone != 0; gone &= gone - 1 {
			units[k<<6+bits.TrailingZeros64(gone)] = uint32(n)
		}
		alive[k] &= h
		left |= alive[k]
	}
	return left != 0
}

// settle gives all slots still alive n units.
func settle(alive *SlotSet, width int, units []uint32, n int) {
	var none SlotSet
	cut(alive, none[:width], units, n)
}

// holders fills set with the first words of the set of slots that hold a unit.
// The reading's reference is 0 for nobody.
func (x *Index) holders(key uint64, set []uint64) reading {
	for range attempts {
		seg := x.table.dir.Load().segment(key)
		word, at := seg.find(key)
		ref := word & refMask
		if ref >= firstRow {
			if r, ok := x.rows.read(seg, at, word, set); ok {
				return r
			}
			continue
		}
		clear(set)
		if slot := ref - 1; ref != 0 && slot>>6 < uint64(len(set)) {
			set[slot>>6] = 1 << (slot & 63)
		}
		return reading{ref: ref}
	}
	clear(set)
	return reading{}
}

// Holds sets set to all slots that hold the unit, live or not, and reports
// whether there is any. It is for rules that look up one hash, not a chain.
func (x *Index) Holds(h prefix.Hash, set *SlotSet) bool {
	return x.holders(spread(h), set[:]).ref != 0
}

// Writer returns the writer of the index. There is one: a second call panics.
func (x *Index) Writer() *Writer {
	if !x.claimed.CompareAndSwap(false, true) {
		panic("BUG: index: Writer called twice")
	}
	return newWriter(x)
}

// checkSlot panics for a slot that no fleet has.
func checkSlot(slot int) {
	if uint(slot) >= fleet.MaxSlots {
		panic("BUG: index: slot out of range")
	}
}
