package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestDescriptorsRunOut lowers the router's limit of open descriptors while it
// runs and lets idle clients use up what is left: it goes on serving those it
// has, says once what is wrong, and accepts again when descriptors are free.
func TestDescriptorsRunOut(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 2, "--time-scale", "0.1")
	r := serve(t, "listen: 127.0.0.1:0\nlimits: {connections: 200}\nlog: {format: json}\n", nodeList(sim.urls...))
	// Connections that exist before: of a client, of an operator.
	warm := r.ask(t, chatBody("Before.", ""))
	metrics := openMetrics(t, r)
	clients := func() float64 { return metricOf(t, metrics(), `connections{side="client"}`) }
	const spare = 6
	before := clients()
	setLimit(t, r, openFiles(t, r)+spare)
	idle := make([]net.Conn, 40)
	for i := range idle {
		idle[i] = r.dial(t) // the kernel takes it, whoever accepts it
	}
	failures := func() float64 { return metricOf(t, metrics(), "accept_failures_total") }
	eventually(t, 10*time.Second, "accepting fails", func() bool { return failures() > 0 })
	// A client takes one descriptor, and not another on its way to its loop.
	if got := clients() - before; got <= spare/2 {
		t.Errorf("%d descriptors were spare, and %v clients got in", spare, got)
	}
	seen := failures()
	eventually(t, 10*time.Second, "accepting fails again", func() bool { return failures() > seen })
	// The nodes' pooled connections may be gone, and no new one can be made:
	// what matters is that the node is not blamed for it, or that it is served.
	during := r.try(t, chatPath, chatBody("During.", ""))
	t.Logf("before: %s; during: status %d, error %v", warm.node(), during.status, during.err)
	if during.err != nil {
		t.Errorf("a client that was there before lost its connection: %v", during.err)
	}
	if state := metrics(); strings.Contains(state, `state="down"} 1`) {
		t.Error("a node is down for want of descriptors of the router's own")
	}
	dropped := 0
	for _, c := range idle {
		if closedBy(c) {
			dropped++
		}
		_ = c.Close()
	}
	if dropped > 0 {
		t.Errorf("%d of %d clients that connected were dropped instead of left in the kernel's queue", dropped, len(idle))
	}
	eventually(t, 10*time.Second, "new clients are served", func() bool {
		c := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := c.Post(r.url+chatPath, "application/json", strings.NewReader(string(chatBody("After.", ""))))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	if n := strings.Count(r.err.String(), "cannot accept connections"); n != 1 {
		t.Errorf("the log says %d times that connections cannot be accepted, want once", n)
	}
	if !strings.Contains(r.err.String(), "raise RLIMIT_NOFILE") {
		t.Error("the log does not say the remedy")
	}
	eventually(t, 10*time.Second, "the log says that it is over", func() bool {
		return strings.Contains(r.err.String(), "accepting connections again")
	})
	r.settled(t)
}

// TestNodesAreNotBlamed leaves the router no descriptor for a connection to a
// node: that is its own trouble, and no node is taken out for it.
func TestNodesAreNotBlamed(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 2, "--time-scale", "0.1")
	r := serve(t, "listen: 127.0.0.1:0\nlimits: {connections: 200}\ntimeouts: {idle_node: 100ms}\nlog: {format: json}\n", nodeList(sim.urls...))
	r.ask(t, chatBody("Before.", ""))
	metrics := openMetrics(t, r)
	eventually(t, 5*time.Second, "no connection to a node is kept", func() bool {
		return metricOf(t, metrics(), `connections{side="node_idle"}`) == 0
	})
	setLimit(t, r, 8) // below it are only descriptors that stay: none can be got
	for range 8 {
		a := r.try(t, chatPath, chatBody("During.", ""))
		if a.err != nil || a.status < 500 || !strings.Contains(string(a.body), `"error"`) {
			t.Errorf("without descriptors: status %d, error %v, body %s", a.status, a.err, a.body)
		}
	}
	// Long enough for the control plane to hear of failures.
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 10 {
		<-tick.C
		text := metrics()
		refused := metricOf(t, text, `node_failures_total{kind="refused",node="sim-0"}`) + metricOf(t, text, `node_failures_total{kind="refused",node="sim-1"}`)
		if refused > 0 || strings.Contains(text, `state="down"} 1`) {
			t.Fatalf("nodes are blamed because the router has no descriptors left: %v refusals counted, a node down: %v",
				refused, strings.Contains(text, `state="down"} 1`))
		}
	}
	setLimit(t, r, 10_000)
	r.ask(t, chatBody("After.", ""))
	if n := strings.Count(r.err.String(), "cannot connect to nodes"); n != 1 || !strings.Contains(r.err.String(), "raise RLIMIT_NOFILE") {
		t.Errorf("the log says %d times that nodes cannot be connected to, want once, with the remedy", n)
	}
	eventually(t, 20*time.Second, "the log says that it is over", func() bool {
		return strings.Contains(r.err.String(), "connecting to nodes again")
	})
}

