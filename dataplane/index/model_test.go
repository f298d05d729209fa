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

// TestReadersSeeWhatWas runs readers against a writer that learns, evicts,
// drops and makes the tables grow, and checks afterwards that every unit a
// reader counted was held at some moment of its call, and that no unit was
// missed that was held all the time.
func TestReadersSeeWhatWas(t *testing.T) {
	const changes, readers, capacity = 800, 3, 400
	x, tw := New(Options{Capacity: capacity}), newTwin(capacity)
	w := x.Writer()
	var begun, done atomic.Int64 // number of the change under way, of the last one that ended
	var stop atomic.Bool
	var wg sync.WaitGroup
	seen := make([][]observation, readers)
	for reader := range readers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(reader), 3))
			f := &forest{r: r, depth: 120, branch: 9}
			var live SlotSet
			for _, s := range testSlots {
				live.Add(s)
			}
			var units [1024]uint32
			for !stop.Load() {
				chain := f.chain()
				from := done.Load()
				x.Match(chain, &live, units[:])
				to := begun.Load()
				if len(seen[reader]) > 60_000 {
					continue
				}
				for _, s := range testSlots {
					seen[reader] = append(seen[reader], observation{chain, s, units[s], from, to})
				}
			}
		})
	}
	h := &history{changes: map[prefix.Hash]map[int][]int64{}}
	r := rand.New(rand.NewPCG(99, 3))
	f := &forest{r: r, depth: 120, branch: 9}
	for i := int64(1); i <= changes; i++ {
		slot := testSlots[r.IntN(len(testSlots))]
		before := hashes(tw.nodes[slot])
		begun.Store(i)
		if r.IntN(40) == 0 {
			w.Drop(slot)
			for !w.Sweep(64) {
			}
			tw.drop(slot)
		} else {
			chain := f.chain()
			w.Learn(slot, chain, i)
			tw.learn(slot, chain, i)
		}
		done.Store(i)
		after := hashes(tw.nodes[slot])
		h.record(before, slot, true, i)
		for _, u := range before {
			if !tw.holds(slot, u) {
				h.record([]prefix.Hash{u}, slot, false, i)
			}
		}
		h.record(after, slot, true, i)
	}
	stop.Store(true)
	wg.Wait()
	checkSeen(t, h, seen)
}

func hashes(list []twinEntry) (units []prefix.Hash) {
	for _, e := range list {
		units = append(units, e.hash)
	}
	return units
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
