package index

import (
	"testing"

	"warmpath/dataplane/prefix"
)

func TestSpeculativeLapses(t *testing.T) {
	const second = int64(1e9)
	x := New(Options{})
	w := x.Writer()
	chain := chainOf(1, 10)
	w.Expire(1000*second, second, 0)
	w.Speculate(1, chain, 1600*second)
	storeChain(w, 1, Device, chain[:4]) // reported: stays
	w.Settle(1, chain, 1002*second)
	w.Expire(1002*second, second, 100)
	if n := matchOne(x, 1, chain); n != 10 {
		t.Errorf("lapsed at its time: %d units", n)
	}
	if w.Expire(1003*second, second, 4) || x.Stats().Speculative != 2 {
		t.Errorf("four of six lapsed: %+v", x.Stats())
	}
	if !w.Expire(1003*second, second, 100) {
		t.Error("and not the rest")
	}
	if n := matchOne(x, 1, chain); n != 4 {
		t.Errorf("%d units, want the 4 that were reported", n)
	}
	if s := x.Stats(); s.Confirmed != 4 || s.Lapsed != 6 || s.Speculative != 0 || s.Expired != 0 {
		t.Errorf("%+v", s)
	}
}

// What is due later than the wheel is wide is not taken for due.
func TestSpeculativeFarAhead(t *testing.T) {
	const second = int64(1e9)
	x := New(Options{})
	w := x.Writer()
	chain := chainOf(1, 3)
	w.Expire(0, second, 0)
	w.Speculate(0, chain, 2000*second)
	w.Speculate(2, chain, 100_000*second) // an hour at most
	for at := int64(0); at < 2000; at += 7 {
		w.Expire(at*second, second, 100)
		if n := matchOne(x, 0, chain); n != 3 {
			t.Fatalf("lapsed after %d seconds", at)
		}
	}
	w.Expire(2001*second, second, 100)
	if n := matchOne(x, 0, chain); n != 0 {
		t.Error("did not lapse")
	}
	w.Expire(6000*second, second, 100) // far past it, in one step
	if n := matchOne(x, 2, chain); n != 0 {
		t.Error("held for more than an hour")
	}
	w.Speculate(0, chain, 5*second) // long ago: goes with the next tick
	w.Expire(6001*second, second, 100)
	if n := matchOne(x, 0, chain); n != 0 {
		t.Error("due in the past, and still there")
	}
}

// A unit has one kind of entry: what was reported or learned is not speculated
// about, what is learned is speculated about no longer.
func TestOneKindAUnit(t *testing.T) {
	x := New(Options{})
	w := x.Writer()
	chain := chainOf(1, 9)
	w.Learn(0, chain[:3], 0)
	storeChain(w, 0, Device, chain[3:6])
	w.Speculate(0, chain, 1e9)
	if s := x.Stats(); s.HolderUnits != 9 || s.Speculative != 3 {
		t.Errorf("%+v", s)
	}
	w.Learn(0, chain, 0)
	if s := x.Stats(); s.HolderUnits != 9 || s.Speculative != 0 || w.nodes[0].units.count != 6 {
		t.Errorf("%d learned, %+v", w.nodes[0].units.count, s)
	}
	storeChain(w, 0, Device, chain[:3])
	storeChain(w, 0, Device, chain[6:])
	if s := x.Stats(); s.HolderUnits != 9 || w.nodes[0].units.count != 0 {
		t.Errorf("%d learned, %+v", w.nodes[0].units.count, s)
	}
	storeChain(w, 0, Host, chain) // another tier holds nothing off
	if n := x.Stats().HolderUnits; n != 18 {
		t.Errorf("%d entries, want 18", n)
	}
	for _, u := range chain {
		w.Removed(0, Device, uint64(u))
		w.Removed(0, Host, uint64(u))
	}
	if s := x.Stats(); s.HolderUnits != 0 || s.Units != 0 {
		t.Errorf("%+v", s)
	}
}

func TestSpeculativeBound(t *testing.T) {
	x := New(Options{MemoryBytes: MinMemoryBytes})
	w := x.Writer()
	for i := range 100 {
		w.Speculate(i%8, chainOf(uint64(i), 100), 1e9)
	}
	s := x.Stats()
	if s.Speculative != s.Capacity/wheelShare || s.Speculative+s.Refusals != 10_000 {
		t.Errorf("%+v", s)
	}
}

