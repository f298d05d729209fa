package policy

import "warmpath/dataplane/fleet"

// leastWork sends a request to the node with the fewest GPU-seconds to do,
// its own included.
//
// Score: seconds, prompt tokens ÷ prefill rate + output tokens ÷ decode rate,
// summed over the requests in flight and this one. A request's expected output
// is the model's running mean, capped by its max_tokens; it counts whole from
// dispatch to completion. Of the tokens in flight on a node the expected
// output of its requests is output, but never what still awaits its prefill;
// the rest is prompt.
//
// Reasons: load, affinity, only.
type leastWork struct {
	rate, decode float64
	output       int64
}

func openLeastWork() ([]field, func() Policy) {
	p := &leastWork{}
	return []field{
		prefillField(&p.rate),
		numberField(&p.decode, "decode_rate", 100, 0.1, 1e6, "decode rate of one request on a node that has not shown its own, in tokens a second at weight 1"),
		integerField(&p.output, "expected_output", 256, 1, 1<<20, "output tokens expected of a model that has not answered yet"),
	}, func() Policy { return p }
}

func (p *leastWork) Name() string { return "least_work" }

func (*leastWork) Needs() Needs { return Needs{} }

func (p *leastWork) Prepare(s *fleet.Snapshot) Prepared {
	return &leastWorkPrepared{
		leastWork: *p,
		view:      newView(s),
		prefill:   secondsPerToken(s, prefillRate, p.rate),
		decoding:  secondsPerToken(s, decodeRate, p.decode),
	}
}

type leastWorkPrepared struct {
	leastWork
	view
	prefill  []float64 // seconds a prompt token, by slot
	decoding []float64 // seconds an output token, by slot
}

func (d *leastWorkPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	mean := d.roster(req.Model).meanOutput
	if mean == 0 {
		mean = float64(d.output)
	}
	expected := mean
	if req.OutputTokens >= 0 {
		expected = min(expected, float64(req.OutputTokens))
	}
	prompt := float64(max(req.PromptTokens, 0))
	for i := range list {
		c := &list[i]
		total := float64(at(loads.TotalTokens, c.Slot))
		output := max(min(float64(c.InFlight)*mean, total-float64(at(loads.PrefillTokens, c.Slot))), 0)
		there := (total-output)*d.prefill[c.Slot] + output*d.decoding[c.Slot]
		c.Score = prompt*d.prefill[c.Slot] + expected*d.decoding[c.Slot] + there*c.times()
	}
	byKey := d.settle(req, in, out)
	out.Reason = loadReason(out, byKey)
}
