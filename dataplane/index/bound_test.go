package index

import (
	"math/rand/v2"
	"testing"

	"warmpath/dataplane/prefix"
)

// TestMemoryBound fills small indexes far beyond their memory in different
// shapes. None may ever take more than it was given, and all must go on
// learning.
func TestMemoryBound(t *testing.T) {
	shapes := []struct {
		name          string
		slots, length int
		chain         func(r *rand.Rand, i int) uint64 // seed of the i-th chain
		slot          func(r *rand.Rand, i int) int
	}{
		{"one node", 1, 400, func(_ *rand.Rand, i int) uint64 { return uint64(i) }, func(*rand.Rand, int) int { return 0 }},
		{"a unit a node", 256, 100, func(_ *rand.Rand, i int) uint64 { return uint64(i) }, func(_ *rand.Rand, i int) int { return i % 256 }},
		{"shared by all", 1024, 300, func(_ *rand.Rand, i int) uint64 { return uint64(i / 1024) }, func(_ *rand.Rand, i int) int { return i % 1024 }},
		{"any sets", 1024, 8, func(r *rand.Rand, _ int) uint64 { return r.Uint64N(4000) }, func(r *rand.Rand, _ int) int { return r.IntN(1024) }},
		{"one node after the other", 64, 200, func(_ *rand.Rand, i int) uint64 { return uint64(i) }, func(_ *rand.Rand, i int) int { return i / 500 % 64 }},
	}
	for _, shape := range shapes {
		t.Run(shape.name, func(t *testing.T) {
			x := New(Options{MemoryBytes: MinMemoryBytes, Capacity: 1 << 30})
			w := x.Writer()
			r := rand.New(rand.NewPCG(1, 4))
			rounds, most := 6*w.maximum/shape.length, Stats{}
			if raceEnabled {
				rounds /= 3
			}
			for i := range rounds {
				chain, slot := chainOf(shape.chain(r, i), shape.length), shape.slot(r, i)
				w.Learn(slot, chain, int64(i))
				s := x.Stats()
				if s.Bytes > s.MemoryBytes || s.HolderUnits > s.Capacity {
					t.Fatalf("after %d chains: %+v", i+1, s)
				}
				if raceEnabled && i%16 > 0 {
					continue
				}
				if n := matchOne(x, slot, chain); n != len(chain) && s.Refusals == most.Refusals {
					t.Fatalf("after %d chains: the last one counts %d units: %+v", i+1, n, s)
				}
				if s.Bytes > most.Bytes || s.Refusals > most.Refusals {
					most = s
				}
			}
			s := x.Stats()
			t.Logf("at most %d KiB, %.1f bytes a holder-unit, %d rows, %d refusals, %d forgotten",
				most.Bytes>>10, float64(most.Bytes)/float64(most.HolderUnits), s.Rows, s.Refusals, s.Forgotten)
			for slot := range shape.slots {
				w.Drop(slot)
			}
			if !w.Sweep(1<<30) || x.Stats().Units != 0 || x.Stats().Rows != 0 || x.Stats().HolderUnits != 0 {
				t.Errorf("left over: %+v", x.Stats())
			}
		})
	}
}

// When the index is full, the node with the most entries gives way, not the
// one that learns.
func TestFullestGivesWay(t *testing.T) {
	x := New(Options{MemoryBytes: MinMemoryBytes, Capacity: 1 << 30})
	w := x.Writer()
	small := chainOf(1, 100)
	w.Learn(1, small, 0)
	for i := 0; x.Stats().MemoryEvictions == 0; i++ {
		w.Learn(0, chainOf(uint64(i)+10, 100), 1)
	}
	for i := range 50 {
		w.Learn(2, chainOf(uint64(i)+1e6, 100), 2)
	}
	if n := matchOne(x, 1, small); n != 100 {
		t.Errorf("the small node lost units: %d of 100 left", n)
	}
	if n := x.SlotUnits(2); n != 5000 {
		t.Errorf("the learning node has %d units, want 5000", n)
	}
	// Entries of a dropped node go before all others.
	kept := x.SlotUnits(0)
	w.Drop(1)
	w.Drop(2)
	for i := range 40 {
		w.Learn(3, chainOf(uint64(i)+2e6, 100), 3)
	}
	if lost := kept - x.SlotUnits(0); lost > 64 {
		t.Errorf("the fullest node lost %d units while dropped ones had some", lost)
	}
}

// A chain that alone is more than the index can hold is cut, not chased round.
func TestChainLargerThanIndex(t *testing.T) {
	x := New(Options{MemoryBytes: MinMemoryBytes, Capacity: 1 << 30})
	w := x.Writer()
	chain := chainOf(1, w.maximum+1000)
	for range 2 {
		w.Learn(0, chain, 0)
		if n := matchOne(x, 0, chain); n != w.maximum {
			t.Errorf("held %d units, want %d", n, w.maximum)
		}
	}
	if s := x.Stats(); s.Refusals != 2000 || s.MemoryEvictions != 0 {
		t.Errorf("%+v", s)
	}
}

// TestRowBound gives every unit a set of its own until the row store is full.
// Then units are refused or forgotten, counted, and never held wrongly.
func TestRowBound(t *testing.T) {
	x := New(Options{MemoryBytes: MinMemoryBytes, Capacity: 1 << 30})
	w := x.Writer()
	r := rand.New(rand.NewPCG(8, 8))
	const hashes = 6000
	truth := make([]SlotSet, hashes+1)
	for range 40_000 {
		h, slot := 1+r.IntN(hashes), r.IntN(1024)
		w.Learn(slot, []prefix.Hash{prefix.Hash(h)}, 0)
		truth[h].Add(slot)
	}
	s := x.Stats()
	if s.Refusals == 0 || x.rows.bytes > x.rows.maximum {
		t.Fatalf("the row store is not full, or overfull: %d bytes of %d: %+v", x.rows.bytes, x.rows.maximum, s)
	}
	for slot := range 512 {
		w.Drop(slot)
		for h := range truth {
			truth[h].Remove(slot)
		}
	}
	w.Sweep(1 << 30)
	for h := 1; h <= hashes; h++ {
		var set SlotSet
		x.Holds(prefix.Hash(h), &set)
		for slot := set.Next(0); slot >= 0; slot = set.Next(slot + 1) {
			if !truth[h].Has(slot) {
				t.Fatalf("unit %d: slot %d never held it", h, slot)
			}
		}
	}
	t.Logf("%+v", x.Stats())
}
