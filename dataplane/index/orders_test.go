package index

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"warmpath/dataplane/prefix"
)

// radix is one node's learned units as SGLang's radix cache would keep them, a
// unit a tree node: when it is full it evicts, among the leaves that the
// request does not use, the one whose priority is lowest.
type radix struct {
	order    Eviction
	capacity int
	uses     int
	units    map[prefix.Hash]*radixUnit
}

type radixUnit struct {
	parent             prefix.Hash
	last, made, weight int
	hits               int
}

func (t *radix) learn(chain []prefix.Hash, priority int) {
	chain = chain[:min(len(chain), t.capacity)]
	t.uses++
	missing := 0
	for _, u := range chain {
		if t.units[u] == nil {
			missing++
		}
	}
	for len(t.units)+missing > t.capacity {
		t.evict(chain)
	}
	parent := prefix.Hash(0)
	for _, u := range chain {
		e := t.units[u]
		if e == nil {
			e = &radixUnit{parent: parent, made: t.uses}
			t.units[u] = e
		}
		e.last, e.hits, e.weight = t.uses, e.hits+1, max(e.weight, priority)
		parent = u
	}
}

// worth orders leaves: the least goes first.
func (t *radix) worth(e *radixUnit) (major, minor int) {
	switch t.order {
	case LFU:
		return min(e.hits, maxLevel+1), e.last
	case FIFO:
		return 0, e.made
	case MRU:
		return 0, -e.last
	case FILO:
		return 0, -e.made
	case Priority:
		return e.weight, e.last
	default:
		return 0, e.last
	}
}

func (t *radix) evict(used []prefix.Hash) {
	inner := map[prefix.Hash]bool{}
	for _, e := range t.units {
		inner[e.parent] = true
	}
	for _, u := range used {
		inner[u] = true
	}
	var leaves []prefix.Hash
	for u := range t.units {
		if !inner[u] {
			leaves = append(leaves, u)
		}
	}
	delete(t.units, slices.MinFunc(leaves, func(a, b prefix.Hash) int {
		a1, a2 := t.worth(t.units[a])
		b1, b2 := t.worth(t.units[b])
		return cmp.Or(cmp.Compare(a1, b1), cmp.Compare(a2, b2))
	}))
}

// learnedOf returns the learned units of a slot in the order in which they go.
func learnedOf(w *Writer, slot int) (units []prefix.Hash) {
	n := &w.nodes[slot]
	for i := range n.lists {
		for id := n.lists[i].oldest; id != 0; id = w.pool.at(id).newer() {
			units = append(units, w.pool.at(id).hash())
		}
	}
	return units
}

// TestOrdersAsTheEngine evicts in every order beside the model of the engine.
// All but MRU are exact; of MRU it is wanted what all have in common.
func TestOrdersAsTheEngine(t *testing.T) {
	for order := range evictions {
		t.Run(order.String(), func(t *testing.T) {
			for seed := range uint64(4) {
				compareOrder(t, order, rand.New(rand.NewPCG(seed, 17)))
			}
		})
	}
}

