package index

import (
	"math/rand/v2"
	"slices"
	"testing"

	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prefix"
)

// hybrid is the whole index without a thought for speed: of each slot the
// learned units in a twin, the speculative ones and the reported blocks in maps.
type hybrid struct {
	*twin
	speculative [fleet.MaxSlots]map[prefix.Hash]int64 // tick when due
	blocks      [fleet.MaxSlots][Tiers]map[uint64]*twinBlock
	replaced    []prefix.Hash // units of blocks whose name became another's
}

type twinBlock struct {
	parts  []prefix.Hash
	copies int
}

func newHybrid(capacity int) *hybrid {
	h := &hybrid{twin: newTwin(capacity)}
	for slot := range h.blocks {
		h.clear(slot)
	}
	return h
}

func (h *hybrid) clear(slot int) {
	h.nodes[slot] = nil
	h.speculative[slot] = map[prefix.Hash]int64{}
	for t := range h.blocks[slot] {
		h.blocks[slot][t] = map[uint64]*twinBlock{}
	}
}

// reports counts the blocks of a slot and tier that a unit is part of.
func (h *hybrid) reports(slot int, tier Tier, u prefix.Hash) (n int) {
	for _, b := range h.blocks[slot][tier] {
		for _, p := range b.parts {
			if p == u {
				n++
			}
		}
	}
	return n
}

// best returns the best tier that holds a unit, and whether any does.
func (h *hybrid) best(slot int, u prefix.Hash) (Tier, bool) {
	if _, ok := h.speculative[slot][u]; ok || h.holds(slot, u) {
		return Device, true
	}
	for t := Device; t < Tiers; t++ {
		if h.reports(slot, t, u) > 0 {
			return t, true
		}
	}
	return 0, false
}

func (h *hybrid) learn(slot int, chain []prefix.Hash, nowNs int64) {
	var mine []prefix.Hash
	for _, u := range chain[:min(len(chain), h.capacity[slot])] {
		if h.reports(slot, Device, u) == 0 {
			delete(h.speculative[slot], u)
			mine = append(mine, u)
		}
	}
	h.twin.learn(slot, mine, nowNs)
}

func (h *hybrid) speculate(slot int, chain []prefix.Hash, due int64) {
	for _, u := range chain {
		if old, ok := h.speculative[slot][u]; ok {
			h.speculative[slot][u] = max(old, due)
		} else if !h.holds(slot, u) && h.reports(slot, Device, u) == 0 {
			h.speculative[slot][u] = due
		}
	}
}

func (h *hybrid) settle(slot int, chain []prefix.Hash, due int64) {
	for _, u := range chain {
		if _, ok := h.speculative[slot][u]; ok {
			h.speculative[slot][u] = due
		}
	}
}

func (h *hybrid) lapse(tick int64) {
	for slot := range h.speculative {
		for u, due := range h.speculative[slot] {
			if due <= tick {
				delete(h.speculative[slot], u)
			}
		}
	}
}

func (h *hybrid) stored(slot int, tier Tier, block uint64, parts []prefix.Hash, again bool) {
	for t, blocks := range h.blocks[slot] {
		if b := blocks[block]; b != nil && b.parts[len(b.parts)-1] != parts[len(parts)-1] {
			h.replaced = append(h.replaced, b.parts...)
			delete(h.blocks[slot][t], block)
		}
	}
	if b := h.blocks[slot][tier][block]; b != nil && again {
		return
	}
	if b := h.blocks[slot][tier][block]; b != nil {
		b.copies++
		return
	}
	h.blocks[slot][tier][block] = &twinBlock{slices.Clone(parts), 1}
	if tier != Device {
		return
	}
	for _, u := range parts {
		delete(h.speculative[slot], u)
		h.nodes[slot] = slices.DeleteFunc(h.nodes[slot], func(e twinEntry) bool { return e.hash == u })
	}
}

func (h *hybrid) removed(slot int, tier Tier, block uint64) bool {
	b := h.blocks[slot][tier][block]
	if b == nil {
		return false
	}
	if b.copies--; b.copies == 0 {
		delete(h.blocks[slot][tier], block)
	}
	return true
}

func (h *hybrid) match(chain []prefix.Hash, live *SlotSet, units, credits []uint32) (longest int) {
	worth := [Tiers]uint32{CreditDevice, CreditHost, CreditDisk}
	for slot := live.Next(0); slot >= 0; slot = live.Next(slot + 1) {
		units[slot], credits[slot] = 0, 0
		for _, u := range chain {
			tier, ok := h.best(slot, u)
			if !ok {
				break
			}
			units[slot]++
			credits[slot] += worth[tier]
		}
		longest = max(longest, int(units[slot]))
	}
	return longest
}

