package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"warmpath/controlplane/admin"
)

// slowEngine makes answers of a few seconds that cost little CPU time.
var slowEngine = []string{"--decode-base-ms", "60", "--decode-per-request-ms", "0.2"}

// burst is many requests at once, every other one streamed.
type burst struct {
	wait    sync.WaitGroup
	answers []*reply
	begun   atomic.Int64 // answers of which a head came
}

// startBurst sends n requests; ids are prefix and number.
func startBurst(t *testing.T, r *serving, prefix string, n, tokens int) *burst {
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	t.Cleanup(cancel)
	b := &burst{answers: make([]*reply, n)}
	for i := range n {
		more := fmt.Sprintf(`,"max_tokens":%d`, tokens)
		if i%2 == 0 {
			more += streaming
		}
		body := chatBody(fmt.Sprintf("%s %d. %s", prefix, i, strings.Repeat("Many words to compute first. ", 40)), more)
		b.wait.Go(func() {
			b.answers[i] = r.send(ctx, chatPath, fmt.Sprintf("%s-%d", prefix, i), body, func() { b.begun.Add(1) })
		})
	}
	return b
}

// TestKillUnderLoad ends one of four engines by SIGKILL while 200 requests are
// under way, and starts it again.
func TestKillUnderLoad(t *testing.T) {
	const requests = 200
	var sims [4]*engines
	var urls []string
	for i := range sims {
		sims[i] = startEngines(t, 1, slowEngine...)
		urls = append(urls, sims[i].urls...)
	}
	r := serve(t, settings, nodeList(urls...))
	b := startBurst(t, r, "kill", requests, 50)
	eventually(t, 15*time.Second, "all requests are under way, some streams begun", func() bool {
		inFlight := int64(0)
		for _, n := range r.nodes(t) {
			inFlight += n.InFlight
		}
		return inFlight == requests && b.begun.Load() >= requests/5
	})
	sims[0].signal(t, syscall.SIGKILL)
	b.wait.Wait()
	cut, moved := 0, 0
	for i, a := range b.answers {
		record := r.record(t, fmt.Sprintf("kill-%d", i))
		switch outcome := record.Outcome; {
		case outcome == nil:
			t.Errorf("request %d has no outcome: %+v", i, record)
		case outcome.Outcome == "mid_stream":
			cut++
			if a.err == nil || record.Node != "sim-0" {
				t.Errorf("request %d was cut on %s and its client saw no error: %q", i, record.Node, a.body)
			}
		case a.err != nil || a.status != http.StatusOK || a.text == "":
			t.Errorf("request %d: status %d, error %v, record %+v", i, a.status, a.err, record)
		case len(record.Tries) > 1:
			moved++
			if record.Tries[0].Node != "sim-0" || record.Reason != "retry" || a.node() == "sim-0" {
				t.Errorf("request %d moved: %+v", i, record)
			}
		}
	}
	t.Logf("%d streams cut, %d requests moved, %d undisturbed", cut, moved, requests-cut-moved)
	if cut == 0 || moved == 0 {
		t.Errorf("%d streams cut, %d requests moved: the test wants both", cut, moved)
	}
	if n := r.metric(t, `node_failures_total{kind="reset",node="sim-0"}`); n < float64(cut) {
		t.Errorf("node_failures_total counts %v resets, %d streams were cut", n, cut)
	}
	eventually(t, 10*time.Second, "the dead node is down", func() bool { return r.node(t, "sim-0").State == "down" })
	r.settled(t)
	startAgain(t, r, urls[0])
}

// startAgain starts an engine on the port of a dead one: its node is used.
func startAgain(t *testing.T, r *serving, address string) {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	sim := startEngines(t, 1, "--port", u.Port(), "--time-scale", "0.1")
	r.usable(t, "sim-0")
	for i := 0; sim.states(t)[0].Received == 0; i++ {
		if i == 100 {
			nodes, _ := json.Marshal(r.nodes(t))
			t.Fatalf("100 requests, none to the node that is back: %s", nodes)
		}
		r.ask(t, chatBody(fmt.Sprintf("Again %d. %s", i, strings.Repeat("Words of a prompt. ", 30)), `,"max_tokens":1`))
	}
}

// TestCoreStopped stops an engine's core while its health route says 200: what
// has no first event in time moves on, and the node is taken out.
func TestCoreStopped(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 3, "--time-scale", "0.1")
	r := serve(t, settings, "timeouts: {first_event: 1s}\nretry: {budget: 1}\nbreaker: {open: 1s}\n", nodeList(sim.urls...))
	sim.fault(t, 0, `{"kind":"core_stopped"}`)
	var wait sync.WaitGroup
	var moved atomic.Int64
	answers := make([]*reply, 24)
	for i := range answers {
		body := chatBody(fmt.Sprintf("Stopped %d. %s", i, strings.Repeat("Words of a prompt. ", 30)), `,"max_tokens":8`+streaming)
		wait.Go(func() { answers[i] = r.try(t, chatPath, body) })
	}
	wait.Wait()
	for i, a := range answers {
		if a.err != nil || a.status != http.StatusOK || a.node() == "sim-0" {
			t.Errorf("stream %d: status %d from %q, error %v: %s", i, a.status, a.node(), a.err, tail(string(a.body)))
			continue
		}
		record := r.record(t, a.id())
		if tries := record.Tries; len(tries) > 1 {
			moved.Add(1)
			if tries[0] != (admin.TryView{Node: "sim-0", Outcome: "silent"}) || record.Outcome.DurationSeconds < 1 {
				t.Errorf("stream %d: %+v", i, record)
			}
		}
	}
	if moved.Load() == 0 {
		t.Error("no stream was sent to the stopped engine")
	}
	eventually(t, 10*time.Second, "the hung node is down", func() bool {
		n := r.node(t, "sim-0")
		return n.State == "down" && strings.Contains(n.Reason, "hung")
	})
	sim.clear(t, 0)
	r.usable(t, "sim-0")
	r.settled(t)
}
