package controlplane

import (
	"strings"
	"testing"

	"warmpath/controlplane/state"
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
	"warmpath/dataplane/tally"
	"warmpath/scaler"
)

// observed is a ControlPlane that only looks, at a State that the test steps.
type observed struct {
	*ControlPlane
	s     state.State
	nowNs int64
}

func observe(t *testing.T, nodes ...string) *observed {
	t.Helper()
	o := &observed{
		ControlPlane: &ControlPlane{opt: Options{Fleet: fleet.NewHolder(), Index: index.New(index.Options{MemoryBytes: 16 << 20})}},
		s:            state.New(state.DefaultSettings()), nowNs: 1,
	}
	specs := make([]state.Spec, len(nodes))
	for i, name := range nodes {
		specs[i] = state.Spec{Name: name, URL: "http://" + name + ":1"}
	}
	o.step(state.NodesSeen{NowNs: o.nowNs, Source: "x", Specs: specs})
	for _, n := range o.s.Nodes {
		o.step(state.ProbeResult{NowNs: o.nowNs, Node: n.Spec.Name, Incarnation: n.Incarnation, OK: true, Status: 200, DurationNs: 1})
		o.step(state.ModelsSeen{NowNs: o.nowNs, Node: n.Spec.Name, Incarnation: n.Incarnation, Models: []state.Served{{ID: "m-of-" + n.Spec.Name}, {ID: "lora", Parent: "m-of-" + n.Spec.Name}}})
	}
	return o
}

func (o *observed) step(e state.Event) {
	o.s, _ = state.Step(o.s, e)
	s := o.s
	o.view.Store(&s)
}

// pass lets time pass in which nothing but the clock is heard.
func (o *observed) pass(seconds int64) {
	for range seconds * 10 {
		o.nowNs += 1e8
		o.step(state.Tick{NowNs: o.nowNs})
	}
}

// says has a node's metrics come.
func (o *observed) says(name string, s state.Sample) {
	o.step(state.MetricsSeen{NowNs: o.nowNs, Node: name, Incarnation: o.s.Find(name).Incarnation, Sample: s})
}

func (o *observed) node(t *testing.T, name string) scaler.Node {
	t.Helper()
	r := o.Reading("")
	for i := range r.Nodes {
		if r.Nodes[i].Name == name {
			return r.Nodes[i]
		}
	}
	t.Fatalf("no node %s: %+v", name, r.Nodes)
	return scaler.Node{}
}

func seen(v float64) fleet.Gauge { return fleet.Gauge{Value: v, Known: true} }

// What is not known, or not any more, is unknown to the scaler and never zero.
func TestReadingUnknown(t *testing.T) {
	o := observe(t, "a")
	gauges := func(n *scaler.Node) map[string]scaler.Gauge {
		return map[string]scaler.Gauge{
			"queued": n.Queued, "running": n.Running, "kv use": n.KVUse, "evicted": n.Evicted, "prefill": n.PrefillTokensPerSecond,
			"backlog": n.BacklogSeconds, "decode": n.DecodeTokensPerSecond, "cache": n.CacheTokens, "fill": n.Fill, "busy": n.Busy,
		}
	}
	n := o.node(t, "a")
	if n.Phase != scaler.Ready || n.SinceNs == 0 {
		t.Fatalf("%+v", n)
	}
	for name, g := range gauges(&n) {
		if g != (scaler.Gauge{}) {
			t.Errorf("before anything was said %s is %+v", name, g)
		}
	}
	o.says("a", state.Sample{Queued: seen(0), Running: seen(3), CacheTokens: 16000})
	o.step(state.RateSeen{NowNs: o.nowNs, Node: "a", Incarnation: o.s.Find("a").Incarnation, PrefillTokensPerSecond: seen(2000), EvictedTokensPerSecond: seen(0)})
	o.s.Find("a").Load.PrefillTokens.Store(1000)
	n = o.node(t, "a")
	if n.Queued != scaler.Known(0) || n.Running != scaler.Known(3) || n.KVUse.Known || n.Evicted != scaler.Known(0) || n.CacheTokens != scaler.Known(16000) {
		t.Errorf("while it says how it is: %+v", n)
	}
	if n.PrefillTokensPerSecond != scaler.Known(2000) || n.BacklogSeconds != scaler.Known(0.5) {
		t.Errorf("its work: %+v", n)
	}
	o.pass(6) // state.DefaultSettings has 5 s
	n = o.node(t, "a")
	for _, name := range []string{"queued", "running", "kv use", "evicted"} {
		if g := gauges(&n)[name]; g != (scaler.Gauge{}) {
			t.Errorf("after 6 s of silence %s is %+v", name, g)
		}
	}
	if n.Phase != scaler.Ready || n.CacheTokens != scaler.Known(16000) {
		t.Errorf("what does not go stale: %+v", n)
	}
}

