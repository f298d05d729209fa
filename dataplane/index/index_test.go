package index

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prefix"
)

func matchOne(x *Index, slot int, chain []prefix.Hash) int {
	var live SlotSet
	live.Add(slot)
	var units [fleet.MaxSlots]uint32
	n := x.Match(chain, &live, units[:])
	if int(units[slot]) != n {
		panic("longest is not the longest")
	}
	return n
}

func TestEmpty(t *testing.T) {
	x := New(Options{})
	units := []uint32{9, 9}
	var none, live SlotSet
	live.Add(1)
	if n := x.Match(chainOf(1, 5), &none, units); n != 0 || units[1] != 9 {
		t.Errorf("nobody live: %d, %v", n, units)
	}
	if n := x.Match(chainOf(1, 5), &live, units); n != 0 || units[0] != 9 || units[1] != 0 {
		t.Errorf("empty index: %d, %v", n, units)
	}
	if n := x.Match(nil, &live, units); n != 0 || units[1] != 0 {
		t.Errorf("empty chain: %d, %v", n, units)
	}
	w := x.Writer()
	if !w.Sweep(0) || !w.Expire(0, 0, 0) || !w.Swept(3) {
		t.Error("an empty index has something to remove")
	}
	w.Drop(3)
	if !w.Swept(3) {
		t.Error("a slot that holds nothing must be swept at once")
	}
}

func TestChainLongerThanCapacity(t *testing.T) {
	x := New(Options{Capacity: 10})
	w := x.Writer()
	chain := chainOf(1, 25)
	w.Learn(4, chain, 0)
	if n := matchOne(x, 4, chain); n != 10 {
		t.Errorf("held %d units, want the first 10", n)
	}
	if s := x.Stats(); s.Evictions != 0 || s.HolderUnits != 10 {
		t.Errorf("%+v", s)
	}
}

// A known prefix at the old end of the list must not be evicted to make room
// for its own continuation.
func TestContinuationKeepsItsPrefix(t *testing.T) {
	x := New(Options{Capacity: 10})
	w := x.Writer()
	a, b := chainOf(1, 10), chainOf(2, 5)
	w.Learn(0, a[:5], 0)
	w.Learn(0, b, 1)
	w.Learn(0, a, 2)
	if n, m := matchOne(x, 0, a), matchOne(x, 0, b); n != 10 || m != 0 {
		t.Errorf("held %d and %d units, want 10 and 0", n, m)
	}
	if s := x.Stats(); s.Evictions != 5 {
		t.Errorf("%d evictions, want 5", s.Evictions)
	}
}

func TestUnknownCapacityIsTheDefault(t *testing.T) {
	x := New(Options{Capacity: 10})
	w := x.Writer()
	w.SetCapacity(7, 3)
	w.SetCapacity(7, 0)
	if c := x.SlotCapacity(7); c != 10 {
		t.Errorf("capacity %d, want 10", c)
	}
	if c := New(Options{}).SlotCapacity(0); c != DefaultCapacity {
		t.Errorf("default capacity %d", c)
	}
}

func TestDroppedSlotLearnsNothingUntilSwept(t *testing.T) {
	x := New(Options{})
	w := x.Writer()
	a, b := chainOf(1, 100), chainOf(2, 7)
	w.Learn(3, a, 0)
	w.Drop(3)
	w.Learn(3, b, 0)
	if s := x.Stats(); s.Refusals != 7 || w.Swept(3) {
		t.Errorf("a slot that is not swept took a note: %+v", s)
	}
	for rounds := 1; !w.Sweep(30); rounds++ {
		if rounds > 4 || w.Swept(3) {
			t.Fatal("sweep of 100 entries by 30 must take 4 rounds")
		}
	}
	w.Learn(3, b, 0)
	if n, m := matchOne(x, 3, a), matchOne(x, 3, b); n != 0 || m != 7 {
		t.Errorf("held %d and %d units, want 0 and 7", n, m)
	}
	if s := x.Stats(); s.Swept != 100 || s.Units != 7 || x.SlotUnits(3) != 7 {
		t.Errorf("%+v", s)
	}
}

