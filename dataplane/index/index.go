package index

import (
	"sync/atomic"

	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prefix"
)

// Bounds of an index. DefaultCapacity is how many units a node is taken to hold
// while nobody has said: two million tokens in text units of 64 tokens. It and
// SetCapacity bound learned units only; what an engine reports it holds.
const (
	DefaultMemoryBytes = 1 << 30
	MinMemoryBytes     = 4 << 20
	DefaultCapacity    = 31250
)

// Options configure an Index. The zero Options are the defaults.
type Options struct {
	// MemoryBytes bounds everything that the index allocates; 0 means
	// DefaultMemoryBytes, less than MinMemoryBytes means that.
	MemoryBytes int64
	// Capacity bounds the learned units of a node whose capacity is unknown; 0
	// means DefaultCapacity.
	Capacity int
	// Eviction is the order in which learned units of a full node go, unless
	// Writer.SetEviction says otherwise for a slot.
	Eviction Eviction
}

// Index knows which nodes hold which units of which chains. Match, Holds and
// the counters may be used by any goroutine at any time; all changes go
// through the one Writer.
type Index struct {
	table   table
	rows    rows
	figures figures
	blind   [slotWords]atomic.Uint64 // slots that were cleared and are not yet swept
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
	if o.Eviction >= evictions {
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

// Holds sets set to all slots that hold the unit in any tier, live or not, and
// reports whether there is any. It is for rules that look up one hash, not a
// chain.
func (x *Index) Holds(h prefix.Hash, set *SlotSet) (any bool) {
	var blind SlotSet
	for k := range blind {
		blind[k] = x.blind[k].Load()
	}
	var held holding
	x.holders(spread(h), &held, slotWords)
	for k := range set {
		set[k] = held.any[k] &^ blind[k]
		any = any || set[k] != 0
	}
	return any
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