// entries is what the index needs for all that: one for each learned and
// speculative unit and each part of a block, one for each unit shared by blocks.
func (h *hybrid) entries() (n int) {
	for slot := range h.blocks {
		n += len(h.nodes[slot]) + len(h.speculative[slot])
		for t := range h.blocks[slot] {
			count := map[prefix.Hash]int{}
			for _, b := range h.blocks[slot][t] {
				for _, u := range b.parts {
					count[u]++
				}
			}
			for _, k := range count {
				n += k + min(1, k-1)
			}
		}
	}
	return n
}

// hybridTest drives an index and its twin.
type hybridTest struct {
	*testing.T
	x     *Index
	w     *Writer
	h     *hybrid
	f     *forest
	r     *rand.Rand
	nowNs int64
}

// blockOf names a block of units as an engine would; now and then under a
// second name, or one that many have.
func (t *hybridTest) blockOf(slot int, parts []prefix.Hash) uint64 {
	name := uint64(parts[len(parts)-1])*31 + uint64(slot) + uint64(len(parts))<<60
	switch t.r.IntN(16) {
	case 0, 1:
		name++
	case 2:
		name = uint64(t.r.IntN(4))
	}
	return name
}

// report stores or removes some blocks of a chain.
func (t *hybridTest) report(slot int) {
	chain := t.f.chain()
	tier := Tier(max(0, t.r.IntN(6)-3))
	size := 1 + t.r.IntN(2)*t.r.IntN(4)
	remove := t.r.IntN(5) < 2
	for i := 0; i+size <= len(chain); i += size {
		parts := chain[i : i+size]
		block := t.blockOf(slot, parts)
		if t.r.IntN(2) == 0 {
			i += t.reportRun(slot, tier, chain[i:], size, remove) - size
			continue
		}
		if !remove {
			if !t.w.Stored(slot, tier, block, parts) {
				t.Fatal("a block was refused")
			}
			t.h.stored(slot, tier, block, parts, false)
			if last, ok := t.w.Last(slot, block); !ok || last != parts[len(parts)-1] {
				t.Fatalf("Last: got %x %v, want %x", last, ok, parts[len(parts)-1])
			}
		} else if got, want := t.w.Removed(slot, tier, block), t.h.removed(slot, tier, block); got != want {
			t.Fatalf("Removed: got %v, want %v", got, want)
		}
	}
}

// reportRun stores or removes several blocks of one size in one call, and
// returns how many units that are.
func (t *hybridTest) reportRun(slot int, tier Tier, chain []prefix.Hash, size int, remove bool) int {
	count := 1 + t.r.IntN(len(chain)/size)
	blocks := make([]uint64, count)
	again := t.r.IntN(4) == 0
	want := 0
	for i := range blocks {
		parts := chain[i*size : (i+1)*size]
		blocks[i] = t.blockOf(slot, parts)
		if !remove {
			t.h.stored(slot, tier, blocks[i], parts, again)
			want++
		} else if t.h.removed(slot, tier, blocks[i]) {
			want++
		}
	}
	got := 0
	if remove {
		got = t.w.RemovedRun(slot, tier, blocks)
	} else {
		got, _ = t.w.StoredRun(slot, tier, blocks, chain[:count*size], again)
	}
	if got != want {
		t.Fatalf("%d of %d blocks were known, want %d", got, len(blocks), want)
	}
	return count * size
}

// tickOf is a time as the index counts it.
func (t *hybridTest) tickOf(ns int64) int64 { return (ns - t.w.baseNs) >> tickShift }

func (t *hybridTest) dispatch(slot int) {
	chain := t.f.chain()
	untilNs := t.nowNs + t.r.Int64N(100e9) - 1e9
	due := max(t.tickOf(untilNs)+1, int64(t.w.tick)+1)
	if t.r.IntN(3) == 0 {
		t.w.Settle(slot, chain, untilNs)
		t.h.settle(slot, chain, due)
	} else {
		t.w.Speculate(slot, chain, untilNs)
		t.h.speculate(slot, chain, due)
	}
}

