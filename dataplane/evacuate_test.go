package dataplane_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"warmpath/dataplane"
	"warmpath/dataplane/backend"
	"warmpath/dataplane/fleet"
)

// dies publishes that the node of a slot is dead, and has the loops leave it.
func (r *router) dies(slot int) {
	dead := *r.nodes[slot]
	dead.State, dead.Cause = fleet.Down, fleet.CauseDead
	nodes := append([]*fleet.Node(nil), r.nodes...)
	nodes[slot] = &dead
	r.nodes = nodes
	r.publish(nodes...)
	r.d.Evacuate([]*fleet.Node{&dead})
}

// TestEvacuate: whatever a request waits for at a dead node, another one answers
// it, beside the retry budget.
func TestEvacuate(t *testing.T) {
	none := func(s *dataplane.Settings) { s.RetryBudget = 0 }
	for _, c := range []struct {
		name    string
		set     func(*dataplane.Settings)
		dead    func(*conn)
		request string
		answer  string
	}{
		{"the whole answer", none, hangs, chatBody, ok("good")},
		{"the head of a stream", none, hangs, streamed, goodStream},
		{"the first event behind a held head", none, says(streamHead), streamed, goodStream},
		{"the first event behind a comment", none, says(streamHead + chunk(": ping\n\n")), streamed, goodStream},
		{"the rest of a head", none, says("HTTP/1.1 200 OK\r\nConte"), chatBody, ok("good")},
		{"an answer after an interim one", none, says("HTTP/1.1 103 Early Hints\r\n\r\n"), chatBody, ok("good")},
		{"the rest of a body to be taken", func(s *dataplane.Settings) { s.RetryBodyBytes = 8 << 20 }, func(*conn) { <-t.Context().Done() }, prompt2("long", 7<<20), ok("good")},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := startNode(t, "a", c.dead), startNode(t, "b", answers(c.answer))
			r := start(t, setup{set: c.set}, a, b)
			many := 5 // more than the budget allows however few there are
			unread := len(c.request) > 1<<20
			if unread { // what kernels keep for sockets is bounded
				many = 1
			}
			var clients []*client
			for i := range many {
				cl := r.dial()
				cl.send(post(fmt.Sprint("moved-", i), c.request))
				clients = append(clients, cl)
			}
			eventually(t, "all wait there", func() bool {
				l := r.nodes[0].Load
				return int(l.Requests.Load()) == many && (unread || len(a.requests()) == many)
			})
			r.dies(0)
			for i, cl := range clients {
				got := cl.answer("POST")
				for strings.HasPrefix(got.Status, "103") { // which went to the client before, and is no answer
					got = cl.answer("POST")
				}
				if got.StatusCode != 200 || !strings.Contains(got.body, "good") || got.Header.Get("X-Routed-To") != "b" {
					t.Errorf("got %d %q from %s", got.StatusCode, got.body, got.Header.Get("X-Routed-To"))
				}
				if rec := r.record(fmt.Sprint("moved-", i)); tries(rec) != "a:dead b:ok" {
					t.Errorf("tries %s", tries(rec))
				}
			}
			r.settled()
			if dead, moved := r.nodes[0].Load.Dead.Load(), r.d.Totals().Retries[backend.Dead]; int(dead) != many || int(moved) != many {
				t.Errorf("%d losses and %d tries after them are counted, want %d", dead, moved, many)
			}
		})
	}
}

// TestEvacuateConnecting: so are requests whose connection is not there yet.
func TestEvacuateConnecting(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	fillQueue(t, ln) // it answers no SYN
	a := &node{t: t, name: "a", address: ln.Addr().String()}
	r := start(t, setup{set: func(s *dataplane.Settings) { s.ConnectNs = 2 * int64(patience) }}, a, startNode(t, "b", answers(ok("good"))))
	cl := r.dial()
	cl.send(post("connecting", chatBody))
	eventually(t, "the request counted on its node", func() bool { return r.nodes[0].Load.Requests.Load() == 1 })
	r.dies(0)
	if got := cl.answer("POST"); got.body != "good" {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
	if rec := r.record("connecting"); tries(rec) != "a:dead b:ok" {
		t.Errorf("tries %s", tries(rec))
	}
	if heard := r.nodes[0].Load.HeardNs.Load(); heard != 0 {
		t.Errorf("a node that said nothing was heard at %d", heard)
	}
	r.settled()
}

// TestNotEvacuated: what stays at a dead node, and is answered by it when it
// turns out to be alive.
func TestNotEvacuated(t *testing.T) {
	for _, c := range []struct {
		name  string
		set   func(*dataplane.Settings)
		nodes int
	}{
		{"nowhere else to go", nil, 1},
		{"a body too long to be held", func(s *dataplane.Settings) { s.RetryBodyBytes = 10 }, 2},
		{"no retries", func(s *dataplane.Settings) { s.Retries = 0 }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			back := make(chan struct{})
			nodes := []*node{startNode(t, "a", func(n *conn) {
				n.request()
				<-back
				n.send(ok("good"))
				n.gone()
			}), startNode(t, "b", answers(ok("wrong")))}
			r := start(t, setup{set: c.set}, nodes[:c.nodes]...)
			cl := r.dial()
			cl.send(post("stays", chatBody))
			eventually(t, "it waits there", func() bool { return len(nodes[0].requests()) == 1 })
			r.dies(0)
			r.dies(0)        // again, as with each snapshot
			r.d.HoldLoop()() // what the loop was told before is done
			close(back)
			if got := cl.answer("POST"); got.body != "good" {
				t.Errorf("got %d %q", got.StatusCode, got.body)
			}
			if rec := r.record("stays"); tries(rec) != "a:ok" {
				t.Errorf("tries %s", tries(rec))
			}
			r.settled()
		})
	}
}

