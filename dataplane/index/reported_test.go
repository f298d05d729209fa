package index

import (
	"slices"
	"testing"

	"warmpath/dataplane/prefix"
)

// storeChain stores a chain, a block a unit, named by the units' hashes.
func storeChain(w *Writer, slot int, tier Tier, chain []prefix.Hash) {
	for i, u := range chain {
		w.Stored(slot, tier, uint64(u), chain[i:i+1])
	}
}

func TestCopiesOfABlock(t *testing.T) {
	x := New(Options{})
	w := x.Writer()
	chain := chainOf(1, 3)
	storeChain(w, 0, Device, chain)
	block := uint64(chain[1])
	for range 2 {
		w.Stored(0, Device, block, chain[1:2])
	}
	for left := 2; left >= 0; left-- {
		if n := matchOne(x, 0, chain); n != 3 {
			t.Fatalf("%d copies too many left the block: %d units", left, n)
		}
		if !w.Removed(0, Device, block) {
			t.Fatal("a stored block is unknown")
		}
	}
	if n := matchOne(x, 0, chain); n != 1 {
		t.Errorf("the last copy has gone: %d units", n)
	}
	if w.Removed(0, Device, block) || x.Stats().UnknownRemovals != 1 {
		t.Error("removed once more than stored")
	}
	for range 500 { // more copies than are counted
		w.Stored(0, Device, block, chain[1:2])
	}
	for removed := 1; w.Removed(0, Device, block); removed++ {
		if removed > maxCopies+1 {
			t.Fatal("more copies than there can be")
		}
	}
	if s := x.Stats(); s.HolderUnits != 2 {
		t.Errorf("%+v", s)
	}
}

func TestBlocksThatShareAUnit(t *testing.T) {
	x := New(Options{})
	w := x.Writer()
	u := chainOf(1, 1)
	for block := range uint64(4) {
		w.Stored(5, Host, block, u)
	}
	w.Stored(5, Device, 0, u) // another tier is another matter
	if x.Stats().HolderUnits != 6 {
		t.Errorf("%+v", x.Stats())
	}
	w.Removed(5, Device, 0)
	for block := range uint64(4) {
		if n := matchOne(x, 5, u); n != 1 {
			t.Fatalf("%d blocks have the unit and it is not held", 4-block)
		}
		w.Removed(5, Host, block)
	}
	if n := matchOne(x, 5, u); n != 0 || x.Stats().HolderUnits != 0 {
		t.Errorf("no block has the unit and it is held: %+v", x.Stats())
	}
}

func TestBlockOfSeveralUnits(t *testing.T) {
	x := New(Options{})
	w := x.Writer()
	chain := chainOf(1, 8)
	w.Stored(2, Device, 77, chain[:4])
	w.Stored(2, Device, 78, chain[4:])
	if last, ok := w.Last(2, 77); !ok || last != chain[3] {
		t.Errorf("Last: %x %v, want %x", last, ok, chain[3])
	}
	if n := matchOne(x, 2, chain); n != 8 {
		t.Errorf("%d units, want 8", n)
	}
	w.Removed(2, Device, 78)
	if n := matchOne(x, 2, chain); n != 4 {
		t.Errorf("%d units, want 4", n)
	}
	if w.Stored(2, Device, 79, nil) || x.Stats().Refusals != 1 {
		t.Error("a block without units was stored")
	}
}

