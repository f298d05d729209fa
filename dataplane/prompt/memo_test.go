package prompt

import (
	"sync"
	"testing"

	"github.com/zeebo/xxh3"
)

func memoKey(i uint64) xxh3.Uint128 {
	return xxh3.Uint128{Hi: xxh3.HashSeed([]byte("hi"), i), Lo: xxh3.HashSeed([]byte("lo"), i)}
}

func TestMemoKeepsAndForgets(t *testing.T) {
	const size, limit = 400, 1 << 20
	m := newMemo[uint64](limit)
	for i := range uint64(20_000) {
		m.put(memoKey(i), i, size)
		if got := m.get(memoKey(i)); got != nil && *got != i {
			t.Fatalf("key %d has the value %d", i, *got)
		}
		if m.bytes.Load() > limit {
			t.Fatalf("%d bytes after %d entries, at most %d allowed", m.bytes.Load(), i, limit)
		}
	}
	kept, counted := 0, int64(0)
	for i := range uint64(20_000) {
		if m.get(memoKey(i)) != nil {
			kept++
		}
	}
	for i := range m.buckets {
		for way := range memoWays {
			if e := m.buckets[i].ways[way].Load(); e != nil {
				counted += e.bytes
			}
		}
	}
	if counted != m.bytes.Load() {
		t.Errorf("entries have %d bytes, %d are counted", counted, m.bytes.Load())
	}
	if full := limit / (size + memoEntryBytes); kept < full/2 {
		t.Errorf("%d entries are left where %d have room", kept, full)
	}
}

// TestMemoBound: what is too large for the whole is not taken, what just fits is.
func TestMemoBound(t *testing.T) {
	m := newMemo[int](8000)
	m.put(memoKey(1), 1, 8000/memoShare-memoEntryBytes)
	m.put(memoKey(2), 2, 8000/memoShare-memoEntryBytes+1)
	if m.get(memoKey(1)) == nil || m.get(memoKey(2)) != nil {
		t.Error("the bound of one entry is not kept")
	}
}

// TestMemoPrefersWhatIsUsed: an entry that is asked for again and again outlives
// many that are not.
func TestMemoPrefersWhatIsUsed(t *testing.T) {
	m := newMemo[int](1 << 18)
	m.put(memoKey(1), 1, 100)
	for i := range uint64(20_000) {
		m.put(memoKey(i+2), 0, 100)
		if m.get(memoKey(1)) == nil {
			t.Fatalf("the entry that is used went after %d others", i)
		}
	}
}

func TestMemoRaces(t *testing.T) {
	m := newMemo[uint64](1 << 16)
	var wait sync.WaitGroup
	for g := range uint64(4) {
		wait.Go(func() {
			for i := range uint64(5000) {
				k := (i*7 + g) % 300
				if v := m.get(memoKey(k)); v == nil {
					m.put(memoKey(k), k, 200)
				} else if *v != k {
					t.Errorf("key %d has the value %d", k, *v)
				}
			}
		})
	}
	wait.Wait()
	if m.bytes.Load() > 1<<16 || m.bytes.Load() < 0 {
		t.Errorf("%d bytes are counted", m.bytes.Load())
	}
}

func TestMemoGetAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	m := newMemo[int](1 << 16)
	m.put(memoKey(1), 1, 100)
	if n := testing.AllocsPerRun(100, func() { m.get(memoKey(1)); m.get(memoKey(2)) }); n != 0 {
		t.Errorf("%v allocations a look-up, want 0", n)
	}
}
