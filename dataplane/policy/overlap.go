package policy

import (
	"math"

	"warmpath/dataplane/fleet"
)

// overlap sends a request to the node that holds most of its prefix, as long
// as what it holds will still be there when the request gets its turn.
//
// Score: for holders −matched tokens, plus a part below 1 that grows with the
// load and so orders equals; for others the load. The load is the larger of
// this router's requests in flight and of what the engine runs and queues.
//
// A holder is a node with a match whose KV use is below max_kv_use, whose
// error share is below max_error_share, and whose cache lives longer than the
// queue before it takes: tokens of its cache ÷ tokens evicted a second against
// prefill tokens queued ÷ prefill rate. An unknown signal vetoes nothing.
//
// Groups: 0 holders of the island that holds the longest prefix, 1 the other
// nodes of that island, 2 and 3 the same elsewhere. The border is crossed only
// when nothing is cached anywhere or no node of the island is available.
//
// Reasons: prefix, spill, affinity, load, only.
type overlap struct {
	rate, maxKVUse, maxErrors float64
}

func openOverlap() ([]field, func() Policy) {
	p := &overlap{}
	return []field{
		numberField(&p.maxKVUse, "max_kv_use", 0.95, 0, 1, "KV use from which a holder is passed over: a node full of running work is about to evict"),
		numberField(&p.maxErrors, "max_error_share", 0.5, 0, 1, "share of failed answers from which a holder is passed over"),
		prefillField(&p.rate),
	}, func() Policy { return p }
}

func (p *overlap) Name() string { return "overlap" }

func (*overlap) Needs() Needs { return Needs{} }

func (p *overlap) Prepare(s *fleet.Snapshot) Prepared {
	d := &overlapPrepared{view: newView(s), pace: secondsPerToken(s, prefillRate, p.rate)}
	d.life = make([]float64, len(s.Nodes))
	for slot, n := range s.Nodes {
		if n != nil {
			d.life[slot] = p.lifeOf(n, &d.nodes[slot])
		}
	}
	return d
}

// lifeOf is for how many seconds an entry of the node's cache stays of use:
// infinite if nothing is evicted or nobody says so, below zero if the node is
// vetoed whatever the wait.
func (p *overlap) lifeOf(n *fleet.Node, f *facts) float64 {
	if f.kvKnown && f.kvUse >= p.maxKVUse {
		return -1
	}
	if n.ErrorShare.Known && n.ErrorShare.Value >= p.maxErrors {
		return -1
	}
	evicted := positive(n.EvictedTokensPerSecond.Or(0), 0)
	if evicted == 0 || n.CacheTokens <= 0 {
		return math.Inf(1)
	}
	return float64(n.CacheTokens) / evicted
}

type overlapPrepared struct {
	view
	pace []float64 // seconds of prefill a token, by slot
	life []float64 // seconds, by slot
}

func (d *overlapPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	island, tokens := d.home(req, match, list)
	for i := range list {
		c := &list[i]
		f := &d.nodes[c.Slot]
		load := d.busy(c)
		wait := float64(at(loads.PrefillTokens, c.Slot)) * d.pace[c.Slot]
		if c.MatchedTokens > 0 && d.life[c.Slot] > wait {
			c.Score = load/(1+load) - float64(c.MatchedTokens)
		} else {
			c.Score, c.Group = load, 1
		}
		if tokens > 0 && f.island != island {
			c.Group += 2
		}
	}
	byKey := d.settle(req, in, out)
	out.Reason = d.prefixReason(req, match, out, byKey)
}
