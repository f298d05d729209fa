package policy

import "warmpath/dataplane/fleet"

// dynamo takes the smallest sum of prefill and decode blocks, at temperature 0.
//
// Score: blocks, prefill_scale × max(active prefill + incoming − overlap
// credit, 0) + decode blocks. Active prefill are the prefill tokens this
// router has sent there whose first event has not come, incoming the prompt,
// the credit the matched tokens of the device tier, decode blocks all tokens
// in flight there and the prompt, in blocks of block_tokens. The credits of
// host and disk tiers (0.75 and 0.25) are the caller's to fold into the match.
//
// Reasons: prefix, spill, affinity, load, only.
type dynamo struct {
	scale  float64
	credit float64
	block  int64
}

func openDynamo() ([]field, func() Policy) {
	p := &dynamo{}
	return []field{
		numberField(&p.scale, "prefill_scale", 1, 0, 1e6, "weight of a block to prefill against a block to decode"),
		numberField(&p.credit, "device_credit", 1, 0, 1, "share of the matched tokens that needs no prefill"),
		integerField(&p.block, "block_tokens", 16, 1, 1<<16, "tokens of a block, the same for all nodes so that scores compare"),
	}, func() Policy { return p }
}

func (p *dynamo) Name() string { return "dynamo" }

func (*dynamo) Needs() Needs { return Needs{} }

func (p *dynamo) Prepare(s *fleet.Snapshot) Prepared { return &dynamoPrepared{*p, pricing(s)} }

type dynamoPrepared struct {
	dynamo
	view
}

func (d *dynamoPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	prompt := float64(max(req.PromptTokens, 0))
	for i := range list {
		c := &list[i]
		prefill := c.counted(at(loads.PrefillTokens, c.Slot)) + prompt - d.credit*float64(c.MatchedTokens)
		decode := c.counted(at(loads.TotalTokens, c.Slot)) + prompt
		c.Score = (d.scale*max(prefill, 0) + decode) / float64(d.block)
	}
	byKey := d.settle(req, in, out)
	out.Reason = d.prefixReason(req, match, out, byKey)
}