func compareOrder(t *testing.T, order Eviction, r *rand.Rand) {
	const capacity = 60
	f := &forest{r: r, depth: 40, branch: 1 + r.IntN(9)}
	x := New(Options{Capacity: capacity, Eviction: order})
	w := x.Writer()
	m := &radix{order: order, capacity: capacity, units: map[prefix.Hash]*radixUnit{}}
	parents := map[prefix.Hash]prefix.Hash{}
	for step := range 300 {
		chain, priority := f.chain(), r.IntN(5)
		w.LearnPriority(0, chain, priority, int64(step)*1e9)
		m.learn(chain, priority)
		for i, u := range chain[1:] {
			parents[u] = chain[i]
		}
		units := learnedOf(w, 0)
		if len(units) > capacity || int64(len(units)) != x.SlotUnits(0) {
			t.Fatalf("step %d: %d units", step, len(units))
		}
		if n := matchOne(x, 0, chain); n != min(len(chain), capacity) {
			t.Fatalf("step %d: %d units of the last chain are left", step, n)
		}
		left := map[prefix.Hash]bool{}
		for _, u := range units {
			left[u] = true
		}
		for _, u := range units { // in the order in which they go
			if p := parents[u]; p != 0 && !left[p] {
				t.Fatalf("step %d: a unit would go before one that follows it", step)
			}
			delete(left, u)
		}
		if order == MRU {
			continue
		}
		for _, u := range units {
			if m.units[u] == nil || len(units) != len(m.units) {
				t.Fatalf("step %d: %d units, the engine has %d and not all of these", step, len(units), len(m.units))
			}
		}
	}
	if s := x.Stats(); s.Evictions == 0 || s.Refusals > 0 {
		t.Fatalf("%+v", s)
	}
}

// MRU as the engine, where no unit was forked and lost a branch.
func TestMostRecentGoesFirst(t *testing.T) {
	x := New(Options{Capacity: 10, Eviction: MRU})
	w := x.Writer()
	a, b, c := chainOf(1, 4), chainOf(2, 4), chainOf(3, 4)
	w.Learn(0, a, 0)
	w.Learn(0, b, 0)
	w.Learn(0, a, 0) // now a was used last
	w.Learn(0, c, 0) // two units have to go: the end of a
	for _, k := range []struct {
		chain []prefix.Hash
		want  int
	}{{a, 2}, {b, 4}, {c, 4}} {
		if n := matchOne(x, 0, k.chain); n != k.want {
			t.Errorf("%d units left, want %d", n, k.want)
		}
	}
}

// TestSetEviction changes the order of a node that has units.
func TestSetEviction(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	f := &forest{r: r, depth: 40, branch: 5}
	x := New(Options{Capacity: 200})
	w := x.Writer()
	for range 300 {
		before := learnedOf(w, 3)
		w.SetEviction(3, Eviction(r.IntN(int(evictions))))
		if !slices.Equal(before, learnedOf(w, 3)) {
			t.Fatal("another order of the units that were there")
		}
		for range 10 {
			w.LearnPriority(3, f.chain(), r.IntN(9), 0)
		}
	}
	w.Drop(3)
	if !w.Sweep(1000) || x.Stats().HolderUnits != 0 || w.nodes[3].order != LRU {
		t.Errorf("a dropped node's order is %v: %+v", w.nodes[3].order, x.Stats())
	}
}

// TestExpireInEveryOrder ages units: what is old goes, leaves first, whatever
// stands where in the lists.
func TestExpireInEveryOrder(t *testing.T) {
	for order := range evictions {
		x := New(Options{Eviction: order})
		w := x.Writer()
		chains := make([][]prefix.Hash, 8)
		for i := range chains {
			chains[i] = append(chainOf(uint64(i%2), 5), chainOf(uint64(i)+100, 5)...)
			w.Learn(0, chains[i], int64(i)*10e9)
		}
		w.Learn(0, chains[1], 100e9)
		for !w.Expire(101e9, 50e9, 3) {
		}
		for i, chain := range chains {
			want := 0
			if i == 1 {
				want = 10
			} else if at := int64(i) * 10e9; at >= 51e9 {
				want = 10
			} else if i%2 == 1 || chains[6][0] == chain[0] {
				want = 5
			}
			if n := matchOne(x, 0, chain); n != want {
				t.Errorf("%v: chain %d has %d units left, want %d", order, i, n, want)
			}
		}
	}
}

func TestEvictionNames(t *testing.T) {
	for order := range evictions {
		if got, err := ParseEviction(order.String()); err != nil || got != order {
			t.Errorf("%v: %v, %v", order, got, err)
		}
	}
	if _, err := ParseEviction("clock"); err == nil || Eviction(77).String() != "eviction(77)" {
		t.Error("an order that there is not")
	}
}
