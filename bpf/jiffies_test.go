package bpf

import (
	"slices"
	"testing"

	"warmpath/netlab"
)

func TestTicksPerSecond(t *testing.T) {
	needBPF(t)
	hz, err := TicksPerSecond()
	netlab.SkipLacking(t, err)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if !slices.Contains(tickRates[:], hz) {
		t.Errorf("%d ticks a second", hz)
	}
	for measured, want := range map[float64]int{96: 100, 260: 250, 271: 250, 288: 300, 990: 1000, 0: 100} {
		if got := nearestRate(measured); got != want {
			t.Errorf("%v is taken for %d, want %d", measured, got, want)
		}
	}
}
