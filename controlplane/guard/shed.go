package guard

import "math"

// Signals are what shedding is decided by.
type Signals struct {
	// Pressure is the fleet's: the moving average (30 s) of the share of nodes
	// with queued prefill. A busy fleet is often near 1, so it alone sheds nothing.
	Pressure float64
	// Crowd is the share of limits.connections in use.
	Crowd float64
}

// Bounds of the law of shedding.
const (
	pressureLow, pressureHigh = 0.8, 1.0
	crowdLow, crowdHigh       = 0.5, 0.9
	shedMost                  = 0.9  // of ten new connections one always comes through: what it meets is a signal too
	risePerSecond             = 0.10 // slower than clients come back after a refusal,
	fallPerSecond             = 0.05 // and slower still, so that they do not come back all at once
)

// Share is the law of shed: auto. Of new connections the share
//
//	0.9 × ramp(pressure, 0.8 → 1) × ramp(connections in use, 0.5 → 0.9)
//
// is dropped, reached by at most a tenth a second and left by a twentieth. Both
// must be high: a fleet that is busy answers clients with 429 and Retry-After,
// which is kinder than a SYN that is lost and costs the client a second; only when
// connections pile up too is the accept queue worth guarding.
func Share(before float64, s Signals, seconds float64) float64 {
	want := shedMost * ramp(s.Pressure, pressureLow, pressureHigh) * ramp(s.Crowd, crowdLow, crowdHigh)
	step := max(0, seconds)
	return min(max(want, before-fallPerSecond*step), before+risePerSecond*step)
}

// ramp is 0 up to low, 1 from high on, and straight between; what is no number
// is 0, since nothing is shed for want of a signal.
func ramp(v, low, high float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return min(1, max(0, (v-low)/(high-low)))
}