// Silence of more than half of those engines that have spoken is no signal at all.
func TestReadingMissing(t *testing.T) {
	o := observe(t, "a", "b", "c", "mute")
	if r := o.Reading(""); r.Missing != "the router does not serve yet" || len(r.Nodes) != 4 {
		t.Errorf("without a data plane: %q, %d nodes", r.Missing, len(r.Nodes))
	}
	o.data.Store(new(dataplane.Dataplane))
	for _, name := range []string{"a", "b", "c"} {
		o.says(name, state.Sample{Queued: seen(1)})
	}
	if r := o.Reading(""); r.Missing != "" {
		t.Errorf("one that never says how it is: %q", r.Missing)
	}
	o.pass(4)
	o.says("a", state.Sample{Queued: seen(1)})
	o.says("b", state.Sample{Queued: seen(1)})
	o.pass(3)
	if r := o.Reading(""); r.Missing != "" {
		t.Errorf("one of three is silent: %q", r.Missing)
	}
	o.says("a", state.Sample{Queued: seen(1)})
	o.pass(3)
	if r := o.Reading(""); !strings.Contains(r.Missing, "the engines of 2 of 3 nodes have not said how they are for 5s") {
		t.Errorf("two of three are silent: %q", r.Missing)
	}
	// Of a model whose engine speaks everything is known.
	if r := o.Reading("m-of-a"); r.Missing != "" || len(r.Nodes) != 1 || r.Nodes[0].Name != "a" {
		t.Errorf("of one model: %q, %+v", r.Missing, r.Nodes)
	}
	if r := o.Reading("lora"); len(r.Nodes) != 4 {
		t.Errorf("of an adapter that all have: %+v", r.Nodes)
	}
	if r := o.Reading("nobody's"); len(r.Nodes) != 0 || r.Missing != "" {
		t.Errorf("of a model that nobody has: %+v", r)
	}
}

// Nodes are where the scaler cares: what does not take requests does not serve.
func TestReadingPhases(t *testing.T) {
	o := observe(t, "a", "b")
	o.step(state.DrainAsked{NowNs: o.nowNs, Node: "a"})
	for range state.DefaultSettings().DownAfter {
		o.step(state.ProbeResult{NowNs: o.nowNs, Node: "b", Incarnation: o.s.Find("b").Incarnation, Err: "refused"})
	}
	o.step(state.NodesSeen{NowNs: o.nowNs, Source: "y", Specs: []state.Spec{{Name: "new", URL: "http://new:1"}}})
	o.pass(1)
	for name, want := range map[string]scaler.Phase{"a": scaler.Draining, "b": scaler.Down, "new": scaler.Starting} {
		if n := o.node(t, name); n.Phase != want {
			t.Errorf("%s is %v, want %v", name, n.Phase, want)
		}
	}
	broken := *o.s.Find("a")
	broken.Drain, broken.Breaker = false, fleet.Open
	if got := phaseOf(&broken); got != scaler.Down {
		t.Errorf("behind an open breaker it is %v", got)
	}
}

// Of a model counts what came for it and for its adapters.
func TestTraffic(t *testing.T) {
	o := observe(t, "a")
	totals := &dataplane.Totals{Models: map[string]*dataplane.ModelTally{}}
	for i, name := range []string{"m-of-a", "lora", "other"} {
		m := &dataplane.ModelTally{
			Requests: 1 << (4 * i), PromptTokens: 2 << (4 * i), UncachedTokens: 1 << (4 * i), OutputTokens: 3 << (4 * i), Answers: 1 << (4 * i),
			Uncached: tally.NewHistogram(dataplane.UncachedBounds), TTFT: []tally.Histogram{tally.NewHistogram(dataplane.TTFTBounds)},
		}
		m.Uncached.Observe(64)
		m.TTFT[0].Observe(1e9)
		totals.Models[name] = m
	}
	for model, want := range map[string]float64{"": 0x111, "m-of-a": 0x11, "lora": 0x10, "other": 0x100, "nobody's": 0} {
		got := trafficOf(totals, &o.s, model)
		if got.Requests != want || got.PromptTokens != 2*want || got.UncachedTokens != want || got.OutputTokens != 3*want || got.Answers != want {
			t.Errorf("%q: %+v, want %v requests", model, got, want)
		}
		count := float64(strings.Count(map[string]string{"": "xxx", "m-of-a": "xx", "lora": "x", "other": "x"}[model], "x"))
		if len(got.Uncached) != len(scaler.TokenBounds)+1 || len(got.TTFT) != len(scaler.NewTTFT()) || got.Uncached[0] != count || got.TTFT[len(scaler.TTFTBounds)] != count {
			t.Errorf("%q: %v and %v, want %v in the first and in the last", model, got.Uncached, got.TTFT, count)
		}
	}
}
