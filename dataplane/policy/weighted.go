package policy

import "warmpath/dataplane/fleet"

// weighted adds scorers: prefix = matched ÷ prompt, queue = 1 − queued ÷ most
// queued, kv = 1 − KV use. A prompt of which no node holds min_match goes to
// the rendezvous place of its affinity key, so that two routers agree. Adapters need no scorer: a prompt's chain
// starts with its adapter, so that only the same one matches.
//
// The queue is what the engines say where all candidates' engines say it, else
// this router's requests in flight. A candidate of unknown KV use counts as
// the mean of those that are known.
//
// Score: −Σ weight × scorer; rendezvous distance for a low match. Equal scores
// are ordered at random, by Inputs.Rand.
//
// Reasons: prefix, spill, affinity (low match), load, only.
type weighted struct {
	prefix, queue, kv, minMatch float64
}

func openWeighted() ([]field, func() Policy) {
	p := &weighted{}
	return []field{
		numberField(&p.prefix, "prefix_weight", 3, 0, 1e6, "weight of the matched share of the prompt"),
		numberField(&p.queue, "queue_weight", 2, 0, 1e6, "weight of the short queue"),
		numberField(&p.kv, "kv_weight", 2, 0, 1e6, "weight of the free share of the KV cache"),
		numberField(&p.minMatch, "min_match", 0.1, 0, 1, "matched share of the prompt below which the affinity key decides"),
	}, func() Policy { return p }
}

func (p *weighted) Name() string { return "weighted" }

func (*weighted) Needs() Needs { return Needs{} }

func (p *weighted) Prepare(s *fleet.Snapshot) Prepared {
	d := &weightedPrepared{weighted: *p, view: newView(s), queued: make([]float64, len(s.Nodes))}
	for slot, n := range s.Nodes {
		d.queued[slot] = -1
		if n != nil && n.QueuedRequests.Known {
			d.queued[slot] = min(positive(n.QueuedRequests.Value, 0), mostCounted)
		}
	}
	return d
}

type weightedPrepared struct {
	weighted
	view
	queued []float64 // requests, by slot; -1 = unknown
}

func (d *weightedPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	longest := 0.0
	for i := range list {
		longest = max(longest, share(req, &list[i]))
	}
	if req.AffinityKey != 0 && (longest == 0 || longest < d.minMatch) {
		d.byDistance(req.AffinityKey, list)
		d.settle(req, in, out)
		out.Reason = d.prefixReason(req, match, out, true)
		return
	}
	d.byScorers(req, list)
	spreading := *req
	spreading.AffinityKey = 0
	d.settle(&spreading, in, out)
	out.Reason = d.prefixReason(req, match, out, false)
}

func (d *weightedPrepared) byScorers(req *Request, list []Candidate) {
	engines, longest, used, known := true, 0.0, 0.0, 0.0
	for i := range list {
		f := &d.nodes[list[i].Slot]
		engines = engines && d.queued[list[i].Slot] >= 0
		if f.kvKnown {
			used, known = used+f.kvUse, known+1
		}
	}
	queue := func(c *Candidate) float64 {
		if engines {
			return d.queued[c.Slot] * c.times()
		}
		return c.load()
	}
	for i := range list {
		longest = max(longest, queue(&list[i]))
	}
	meanUse := used / max(known, 1)
	for i := range list {
		c := &list[i]
		f := &d.nodes[c.Slot]
		use := meanUse
		if f.kvKnown {
			use = f.kvUse
		}
		c.Score = -(d.prefix*share(req, c) + d.queue*(1-queue(c)/max(longest, 1)) + d.kv*c.room(1-use))
	}
}
