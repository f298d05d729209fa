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
