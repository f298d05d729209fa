package index

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"warmpath/dataplane/prefix"
)

// forest makes chains that share prefixes: the hash of a unit says which
// branches led to it.
type forest struct {
	r      *rand.Rand
	depth  int
	branch int // a chain forks at every branch-th unit, two ways
}

func (f *forest) chain() []prefix.Hash {
	chain := make([]prefix.Hash, 1+f.r.IntN(f.depth))
	path := uint64(1)
	for i := range chain {
		if i%f.branch == 0 {
			path = path<<1 | uint64(f.r.IntN(2))
		}
		chain[i] = prefix.Hash(mark(path<<16 | uint64(i)))
	}
	return chain
}

// slots of different row classes
var testSlots = []int{0, 1, 2, 5, 63, 64, 200, 255, 256, 700, 1023}

// sameAsTwin compares everything that a reader can see.
func sameAsTwin(t *testing.T, x *Index, tw *twin, f *forest) {
	t.Helper()
	chain := f.chain()
	var live SlotSet
	for _, s := range testSlots {
		if f.r.IntN(4) > 0 {
			live.Add(s)
		}
	}
	var got, want [1024]uint32
	for i := range got {
		got[i], want[i] = 77, 77 // not to be touched outside of live
	}
	gotLongest, wantLongest := x.Match(chain, &live, got[:]), tw.match(chain, &live, want[:])
	if gotLongest != wantLongest || got != want {
		t.Fatalf("Match of %d units: got %d %v, want %d %v", len(chain), gotLongest, got, wantLongest, want)
	}
	h := chain[len(chain)-1]
	var set SlotSet
	held := x.Holds(h, &set)
	if wantSet := tw.holders(h); set != wantSet || held != (wantSet.Len() > 0) {
		t.Fatalf("Holds: got %v, want %v", set, wantSet)
	}
}

func TestSameAsTwin(t *testing.T) {
	const second = 1e9
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 7))
		f := &forest{r: r, depth: 60, branch: 1 + r.IntN(12)}
		x, tw := New(Options{Capacity: 120}), newTwin(120)
		w := x.Writer()
		nowNs := int64(r.Uint64() >> 2)
		for step := range 800 {
			slot := testSlots[r.IntN(len(testSlots))]
			nowNs += r.Int64N(second)
			switch r.IntN(20) {
			default:
				chain := f.chain()
				w.Learn(slot, chain, nowNs)
				tw.learn(slot, chain, nowNs)
			case 0:
				units := 1 + r.IntN(200)
				w.SetCapacity(slot, units)
				tw.setCapacity(slot, units)
				sweepAll(t, w, r)
			case 1:
				w.Drop(slot)
				tw.drop(slot)
				tw.setCapacity(slot, 120)
				sweepAll(t, w, r)
			case 2: // between two ticks of doubt nothing may lie
				nowNs += second
				ttl := int64(1+r.IntN(20)) * second
				for !w.Expire(nowNs, ttl, 1+r.IntN(50)) {
				}
				tw.expire(nowNs-oneTick(w, nowNs, ttl), ttl)
			}
			sameAsTwin(t, x, tw, f)
			s := x.Stats()
			if units, pairs := tw.total(); s.Units != int64(units) || s.HolderUnits != int64(pairs) {
				t.Fatalf("step %d: counted %d units and %d pairs, want %d and %d", step, s.Units, s.HolderUnits, units, pairs)
			}
			if s.Refusals+s.Forgotten+s.MemoryEvictions != 0 {
				t.Fatalf("step %d: %+v", step, s)
			}
		}
	}
}

// oneTick returns by how much the ticks round a time-out up.
func oneTick(w *Writer, nowNs, ttlNs int64) int64 {
	since := nowNs - w.baseNs - ttlNs
	return since - (since>>tickShift)<<tickShift
}

func sweepAll(t *testing.T, w *Writer, r *rand.Rand) {
	t.Helper()
	for range 10000 {
		if w.Sweep(1 + r.IntN(40)) {
			for _, s := range testSlots {
				if !w.Swept(s) {
					t.Fatalf("Sweep is done but slot %d is not swept", s)
				}
			}
			return
		}
	}
	t.Fatal("Sweep does not end")
}

// history says for every unit and slot after which changes it was held.
type history struct {
	changes map[prefix.Hash]map[int][]int64 // held from the first to before the second, and so on
}

func (h *history) record(chain []prefix.Hash, slot int, held bool, at int64) {
	for _, u := range chain {
		m := h.changes[u]
		if m == nil {
			m = map[int][]int64{}
			h.changes[u] = m
		}
		if (len(m[slot])%2 == 1) != held {
			m[slot] = append(m[slot], at)
		}
	}
}

// during reports whether the unit was held at some moment between the states
// from and to, and whether it was at all of them.
func (h *history) during(u prefix.Hash, slot int, from, to int64) (some, all bool) {
	c := h.changes[u][slot]
	held := false
	all = true
	last := int64(0)
	for i := 0; i <= len(c); i++ {
		next := int64(1 << 62)
		if i < len(c) {
			next = c[i]
		}
		if last <= to && next > from { // a stretch of states last … next-1
			some = some || held
			all = all && held
		}
		held, last = !held, next
	}
	return some, all
}

// observation is one answer of Match and the states it was given between.
type observation struct {
	chain    []prefix.Hash
	slot     int
	units    uint32
	from, to int64
}

