package index

import (
	"math/rand/v2"
	"testing"
)

// TestTextSameAsTwin learns chains whose units have weights. Every order bounds a
// node's units by their weights together; LRU keeps what the twin keeps.
func TestTextSameAsTwin(t *testing.T) {
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 8))
		f := &forest{r: r, depth: 150, branch: 10 + r.IntN(40)}
		const capacity = 1200 // some four of the longest chains
		x, tw := New(Options{Capacity: capacity}), newTwin(capacity)
		w := x.Writer()
		for step := range 300 {
			slot := testSlots[r.IntN(3)]
			if r.IntN(20) == 0 {
				units := 100 + r.IntN(2*capacity)
				w.SetCapacity(slot, units)
				tw.setCapacity(slot, units)
				sweepAll(t, w, r)
			}
			chain := f.chain()
			w.LearnText(slot, chain, int64(step)*1e9)
			tw.learnText(slot, chain, int64(step)*1e9)
			sameAsTwin(t, x, tw, f)
			if n := &w.nodes[slot]; n.weight > n.capacity {
				t.Fatalf("step %d: %d of %d", step, n.weight, n.capacity)
			}
		}
		for _, slot := range testSlots[:3] {
			w.Drop(slot)
		}
		sweepAll(t, w, r)
		for _, slot := range testSlots[:3] {
			if weight := w.nodes[slot].weight; weight != 0 {
				t.Errorf("slot %d weighs %d, with no units", slot, weight)
			}
		}
	}
}

func TestTextCapacityInEveryOrder(t *testing.T) {
	for order := range evictions {
		r := rand.New(rand.NewPCG(uint64(order), 9))
		f := &forest{r: r, depth: 150, branch: 20}
		w := New(Options{Capacity: 700}).Writer()
		w.SetEviction(3, order)
		for step := range 300 {
			w.LearnText(3, f.chain(), int64(step)*1e9)
			n, sum := &w.nodes[3], 0
			for i := range n.lists {
				for id := n.lists[i].newest; id != 0; id = w.pool.at(id).older() {
					sum += w.pool.at(id).weight()
				}
			}
			if n.weight != sum || sum > n.capacity {
				t.Fatalf("%v, step %d: weight %d, of the entries %d, capacity %d", order, step, n.weight, sum, n.capacity)
			}
		}
	}
}
