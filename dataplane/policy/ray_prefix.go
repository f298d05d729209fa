package policy

import "warmpath/dataplane/fleet"

// rayPrefix takes the better of two drawn nodes when loads differ by more than
// imbalanced_threshold requests; else the longest match if it covers
// match_rate_threshold of the prompt, else the node with the fewest tokens in
// flight.
//
// Score: requests in flight when imbalanced (Group 0 are the two drawn). Else,
// in Group 0, −matched tokens of nodes that reach the threshold (the load
// orders equals), and in Group 1 tokens in flight.
// Reasons: prefix, spill, affinity, load, only.
type rayPrefix struct {
	absolute int64
	rate     float64
}

func openRayPrefix() ([]field, func() Policy) {
	p := &rayPrefix{}
	return []field{
		integerField(&p.absolute, "imbalanced_threshold", 10, 0, 1<<20, "requests between the most and the least loaded node above which matches do not count"),
		numberField(&p.rate, "match_rate_threshold", 0.1, 0, 1, "matched share of the prompt from which the match decides"),
	}, func() Policy { return p }
}

func (p *rayPrefix) Name() string { return "ray_prefix" }

func (*rayPrefix) Needs() Needs { return Needs{} }

func (p *rayPrefix) Prepare(s *fleet.Snapshot) Prepared { return &rayPrefixPrepared{*p, newView(s)} }

type rayPrefixPrepared struct {
	rayPrefix
	view
}

func (d *rayPrefixPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	if least, most := spread(list); most-least > float64(d.absolute) {
		byTwo(list, in.Rand)
	} else {
		for i := range list {
			c := &list[i]
			c.Score, c.Group = c.counted(at(loads.TotalTokens, c.Slot)), 1
			if c.MatchedTokens > 0 && share(req, c) >= d.rate {
				c.Score, c.Group = byMatch(c), 0
			}
		}
	}
	byKey := d.settle(req, in, out)
	out.Reason = d.prefixReason(req, match, out, byKey)
}