// TestWhoGoesFirst fills an index with all kinds and then with blocks.
func TestWhoGoesFirst(t *testing.T) {
	x := New(Options{MemoryBytes: MinMemoryBytes, Capacity: 1 << 30})
	w := x.Writer()
	share := w.maximum / 8
	dropped, learned, speculated, stored := chainOf(1, share), chainOf(2, share), chainOf(3, w.wheel.maximum), chainOf(4, share)
	w.Learn(0, dropped, 0)
	w.Drop(0)
	w.Learn(1, learned, 0)
	w.Speculate(2, speculated, 1e9)
	storeChain(w, 3, Device, stored)
	count := func() [4]int64 { return [4]int64{x.SlotUnits(0), x.SlotUnits(1), x.SlotUnits(2), x.SlotUnits(3)} }
	was := count()
	var order []int
	for i := 0; w.Lost(3)+w.Lost(4) < 100; i++ {
		storeChain(w, 4, Device, chainOf(uint64(i)+10, 5))
		is := count()
		for slot := range is {
			if is[slot] < was[slot] && (len(order) == 0 || order[len(order)-1] != slot) {
				order = append(order, slot)
			}
		}
		was = is
	}
	if len(order) != 3 || order[0] != 0 || order[1] != 1 || order[2] != 2 {
		t.Errorf("slots gave way in the order %v", order)
	}
	s := x.Stats()
	if s.Bytes > s.MemoryBytes || s.ReportedEvictions < 100 || s.SpeculativeEvictions != int64(len(speculated)) ||
		w.Lost(3) > 0 || s.MemoryEvictions != int64(2*share)+s.SpeculativeEvictions+s.ReportedEvictions {
		t.Errorf("%d of the smaller node lost, %+v", w.Lost(3), s)
	}
	// No block makes room for what is worth less; there may be room for one
	// unit, which a block left that shared none.
	w.Learn(5, chainOf(99, 10), 0)
	w.Speculate(5, chainOf(99, 10), 1e9)
	if x.SlotUnits(5) > 1 || x.SlotUnits(3) != int64(share) || x.Stats().ReportedEvictions != s.ReportedEvictions {
		t.Errorf("%d learned or speculated, %+v", x.SlotUnits(5), x.Stats())
	}
	w.Clear(4)
	if w.Lost(4) != 0 {
		t.Error("a cleared slot has lost nothing")
	}
}

// TestReportedRowBound gives every unit a set of its own, in all tiers, until
// the row store is full. Nobody may be said to hold what it does not.
func TestReportedRowBound(t *testing.T) {
	x := New(Options{MemoryBytes: MinMemoryBytes})
	w := x.Writer()
	truth := map[[2]uint64]int{}
	r := newRand(3)
	step := func(store bool) {
		u, slot, tier := uint64(1+r.IntN(2000)), r.IntN(300), Tier(r.IntN(Tiers))
		if store {
			w.Stored(slot, tier, u, []prefix.Hash{prefix.Hash(u)})
			truth[[2]uint64{u, uint64(position(slot, tier))}]++
		} else if w.Removed(slot, tier, u) {
			truth[[2]uint64{u, uint64(position(slot, tier))}]--
		}
	}
	for i := range 16_000 {
		step(i%4 > 0)
	}
	if x.Stats().Refusals == 0 || x.rows.bytes > x.rows.maximum || x.Stats().ReportedEvictions > 0 {
		t.Fatalf("%d bytes of rows of %d: %+v", x.rows.bytes, x.rows.maximum, x.Stats())
	}
	for range 100_000 {
		step(false)
	}
	held := map[[2]uint64]bool{}
	for k, n := range truth {
		if n > 0 {
			held[[2]uint64{k[0], uint64(slotOf(int(k[1])))}] = true
		}
	}
	for u := range uint64(2001) {
		var set SlotSet
		x.Holds(prefix.Hash(u), &set)
		for slot := set.Next(0); slot >= 0; slot = set.Next(slot + 1) {
			if !held[[2]uint64{u, uint64(slot)}] {
				t.Fatalf("unit %d: slot %d does not hold it", u, slot)
			}
		}
	}
}
