package dataplane_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
)

// TestLeakHeals: a running router takes back what was raised and not settled, and
// gives what was settled twice, while the requests under way keep their part.
func TestLeakHeals(t *testing.T) {
	begun, end := make(chan struct{}, 1), make(chan struct{})
	r := start(t, setup{loops: 2}, startNode(t, "a", func(c *conn) {
		c.request()
		begun <- struct{}{}
		<-end
		c.send(ok("whole"))
	}))
	load := r.nodes[0].Load
	c := r.dial()
	c.send(post("kept", chatBody))
	<-begun
	prefill, total := load.PrefillTokens.Load(), load.TotalTokens.Load()
	right := func() bool {
		return load.Requests.Load() == 1 && load.PrefillTokens.Load() == prefill && load.TotalTokens.Load() == total
	}
	healed := func(times int64) {
		t.Helper()
		since := time.Now()
		eventually(t, "the counters to heal", func() bool { return right() && load.Healed.Load() == times })
		t.Logf("after %v", time.Since(since).Round(time.Millisecond))
	}
	if !r.d.Leak(0, r.nodes[0], 3) || !r.d.Leak(1, r.nodes[0], 2) {
		t.Fatal("nothing leaked")
	}
	if load.Requests.Load() == 1 && load.Healed.Load() == 0 {
		t.Error("nothing leaked")
	}
	healed(2) // once a loop
	if a, b := r.d.Leak(0, nil, -1), r.d.Leak(1, nil, -1); a == b {
		t.Fatal("not one loop has the request")
	}
	healed(3)
	close(end)
	if got := c.answer("POST"); got.body != "whole" {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
	eventually(t, "the counters at zero", func() bool {
		return load.Requests.Load() == 0 && load.PrefillTokens.Load() == 0 && load.TotalTokens.Load() == 0
	})
	if n := load.Healed.Load(); n != 3 {
		t.Errorf("%d corrections", n)
	}
}

// TestLoadIsNoLeak: hedges, retries, clients that leave, bodies that are passed on
// as they come and nodes that are replaced under requests: while all of that goes
// on the loops take stock all the time, a few clients a step, and find nothing.
func TestLoadIsNoLeak(t *testing.T) {
	// A node is replaced every 50 ms or more: of three that are, one in less than the
	// time of a hedge, there is one left to hedge to.
	const clients, each, replacedEvery = 24, 6, 50
	n := raceNode{&atomic.Int64{}}
	r := start(t, setup{loops: 2, set: hedging(func(s *dataplane.Settings) {
		s.FirstEventNs, s.RetryBudget, s.RoutingWindowBytes = int64(300e6), 1, 2<<10
	}), node: prefillsAtOnce}, startNode(t, "n0", n.script), startNode(t, "n1", n.script), startNode(t, "n2", n.script))
	quit, incarnations := make(chan struct{}), r.nodes
	var behind, load sync.WaitGroup
	behind.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			case <-time.After(time.Millisecond):
			}
			r.d.TakeStock(1 + i%5)
			if i%replacedEvery == 0 {
				nodes := anew(r.holder.Load())
				next := nodes[i/replacedEvery%len(nodes)]
				next.Generation++
				next.Load = &fleet.Load{}
				incarnations = append(incarnations, next)
				r.publish(nodes...)
			}
		}
	})
	for round := 0; round == 0 || round < 10 && r.d.Totals().Hedges == 0; round++ { // a hedge needs some luck
		for i := range clients {
			load.Go(func() {
				c := &raceClient{t: t, r: r}
				for k := range each {
					if k%3 == 2 {
						r.uploadSlowly(fmt.Sprintf("upload-%d-%d-%d", round, i, k))
					} else {
						c.ask(fmt.Sprintf("load-%d-%d-%d", round, i, k))
					}
				}
				if c.nc != nil {
					c.leave()
				}
			})
		}
		load.Wait()
	}
	close(quit)
	behind.Wait()
	r.nodes = incarnations
	r.settled()
	for range 2 * clients { // two walks, whatever is left of one
		r.d.TakeStock(clients)
	}
	r.unhealed()
	if got := r.d.Stakes(); got > 2*3 {
		t.Errorf("the loops keep %d stakes, in 3 nodes", got)
	}
	totals := r.d.Totals()
	t.Logf("%d incarnations, %d hedges, %d retries", len(incarnations), totals.Hedges, totals.Retries)
	if len(incarnations) < 2*3 || totals.Hedges == 0 || len(totals.Retries) == 0 {
		t.Error("that is not what the test is for")
	}
}

// anew copies the nodes of a snapshot, for another one.
func anew(snap *fleet.Snapshot) (nodes []*fleet.Node) {
	for _, n := range snap.Nodes {
		next := *n
		nodes = append(nodes, &next)
	}
	return nodes
}

// uploadSlowly sends a body in pieces, and leaves before its end, or after it with
// or without an answer.
func (r *router) uploadSlowly(id string) {
	rnd := randomOf("upload", id)
	nc, err := net.Dial("tcp", r.d.Addr().String())
	if err != nil {
		r.t.Error(err)
		return
	}
	defer nc.Close()
	text := post(id, strings.Replace(streamed, "hello", "hello "+id+strings.Repeat(" more", 2000), 1))
	for range 1 + rnd.IntN(6) {
		if text == "" {
			break
		}
		piece := min(len(text), 1+rnd.IntN(4000))
		if _, err := nc.Write([]byte(text[:piece])); err != nil {
			return // it was refused, or its node has failed
		}
		text = text[piece:]
		<-time.After(time.Duration(rnd.IntN(30)) * time.Millisecond)
	}
	_ = nc.SetDeadline(time.Now().Add(time.Duration(rnd.IntN(400)) * time.Millisecond))
	if _, err := nc.Write([]byte(text)); err == nil {
		_, _ = nc.Read(make([]byte, 64<<10))
	}
}
