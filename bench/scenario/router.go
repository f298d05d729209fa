package scenario

import (
	"math"

	"warmpath/bench/workload"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
	"warmpath/scaler"
)

// router decides as the data plane does: a policy on a snapshot, the index's match
// and its own counters.
type router struct {
	rule     policy.Policy
	prepared policy.Prepared
	match    policy.Match
	matched  bool // match is not all zero
	loads    policy.Loads
	inputs   policy.Inputs
	decision policy.Decision
	request  policy.Request

	pressure   float64
	meanOutput float64
	version    uint64
}

func newRouter(rule policy.Policy, slots int) router {
	return router{
		rule:  rule,
		match: policy.Match{Tokens: make([]uint32, slots)},
		loads: policy.Loads{Requests: make([]int64, slots), PrefillTokens: make([]int64, slots), TotalTokens: make([]int64, slots)},
	}
}

// decide returns the slot that takes a request, -1 if none can.
func (o *router) decide(w *world, r *workload.Request) int {
	prompt := r.Contents[:min(len(r.Contents), int(r.Prompt)/workload.BlockTokens)]
	if len(prompt) > 0 {
		o.matched = w.index.Match(prompt, workload.BlockTokens, o.match.Tokens) > 0
	} else if o.matched {
		clear(o.match.Tokens)
		o.matched = false
	}
	o.request = policy.Request{PromptTokens: int(r.Prompt), OutputTokens: -1, AffinityKey: r.Key, SystemKey: r.Key, PrefixKey: r.Key, SessionKey: r.Key}
	o.inputs = policy.Inputs{NowNs: w.nowNs, Cursor: o.inputs.Cursor + 1, Rand: w.rng.Uint64(), Pressure: o.pressure}
	o.prepared.Decide(&o.request, &o.match, &o.loads, &o.inputs, &o.decision)
	return o.decision.Slot
}

// count changes what is in flight at a node.
func (o *router) count(slot int, requests, prefill, total int64) {
	o.loads.Requests[slot] += requests
	o.loads.PrefillTokens[slot] += prefill
	o.loads.TotalTokens[slot] += total
}

// learnOutput moves the mean of answers' lengths.
func (o *router) learnOutput(tokens int32) {
	const pace = 0.01
	if o.meanOutput == 0 {
		o.meanOutput = float64(tokens)
	}
	o.meanOutput += pace * (float64(tokens) - o.meanOutput)
}

// publish makes a snapshot of the fleet as it is.
func (w *world) publish() {
	o := &w.router
	o.version++
	s := &fleet.Snapshot{Version: o.version, Default: 0, Asked: true, Nodes: make([]*fleet.Node, len(w.slots))}
	model := fleet.Model{Name: "sim", UnitTokens: workload.BlockTokens, MeanOutput: o.meanOutput}
	for slot, n := range w.slots {
		if n == nil || n.engine == nil {
			continue
		}
		s.Nodes[slot] = w.fleetNode(n)
		model.Slots = append(model.Slots, slot)
	}
	s.Models = []fleet.Model{model}
	o.prepared = o.rule.Prepare(s.Seal())
}

// scrape reads the engines' gauges.
func (w *world) scrape() {
	for _, n := range w.nodes {
		if n.engine != nil {
			n.scrape(w)
		}
	}
}

// refresh is what the control plane does every second: the pressure, the snapshot,
// expectations that are over.
func (w *world) refresh() {
	usable, queued := 0, 0
	for _, n := range w.nodes {
		if n.engine == nil {
			continue
		}
		n.expire(w)
		if n.phase == scaler.Ready {
			usable++
			if w.router.loads.PrefillTokens[n.slot] > 0 {
				queued++
			}
		}
	}
	share := float64(queued) / float64(max(1, usable))
	w.router.pressure += (share - w.router.pressure) * -math.Expm1(-1./30)
	w.publish()
	w.sendHeld()
}