// The match is that of any tier, the credit that of the best.
func TestTiers(t *testing.T) {
	x := New(Options{})
	w := x.Writer()
	chain := chainOf(1, 40)
	storeChain(w, 70, Device, chain[:10])
	storeChain(w, 70, Host, chain[5:20])
	storeChain(w, 70, Disk, chain[:40])
	storeChain(w, 3, Host, chain[:40])
	live := SlotSet{1 << 3, 1 << 6}
	var units, credits [128]uint32
	n := x.MatchTiers(chain, &live, units[:], credits[:])
	want := uint32(10*CreditDevice + 10*CreditHost + 20*CreditDisk)
	if n != 40 || units[70] != 40 || credits[70] != want || credits[3] != 40*CreditHost {
		t.Errorf("%d units, %d for %d (want %d), %d for %d", n, units[70], credits[70], want, units[3], credits[3])
	}
	// Only the Device rows are left, and the walk goes on without tiers.
	for _, u := range chain {
		w.Removed(70, Disk, uint64(u))
		w.Removed(70, Host, uint64(u))
		w.Removed(3, Host, uint64(u))
	}
	if n := x.MatchTiers(chain, &live, units[:], credits[:]); n != 10 || credits[70] != 40 || credits[3] != 0 {
		t.Errorf("%d units for %d", n, credits[70])
	}
}

// Clear is one step for readers: nothing of the slot counts before anything
// was swept, and nothing of what was before comes back after it.
func TestClearIsOneStep(t *testing.T) {
	x := New(Options{})
	w := x.Writer()
	chain := chainOf(1, 100)
	for slot := range 2 {
		storeChain(w, slot, Device, chain)
		storeChain(w, slot, Host, chain)
	}
	w.Clear(0)
	var set SlotSet
	if n := matchOne(x, 0, chain); n != 0 || w.Swept(0) {
		t.Errorf("a cleared slot holds %d units", n)
	}
	if x.Holds(chain[0], &set); set.Has(0) || !set.Has(1) {
		t.Error("Holds names a cleared slot")
	}
	if _, ok := w.Last(0, uint64(chain[0])); ok || w.Removed(0, Device, uint64(chain[0])) {
		t.Error("a cleared slot has blocks")
	}
	if count, _, _ := w.Digest(0, Device); count != 0 {
		t.Errorf("a cleared slot has a digest of %d blocks", count)
	}
	w.Sweep(50)
	storeChain(w, 0, Device, chain[:7]) // sweeps the rest first
	if n := matchOne(x, 0, chain); n != 7 || !w.Swept(0) {
		t.Errorf("%d units, want 7", n)
	}
	if n := matchOne(x, 1, chain); n != 100 {
		t.Errorf("the other slot has %d units left", n)
	}
	w.Clear(0)
	for !w.Sweep(3) {
	}
	if !w.Swept(0) || x.SlotUnits(0) != 0 || x.blind[0].Load() != 0 {
		t.Error("a swept slot stays blind, or keeps something")
	}
	w.Clear(0) // nothing there: at once
	if !w.Swept(0) {
		t.Error("an empty slot must be swept at once")
	}
}

// A dropped slot takes nothing, whatever it is told.
func TestDroppedSlotStoresNothing(t *testing.T) {
	x := New(Options{})
	w := x.Writer()
	chain := chainOf(1, 10)
	storeChain(w, 4, Disk, chain)
	w.Drop(4)
	w.Clear(4)
	if w.Stored(4, Device, 1, chain[:1]) {
		t.Error("a dropped slot stored a block")
	}
	w.Speculate(4, chain, 1e9)
	if matchOne(x, 4, chain) != 0 || x.Stats().Refusals != 11 || w.Swept(4) {
		t.Errorf("%+v", x.Stats())
	}
	if !w.Sweep(10) || !w.Swept(4) || !w.Stored(4, Device, 1, chain[:1]) {
		t.Error("not swept")
	}
	w.Clear(4)
	w.Drop(4) // what is being cleared can be dropped
	if !w.Sweep(10) || !w.Swept(4) || x.blind[0].Load() != 0 {
		t.Error("not swept after Clear and Drop")
	}
}

func TestBlocksCanBeStopped(t *testing.T) {
	x := New(Options{})
	w := x.Writer()
	storeChain(w, 0, Device, chainOf(1, 50))
	var got []uint64
	w.Blocks(0, Device, func(b uint64) bool {
		got = append(got, b)
		return len(got) < 5
	})
	slices.Sort(got)
	if len(slices.Compact(got)) != 5 {
		t.Errorf("%d blocks, want 5", len(got))
	}
}
