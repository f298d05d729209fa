package main

import (
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"warmpath/controlplane/admin"
)

// TestTurnsStayAndMove follows a conversation: its turns stay on the node that
// holds them, leave it when it drains, and the records say why.
func TestTurnsStayAndMove(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 3, "--time-scale", "0.2")
	r := serve(t, settings, nodeList(sim.urls...))
	for name, more := range map[string]string{"whole": `,"max_tokens":16`, "stream": `,"max_tokens":16` + streaming} {
		t.Run(name, func(t *testing.T) {
			talk := []turn{{"system", name + strings.Repeat(" Answer in full sentences and name your sources.", 30)}}
			next := func(question string) *reply {
				t.Helper()
				talk = append(talk, turn{"user", question})
				a := r.ask(t, talkBody(talk, more))
				talk = append(talk, turn{"assistant", a.text})
				return a
			}
			first := next("Who are you?")
			second := next("And what do you cache?")
			home := first.node()
			if duration := second.header.Get("X-Request-Duration"); (duration == "") != (name == "stream") || second.id() == "" {
				t.Errorf("X-Request-Duration is %q, X-Request-Id %q", duration, second.id())
			}
			if second.node() != home || second.cached == 0 {
				t.Fatalf("turn 2 went to %s with %d cached tokens, turn 1 to %s", second.node(), second.cached, home)
			}
			record := r.record(t, second.id())
			if record.Reason != "prefix" || matchedOn(&record, home) == 0 || record.Node != home {
				t.Errorf("record of turn 2: %+v", record)
			}
			if o := record.Outcome; o == nil || o.Status != 200 || o.CachedTokens == nil || *o.CachedTokens != int64(second.cached) {
				t.Errorf("outcome of turn 2: %+v", o)
			}
			movesAway(t, r, home, next)
			r.usable(t, home)
			if back := next("Back at home?"); back.node() != home && r.record(t, back.id()).Reason != "prefix" {
				t.Errorf("after undrain: %+v", r.record(t, back.id()))
			}
		})
	}
	comesBack(t, r)
	r.settled(t)
}

// TestStartsBeforeItsNodes serves before any node has answered: what comes is
// told to try again, and is served once a node is there.
func TestStartsBeforeItsNodes(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	_ = l.Close()
	r := launchRouter(t, configure(t, settings, nodeList("http://"+address)))
	a := r.try(t, chatPath, chatBody("Too early.", ""))
	if a.err != nil || a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" || !strings.Contains(string(a.body), a.id()) {
		t.Errorf("before its nodes: status %d, error %v, %v, %s", a.status, a.err, a.header, a.body)
	}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		if got := r.status(t, path); got != want {
			t.Errorf("%s before its nodes: %d, want %d", path, got, want)
		}
	}
	_, port, _ := net.SplitHostPort(address)
	startEngines(t, 1, "--port", port, "--time-scale", "0.1")
	eventually(t, 10*time.Second, "ready", func() bool { return r.status(t, "/readyz") == http.StatusOK })
	// Ready is before the models are known: a client may be told to try again.
	eventually(t, 5*time.Second, "a request is served", func() bool {
		a = r.try(t, chatPath, chatBody("Now?", ""))
		return a.err == nil && a.status == http.StatusOK
	})
	if a = r.try(t, chatPath, []byte(`{"model":"other","messages":[]}`)); a.status != http.StatusNotFound {
		t.Errorf("an unknown model: status %d, %s", a.status, a.body)
	}
	r.settled(t)
}

// matchedOn returns the tokens that the record says a candidate holds.
func matchedOn(d *admin.DecisionView, node string) int {
	for _, c := range d.Candidates {
		if c.Node == node {
			return c.MatchedTokens
		}
	}
	return 0
}

// movesAway drains home: turn 3 goes elsewhere and its record names home.
func movesAway(t *testing.T, r *serving, home string, next func(string) *reply) {
	t.Helper()
	if _, errs, code := r.cli(t, "drain", home); code != 0 {
		t.Fatalf("drain: code %d: %s", code, errs)
	}
	eventually(t, 5*time.Second, home+" drains", func() bool { return r.node(t, home).State == "draining" })
	third := next("And where are you now?")
	record := r.record(t, third.id())
	if third.node() == home || record.Node != third.node() || record.Reason == "" || record.Reason == "prefix" {
		t.Errorf("turn 3 went to %s, record %+v", third.node(), record)
	}
	var passed *admin.PassedView
	for i := range record.PassedOver {
		if record.PassedOver[i].Node == home {
			passed = &record.PassedOver[i]
		}
	}
	if passed == nil || passed.Why != "draining" || passed.MatchedTokens == 0 || !strings.Contains(record.Why, home) {
		t.Errorf("turn 3 passed over %+v, in words %q; want %s, draining", record.PassedOver, record.Why, home)
	}
	if _, errs, code := r.cli(t, "undrain", home); code != 0 {
		t.Fatalf("undrain: code %d: %s", code, errs)
	}
}

// comesBack drains the node of a conversation and undrains it before the next
// turn: the turn is back where its prefix is.
func comesBack(t *testing.T, r *serving) {
	t.Helper()
	talk := []turn{{"user", "Stay. " + strings.Repeat("Tell me all that you know about it. ", 40)}}
	first := r.ask(t, talkBody(talk, ""))
	home := first.node()
	for _, verb := range []string{"drain", "undrain"} {
		if _, errs, code := r.cli(t, verb, home); code != 0 {
			t.Fatalf("%s: code %d: %s", verb, code, errs)
		}
		want := map[string]string{"drain": "draining", "undrain": "ready"}[verb]
		eventually(t, 5*time.Second, home+" is "+want, func() bool { return r.node(t, home).State == want })
	}
	talk = append(talk, turn{"assistant", first.text}, turn{"user", "And then?"})
	second := r.ask(t, talkBody(talk, ""))
	if record := r.record(t, second.id()); second.node() != home || record.Reason != "prefix" || second.cached == 0 {
		t.Errorf("after undrain the turn went to %s (%s, %d cached), not back to %s", second.node(), record.Reason, second.cached, home)
	}
}
