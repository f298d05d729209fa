package policy

import "warmpath/dataplane/fleet"

// lmetric takes the smallest product of the prefill a request would add and of
// the requests it would join (LMetric, arXiv 2603.15202).
//
// Score: uncached prompt tokens × (running and queued requests + 1); with form
// queued, (prefill tokens already sent there + uncached) × (the same).
// Reasons: prefix, spill, affinity, load, only.
type lmetric struct{ form int }

const (
	formUncached = iota
	formQueued
)

func openLMetric() ([]field, func() Policy) {
	p := &lmetric{}
	return []field{
		choiceField(&p.form, "form", []string{"uncached", "queued"}, "whether the product's tokens are those of this request, or also those that await their prefill"),
	}, func() Policy { return p }
}

func (p *lmetric) Name() string { return "lmetric" }

func (*lmetric) Needs() Needs { return Needs{} }

func (p *lmetric) Prepare(s *fleet.Snapshot) Prepared { return &lmetricPrepared{*p, pricing(s)} }

type lmetricPrepared struct {
	lmetric
	view
}

func (d *lmetricPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	for i := range list {
		c := &list[i]
		tokens := uncached(req, c)
		if d.form == formQueued {
			tokens += c.counted(at(loads.PrefillTokens, c.Slot))
		}
		c.Score = tokens * (d.busy(c) + 1)
	}
	byKey := d.settle(req, in, out)
	out.Reason = d.prefixReason(req, match, out, byKey)
}