// TestProbesAreNotBlamed leaves the router no descriptor for its own questions to
// the nodes either: that they cannot be asked says nothing about them.
func TestProbesAreNotBlamed(t *testing.T) {
	t.Parallel()
	nodes := []*frail{startFrail(t), startFrail(t)}
	r := serve(t, "listen: 127.0.0.1:0\nlimits: {connections: 200}\nhealth: {interval: 100ms, interval_down: 100ms, down_after: 2}\nlog: {format: json}\n", nodeList(nodes[0].URL, nodes[1].URL))
	metrics := openMetrics(t, r)
	setLimit(t, r, 8)
	var last [2]int64
	for i, n := range nodes {
		n.CloseClientConnections() // a new one is needed to ask again
		last[i] = n.probed.Load()
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range 15 {
		<-tick.C
		if strings.Contains(metrics(), `state="down"} 1`) {
			t.Fatal("a node is down because the router has no descriptor to ask it")
		}
	}
	setLimit(t, r, 10_000)
	for i, n := range nodes {
		eventually(t, 10*time.Second, "the nodes are asked again", func() bool { return n.probed.Load() != last[i] })
	}
	r.ask(t, chatBody("After.", ""))
}

// openMetrics returns a reader of /metrics over one connection that stays.
func openMetrics(t *testing.T, r *serving) func() string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: 5 * time.Second}
	t.Cleanup(client.CloseIdleConnections)
	read := func() string {
		t.Helper()
		resp, err := client.Get("http://" + r.admin + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	read()
	return read
}

// openFiles is how many descriptors the router has open.
func openFiles(t *testing.T, r *serving) uint64 {
	t.Helper()
	http.DefaultClient.CloseIdleConnections() // the test's own need not count
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.pid()))
	if err != nil {
		t.Fatal(err)
	}
	return uint64(len(open))
}

// setLimit changes the soft limit of open descriptors of the running router.
// Those that are open stay; new ones must have a smaller number.
func setLimit(t *testing.T, r *serving, limit uint64) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Prlimit(r.pid(), unix.RLIMIT_NOFILE, nil, &old); err != nil {
		t.Fatalf("read the router's limit: %v", err)
	}
	lower := unix.Rlimit{Cur: min(limit, old.Max), Max: old.Max}
	if err := unix.Prlimit(r.pid(), unix.RLIMIT_NOFILE, &lower, nil); err != nil {
		t.Fatalf("set the router's limit: %v", err)
	}
}

// dial opens a plain connection to the client side.
func (r *serving) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.DialTimeout("tcp", strings.TrimPrefix(r.url, "http://"), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// closedBy reports whether the peer has closed a connection on which nothing
// was sent.
func closedBy(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	var timeout net.Error
	return err != nil && (!errors.As(err, &timeout) || !timeout.Timeout())
}

// TestRefusesWhatCannotFit starts the router with a hard limit below what its
// configuration may need.
func TestRefusesWhatCannotFit(t *testing.T) {
	t.Parallel()
	path := configure(t, "listen: 127.0.0.1:0\nlimits: {connections: 2000}\n", nodeList())
	for _, verb := range []string{"serve", "check"} {
		_, errs, code := command(t, "", "sh", "-c", `ulimit -n 1000 && exec "$0" "$1" --config "$2"`, program("warmpath"), verb, path)
		if code != 1 || !strings.Contains(errs, "limits.connections") || !strings.Contains(errs, "4512") || !strings.Contains(errs, "at most 244") {
			t.Errorf("%s: code %d, %q", verb, code, errs)
		}
	}
}