// TestReadersSeeWhatWas runs readers against a writer that learns, stores,
// removes, speculates, clears, drops and makes the tables grow, and checks
// afterwards that every unit a reader counted was held at some moment of its
// call, and that no unit was missed that was held all the time.
func TestReadersSeeWhatWas(t *testing.T) {
	const readers, capacity = 3, 400
	changes := int64(1000)
	if raceEnabled {
		changes = 250
	}
	x := New(Options{Capacity: capacity})
	r := rand.New(rand.NewPCG(99, 3))
	ht := &hybridTest{
		T: t, x: x, w: x.Writer(), h: newHybrid(capacity), r: r, nowNs: 1e18,
		f: &forest{r: r, depth: 120, branch: 9},
	}
	ht.w.Expire(ht.nowNs, 1e9, 0)
	var begun, done atomic.Int64 // number of the change under way, of the last one that ended
	var stop atomic.Bool
	var wg sync.WaitGroup
	seen := make([][]observation, readers)
	for reader := range readers {
		wg.Go(func() { seen[reader] = observe(t, x, reader, &begun, &done, &stop) })
	}
	h := &history{changes: map[prefix.Hash]map[int][]int64{}}
	for i := int64(1); i <= changes; i++ {
		slot := testSlots[r.IntN(len(testSlots))]
		before := ht.h.unitsOf(slot)
		begun.Store(i)
		ht.h.replaced = ht.h.replaced[:0]
		ht.change(slot)
		done.Store(i)
		after := ht.h.unitsOf(slot)
		for u := range before {
			h.record([]prefix.Hash{u}, slot, after[u], i)
		}
		for u := range after {
			h.record([]prefix.Hash{u}, slot, true, i)
		}
		for _, u := range ht.h.replaced { // went, and came or had come in the same change
			if before[u] == after[u] {
				h.record([]prefix.Hash{u}, slot, !after[u], i)
				h.record([]prefix.Hash{u}, slot, after[u], i)
			}
		}
	}
	stop.Store(true)
	wg.Wait()
	checkSeen(t, h, seen)
}

// change makes one change of one slot.
func (t *hybridTest) change(slot int) {
	switch k := t.r.IntN(40); {
	case k < 10:
		chain := t.f.chain()
		t.w.Learn(slot, chain, t.nowNs)
		t.h.learn(slot, chain, t.nowNs)
	case k < 18:
		t.dispatch(slot)
	case k < 37:
		t.report(slot)
	case k < 39:
		t.w.Clear(slot)
		t.h.clear(slot)
	default:
		t.w.Drop(slot)
		for !t.w.Sweep(64) {
		}
		t.h.clear(slot)
		t.h.setCapacity(slot, 400)
	}
}

// unitsOf returns what a slot holds, in any tier.
func (h *hybrid) unitsOf(slot int) map[prefix.Hash]bool {
	units := map[prefix.Hash]bool{}
	for _, e := range h.nodes[slot] {
		units[e.hash] = true
	}
	for u := range h.speculative[slot] {
		units[u] = true
	}
	for t := range h.blocks[slot] {
		for _, b := range h.blocks[slot][t] {
			for _, u := range b.parts {
				units[u] = true
			}
		}
	}
	return units
}

// observe matches chains, whole or in pieces, until it is told to stop.
func observe(t *testing.T, x *Index, reader int, begun, done *atomic.Int64, stop *atomic.Bool) (seen []observation) {
	r := rand.New(rand.NewPCG(uint64(reader), 3))
	f := &forest{r: r, depth: 120, branch: 9}
	var live SlotSet
	for _, s := range testSlots {
		live.Add(s)
	}
	var units, credits [1024]uint32
	var w Walk
	for !stop.Load() {
		chain := f.chain()
		from := done.Load()
		if r.IntN(2) == 0 {
			x.MatchTiers(chain, &live, units[:], credits[:])
		} else {
			w.Start(x, &live, units[:], credits[:])
			half := r.IntN(len(chain))
			if w.Extend(chain[:half]) {
				w.Extend(chain[half:])
			}
			w.Finish()
		}
		to := begun.Load()
		if len(seen) > 40_000 {
			continue
		}
		for _, s := range testSlots {
			seen = append(seen, observation{chain, s, units[s], from, to})
			if credits[s] > CreditDevice*units[s] || credits[s] < CreditDisk*units[s] {
				t.Errorf("%d units count %d", units[s], credits[s])
				return seen
			}
		}
	}
	return seen
}

func checkSeen(t *testing.T, h *history, seen [][]observation) {
	counted := 0
	for _, list := range seen {
		for _, o := range list {
			for i, u := range o.chain {
				some, all := h.during(u, o.slot, o.from, o.to)
				if uint32(i) < o.units {
					if !some {
						t.Fatalf("slot %d: unit %d of %d counted, but not held in states %d to %d (%v)",
							o.slot, i, o.units, o.from, o.to, h.changes[u][o.slot])
					}
					counted++
					continue
				}
				if all {
					t.Fatalf("slot %d: unit %d missed, though held in states %d to %d", o.slot, i, o.from, o.to)
				}
				break
			}
		}
	}
	if counted == 0 {
		t.Fatal("no reader saw anything")
	}
	t.Logf("%d units seen", counted)
}