// TestSecondDeath: a request that has seen a node die is not tried on a third
// when the second dies too.
func TestSecondDeath(t *testing.T) {
	back := make(chan struct{})
	a, b, c := startNode(t, "a", hangs), startNode(t, "b", func(n *conn) {
		n.request()
		<-back
		n.send(ok("good"))
		n.gone()
	}), startNode(t, "c", answers(ok("wrong")))
	r := start(t, setup{}, a, b, c)
	cl := r.dial()
	cl.send(post("twice", chatBody))
	eventually(t, "it waits at the first", func() bool { return len(a.requests()) == 1 })
	r.dies(0)
	eventually(t, "it waits at the second", func() bool { return len(b.requests()) == 1 })
	r.dies(1)
	r.d.HoldLoop()() // what the loop was told before is done
	close(back)
	if got := cl.answer("POST"); got.body != "good" {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
	if rec := r.record("twice"); tries(rec) != "a:dead b:ok" {
		t.Errorf("tries %s", tries(rec))
	}
	r.settled()
}

// TestStreamsOutliveSilence: an answer that has begun cannot be moved; it goes on
// if its node turns out to be alive. Idle connections are closed.
func TestStreamsOutliveSilence(t *testing.T) {
	back, closed := make(chan struct{}), make(chan struct{})
	a := startNode(t, "a", func(n *conn) {
		n.request()
		if n.n > 0 {
			n.send(ok("short"))
			n.gone()
			close(closed)
			return
		}
		n.send(streamHead, chunk(event("one")))
		<-back
		n.send(chunk("data: [DONE]\n\n"), "0\r\n\r\n")
		n.gone()
	})
	r := start(t, setup{}, a, startNode(t, "b", answers(ok("other"))))
	begun, short := r.dial(), r.dial()
	begun.send(post("begun", streamed))
	skipHead(t, begun)
	short.send(post("short", chatBody))
	if got := short.answer("POST"); got.body != "short" {
		t.Fatalf("got %q", got.body)
	}
	r.dies(0)
	<-closed
	short.send(post("other", chatBody))
	if got := short.answer("POST"); got.body != "other" {
		t.Errorf("a request after the node's death got %q", got.body)
	}
	close(back)
	for line := ""; !strings.Contains(line, "[DONE]"); {
		var err error
		if line, err = begun.r.ReadString('\n'); err != nil {
			t.Fatalf("the stream ends with %v", err)
		}
	}
	r.settled()
	if rec := r.record("begun"); tries(rec) != "a:ok" {
		t.Errorf("tries %s", tries(rec))
	}
}

// TestSignsOfLife: what counts as heard from a node, and how long a connect takes.
func TestSignsOfLife(t *testing.T) {
	head, body := make(chan struct{}), make(chan struct{})
	a := startNode(t, "a", func(n *conn) {
		n.request()
		<-head
		n.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")
		<-body
		n.send("good")
		n.reset()
	})
	r := start(t, setup{}, a)
	load := r.nodes[0].Load
	heardAgain := func(what string) {
		t.Helper()
		was := load.HeardNs.Load()
		r.pass(20e6)
		switch what {
		case "head":
			close(head)
		case "rest":
			close(body)
		}
		eventually(t, what+" is heard", func() bool { return load.HeardNs.Load() > was })
	}
	cl := r.dial()
	cl.send(post("heard", chatBody))
	eventually(t, "the connection is heard", func() bool { return load.HeardNs.Load() > 0 })
	if took := load.ConnectNs.Load(); took <= 0 || took > int64(patience) {
		t.Errorf("connecting took %d ns", took)
	}
	heardAgain("head")
	heardAgain("rest")
	if got := cl.answer("POST"); got.body != "good" {
		t.Errorf("got %q", got.body)
	}
	r.settled()
}

// TestEvacuateHedged: of a request at two nodes the try at the living one goes on.
func TestEvacuateHedged(t *testing.T) {
	for dead, want := range []string{"n0:dead n1:ok", "n0:ok n1:dead"} {
		t.Run(want, func(t *testing.T) {
			back := make(chan struct{})
			script := func(n *conn) {
				n.request()
				<-back
				n.send(goodStream)
				n.gone()
			}
			n := []*node{startNode(t, "n0", script), startNode(t, "n1", script), startNode(t, "n2", answers(goodStream))}
			r := start(t, setup{set: hedging(nil), node: prefillsAtOnce}, n...)
			cl := r.dial()
			cl.send(post("hedged", streamed))
			eventually(t, "it waits at both", func() bool { return len(n[0].requests()) == 1 && hedged(r, n) })
			r.dies(dead)
			eventually(t, "it has left", func() bool { return r.nodes[dead].Load.Requests.Load() == 0 })
			close(back)
			if got := cl.answer("POST"); !strings.Contains(got.body, "good") {
				t.Errorf("got %d %q", got.StatusCode, got.body)
			}
			r.settled()
			if rec := r.record("hedged"); tries(rec) != want {
				t.Errorf("tries %s, want %s", tries(rec), want)
			}
		})
	}
}
