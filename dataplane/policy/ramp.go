package policy

import (
	"math"
	"slices"

	"warmpath/dataplane/fleet"
)

// A node that has come, or come back, counts for less than its like until it has
// shown that it is as good: see fleet.Node. Its share of new work is held down by
// counting what it has in flight several times: 1 ÷ its share. An idle node is never
// kept from work by that, so that it gets what warms it even where little comes; and
// work that belongs to it, since it holds most of the prompt, is counted as ever, so
// that no conversation leaves it. Only shares against each other matter: where all
// nodes of a model ramp alike, or there is one, nothing is counted twice.

// leastShare is the share of a node that has shown nothing.
const leastShare = 0.25

// byProof is the share of a node as its answers have proved it. That is all there is
// to it for a policy that prices the prefill of what a node does not hold: a cold
// node pays for being cold, and only a herd must be kept from it while nobody knows
// whether it works, how fast it is, and what its engine does on first use.
func byProof(n *fleet.Node) float64 { return shareOf(n.Proof) }

// byFill is the share of a node by its cache, too: for a policy that counts loads only,
// to which a cold node is an idle one.
func byFill(n *fleet.Node) float64 {
	if !n.Filling {
		return byProof(n)
	}
	return min(byProof(n), shareOf(n.Warmth))
}

// shareOf turns what a node has shown, 0 … 1, into its share; what is not known holds
// nothing down.
func shareOf(shown fleet.Gauge) float64 {
	if !shown.Known || math.IsNaN(shown.Value) {
		return 1
	}
	return leastShare + (1-leastShare)*min(max(shown.Value, 0), 1)
}

// pricing is newView for a policy that prices prefill.
func pricing(s *fleet.Snapshot) view {
	v := newView(s)
	v.setRamps(s, byProof)
	return v
}

// setRamps sets how often the load of each node counts: the share of the best node of
// its model ÷ its own. Of a node of several models the mildest counts.
func (v *view) setRamps(s *fleet.Snapshot, share func(*fleet.Node) float64) {
	v.ramping = slices.ContainsFunc(s.Nodes, func(n *fleet.Node) bool { return n != nil && share(n) < 1 })
	if !v.ramping {
		return
	}
	for slot := range v.nodes {
		v.nodes[slot].ramp = 0 // none yet
	}
	v.rampRoster(s, &v.fleet, share)
	for i := range v.models {
		v.rampRoster(s, &v.models[i], share)
	}
}

func (v *view) rampRoster(s *fleet.Snapshot, r *roster, share func(*fleet.Node) float64) {
	best := 0.0
	for _, slot := range r.open {
		best = max(best, share(s.Nodes[slot]))
	}
	for _, slot := range r.open {
		f, ramp := &v.nodes[slot], float32(best/share(s.Nodes[slot]))
		if f.ramp == 0 || ramp < f.ramp {
			f.ramp = ramp
		}
	}
}

// ramp sets how often the load of each candidate counts for a prompt of so many tokens.
func (v *view) ramp(list []Candidate, prompt int) {
	for i := range list {
		c := &list[i]
		if c.MatchedTokens == 0 || c.MatchedTokens < prompt-c.MatchedTokens {
			c.more = v.nodes[c.Slot].ramp - 1
		}
	}
}

// times is how often the candidate's load counts; 1 = it does not ramp.
func (c *Candidate) times() float64 { return 1 + float64(c.more) }

// counted is a number in flight at the candidate as its load counts.
func (c *Candidate) counted(inFlight int64) float64 { return float64(inFlight) * c.times() }

// load is the requests in flight at the candidate, counted.
func (c *Candidate) load() float64 { return c.counted(c.InFlight) }

// room is what is free at the candidate, as it counts: that a cold node has the most of
// it must not draw all the work there. While the node is idle it counts whole.
func (c *Candidate) room(free float64) float64 {
	if c.InFlight <= 0 {
		return free
	}
	return free / c.times()
}
