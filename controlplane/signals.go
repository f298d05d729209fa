package controlplane

import (
	"fmt"
	"time"

	"warmpath/controlplane/state"
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/scaler"
)

// Reading is what this router says of the nodes of a model to the scaler, be it in
// this process or another; "" = of all. Any goroutine may call it; it asks each
// event loop once.
func (c *ControlPlane) Reading(model string) scaler.Reading {
	s := c.State()
	r := scaler.Reading{NowNs: c.NowNs(), Nodes: []scaler.Node{}, Former: len(c.formers.running()) > 0}
	silent, asked := 0, 0
	for _, n := range s.Nodes {
		if !inPool(n, model) {
			continue
		}
		r.Nodes = append(r.Nodes, c.nodeReading(n, s))
		if n.State() == fleet.Ready && n.SampleNs != 0 {
			if asked++; !n.SampleFresh {
				silent++
			}
		}
	}
	data := c.data.Load()
	switch {
	case data == nil:
		r.Missing = "the router does not serve yet"
		return r
	case r.Former:
		r.Missing = "a process that the router took over from has not finished what it has"
	case silent*2 > asked:
		r.Missing = fmt.Sprintf("the engines of %d of %d nodes have not said how they are for %v", silent, asked, time.Duration(s.Settings.StaleNs))
	}
	totals := data.Totals()
	r.Totals = trafficOf(&totals, c.State(), model)
	for name, h := range data.Holds() {
		if model == "" || name == "" || name == model {
			r.Held += float64(h.Now)
		}
	}
	r.Totals.SpanSeconds = time.Since(c.started).Seconds()
	return r
}

// inPool reports whether a node is of the pool of a model. One that has named no
// models yet may become so.
func inPool(n *state.Node, model string) bool {
	if model == "" || len(n.Models) == 0 {
		return true
	}
	for i := range n.Models {
		if n.Models[i].ID == model || n.Models[i].Parent == model {
			return true
		}
	}
	return false
}

// trafficOf adds up what was counted of a model and its adapters.
func trafficOf(totals *dataplane.Totals, s *state.State, model string) scaler.Traffic {
	t := scaler.Traffic{
		Uncached: make([]float64, len(scaler.TokenBounds)+1), TTFT: scaler.NewTTFT(),
	}
	ours := map[string]bool{model: true}
	for _, n := range s.Nodes {
		for i := range n.Models {
			if n.Models[i].Parent == model {
				ours[n.Models[i].ID] = true
			}
		}
	}
	for name, m := range totals.Models {
		if model != "" && !ours[name] {
			continue
		}
		t.Requests += float64(m.Requests)
		t.PromptTokens += float64(m.PromptTokens)
		t.UncachedTokens += float64(m.UncachedTokens)
		t.OutputTokens += float64(m.OutputTokens)
		t.Answers += float64(m.Answers)
		for i, n := range m.Uncached.Counts {
			t.Uncached[i] += float64(n)
		}
		for size := range m.TTFT {
			for i, n := range m.TTFT[size].Counts {
				t.TTFT[scaler.TTFTBucket(size, i)] += float64(n)
			}
		}
	}
	return t
}

// nodeReading is one node as the scaler sees it.
func (c *ControlPlane) nodeReading(n *state.Node, s *state.State) scaler.Node {
	out := scaler.Node{
		Name: n.Spec.Name, Phase: phaseOf(n), SinceNs: sinceOf(n), InFlight: n.Load.Requests.Load(), Weight: n.Weight,
		Evicted: gauge(n.EvictedTokensPerSecond), PrefillTokensPerSecond: gauge(n.PrefillTokensPerSecond),
		DecodeTokensPerSecond: c.learned.decode(n),
	}
	if n.PrefillTokensPerSecond.Known && n.PrefillTokensPerSecond.Value > 0 {
		out.BacklogSeconds = scaler.Known(float64(n.Load.PrefillTokens.Load()) / n.PrefillTokensPerSecond.Value)
	}
	if n.SampleFresh {
		out.Queued, out.Running, out.KVUse = gauge(n.Sample.Queued), gauge(n.Sample.Running), gauge(n.Sample.KVUse)
	}
	if n.Sample.CacheTokens > 0 {
		out.CacheTokens = scaler.Known(float64(n.Sample.CacheTokens))
		units := int64(0)
		for r := range n.Ranks {
			units += c.opt.Index.SlotUnits(n.Slot + r)
		}
		if _, unit := chainsAt(n, s.Settings.Models, c.opt.Fleet.Load()); unit > 0 {
			out.Fill = scaler.Known(min(1, float64(units)*float64(unit)/float64(n.Sample.CacheTokens)))
		}
	}
	return out
}

// phaseOf is where a node is in its life, as far as the scaler cares. One behind an
// open breaker does no work.
func phaseOf(n *state.Node) scaler.Phase {
	switch n.State() {
	case fleet.Ready:
		if n.Breaker == fleet.Open {
			return scaler.Down
		}
		return scaler.Ready
	case fleet.Draining:
		return scaler.Draining
	case fleet.Down:
		return scaler.Down
	default:
		return scaler.Starting
	}
}

// sinceOf is when the node's state changed last.
func sinceOf(n *state.Node) int64 {
	if len(n.History) == 0 {
		return 0
	}
	return n.History[len(n.History)-1].AtNs
}

func gauge(g fleet.Gauge) scaler.Gauge { return scaler.Gauge{Value: g.Value, Known: g.Known} }
