package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warmpath/controlplane/kernel"
)

// A queue that others make is to be seen so fast, once in bursts that are tried: the
// engine's metrics would be looked at each second.
const (
	queueSeenWithin = 500 * time.Millisecond
	bursts          = 5
	burstSize       = 12
)

// pileUp sends requests past the router, until stop, of which the engine takes two.
func pileUp(t *testing.T, base string, n int) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range burstSize {
		body := chatBody(fmt.Sprintf("Burst %d, request %d.", n, i), `,"max_tokens":2000`)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+chatPath, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		all.Go(func() {
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// loadOf is what the kernel plane has heard of a node in band.
func (r *serving) loadOf(t *testing.T, name string) (on bool, load *kernel.LoadView) {
	t.Helper()
	var v kernel.View
	getJSON(t, "http://"+r.admin+"/api/kernel", &v)
	for i := range v.Nodes {
		if v.Nodes[i].Name == name {
			load = v.Nodes[i].Load
		}
	}
	return v.NodeLoad, load
}

// sayLoad runs an agent for one engine.
func sayLoad(t *testing.T, base string) *process {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	a := launch(t, "warmpath agent", exec.Command(program("warmpath"), "agent", "--load-option", "--load-port", u.Port(), "--load-url", base, "--load-interval", "50ms"))
	eventually(t, startWithin, "the agent says the load", func() bool {
		return strings.Contains(a.err.String(), "saying the engine's load")
	})
	return a
}

// TestNodeLoadInBand: the queue of an engine whose metrics the router does not read
// is known from the segments of a stream, soon after others made it. One without an
// agent is known by its metrics, as ever; so is nothing of the first one's once its
// agent has gone, and no client notices.
func TestNodeLoadInBand(t *testing.T) {
	needKernel(t)
	cells := makeCells(t, 2)
	said := startEnginesAt(t, cells[0].by(), cells[0].address, 1, "--max-num-seqs", "3", "--decode-base-ms", "10")
	silent := startEnginesAt(t, cells[1].by(), cells[1].address, 1)
	agent := sayLoad(t, said.urls[0])
	r := serve(t, settings, "policy: {name: prefix_hash}\nkernel: {mode: require, node_load: true}\n",
		fmt.Sprintf("nodes:\n  - {name: sim-0, url: %q, engine: openai}\n  - {name: sim-1, url: %q}\n", said.urls[0], silent.urls[0]))

	stream := r.bodyFor(t, "sim-0", `,"max_tokens":20000`+streaming)
	r.ask(t, r.bodyFor(t, "sim-1", `,"max_tokens":4`))
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan *reply, 1)
	go func() { left <- r.send(ctx, chatPath, "", stream, nil) }()
	defer func() {
		leave()
		<-left
	}()
	queued := func() float64 {
		if q := r.node(t, "sim-0").Queued; q != nil {
			return *q
		}
		return -1
	}
	eventually(t, 10*time.Second, "an empty queue is known", func() bool { return queued() == 0 })

	best := time.Hour
	for n := 0; n < bursts && best > queueSeenWithin; n++ {
		began := time.Now()
		stop := pileUp(t, said.urls[0], n)
		eventually(t, 10*time.Second, "the queue is known", func() bool { return queued() >= burstSize-2 })
		took := time.Since(began)
		t.Logf("a queue of %v was known %v after requests were sent past the router", queued(), took.Round(time.Millisecond))
		best = min(best, took)
		if v := r.node(t, "sim-0"); v.InFlight > 1 || v.KVUse == nil || v.Running != nil {
			t.Errorf("of its own the router has %d there; KV use %v, running %v", v.InFlight, v.KVUse, v.Running)
		}
		stop()
		eventually(t, 10*time.Second, "the queue is known to be empty", func() bool { return queued() == 0 })
	}
	if best > queueSeenWithin {
		t.Errorf("the queue was never known within %v", queueSeenWithin)
	}
	on, load := r.loadOf(t, "sim-0")
	if !on || load == nil || load.Queued == nil || load.KVUse == nil || load.AgoSeconds > 5 {
		t.Errorf("/api/kernel: %v, %+v", on, load)
	}
	if n := r.metric(t, `kernel_load_readings_total{node="sim-0"}`); n < 10 {
		t.Errorf("%v readings", n)
	}
	if _, load := r.loadOf(t, "sim-1"); load != nil || r.metric(t, `kernel_load_readings_total{node="sim-1"}`) != 0 {
		t.Errorf("a node without an agent is heard: %+v", load)
	}
	eventually(t, 10*time.Second, "its metrics are read", func() bool { return r.node(t, "sim-1").Queued != nil })

	agent.signal(t, syscall.SIGTERM)
	if code := agent.wait(t, 10*time.Second); code != 0 {
		t.Errorf("the agent ended with %d", code)
	}
	eventually(t, 10*time.Second, "the queue is not known any more", func() bool { return queued() < 0 })
	if r.node(t, "sim-1").Queued == nil {
		t.Error("sim-1's queue is not known any more either")
	}
	select {
	case a := <-left:
		t.Errorf("the stream ended: %d, %v", a.status, a.err)
		left <- a
	default:
	}
}

// TestNodeLoadNotAllowed: an agent that may not load programs says so in one line
// with a remedy.
func TestNodeLoadNotAllowed(t *testing.T) {
	t.Parallel()
	p := launch(t, "warmpath agent", as(t, nil, "agent", "--load-option"))
	if code := p.wait(t, 10*time.Second); code != 1 {
		t.Errorf("code %d", code)
	}
	if said := strings.TrimSpace(p.err.String()); strings.Contains(said, "\n") || !strings.Contains(said, "may not load it; give it CAP_BPF") {
		t.Errorf("it says %q", said)
	}
}
