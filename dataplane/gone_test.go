package dataplane_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/backend"
)

// TestClientLeaves: at whatever point a client leaves, the node's connection
// is closed at once, nobody is blamed and every counter comes back.
func TestClientLeaves(t *testing.T) {
	for _, c := range []struct {
		name, request string
		answer        string // of the node, before the client leaves
		status        int
	}{
		{"waiting", chatBody, "", 499},
		{"waiting for the rest of the head", chatBody, "HTTP/1.1 200 OK\r\nConte", 499},
		{"holding", streamed, streamHead + chunk(": ping\n\n"), 499},
		{"relaying", streamed, streamHead + chunk(event("one")), 200},
	} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reset=%v", c.name, reset), func(t *testing.T) {
				there, closed := make(chan struct{}), make(chan time.Time, 1)
				a := startNode(t, "a", func(n *conn) {
					n.request()
					n.send(c.answer)
					close(there)
					n.gone()
					closed <- time.Now()
				})
				b := startNode(t, "b", answers(ok("wrong")))
				r := start(t, setup{}, a, b)
				cl := r.dial()
				cl.send(post("gone", c.request))
				<-there
				if c.status == 200 {
					skipHead(t, cl)
				}
				if reset {
					_ = cl.SetLinger(0)
				}
				left := time.Now()
				_ = cl.Close()
				if took := (<-closed).Sub(left); took > 100*time.Millisecond && !raceEnabled {
					t.Errorf("the node's connection was closed after %v, want within 100 ms", took)
				}
				r.settled()
				if rec := r.record("gone"); rec.Status != c.status || rec.Outcome != backend.ClientGone || tries(rec) != "a:client_gone" {
					t.Errorf("record: %d, %v, %s", rec.Status, rec.Outcome, tries(rec))
				}
				if r.nodes[0].Load.Failures.Load() != 0 || len(b.requests()) != 0 {
					t.Error("the node was blamed, or another one asked, for a client that left")
				}
				if _, _, open := r.d.Leftovers(); open != 0 {
					t.Errorf("%d clients are still known", open)
				}
			})
		}
	}
}

const raceEnabled = dataplane.RaceEnabled

// TestClientLeavesWhileConnecting: connecting is given up with it, and says
// nothing about the node.
func TestClientLeavesWhileConnecting(t *testing.T) {
	// A listener whose queue is full answers no SYN: the connect hangs.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	waiting := fillQueue(t, ln)
	a := &node{t: t, name: "a", address: ln.Addr().String()}
	r := start(t, setup{set: func(s *dataplane.Settings) { s.ConnectNs = int64(patience) }}, a)
	cl := r.dial()
	cl.send(post("gone", chatBody))
	eventually(t, "the request counted on its node", func() bool { return r.nodes[0].Load.Requests.Load() == 1 })
	_ = cl.Close()
	r.settled()
	if rec := r.record("gone"); rec.Status != 499 || rec.Outcome != backend.ClientGone {
		t.Errorf("record: %d, %v", rec.Status, rec.Outcome)
	}
	accepted := make(chan net.Conn, 16)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range waiting {
		_ = (<-accepted).Close()
	}
	cl = r.dial()
	cl.send(post("next", chatBody))
	fresh := &conn{TCPConn: (<-accepted).(*net.TCPConn), node: a}
	fresh.r = bufio.NewReader(fresh)
	fresh.request()
	fresh.send(ok("{}"))
	if got := cl.answer("POST"); got.StatusCode != 200 {
		t.Errorf("got %d %s", got.StatusCode, got.body)
	}
	r.settled()
	if n := r.nodes[0].Load.Failures.Load(); n != 0 {
		t.Errorf("%d failures counted for a connection that nobody waited for", n)
	}
	_ = fresh.Close()
}

// fillQueue connects until the listener's queue takes no more, and returns the
// connections that wait in it. They end with the test.
func fillQueue(t *testing.T, ln net.Listener) (waiting []net.Conn) {
	t.Helper()
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	shrinkQueue(t, raw)
	for range 8 {
		c, err := net.DialTimeout("tcp", ln.Addr().String(), 100*time.Millisecond)
		if err != nil {
			return waiting
		}
		t.Cleanup(func() { _ = c.Close() })
		waiting = append(waiting, c)
	}
	t.Skip("this kernel lets no connect hang")
	return nil
}

