package admin_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"warmpath/controlplane/admin"
	ct "warmpath/controlplane/controltest"
	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
)

// How warm a node is, how sure its weight, and whether it ramps, can be read; what is
// not known is null.
func TestNodeWarmth(t *testing.T) {
	a, b := ct.StartEngine(t, "m"), ct.StartEngine(t, "m")
	s := serve(t, "", fmt.Sprintf("nodes: [{name: a, url: %q}, {name: b, url: %q, kv_events: {endpoint: \"tcp://127.0.0.1:1\"}}]\n", a.URL(), b.URL()))
	s.WaitServed(t, "a", "m")
	s.WaitServed(t, "b", "m")
	ct.Eventually(t, "what nodes hold is counted", func() bool { return s.Node("a").Warmth.Known })
	node := func(name string) (v admin.NodeView) {
		t.Helper()
		var one admin.OneNodeView
		if s.get("/api/nodes/"+name, &one); one.Node == nil {
			t.Fatalf("no node: %+v", one)
		}
		return *one.Node
	}
	if v := node("a"); v.Warmth == nil || *v.Warmth < 0 || *v.Warmth > 1 || v.WeightError != nil || v.WeightSamples != 0 || v.Filling || v.Proof != nil {
		t.Errorf("before anything was measured: %+v", v)
	}
	if v := node("b"); v.Warmth != nil { // nothing was heard of its cache
		t.Errorf("warmth %v of a cache of which nothing was heard", *v.Warmth)
	}
	s.Control.Send(state.RateSeen{NowNs: s.Control.NowNs(), Node: "a", PrefillTokensPerSecond: fleet.Gauge{Value: 8000, Known: true}, PrefillSamples: 20})
	ct.Eventually(t, "a's speed is known", func() bool {
		v := node("a")
		return v.WeightSamples > 0 && v.WeightError != nil && *v.WeightError > 0 && *v.WeightError < 0.5
	})
	var raw []map[string]json.RawMessage
	s.get("/api/nodes", &raw)
	for _, key := range []string{"weight", "weight_relative_error", "weight_samples", "warmth", "filling", "proof", "in_flight", "in_flight_prefill_tokens", "prefill_tokens_per_second", "prefill_relative_error"} {
		if _, ok := raw[1][key]; !ok {
			t.Errorf("no %q", key)
		}
	}
	if string(raw[1]["warmth"]) != "null" || string(raw[1]["proof"]) != "null" {
		t.Errorf("what is not known is %s and %s", raw[1]["warmth"], raw[1]["proof"])
	}
}

// A node that ramps says so, and why.
func TestNodeSaysThatItRamps(t *testing.T) {
	a, b := ct.StartEngine(t, "m"), ct.StartEngine(t, "m")
	s := serve(t, "", fmt.Sprintf("nodes: [{name: a, url: %q}, {name: b, url: %q}]\n", a.URL(), b.URL()))
	s.WaitServed(t, "a", "m")
	s.WaitServed(t, "b", "m")
	for i := range 80 { // as many to each as prove it, wherever they go
		s.Ask(t, fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":"question %d"}]}`, i), fmt.Sprint("r", i))
	}
	told := s.Control.NowNs()
	ct.Eventually(t, "the answers are counted", func() bool { return s.Control.State().NowNs > told+3e8 })
	b.Sick.Store(true)
	s.WaitState(t, "b", "down")
	b.Sick.Store(false)
	s.WaitState(t, "b", "ready")
	var one admin.OneNodeView
	s.get("/api/nodes/b", &one)
	const want = "its health route answers; it ramps: 0 % of the answers that prove it are given"
	if v := one.Node; v.Reason != want || v.Proof == nil || *v.Proof != 0 {
		t.Errorf("reason %q, proof %v", v.Reason, v.Proof)
	}
	last := one.Events[len(one.Events)-1]
	if last.To != "ramping" || last.Reason != "it was out; 16 good answers in a row must prove it" {
		t.Errorf("the last event is %+v", last)
	}
}
