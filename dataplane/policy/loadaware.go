package policy

import "warmpath/dataplane/fleet"

// loadAware weighs the matched share of the prompt against how far a node's
// load lies above the mean.
//
// Score: beta × (load − mean) ÷ max(1, mean) − matched ÷ prompt.
// Reasons: prefix, spill, affinity, load, only.
type loadAware struct{ beta float64 }

func openLoadAware() ([]field, func() Policy) {
	p := &loadAware{}
	return []field{
		numberField(&p.beta, "beta", 1, 0, 1e6, "weight of the load against the matched share"),
	}, func() Policy { return p }
}

func (p *loadAware) Name() string { return "loadaware" }

func (*loadAware) Needs() Needs { return Needs{} }

func (p *loadAware) Prepare(s *fleet.Snapshot) Prepared { return &loadAwarePrepared{*p, newView(s)} }

type loadAwarePrepared struct {
	loadAware
	view
}

func (d *loadAwarePrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	mean := meanLoad(list)
	for i := range list {
		c := &list[i]
		c.Score = d.beta*(c.load()-mean)/max(1, mean) - share(req, c)
	}
	byKey := d.settle(req, in, out)
	out.Reason = d.prefixReason(req, match, out, byKey)
}
