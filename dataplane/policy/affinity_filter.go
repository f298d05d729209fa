package policy

import (
	"math"

	"warmpath/dataplane/fleet"
)

// affinityFilter keeps a request on the nodes that hold min_match of its
// prompt, unless the best of them is predicted to answer more than
// max_penalty later than the best of all; among those that remain it takes the
// node with the fewest tokens in flight. The prediction is (prefill tokens
// already sent there + uncached tokens) ÷ prefill rate.
//
// Score: tokens in flight. Group 0 are the nodes that pass the filter; all do
// if none holds enough or the penalty is too high.
// Reasons: prefix, spill, affinity, load, only.
type affinityFilter struct {
	rate, minMatch, penalty float64
}

func openAffinityFilter() ([]field, func() Policy) {
	p := &affinityFilter{}
	return []field{
		numberField(&p.minMatch, "min_match", 0.8, 0, 1, "matched share of the prompt that keeps a request on a node"),
		numberField(&p.penalty, "max_penalty", 5, 0, 3600, "delay of the first token that breaks the affinity, in seconds"),
		prefillField(&p.rate),
	}, func() Policy { return p }
}

func (p *affinityFilter) Name() string { return "affinity_filter" }

func (*affinityFilter) Needs() Needs { return Needs{} }

func (p *affinityFilter) Prepare(s *fleet.Snapshot) Prepared {
	return &affinityFilterPrepared{*p, newView(s), secondsPerToken(s, prefillRate, p.rate)}
}

type affinityFilterPrepared struct {
	affinityFilter
	view
	pace []float64 // seconds of prefill a token, by slot
}

func (d *affinityFilterPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	best, bestHolder := math.Inf(1), math.Inf(1)
	for i := range list {
		c := &list[i]
		c.Score, c.Group = c.counted(at(loads.TotalTokens, c.Slot)), 1
		first := (c.counted(at(loads.PrefillTokens, c.Slot)) + uncached(req, c)) * d.pace[c.Slot]
		best = min(best, first)
		if c.MatchedTokens > 0 && share(req, c) >= d.minMatch {
			c.Group = 0
			bestHolder = min(bestHolder, first)
		}
	}
	if bestHolder-best > d.penalty {
		for i := range list {
			list[i].Group = 0
		}
	}
	byKey := d.settle(req, in, out)
	out.Reason = d.prefixReason(req, match, out, byKey)
}
