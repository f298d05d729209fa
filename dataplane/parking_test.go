package dataplane

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestParkingOrder: in whatever order requests come, go and come back, they stand in
// the order in which they came first; and a walk meets each that stays all along, in
// that order, and none twice.
func TestParkingOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p parking
		in, out := []*exchange{}, []*exchange{}
		arrivals := uint64(0)
		var met []uint64
		var stay map[uint64]bool
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch what := rapid.IntRange(0, 5).Draw(t, "what"); {
			case what <= 1: // one comes
				arrivals++
				x := &exchange{}
				x.wait.order = arrivals
				p.insert(x)
				in = append(in, x)
			case what == 2 && len(in) > 0: // one goes
				at := rapid.IntRange(0, len(in)-1).Draw(t, "goes")
				p.remove(in[at])
				delete(stay, in[at].wait.order)
				out = append(out, in[at])
				in = slices.Delete(in, at, at+1)
			case what == 3 && len(out) > 0: // … and is back
				at := rapid.IntRange(0, len(out)-1).Draw(t, "back")
				p.insert(out[at])
				in = append(in, out[at])
				out = slices.Delete(out, at, at+1)
			case what == 4: // a walk begins
				p.next, met, stay = p.first, nil, map[uint64]bool{}
				for _, x := range in {
					stay[x.wait.order] = true
				}
			case p.next != nil: // … and goes on
				met = append(met, p.next.wait.order)
				p.next = p.next.wait.next
			}
			check(t, &p, in)
		}
		for ; p.next != nil; p.next = p.next.wait.next {
			met = append(met, p.next.wait.order)
		}
		if !slices.IsSorted(met) || len(slices.Compact(slices.Clone(met))) != len(met) {
			t.Fatalf("a walk met %v", met)
		}
		for order := range stay {
			if !slices.Contains(met, order) {
				t.Fatalf("a walk met %v, and not %d", met, order)
			}
		}
	})
}

// check wants the list to be these, in order, both ways.
func check(t *rapid.T, p *parking, in []*exchange) {
	want := slices.SortedFunc(slices.Values(in), func(a, b *exchange) int { return int(a.wait.order) - int(b.wait.order) })
	var there, back []*exchange
	for x := p.first; x != nil; x = x.wait.next {
		there = append(there, x)
	}
	for x := p.last; x != nil; x = x.wait.prev {
		back = append(back, x)
	}
	slices.Reverse(back)
	if !slices.Equal(there, want) || !slices.Equal(back, want) || p.count != len(want) {
		t.Fatalf("%d in the list, %d counted, %d in it backwards; want %d", len(there), p.count, len(back), len(want))
	}
}
