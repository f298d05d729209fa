package scaler

import "testing"

// Readings of two routers that cover different spans add up as rates.
func TestMeterStretches(t *testing.T) {
	var m Meter
	reading := func(span, requests float64) *Reading {
		return &Reading{Totals: Traffic{SpanSeconds: span, Requests: requests, TTFT: []float64{requests}}}
	}
	m.Signals(1, map[string]*Reading{"a": reading(10, 100), "b": reading(50, 0)})
	s := m.Signals(2, map[string]*Reading{"a": reading(12, 120), "b": reading(51, 5)})
	if s.Traffic.SpanSeconds != 2 || s.Traffic.Requests != 30 || s.Traffic.TTFT[0] != 30 {
		t.Errorf("%+v", s.Traffic)
	}
	s = m.Signals(3, map[string]*Reading{"a": reading(13, 121), "b": reading(1, 1)})
	if s.Traffic.SpanSeconds != 0 || s.Traffic.Requests != 0 {
		t.Errorf("one was started again: %+v", s.Traffic)
	}
}

func TestClaimConflicts(t *testing.T) {
	c := Claim{ID: "1", Process: "p", Fleet: "f", Model: "m"}
	for _, o := range []struct {
		Claim
		want bool
	}{
		{Claim{ID: "1", Process: "p", Fleet: "f", Model: "m"}, false},
		{Claim{ID: "1", Process: "q", Fleet: "f", Model: "m"}, true},
		{Claim{ID: "2", Fleet: "g", Model: "n"}, false},
		{Claim{ID: "2", Fleet: "f", Model: "n"}, true},
		{Claim{ID: "2", Fleet: "g", Model: "m"}, true},
		{Claim{ID: "2", Fleet: "g"}, true},
	} {
		if got := c.Conflicts(&o.Claim); got != o.want || o.Conflicts(&c) != o.want {
			t.Errorf("%+v: %v", o.Claim, got)
		}
	}
}
