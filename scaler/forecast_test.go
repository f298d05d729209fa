package scaler

import (
	"math"
	"testing"
)

// TestWavesEnd: crowds that come every half minute, all at once, teach that arrivals
// bunch. It is seen all the same that a crowd has left, and not a minute later.
func TestWavesEnd(t *testing.T) {
	const work, ahead, soon = .17, 2, 25 // of a node, in seconds
	f := newForecast()
	now := int64(1e12)
	second := func(requests float64) {
		now += 1e9
		f.see(now, 1, requests, requests*work, work, 0)
		f.promise(ahead)
	}
	for wave := range 40 {
		second(48)
		for i := range 12 {
			second([]float64{9, 17, 12, 3, 20, 8}[(i+wave)%6])
		}
		after := 0
		for ; f.now() > 3*work/2 && after <= soon; after++ {
			second(float64(after % 2)) // somebody is always there
		}
		if after > soon {
			t.Fatalf("wave %d: %d s after it a load of %.2f is seen where %.2f is", wave+1, after, f.now(), work/2)
		}
		for i := range 20 - min(20, after) {
			second(float64(i % 2))
		}
	}
	if f.burst < 2 || math.IsNaN(f.burst) {
		t.Errorf("that crowds come at once is not seen: %.2f times the variance of arrivals by chance", f.burst)
	}
}