// TestConnectTimesOut: a node that answers no SYN is given up in time.
func TestConnectTimesOut(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	fillQueue(t, ln)
	deaf := &node{t: t, name: "deaf", address: ln.Addr().String()}
	b := startNode(t, "b", answers(ok("good")))
	r := start(t, setup{set: func(s *dataplane.Settings) { s.ConnectNs = int64(100e6) }}, deaf, b)
	c := r.dial()
	c.send(post("deaf", chatBody))
	if got := c.answer("POST"); got.body != "good" {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
	r.settled()
	if rec := r.record("deaf"); tries(rec) != "deaf:refused b:ok" {
		t.Errorf("tries %s", tries(rec))
	}
}

// TestClientGoneUnderOurWrite: the client's reset and its request come in one
// turn, so that whatever is written first finds a dead connection.
func TestClientGoneUnderOurWrite(t *testing.T) {
	head := strings.TrimSuffix(post("x", chatBody), chatBody)
	for name, request := range map[string]string{
		"100-continue":       strings.TrimSuffix(post("x", chatBody, "Expect: 100-continue\r\n"), chatBody),
		"our own answer":     "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n",
		"two of our answers": strings.Repeat("GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 2),
		"an error":           "GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n",
		"half a body":        head + chatBody[:10],
		"a request":          post("x", chatBody),
		"three requests":     post("x", chatBody) + post("y", chatBody) + post("z", chatBody),
	} {
		t.Run(name, func(t *testing.T) {
			a := startNode(t, "a", answers(ok("{}")))
			r := start(t, setup{}, a)
			for range 5 {
				c := r.dial()
				eventually(t, "the connection at the loop", func() bool { _, _, open := r.d.Leftovers(); return open == 1 })
				release := r.d.HoldLoop()
				c.send(request)
				_ = c.SetLinger(0)
				_ = c.Close()
				release()
				eventually(t, "the connection gone", func() bool { _, _, open := r.d.Leftovers(); return open == 0 })
			}
			r.settled()
			r.dial().alive()
		})
	}
}

// TestClientGoneUnderAnAnswer: the node's bytes and the client's reset come in
// one turn.
func TestClientGoneUnderAnAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"whole":          ok("{}"),
		"hints":          "HTTP/1.1 103 Early Hints\r\n\r\n" + ok("{}"),
		"start":          "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
		"stream":         streamHead + chunk(event("one")),
		"whole stream":   goodStream,
		"server error":   serverError,
		"malformed":      "nonsense\r\n",
		"until close":    "HTTP/1.1 200 OK\r\n\r\nabc",
		"bad 2nd chunk":  streamHead + chunk(event("one")) + "zz",
		"large, in full": ok(strings.Repeat("x", 100<<10)),
	} {
		t.Run(name, func(t *testing.T) {
			there, gone := make(chan struct{}), make(chan struct{})
			a := startNode(t, "a", func(n *conn) {
				n.request()
				there <- struct{}{}
				<-gone
				n.send(answer)
				there <- struct{}{}
				n.gone()
			})
			r := start(t, setup{set: func(s *dataplane.Settings) { s.Retries = 0 }}, a)
			for range 3 {
				c := r.dial()
				c.send(post("x", chatBody) + post("y", chatBody)) // the second one waits behind the first
				<-there
				release := r.d.HoldLoop()
				gone <- struct{}{}
				<-there
				_ = c.SetLinger(0)
				_ = c.Close()
				release()
				r.settled()
				eventually(t, "the connection gone", func() bool { _, _, open := r.d.Leftovers(); return open == 0 })
			}
		})
	}
}

// TestAHalfClosedClientSeesACut: it may read on, and must not take the end of the
// connection for the end of an answer that ends with it.
func TestAHalfClosedClientSeesACut(t *testing.T) {
	a := startNode(t, "a", func(c *conn) {
		c.request()
		c.send("HTTP/1.1 200 OK\r\n\r\nhalf")
		c.gone()
	})
	r := start(t, setup{}, a)
	c := r.dial()
	c.send("GET /v1/files HTTP/1.1\r\nHost: x\r\n\r\n")
	got := make([]byte, 4)
	skipHead(t, c)
	if _, err := io.ReadFull(c.r, got); err != nil || string(got) != "half" {
		t.Fatalf("got %q, %v", got, err)
	}
	_ = c.CloseWrite()
	if _, err := c.r.ReadByte(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("the connection ended with %v, want a reset", err)
	}
	r.settled()
}
