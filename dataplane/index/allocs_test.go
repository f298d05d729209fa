package index

import (
	"testing"

	"warmpath/dataplane/prefix"
)

func TestAllocationsOfReaders(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	x, chain, live := staircase(16, 512, 8)
	units, credits := make([]uint32, 64), make([]uint32, 64)
	var set SlotSet
	var w Walk
	if n := testing.AllocsPerRun(100, func() {
		x.Match(chain, &live, units)
		x.MatchTiers(chain, &live, units, credits)
		w.Start(x, &live, units, credits)
		w.Extend(chain[:100])
		w.Extend(chain[100:])
		w.Finish()
		x.Holds(chain[0], &set)
	}); n != 0 {
		t.Errorf("a look-up allocates %v times", n)
	}
}

func TestAllocationsOfLearn(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	chains := make([][]prefix.Hash, 512)
	for i := range chains {
		chains[i] = append(chainOf(uint64(i%16), 50), chainOf(uint64(i)+100, 50)...)
	}
	for order := range evictions {
		w := New(Options{Capacity: 2000, Eviction: order}).Writer()
		i := 0
		learn := func() {
			w.LearnPriority((i+i/512)%8, chains[i%512], i%3, int64(i))
			i++
		}
		for range 5_000 {
			learn()
		}
		if n := testing.AllocsPerRun(2000, learn); n != 0 {
			t.Errorf("%v: Learn allocates %v times", order, n)
		}
	}
}

// Blocks come and go in all tiers, after they were speculated about.
func TestAllocationsOfReports(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const length, kept = 64, 240 // a multiple of what slots and tiers repeat after
	w := New(Options{}).Writer()
	chains := make([][]prefix.Hash, 256)
	for i := range chains {
		chains[i] = chainOf(uint64(i), length)
	}
	i := 0
	round := func() {
		slot, tier := i%8, Tier(i/8%Tiers)
		nowNs := int64(i) * 1e7
		w.Speculate(slot, chains[i%256], nowNs+1e9)
		w.Settle(slot, chains[i%256], nowNs+1e8)
		storeChain(w, slot, tier, chains[i%256])
		for _, u := range chains[(i+256-kept)%256] {
			w.Removed(slot, tier, uint64(u))
		}
		w.Expire(nowNs, 1e9, 1000)
		i++
	}
	for range 5_000 {
		round()
	}
	if n := testing.AllocsPerRun(2000, round); n != 0 {
		t.Errorf("a report allocates %v times", n)
	}
}
