package machine

import "testing"

func TestStealPercent(t *testing.T) {
	m := Start()
	for range 1000 {
		if p := m.StealPercent(); p < 0 || p > 1e6 {
			t.Fatal(p)
		}
	}
	m.ticks -= 100 // a second was stolen
	if m.StealPercent() <= 0 {
		t.Error("nothing was stolen")
	}
}

func TestQuiet(t *testing.T) {
	n := 0.0
	results, _ := Quiet(3, func() float64 { n++; return n })
	if len(results) < 3 || len(results) > 3*mostTries || results[len(results)-1] != n && n < 3*mostTries {
		t.Errorf("%v of %v", results, n)
	}
}