func TestExpireIsNeverEarly(t *testing.T) {
	const second = 1e9
	x := New(Options{})
	w := x.Writer()
	a, b := chainOf(1, 4), chainOf(2, 4)
	w.Learn(0, a, 1000*second)
	w.Learn(0, b, 1100*second)
	w.Expire(1120*second, 120*second, 100)
	if n := matchOne(x, 0, a); n != 4 {
		t.Errorf("expired at its time-out: %d left", n)
	}
	if w.Expire(1121*second, 120*second, 3) {
		t.Error("three of four removed, and done")
	}
	if n := matchOne(x, 0, a); n != 1 {
		t.Errorf("%d left, want the first: a unit outlives those after it", n)
	}
	if !w.Expire(1121*second, 120*second, 3) || matchOne(x, 0, a) != 0 || matchOne(x, 0, b) != 4 {
		t.Error("did not expire, or too much")
	}
	w.Learn(0, a, 5) // a clock that went back stands still
	if !w.Expire(1200*second, 120*second, 100) || matchOne(x, 0, a) != 4 {
		t.Error("a clock that went back made entries old")
	}
	if s := x.Stats(); s.Expired != 4 {
		t.Errorf("%+v", s)
	}
}

// Whatever a broken caller hands in, nothing breaks.
func TestOddChains(t *testing.T) {
	x := New(Options{Capacity: 3})
	w := x.Writer()
	r := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		chain := make([]prefix.Hash, r.IntN(8))
		for i := range chain {
			chain[i] = prefix.Hash(r.IntN(6)) // repeats, cycles, zero
		}
		w.Learn(r.IntN(4), chain, 0)
		if s := x.Stats(); s.HolderUnits > 12 || s.Units > 6 {
			t.Fatalf("%+v", s)
		}
	}
	for slot := range 4 {
		w.Drop(slot)
	}
	if !w.Sweep(100) || x.Stats().HolderUnits != 0 || x.Stats().Units != 0 || x.Stats().Rows != 0 {
		t.Errorf("left over: %+v", x.Stats())
	}
}

func TestProgrammingErrors(t *testing.T) {
	x := New(Options{})
	w := x.Writer()
	for name, f := range map[string]func(){
		"second writer": func() { x.Writer() },
		"slot -1":       func() { w.Learn(-1, nil, 0) },
		"slot 1024":     func() { w.Drop(fleet.MaxSlots) },
		"order":         func() { New(Options{Eviction: 99}) },
	} {
		func() {
			defer func() {
				if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "BUG: ") {
					t.Errorf("%s: panic %q", name, s)
				}
			}()
			f()
		}()
	}
}

// TestGrowthLosesNothing reads known chains while the table grows. Half of the
// new units are small consecutive hashes; the others fall into one segment,
// which must be split again and again.
func TestGrowthLosesNothing(t *testing.T) {
	const length, total = 200, 60_000
	x := New(Options{Capacity: 1 << 20})
	w := x.Writer()
	var known [20][]prefix.Hash
	for i := range known {
		known[i] = chainOf(uint64(i), length)
		for slot := range i%3 + 1 {
			w.Learn(slot, known[i], 0)
		}
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				if n := matchOne(x, i%len(known)%3, known[i%len(known)]); n != length {
					t.Errorf("chain %d: %d units left", i%len(known), n)
					return
				}
			}
		})
	}
	r := rand.New(rand.NewPCG(2, 2))
	all := make([]prefix.Hash, total)
	for i := range all {
		all[i] = prefix.Hash(i + 1)
		if i%2 == 1 {
			all[i] = unspread(0x15<<59 | r.Uint64()>>minDepth)
		}
	}
	for i := 0; i < total; i += 100 {
		w.Learn(5, all[i:i+100], 0)
	}
	stop.Store(true)
	wg.Wait()
	s := x.Stats()
	if s.Units != int64(total+len(known)*length) || x.table.segments <= 1<<minDepth {
		t.Errorf("%+v in %d segments", s, x.table.segments)
	}
	if d := x.table.dir.Load(); len(d.segs) > 8*x.table.segments {
		t.Errorf("%d segments in a directory of %d", x.table.segments, len(d.segs))
	}
	for i, h := range all {
		var set SlotSet
		if !x.Holds(h, &set) || !set.Has(5) || set.Len() != 1 {
			t.Fatalf("unit %d: %v", i, set)
		}
	}
	w.Drop(5)
	for !w.Sweep(1000) {
	}
	if s := x.Stats(); s.Units != int64(len(known)*length) {
		t.Errorf("left over: %+v", s)
	}
}
