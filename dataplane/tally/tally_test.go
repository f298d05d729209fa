package tally

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"
)

var bounds = []float64{.001, .01, .1, 1, 10}

func TestHistogramBucketsAreInclusive(t *testing.T) {
	h := NewHistogram(bounds)
	for _, v := range []float64{0, .001, .0011, 1, 10, 10.1} {
		h.Observe(v)
	}
	want := []uint64{2, 1, 0, 1, 1, 1}
	for i, n := range want {
		if h.Counts[i] != n {
			t.Errorf("bucket %d has %d, want %d", i, h.Counts[i], n)
		}
	}
	if h.Total != 6 || math.Abs(h.Sum-21.1021) > 1e-9 {
		t.Errorf("total %d, sum %v", h.Total, h.Sum)
	}
}

// TestQuantile: the estimate lies in the bucket of the true quantile.
func TestQuantile(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		h := NewHistogram(bounds)
		var values []float64
		for range 1 + rng.IntN(200) {
			v := math.Pow(10, rng.Float64()*5-4)
			values = append(values, v)
			h.Observe(v)
		}
		sort.Float64s(values)
		for _, q := range []float64{.01, .5, .9, .99, 1} {
			rank := int(math.Ceil(q*float64(len(values)))) - 1
			truth, got := values[max(rank, 0)], h.Quantile(q)
			i := sort.SearchFloat64s(bounds, truth)
			lower, upper := 0.0, bounds[len(bounds)-1]
			if i > 0 {
				lower = bounds[i-1]
			}
			if i < len(bounds) {
				upper = bounds[i]
			}
			if got < lower-1e-12 || got > upper+1e-12 {
				t.Fatalf("quantile %v of %d values is %v, the true one %v lies in (%v, %v]", q, len(values), got, truth, lower, upper)
			}
		}
	}
	empty := NewHistogram(bounds)
	if got := empty.Quantile(.5); got != 0 {
		t.Errorf("quantile of nothing is %v, want 0", got)
	}
	beyond := NewHistogram(bounds)
	beyond.Observe(1e9)
	if got := beyond.Quantile(.5); got != 10 {
		t.Errorf("quantile beyond the last bound is %v, want that bound", got)
	}
}

func TestMergeAndSince(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	a, b := NewHistogram(bounds), NewHistogram(bounds)
	for range 100 {
		a.Observe(rng.Float64() * 20)
	}
	before := a.Clone()
	for range 50 {
		v := rng.Float64() * 20
		a.Observe(v)
		b.Observe(v)
	}
	since := a.Since(&before)
	before.Merge(&b)
	for i := range a.Counts {
		if since.Counts[i] != b.Counts[i] || before.Counts[i] != a.Counts[i] {
			t.Fatalf("bucket %d: since %d, want %d; merged %d, want %d", i, since.Counts[i], b.Counts[i], before.Counts[i], a.Counts[i])
		}
	}
	if since.Total != b.Total || before.Total != a.Total || math.Abs(since.Sum-b.Sum) > 1e-9 || math.Abs(before.Sum-a.Sum) > 1e-9 {
		t.Error("totals or sums differ")
	}
	if a.Counts[0]++; before.Counts[0] == a.Counts[0] {
		t.Error("a clone shares its counts")
	}
}

func TestCountersBound(t *testing.T) {
	var c Counters[int]
	out := map[int]uint64{}
	if c.MergeInto(out); len(out) != 0 {
		t.Error("nothing was counted, something was merged")
	}
	for i := 1; i <= MaxSeries+100; i++ {
		c.Add(0, i, 2)
	}
	c.Add(0, 1, 3)
	c.MergeInto(out)
	if len(out) != MaxSeries+1 || out[1] != 5 || out[MaxSeries] != 2 || out[MaxSeries+1] != 0 {
		t.Errorf("%d series; 1: %d; %d: %d", len(out), out[1], MaxSeries, out[MaxSeries])
	}
	if out[0] != 200 {
		t.Errorf("beyond the bound %d were counted, want 200", out[0])
	}
}

func TestTallyAllocs(t *testing.T) {
	h := NewHistogram(bounds)
	var c Counters[string]
	c.Add(0, "a", 1)
	if n := testing.AllocsPerRun(100, func() { h.Observe(.5); c.Add(0, "a", 1) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