func (t *hybridTest) step() {
	slot := testSlots[t.r.IntN(len(testSlots))]
	t.nowNs += t.r.Int64N(1e9)
	switch k := t.r.IntN(24); {
	case k < 12:
		t.report(slot)
	case k < 16:
		t.dispatch(slot)
	case k < 20:
		chain := t.f.chain()
		t.w.Learn(slot, chain, t.nowNs)
		t.h.learn(slot, chain, t.nowNs)
	case k == 20: // nothing of it may be seen before it is swept, or after
		t.w.Clear(slot)
		t.h.clear(slot)
	case k == 21:
		t.w.Drop(slot)
		t.h.clear(slot)
		for !t.w.Swept(slot) {
			sameAsHybrid(t)
			t.w.Sweep(1 + t.r.IntN(200))
		}
		t.h.setCapacity(slot, 120)
	case k == 22:
		t.w.Sweep(t.r.IntN(300))
	case k == 23:
		t.nowNs += 1e9
		ttl := int64(1+t.r.IntN(20)) * 1e9
		for !t.w.Expire(t.nowNs, ttl, 1+t.r.IntN(50)) {
		}
		t.h.expire(t.nowNs-oneTick(t.w, t.nowNs, ttl), ttl)
		t.h.lapse(t.tickOf(t.nowNs))
	}
}

// sameAsHybrid compares what readers see and what the writer says of itself.
func sameAsHybrid(t *hybridTest) {
	t.Helper()
	chain := t.f.chain()
	var live SlotSet
	for _, s := range testSlots {
		if t.r.IntN(4) > 0 {
			live.Add(s)
		}
	}
	var got, want, gotCredits, wantCredits [1024]uint32
	longest := t.x.MatchTiers(chain, &live, got[:], gotCredits[:])
	if l := t.h.match(chain, &live, want[:], wantCredits[:]); longest != l || got != want || gotCredits != wantCredits {
		for _, s := range testSlots {
			t.Logf("slot %d: got %d units for %d, want %d for %d", s, got[s], gotCredits[s], want[s], wantCredits[s])
		}
		t.Fatalf("Match of %d units: got %d, want %d", len(chain), longest, l)
	}
	var walked [1024]uint32
	var w Walk
	w.Start(t.x, &live, walked[:], nil)
	for rest := chain; len(rest) > 0; {
		n := 1 + t.r.IntN(len(rest))
		if !w.Extend(rest[:n]) {
			break
		}
		rest = rest[n:]
	}
	if n := w.Finish(); n != longest || walked != want {
		t.Fatalf("a walk in pieces found %d units, Match %d", n, longest)
	}
	u := chain[t.r.IntN(len(chain))]
	var set SlotSet
	t.x.Holds(u, &set)
	for _, s := range testSlots {
		if _, ok := t.h.best(s, u); ok != set.Has(s) {
			t.Fatalf("Holds: slot %d: got %v, want %v", s, set.Has(s), ok)
		}
	}
	sameDigest(t, testSlots[t.r.IntN(len(testSlots))], Tier(t.r.IntN(Tiers)))
}

func sameDigest(t *hybridTest, slot int, tier Tier) {
	t.Helper()
	count, xor, sum := t.w.Digest(slot, tier)
	blocks := t.h.blocks[slot][tier]
	for b := range blocks {
		count--
		xor ^= b
		sum -= b
	}
	if count != 0 || xor != 0 || sum != 0 {
		t.Fatalf("digest of slot %d, tier %v is off by %d blocks, %x, %x", slot, tier, int64(count), xor, sum)
	}
	left := len(blocks)
	t.w.Blocks(slot, tier, func(b uint64) bool {
		if blocks[b] == nil {
			t.Fatalf("Blocks names %x, which was not stored", b)
		}
		left--
		return true
	})
	if left != 0 {
		t.Fatalf("Blocks left out %d blocks", left)
	}
}

// TestSameAsHybrid mixes all kinds of entries in all slots.
func TestSameAsHybrid(t *testing.T) {
	seeds := uint64(6)
	if raceEnabled {
		seeds = 2
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 70))
		x := New(Options{Capacity: 120})
		ht := &hybridTest{
			T: t, x: x, w: x.Writer(), h: newHybrid(120), r: r, nowNs: int64(r.Uint64() >> 2),
			f: &forest{r: r, depth: 50, branch: 1 + r.IntN(12)},
		}
		ht.w.Expire(ht.nowNs, 1e9, 0)
		for step := range 1200 {
			ht.step()
			sameAsHybrid(ht)
			if step%50 == 0 {
				for !ht.w.Sweep(1000) {
				}
				s := x.Stats()
				if want := ht.h.entries(); s.HolderUnits != int64(want) {
					t.Fatalf("step %d: %d entries, want %d", step, s.HolderUnits, want)
				}
				if s.Refusals+s.Forgotten+s.MemoryEvictions != 0 {
					t.Fatalf("step %d: %+v", step, s)
				}
			}
		}
		for _, slot := range testSlots {
			ht.w.Drop(slot)
		}
		if s := x.Stats(); !ht.w.Sweep(1<<30) || x.Stats().HolderUnits+x.Stats().Units+x.Stats().Rows+x.Stats().Speculative != 0 {
			t.Fatalf("left over: %+v", s)
		}
	}
}
