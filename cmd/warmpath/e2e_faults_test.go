package main

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// faultCase is one fault of the node that a request goes to first.
type faultCase struct {
	name, fault  string
	path         string // default: chat
	more         string // further keys of the body
	try          string // how the first try ended; "" = there is one try only
	status       int
	outcome      string // of the whole request
	broken       bool   // the client sees its connection cut
	says         string // the body contains it
	failuresKind string // kind of node_failures_total that grows; "" = the node is not blamed
}

var faultCases = []faultCase{
	{name: "refuse", fault: `{"kind":"refuse"}`, try: "refused", status: 200, outcome: "ok", failuresKind: "refused"},
	{name: "refuse stream", fault: `{"kind":"refuse"}`, more: streaming, try: "refused", status: 200, outcome: "ok", failuresKind: "refused"},
	{name: "reset", fault: `{"kind":"reset"}`, try: "reset", status: 200, outcome: "ok", failuresKind: "reset"},
	{name: "reset stream", fault: `{"kind":"reset"}`, more: streaming, try: "reset", status: 200, outcome: "ok", failuresKind: "reset"},
	{name: "hang before headers, stream", fault: `{"kind":"hang_before_headers"}`, more: streaming, try: "silent", status: 200, outcome: "ok", failuresKind: "silent"},
	{name: "hang after headers, stream", fault: `{"kind":"hang_after_headers"}`, more: streaming, try: "silent", status: 200, outcome: "ok", failuresKind: "silent"},
	{
		name: "hang before headers, whole", fault: `{"kind":"hang_before_headers"}`, path: "/v1/completions",
		status: 504, outcome: "deadline", says: "timeouts.request",
	},
	{name: "cut before the first event", fault: `{"kind":"cut_mid_stream","after_chunks":0}`, more: streaming, try: "reset", status: 200, outcome: "ok", failuresKind: "reset"},
	{name: "cut later", fault: `{"kind":"cut_mid_stream","after_chunks":3}`, more: streaming, status: 200, outcome: "mid_stream", broken: true, failuresKind: "reset"},
	{name: "cut whole answer", fault: `{"kind":"cut_mid_stream"}`, status: 200, outcome: "mid_stream", broken: true, failuresKind: "reset"},
	{name: "error as first event", fault: `{"kind":"error_event_mid_stream","after_chunks":0}`, more: streaming, try: "error_event", status: 200, outcome: "ok", failuresKind: "server_error"},
	{
		name: "error event later", fault: `{"kind":"error_event_mid_stream","after_chunks":3}`, more: streaming,
		status: 200, outcome: "error_event", says: `data: {"error":`, failuresKind: "server_error",
	},
	{name: "500", fault: `{"kind":"500"}`, try: "status", status: 200, outcome: "ok", failuresKind: "server_error"},
	{name: "500 stream", fault: `{"kind":"500"}`, more: streaming, try: "status", status: 200, outcome: "ok", failuresKind: "server_error"},
	{name: "503", fault: `{"kind":"503"}`, try: "status", status: 200, outcome: "ok", failuresKind: "server_error"},
	{name: "loading", fault: `{"kind":"loading"}`, try: "status", status: 200, outcome: "ok", failuresKind: "server_error"},
}

// TestFaults meets each fault once on the node that a request goes to first.
func TestFaults(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 2, "--time-scale", "0.1")
	r := serve(t, settings, "timeouts: {first_event: 500ms, paths: {/v1/completions: 1s}}\nbreaker: {open: 200ms}\n", nodeList(sim.urls...))
	for _, c := range faultCases {
		t.Run(c.name, func(t *testing.T) {
			r.calm(t, "sim-0")
			body := r.bodyFor(t, "sim-0", `,"max_tokens":8`+c.more)
			path := chatPath
			if c.path != "" {
				path, body = c.path, r.completionFor(t, "sim-0")
			}
			failures := `node_failures_total{kind="` + c.failuresKind + `",node="sim-0"}`
			before := r.metric(t, failures)
			sim.fault(t, 0, c.fault)
			defer sim.clear(t, 0)
			a := r.try(t, path, body)
			c.check(t, r, a)
			if now := r.metric(t, failures); c.failuresKind != "" && now <= before {
				t.Errorf("%s went from %v to %v", failures, before, now)
			}
		})
	}
	bothFail(t, r, sim)
	restart(t, r, sim)
	r.settled(t)
}

