package load

import (
	"math"
	"testing"
)

// due collects what is due.
func due(o Options, start, end int64) (times []int64) {
	for a := newArrivals(&o, start, end); a.next != never; a.advance() {
		times = append(times, a.next)
	}
	return times
}

func TestConstantArrivals(t *testing.T) {
	times := due(Options{Rate: 3, Arrivals: Constant}, 1e9, 11e9)
	if len(times) != 30 {
		t.Fatalf("%d arrivals in 10 s at 3/s", len(times))
	}
	for i, at := range times {
		if want := 1e9 + (float64(i)+0.5)*1e9/3; math.Abs(float64(at)-want) > 2 {
			t.Errorf("arrival %d at %d, want %.0f", i, at, want)
		}
	}
}

func TestPoissonArrivals(t *testing.T) {
	const n = 200_000
	times := due(Options{Rate: 1000, Seed: 3}, 0, n*1e6)
	if math.Abs(float64(len(times))-n) > 4*math.Sqrt(n) {
		t.Errorf("%d arrivals, want %d within four standard deviations", len(times), n)
	}
	var sum, squares, last float64
	for _, at := range times {
		gap := float64(at) - last
		last = float64(at)
		sum, squares = sum+gap, squares+gap*gap
	}
	mean := sum / float64(len(times))
	if deviation := math.Sqrt(squares/float64(len(times)) - mean*mean); math.Abs(deviation/mean-1) > 0.02 {
		t.Errorf("gaps: mean %.0f, deviation %.0f; want them equal", mean, deviation)
	}
}

func TestSeedsDecideArrivals(t *testing.T) {
	one, same, other := due(Options{Rate: 100, Seed: 1}, 0, 1e9), due(Options{Rate: 100, Seed: 1}, 0, 1e9), due(Options{Rate: 100, Seed: 2}, 0, 1e9)
	if len(one) == 0 || one[0] != same[0] || one[len(one)-1] != same[len(same)-1] {
		t.Error("one seed gave two series")
	}
	if one[0] == other[0] {
		t.Error("two seeds gave one series")
	}
}

func TestStartsAreARing(t *testing.T) {
	s := newStarts(3, 100, 30)
	for _, want := range []int64{100, 110, 120} {
		if s.next() != want {
			t.Errorf("start at %d, want %d", s.next(), want)
		}
		s.pop()
	}
	if s.next() != never {
		t.Error("a start nobody waits for")
	}
	s.push(200)
	s.push(210)
	if s.pop(); s.next() != 210 {
		t.Errorf("start at %d, want 210", s.next())
	}
}
