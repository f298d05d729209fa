package prompt

import (
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

// Shape of a memo. A bucket is a cache line: one word of tags, seven entries.
const (
	memoWays       = 7
	memoEntryBytes = 96  // an entry with its slice headers, as the allocator rounds it
	memoMeanBytes  = 512 // entries are taken to have this size when buckets are counted
	memoShare      = 8   // one entry may take one part in so many of a memo
)

// memo is a bounded map from 128-bit hashes to values that never change. Any
// goroutine may use it at any time: readers wait for nobody, and writers race
// for single words only.
//
// Two keys with the same 128 bits would be taken for one. That misroutes a
// request; it cannot change what is sent.
type memo[V any] struct {
	buckets []memoBucket[V] // immutable slice, a power of two
	maximum int64           // bytes
	bytes   atomic.Int64    // of all entries
	hand    atomic.Uint64   // the bucket that gives way next
	figures memoFigures
}

// memoBucket finds an entry by a byte of its key before it touches the entry.
// A tag may be behind its entry for a moment: then the entry is not found.
type memoBucket[V any] struct {
	tags atomic.Uint64
	ways [memoWays]atomic.Pointer[memoEntry[V]]
}

type memoEntry[V any] struct {
	key   xxh3.Uint128
	bytes int64
	used  atomic.Bool // since the hand came by last
	value V
}

type memoFigures struct{ hits, misses, stored, evicted atomic.Int64 }

func newMemo[V any](maximum int64) *memo[V] {
	n := 1
	for int64(n)*memoWays*memoMeanBytes < maximum {
		n *= 2
	}
	return &memo[V]{buckets: make([]memoBucket[V], n), maximum: maximum}
}

func (m *memo[V]) bucket(key xxh3.Uint128) *memoBucket[V] {
	return &m.buckets[key.Lo&uint64(len(m.buckets)-1)]
}

// tagOf is never 0, which stands for an empty way.
func tagOf(key xxh3.Uint128) uint64 { return key.Hi>>56 | 1 }

// get returns the value of a key, nil if it is not there. The value must not be
// changed, and stays what it is for as long as it is held.
func (m *memo[V]) get(key xxh3.Uint128) *V {
	b, tag := m.bucket(key), tagOf(key)
	tags := b.tags.Load()
	for way := range memoWays {
		if tags>>(8*way)&0xff != tag {
			continue
		}
		if e := b.ways[way].Load(); e != nil && e.key == key {
			if !e.used.Load() {
				e.used.Store(true)
			}
			return &e.value
		}
	}
	return nil
}

// count adds what a walk found and did not find: once a walk, because a counter
// that all loops write for every look-up would cost more than the look-up.
func (m *memo[V]) count(hits, misses int64) {
	if hits > 0 {
		m.figures.hits.Add(hits)
	}
	if misses > 0 {
		m.figures.misses.Add(misses)
	}
}

// put keeps a value of so many bytes under a key, if it is not too large. The
// memo owns value from here on.
func (m *memo[V]) put(key xxh3.Uint128, value V, bytes int64) {
	bytes += memoEntryBytes
	if bytes > m.maximum/memoShare {
		return
	}
	e := &memoEntry[V]{key: key, bytes: bytes, value: value}
	b := m.bucket(key)
	way := b.victim(int(key.Hi % memoWays))
	old := b.ways[way].Load()
	if !b.ways[way].CompareAndSwap(old, e) {
		return // somebody else was faster; the next one who needs it tries again
	}
	b.tag(way, tagOf(key))
	if old != nil {
		bytes -= old.bytes
		m.figures.evicted.Add(1)
	}
	m.figures.stored.Add(1)
	for total := m.bytes.Add(bytes); total > m.maximum; {
		total = m.evict()
	}
}

// victim returns an empty way, else the first from a place on that was not used
// since it was last looked at.
func (b *memoBucket[V]) victim(from int) int {
	for way := range memoWays {
		if b.ways[way].Load() == nil {
			return way
		}
	}
	for range memoWays {
		if e := b.ways[from].Load(); e == nil || !e.used.Swap(false) {
			return from
		}
		from = (from + 1) % memoWays
	}
	return from
}

func (b *memoBucket[V]) tag(way int, tag uint64) {
	for {
		old := b.tags.Load()
		if b.tags.CompareAndSwap(old, old&^(0xff<<(8*way))|tag<<(8*way)) {
			return
		}
	}
}

// evict moves the hand over one bucket: what was not used since it came by last
// goes. It returns the bytes that are left.
func (m *memo[V]) evict() int64 {
	b := &m.buckets[m.hand.Add(1)&uint64(len(m.buckets)-1)]
	for way := range memoWays {
		e := b.ways[way].Load()
		if e == nil || e.used.Swap(false) || !b.ways[way].CompareAndSwap(e, nil) {
			continue
		}
		m.figures.evicted.Add(1)
		m.bytes.Add(-e.bytes)
	}
	return m.bytes.Load()
}

// MemoStats are the figures of one memo; what only grows counts from its start.
type MemoStats struct {
	Bytes, MaxBytes               int64
	Hits, Misses, Stored, Evicted int64
}

func (m *memo[V]) stats() MemoStats {
	f := &m.figures
	return MemoStats{
		Bytes: m.bytes.Load(), MaxBytes: m.maximum,
		Hits: f.hits.Load(), Misses: f.misses.Load(), Stored: f.stored.Load(), Evicted: f.evicted.Load(),
	}
}