func (c *faultCase) check(t *testing.T, r *serving, a *reply) {
	t.Helper()
	if (a.err != nil) != c.broken || a.status != c.status || !strings.Contains(string(a.body), c.says) {
		t.Fatalf("status %d, error %v, body %s; want %d, cut %v, %q", a.status, a.err, tail(string(a.body)), c.status, c.broken, c.says)
	}
	record := r.record(t, a.id())
	if record.Outcome == nil || record.Outcome.Outcome != c.outcome || record.Outcome.Status != c.status {
		t.Errorf("outcome %+v, want %s with %d", record.Outcome, c.outcome, c.status)
	}
	want := 1
	if c.try != "" {
		want = 2
	}
	if len(record.Tries) != want || record.Tries[0].Node != "sim-0" || c.try != "" && record.Tries[0].Outcome != c.try {
		t.Errorf("tries %+v, want %d, the first on sim-0 ended %q", record.Tries, want, c.try)
	}
	if c.try != "" && (a.node() != "sim-1" || record.Reason != "retry" || a.text == "") {
		t.Errorf("answer %q from %s, reason %s", a.text, a.node(), record.Reason)
	}
}

// bothFail leaves no alternative: an engine's own 5xx goes to the client as it
// is, and two dead nodes are named.
func bothFail(t *testing.T, r *serving, sim *engines) {
	t.Helper()
	set := func(fault string) {
		for i := range sim.urls {
			r.calm(t, "sim-0")
			r.calm(t, "sim-1")
			sim.fault(t, i, fault)
		}
	}
	clearAll := func() {
		for i := range sim.urls {
			sim.clear(t, i)
		}
	}
	set(`{"kind":"500"}`)
	a := r.try(t, chatPath, chatBody("Both answer 500.", ""))
	if a.err != nil || a.status != http.StatusInternalServerError || !strings.Contains(string(a.body), "EngineCore") {
		t.Errorf("both nodes answer 500: status %d, error %v, body %s", a.status, a.err, a.body)
	}
	clearAll()
	set(`{"kind":"reset"}`)
	a = r.try(t, chatPath, chatBody("Both reset.", ""))
	said := string(a.body)
	if a.err != nil || a.status != http.StatusBadGateway || !strings.Contains(said, "sim-0") || !strings.Contains(said, "sim-1") || !strings.Contains(said, a.id()) {
		t.Errorf("both nodes reset: status %d, error %v, body %s", a.status, a.err, said)
	}
	clearAll()
}

// restart replaces an engine's process: its cache is empty, and no request
// fails for it.
func restart(t *testing.T, r *serving, sim *engines) {
	t.Helper()
	r.calm(t, "sim-0")
	r.calm(t, "sim-1")
	body := r.bodyFor(t, "sim-0", "")
	first := r.ask(t, body)
	if warm := r.ask(t, body); first.node() != "sim-0" || warm.node() != "sim-0" || warm.cached == 0 {
		t.Errorf("before the restart: %s, then %s with %d cached", first.node(), warm.node(), warm.cached)
	}
	sim.fault(t, 0, `{"kind":"restart"}`)
	eventually(t, 5*time.Second, "the engine restarted", func() bool { return sim.states(t)[0].Restarts == 1 })
	if cold := r.ask(t, body); cold.node() == "sim-0" && cold.cached != 0 {
		t.Errorf("after the restart: %d tokens from an empty cache", cold.cached)
	}
}
