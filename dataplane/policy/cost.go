package policy

import (
	"math"

	"warmpath/dataplane/fleet"
)

// cost sends a request where it, and those who come after it, wait least.
//
// Score: seconds,
//
//	k × own + queue + batch × own × running + trip + barrier
//
// own is the prefill of the tokens the node does not hold; a token at position
// p takes (1 + p ÷ context_doubling) ÷ rate seconds. queue is the prefill this
// router has sent there whose first event has not come. running is the larger
// of this router's own requests and of what the engine says it runs and
// queues. k = 1 ÷ (1 − pressure × ρ): work added to a busy fleet is paid by all
// who come later. trip is the measured round trip. barrier grows with the
// square of KV use above kv_start; unknown use adds nothing.
//
// Islands are a constraint: once an island holds island_tokens of a prompt, or
// island_share of it, nodes elsewhere (Group 1) are tried after all of its own.
//
// Reasons: prefix, spill, affinity, load, only.
type cost struct {
	rate, doubling, pressure, batch float64
	kvStart, kvSeconds, farSeconds  float64
	islandShare                     float64
	islandTokens                    int64
}

func openCost() ([]field, func() Policy) {
	p := &cost{}
	return []field{
		prefillField(&p.rate),
		numberField(&p.doubling, "context_doubling", 32768, 1, 1e9, "context at which prefilling a token takes twice as long as at the start of a prompt, in tokens; about 2N ÷ 4Ld of a dense model of N weights, L layers, width d"),
		numberField(&p.pressure, "pressure", 0.7, 0, 0.99, "how much the price of own work rises with the fleet's queued share ρ: k = 1 ÷ (1 − pressure × ρ)"),
		numberField(&p.batch, "batch", 0.1, 0, 10, "share of its own prefill that a request pays for each request running beside it"),
		numberField(&p.kvStart, "kv_start", 0.9, 0, 0.999, "KV use above which a node grows dearer"),
		numberField(&p.kvSeconds, "kv_seconds", 2, 0, 3600, "what a node with a full KV cache costs, in seconds"),
		numberField(&p.farSeconds, "far_seconds", 0.02, 0, 60, "round trip assumed to a node outside the router's island while none was measured, in seconds"),
		integerField(&p.islandTokens, "island_tokens", 1024, 1, 1<<30, "matched tokens that bind a prompt to the island that holds them"),
		numberField(&p.islandShare, "island_share", 0.3, 0, 1, "matched share of a prompt that binds it to the island that holds it"),
	}, func() Policy { return p }
}

// prefillField declares the rate that stands in while none is learned.
func prefillField(to *float64) field {
	return numberField(to, "prefill_rate", 8000, 1, 1e7, "prefill rate of nodes while none of their model has shown one, in tokens a second at weight 1")
}

func (p *cost) Name() string { return "cost" }

func (*cost) Needs() Needs { return Needs{} }

func (p *cost) Prepare(s *fleet.Snapshot) Prepared {
	d := &costPrepared{cost: *p, view: pricing(s), prices: make([]price, len(s.Nodes))}
	for slot, pace := range secondsPerToken(s, prefillRate, p.rate) {
		f := &d.nodes[slot]
		c := price{pace: pace, engineLoad: f.engineLoad, fixed: f.secondsOfTrip}
		if full := (f.kvUse - p.kvStart) / (1 - p.kvStart); f.kvKnown && full > 0 {
			c.fixed += p.kvSeconds * full * full
		}
		d.prices[slot] = c
		d.farAway = d.farAway || !f.tripKnown && f.island != ""
	}
	return d
}

type costPrepared struct {
	cost
	view
	prices  []price // by slot
	farAway bool    // a node may be outside the router's island, and its trip is not known
}

// price is all that a decision reads of most nodes, side by side in memory.
type price struct {
	pace       float64 // seconds of prefill a token at the start of a prompt
	engineLoad float64 // as in facts
	fixed      float64 // seconds of trip and barrier
}

func (d *costPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	k := 1 / (1 - d.pressure*clamp01(in.Pressure))
	none := d.work(req, &Candidate{}) // of most nodes of a large fleet
	for i := range list {
		c := &list[i]
		n := &d.prices[c.Slot]
		own := none
		if c.MatchedTokens > 0 {
			own = d.work(req, c)
		}
		own *= n.pace
		queue := c.counted(at(loads.PrefillTokens, c.Slot)) * n.pace
		running := max(float64(c.InFlight), n.engineLoad) * c.times()
		c.Score = k*own + queue + d.batch*own*running + n.fixed
	}
	if d.farAway && req.Island != "" {
		d.addTrips(req, list)
	}
	if d.manyIslands {
		d.bind(req, match, list)
	}
	byKey := d.settle(req, in, out)
	out.Reason = d.prefixReason(req, match, out, byKey)
}

// work is the prefill of the tokens a node does not hold, in tokens at the start of a
// prompt: the integral of the cost of a token from the first uncached position to the
// end.
func (d *costPrepared) work(req *Request, c *Candidate) float64 {
	tokens := uncached(req, c)
	middle := float64(c.MatchedTokens) + tokens/2
	return tokens * (1 + middle/d.doubling)
}

// addTrips adds the round trip that is assumed to nodes outside the router's island.
func (d *costPrepared) addTrips(req *Request, list []Candidate) {
	for i := range list {
		c := &list[i]
		if f := &d.nodes[c.Slot]; !f.tripKnown && f.island != "" && f.island != req.Island {
			c.Score += d.farSeconds
		}
	}
}

// bind puts nodes outside the prompt's island behind those inside it.
func (d *costPrepared) bind(req *Request, match *Match, list []Candidate) {
	island, tokens := d.home(req, match, list)
	enough := min(float64(d.islandTokens), d.islandShare*float64(req.PromptTokens))
	if tokens == 0 || float64(tokens) < enough {
		return
	}
	for i := range list {
		if d.nodes[list[i].Slot].island != island {
			list[i].Group = 1
		}
	}
}

// clamp01 makes any float a share; what is no number is no pressure.
func clamp01(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return min(max(v, 0), 1)
}
