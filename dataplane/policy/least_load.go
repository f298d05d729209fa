package policy

import "warmpath/dataplane/fleet"

// leastLoad takes the node that would be done first, and dislikes full caches.
//
// Score: seconds, (queued + in-flight tokens) ÷ throughput + kv_seconds × k ÷
// (1 − k) with k the KV use, at most 0.99; unknown use adds nothing. Queued
// tokens are the engine's queued requests × mean_prefill, none where it does
// not say; tokens in flight are this router's own.
// Reasons: load, affinity, only.
type leastLoad struct {
	throughput, kvSeconds, meanPrefill float64
}

// leastLoadFull bounds k, so that a full cache is dear but comparable.
const leastLoadFull = 0.99

func openLeastLoad() ([]field, func() Policy) {
	p := &leastLoad{}
	return []field{
		numberField(&p.throughput, "throughput", 2000, 1, 1e7, "tokens a second of any node"),
		numberField(&p.kvSeconds, "kv_seconds", 0.15, 0, 3600, "price of KV use, in seconds at one half"),
		numberField(&p.meanPrefill, "mean_prefill", 1024, 1, 1e7, "tokens of a request in an engine's queue"),
	}, func() Policy { return p }
}

func (p *leastLoad) Name() string { return "least_load" }

func (*leastLoad) Needs() Needs { return Needs{} }

func (p *leastLoad) Prepare(s *fleet.Snapshot) Prepared {
	d := &leastLoadPrepared{leastLoad: *p, view: newView(s), fixed: make([]float64, len(s.Nodes))}
	for slot, n := range s.Nodes {
		if n == nil {
			continue
		}
		queued := min(positive(n.QueuedRequests.Or(0), 0), mostCounted) * p.meanPrefill
		d.fixed[slot] = queued / p.throughput
		if f := &d.nodes[slot]; f.kvKnown {
			k := min(f.kvUse, leastLoadFull)
			d.fixed[slot] += p.kvSeconds * k / (1 - k)
		}
	}
	return d
}

type leastLoadPrepared struct {
	leastLoad
	view
	fixed []float64 // seconds of the engine's queue and of KV use, by slot
}

func (d *leastLoadPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	for i := range list {
		c := &list[i]
		c.Score = c.counted(at(loads.TotalTokens, c.Slot))/d.throughput + d.fixed[c.Slot]
	}
	byKey := d.settle(req, in, out)
	out.Reason = loadReason(out, byKey)
}
