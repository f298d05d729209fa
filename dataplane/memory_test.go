package dataplane_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"warmpath/dataplane"
)

// budget makes a MiB of memory the bound.
func budget(s *dataplane.Settings) { s.MemoryBytes = 1 << 20 }

// TestMemoryIsShedInOrder fills the budget step by step.
func TestMemoryIsShedInOrder(t *testing.T) {
	const piece = 300_000
	release := make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		for {
			s, more := c.request()
			if !more {
				return
			}
			if strings.HasPrefix(s.Header.Get("X-Request-Id"), "held") {
				<-release
			}
			c.send(ok(fmt.Sprint(len(s.body))))
		}
	})
	r := start(t, setup{set: budget}, a)
	body := longBody(piece)
	fill := func(id string) *client { // whose body is all but in
		c := r.dial()
		c.send(postHead(id, lengthOf(body)) + body[:len(body)-1])
		return c
	}
	shed := func() string { return fmt.Sprint(r.d.Totals().Shed) }
	held := func(what string, n int) {
		t.Helper()
		eventually(t, what, func() bool { return r.d.Held().Request >= n })
	}

	// A body that was sent is held for another try while there is plenty.
	sent := r.dial()
	sent.send(post("held-0", body))
	eventually(t, "the first at its node", func() bool { return len(a.requests()) == 1 })
	held("the first held", piece)
	// From a half on it is not.
	first := fill("first")
	held("two held", 2*piece)
	second := r.dial()
	second.send(post("held-1", body))
	eventually(t, "the second at its node", func() bool { return len(a.requests()) == 2 })
	eventually(t, "a body given up", func() bool { return shed() == "[1 0 0 0]" })
	// From three quarters on a request with a long body is refused, a short one is not.
	third := fill("third")
	held("three held", 3*piece)
	refused := r.dial()
	refused.send(postHead("refused", lengthOf(body)))
	expectError(t, refused.answer("POST"), 503, "overloaded", "")
	refused.ended()
	short := r.dial()
	short.send(post("short", chatBody))
	if got := short.answer("POST"); got.StatusCode != 200 {
		t.Errorf("a short request got %d %s", got.StatusCode, got.body)
	}
	if shed() != "[1 1 0 0]" {
		t.Errorf("shed %s", shed())
	}
	// What was accepted is answered.
	close(release)
	first.send(body[len(body)-1:])
	third.send(body[len(body)-1:])
	for i, c := range []*client{sent, first, second, third} {
		if got := c.answer("POST"); got.StatusCode != 200 || got.body != fmt.Sprint(len(body)) {
			t.Errorf("request %d got %d %s", i, got.StatusCode, got.body)
		}
	}
	r.settled()
	if n := r.d.Totals().MemoryBytes; n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

// TestMemoryFull: bodies that grow beyond the budget are answered, not waited for.
func TestMemoryFull(t *testing.T) {
	a := startNode(t, "a", answers(ok("{}")))
	r := start(t, setup{set: budget}, a)
	body := longBody(2 << 20)
	var clients []*client
	for i := range 4 { // all begin while there is plenty
		c := r.dial()
		c.send(postHead(fmt.Sprint("grows-", i), lengthOf(body)) + body[:1000])
		clients = append(clients, c)
	}
	eventually(t, "all heads", func() bool { return r.d.Held().Request == 4000 })
	for _, c := range clients {
		go func() { _, _ = io.WriteString(c, body[1000:]) }()
	}
	full := 0
	for _, c := range clients {
		if got := c.answer("POST"); got.StatusCode == 503 {
			full++
		}
	}
	if n := r.d.Totals().Shed[2]; full == 0 || int(n) != full {
		t.Errorf("%d requests were refused, %d counted", full, n)
	}
	for _, c := range clients {
		_ = c.Close()
	}
	eventually(t, "nothing counted", func() bool { return r.d.Totals().MemoryBytes == 0 })
	r.settled()
}

// TestSlowReadersShareTheBudget: streams that nobody takes are cut when the
// budget is full, not before, and one that is taken goes on.
func TestSlowReadersShareTheBudget(t *testing.T) {
	const (
		streams = 60
		budget  = 64 << 10 // from a half on answers are read in small pieces: of sixty they must fill the rest
	)
	r := start(t, setup{set: func(s *dataplane.Settings) { s.MemoryBytes = budget }}, floodingNode(t, 4<<20))
	var clients []*client
	for i := range streams {
		c := r.dial()
		_ = c.SetReadBuffer(4096)
		c.send(post(fmt.Sprint("slow-", i), streamed))
		clients = append(clients, c)
	}
	eventually(t, "streams to be cut", func() bool { return r.d.Totals().Shed[3] > 0 })
	eventually(t, "what is left to fit", func() bool { return r.d.Totals().MemoryBytes <= budget })
	for _, c := range clients {
		_ = c.Close()
	}
	r.settled()
}

// floodingNode answers each request with a stream of so many bytes, as fast as
// they are taken.
func floodingNode(t *testing.T, bytes int) *node {
	events := strings.Repeat(event(strings.Repeat("x", 1000)), 16)
	return startNode(t, "a", func(c *conn) {
		for {
			if _, more := c.request(); !more {
				return
			}
			c.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
			for range bytes / len(events) {
				if _, err := io.WriteString(c, chunk(events)); err != nil {
					return
				}
			}
			c.send("0\r\n\r\n")
		}
	})
}

// TestSlowReadersBound: clients stop reading while their nodes send; what
// waits for each is what one read brings.
func TestSlowReadersBound(t *testing.T) {
	const streams = 60
	r := start(t, setup{alone: true}, floodingNode(t, 4<<20))
	for i := range streams {
		c := r.dial()
		_ = c.SetReadBuffer(4096)
		c.send(post(fmt.Sprint("slow-", i), streamed))
	}
	eventually(t, "all nodes to be paused", func() bool { slow, _, _ := r.d.Leftovers(); return slow == streams })
	if n := r.d.Held().Outbound; n > streams*(16<<10+64) {
		t.Errorf("%d bytes wait for %d clients", n, streams)
	}
}
