package policy

import (
	"math"

	"warmpath/dataplane/fleet"
)

// aibrixPrefix skips affinity when the loads differ by more than
// balance_abs_threshold requests; else it takes the longest match among nodes
// whose load is at most the mean and one standard deviation, else the least
// loaded.
//
// Score: in Group 0 −matched tokens (the load orders equals), in Group 1
// requests in flight. Reasons: prefix, spill, affinity, load, only.
type aibrixPrefix struct {
	absolute int64
	sigmas   float64
}

func openAIBrixPrefix() ([]field, func() Policy) {
	p := &aibrixPrefix{}
	return []field{
		integerField(&p.absolute, "balance_abs_threshold", 8, 0, 1<<20, "requests between the most and the least loaded node above which matches do not count"),
		numberField(&p.sigmas, "load_sigmas", 1, 0, 100, "standard deviations above the mean load that a holder may have"),
	}, func() Policy { return p }
}

func (p *aibrixPrefix) Name() string { return "aibrix_prefix" }

func (*aibrixPrefix) Needs() Needs { return Needs{} }

func (p *aibrixPrefix) Prepare(s *fleet.Snapshot) Prepared {
	return &aibrixPrefixPrepared{*p, newView(s)}
}

type aibrixPrefixPrepared struct {
	aibrixPrefix
	view
}

func (d *aibrixPrefixPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	byLoad(list, 1)
	if least, most := spread(list); most-least <= float64(d.absolute) {
		limit := meanLoad(list) + d.sigmas*deviation(list)
		for i := range list {
			if c := &list[i]; c.MatchedTokens > 0 && c.load() <= limit {
				c.Score, c.Group = byMatch(c), 0
			}
		}
	}
	byKey := d.settle(req, in, out)
	out.Reason = d.prefixReason(req, match, out, byKey)
}

// deviation is the standard deviation of the loads.
func deviation(list []Candidate) float64 {
	mean, sum := meanLoad(list), 0.0
	for i := range list {
		off := list[i].load() - mean
		sum += off * off
	}
	return math.Sqrt(sum / float64(len(list)))
}
