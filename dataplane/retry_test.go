package dataplane_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"warmpath/dataplane"
	"warmpath/dataplane/backend"
	"warmpath/dataplane/policy"
)

// What a node may do with a request, for the table below.
func resets(c *conn) {
	c.request()
	c.reset()
}

func closes(c *conn) { c.request() }

func hangs(c *conn) {
	c.request()
	c.gone()
}

// says sends text and then waits for the router to go.
func says(text string) func(*conn) {
	return func(c *conn) {
		c.request()
		c.send(text)
		c.gone()
	}
}

// saysAndCloses sends text and ends the connection.
func saysAndCloses(text string) func(*conn) {
	return func(c *conn) {
		c.request()
		c.send(text)
	}
}

const (
	serverError  = "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nfive"
	unavailable  = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 9\r\nContent-Length: 4\r\n\r\nbusy"
	errorPayload = "data: {\"error\": {\"message\": \"EngineCore encountered an issue.\", \"code\": 500}}\n\n"
	anthropic    = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n"
)

// goodStream is what a healthy node answers in the tests of held streams.
var goodStream = streamHead + chunk(event("good")) + chunk("data: [DONE]\n\n") + "0\r\n\r\n"

// TestRetries: what the nodes do in turn, what the client gets, and what the
// record says.
func TestRetries(t *testing.T) {
	short := func(s *dataplane.Settings) { s.FirstEventNs = int64(150e6) }
	none := (func(*conn))(nil)
	for _, c := range []struct {
		name    string
		set     func(*dataplane.Settings)
		request string
		nodes   []func(*conn)
		status  int
		body    string // part of it
		tries   string
		outcome backend.Class
	}{
		{"refused", nil, chatBody, []func(*conn){none, answers(ok("good"))}, 200, "good", "n0:refused n1:ok", backend.OK},
		{"reset before the answer", nil, chatBody, []func(*conn){resets, answers(ok("good"))}, 200, "good", "n0:reset n1:ok", backend.OK},
		{"closed before the answer", nil, chatBody, []func(*conn){closes, answers(ok("good"))}, 200, "good", "n0:reset n1:ok", backend.OK},
		{"closed within the head", nil, chatBody, []func(*conn){saysAndCloses("HTTP/1.1 200 OK\r\nConte"), answers(ok("good"))}, 200, "good", "n0:reset n1:ok", backend.OK},
		{"500", nil, chatBody, []func(*conn){answers(serverError), answers(ok("good"))}, 200, "good", "n0:status n1:ok", backend.OK},
		{"503 twice, then good", nil, chatBody, []func(*conn){answers(unavailable), answers(unavailable), answers(ok("good"))}, 200, "good", "n0:status n1:status n2:ok", backend.OK},
		{"the last 5xx is passed on", nil, chatBody, []func(*conn){answers(serverError), answers(unavailable)}, 503, "busy", "n0:status n1:status", backend.Status},
		{"no more than retries allows", nil, chatBody, []func(*conn){answers(unavailable), answers(unavailable), answers(serverError), answers(ok("good"))}, 500, "five", "n0:status n1:status n2:status", backend.Status},
		{"no retries", func(s *dataplane.Settings) { s.Retries = 0 }, chatBody, []func(*conn){answers(unavailable), answers(ok("good"))}, 503, "busy", "n0:status", backend.Status},
		{"501 is an answer", nil, chatBody, []func(*conn){answers("HTTP/1.1 501 Not Implemented\r\nContent-Length: 0\r\n\r\n"), answers(ok("good"))}, 501, "", "n0:ok", backend.OK},
		{"429 is an answer", nil, chatBody, []func(*conn){answers("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n"), answers(ok("good"))}, 429, "", "n0:ok", backend.OK},
		{"two nodes die", nil, chatBody, []func(*conn){resets, none, answers(ok("good"))}, 502, "tried: n0, n1", "n0:reset n1:refused", backend.Refused},
		{"none is left", nil, chatBody, []func(*conn){none}, 502, "could not be reached; tried: n0", "n0:refused", backend.Refused},
		{"a dead and a sick one", nil, chatBody, []func(*conn){resets, answers(unavailable), answers(ok("good"))}, 200, "good", "n0:reset n1:status n2:ok", backend.OK},
		{"not HTTP", nil, chatBody, []func(*conn){says("SSH-2.0-x\r\n"), answers(ok("good"))}, 200, "good", "n0:malformed n1:ok", backend.OK},
		{"bad Content-Length", nil, chatBody, []func(*conn){says("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n"), answers(ok("good"))}, 200, "good", "n0:malformed n1:ok", backend.OK},
		{"both lengths", nil, chatBody, []func(*conn){says("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n")}, 502, "not HTTP; tried: n0", "n0:malformed", backend.Malformed},
		{"bad first chunk", nil, chatBody, []func(*conn){says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxx\r\n"), answers(ok("good"))}, 200, "good", "n0:malformed n1:ok", backend.OK},
		{"an endless head", nil, chatBody, []func(*conn){says("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("y", 9<<10)), answers(ok("good"))}, 200, "good", "n0:malformed n1:ok", backend.OK},
		{"101", nil, chatBody, []func(*conn){says("HTTP/1.1 101 Switching Protocols\r\n\r\n"), answers(ok("good"))}, 200, "good", "n0:malformed n1:ok", backend.OK},

		{"error event first", nil, streamed, []func(*conn){says(streamHead + chunk(errorPayload)), answers(goodStream)}, 200, "good", "n0:error_event n1:ok", backend.OK},
		{"error event first, in pieces", nil, streamed, []func(*conn){says(streamHead + chunk(errorPayload[:12]) + chunk(errorPayload[12:])), answers(goodStream)}, 200, "good", "n0:error_event n1:ok", backend.OK},
		{"error event behind a ping", nil, streamed, []func(*conn){says(streamHead + chunk(": ping\n\n") + chunk(errorPayload)), answers(goodStream)}, 200, "good", "n0:error_event n1:ok", backend.OK},
		{"whole stream is an error", nil, streamed, []func(*conn){answers(streamHead + chunk(errorPayload+"data: [DONE]\n\n") + "0\r\n\r\n"), answers(goodStream)}, 200, "good", "n0:error_event n1:ok", backend.OK},
		{"Anthropic's error first", nil, streamed, []func(*conn){says(streamHead + chunk(anthropic)), answers(goodStream)}, 200, "good", "n0:error_event n1:ok", backend.OK},
		{"error event, none left", nil, streamed, []func(*conn){answers(streamHead + chunk(errorPayload) + "0\r\n\r\n")}, 200, "EngineCore", "n0:error_event", backend.ErrorEvent},
		{"error event later", nil, streamed, []func(*conn){answers(streamHead + chunk(event("one")) + chunk(errorPayload) + "0\r\n\r\n"), answers(goodStream)}, 200, "EngineCore", "n0:error_event", backend.ErrorEvent},
		{"dead before the first event", nil, streamed, []func(*conn){saysAndCloses(streamHead), answers(goodStream)}, 200, "good", "n0:reset n1:ok", backend.OK},
		{"dead within the first event", nil, streamed, []func(*conn){saysAndCloses(streamHead + chunk("data: {\"half")), answers(goodStream)}, 200, "good", "n0:reset n1:ok", backend.OK},
		{"bad chunk before the first event", nil, streamed, []func(*conn){says(streamHead + "zz\r\n"), answers(goodStream)}, 200, "good", "n0:malformed n1:ok", backend.OK},
		{"no head in time", short, streamed, []func(*conn){hangs, answers(goodStream)}, 200, "good", "n0:silent n1:ok", backend.OK},
		{"no event in time", short, streamed, []func(*conn){says(streamHead + chunk(": ping\n\n")), answers(goodStream)}, 200, "good", "n0:silent n1:ok", backend.OK},
		{"silence, none left", short, streamed, []func(*conn){hangs, hangs}, 504, "did not answer in time; tried: n0, n1", "n0:silent n1:silent", backend.Silent},
		{"not a stream: patience", short, chatBody, []func(*conn){answers(ok("good"))}, 200, "good", "n0:ok", backend.OK},
		{"no hold", func(s *dataplane.Settings) { s.HoldHead = false }, streamed, []func(*conn){answers(streamHead + chunk(errorPayload) + "0\r\n\r\n"), answers(goodStream)}, 200, "EngineCore", "n0:error_event", backend.ErrorEvent},
		{"a body too long to be held", func(s *dataplane.Settings) { s.RetryBodyBytes = 10 }, chatBody, []func(*conn){resets, answers(ok("good"))}, 502, "tried: n0", "n0:reset", backend.Reset},
	} {
		t.Run(c.name, func(t *testing.T) {
			var nodes []*node
			for i, script := range c.nodes {
				nodes = append(nodes, startNode(t, fmt.Sprintf("n%d", i), script))
			}
			r := start(t, setup{set: c.set}, nodes...)
			cl := r.dial()
			cl.send(post("retry", c.request))
			got := cl.answer("POST")
			if got.StatusCode != c.status || !strings.Contains(got.body, c.body) || got.err != nil {
				t.Errorf("got %d %q %v, want %d with %q", got.StatusCode, got.body, got.err, c.status, c.body)
			}
			cl.alive()
			r.settled()
			rec := r.record("retry")
			if tries(rec) != c.tries || rec.Outcome != c.outcome || rec.Status != c.status {
				t.Errorf("record: %s, %v, %d; want %s, %v, %d", tries(rec), rec.Outcome, rec.Status, c.tries, c.outcome, c.status)
			}
			if many := len(rec.Tries) > 1; many != (rec.Reason == policy.ReasonRetry) || rec.First == policy.ReasonRetry {
				t.Errorf("reason %v, first %v after %d tries", rec.Reason, rec.First, len(rec.Tries))
			}
			for i, try := range rec.Tries {
				load := r.nodes[i].Load
				if failed := try.Class.Blames(); failed != (load.Failures.Load() == 1) || failed == (load.Successes.Load() == 1) {
					t.Errorf("%s: %v, yet %d failures and %d successes are counted", try.Node, try.Class, load.Failures.Load(), load.Successes.Load())
				}
				if seen := nodes[i].requests(); len(seen) > 1 || len(seen) == 1 && seen[0].body != c.request {
					t.Errorf("%s saw %d requests", try.Node, len(seen))
				}
			}
		})
	}
}

// TestStaleConnection: the node closed an idle connection that the router had
// not yet seen closed. The same node is asked again, and it is not blamed.
func TestStaleConnection(t *testing.T) {
	for _, reset := range []bool{false, true} {
		t.Run(fmt.Sprintf("reset=%v", reset), func(t *testing.T) {
			gone, closed := make(chan struct{}), make(chan struct{})
			a := startNode(t, "a", func(c *conn) {
				if c.n > 0 {
					answers(ok("good"))(c)
					return
				}
				c.request()
				c.send(ok("first"))
				<-gone
				if reset {
					c.reset()
				}
				_ = c.Close()
				close(closed)
			})
			b := startNode(t, "b", answers(ok("wrong")))
			r := start(t, setup{}, a, b)
			c := r.dial()
			c.send(post("stale-0", chatBody))
			c.answer("POST")
			// The request and the close come to the loop in one turn: which of
			// the two it takes first is the kernel's choice.
			release := r.d.HoldLoop()
			c.send(post("stale-1", chatBody))
			close(gone)
			<-closed
			release()
			if got := c.answer("POST"); got.StatusCode != 200 || got.body != "good" {
				t.Errorf("got %d %q", got.StatusCode, got.body)
			}
			r.settled()
			if rec := r.record("stale-1"); tries(rec) != "a:ok" {
				t.Errorf("tries %s, want the same node again", tries(rec))
			}
			if n := r.nodes[0].Load.Failures.Load(); n != 0 {
				t.Errorf("%d failures counted for a stale connection, want none", n)
			}
			if len(b.requests()) != 0 {
				t.Error("another node was asked")
			}
		})
	}
}

// TestStaleAfterWriting: the node takes the request on a reused connection and
// closes without a word; the second connection is fresh, so that its reset is
// the node's failure.
func TestStaleAfterWriting(t *testing.T) {
	a := startNode(t, "a", func(c *conn) {
		c.request()
		if c.n == 0 {
			c.send(ok("first"))
			c.request()
		}
	})
	b := startNode(t, "b", answers(ok("other")))
	r := start(t, setup{}, a, b)
	c := r.dial()
	c.send(post("again-0", chatBody))
	c.answer("POST")
	c.send(post("again-1", chatBody))
	if got := c.answer("POST"); got.body != "other" {
		t.Errorf("got %q", got.body)
	}
	r.settled()
	if rec := r.record("again-1"); tries(rec) != "a:reset b:ok" {
		t.Errorf("tries %s", tries(rec))
	}
	if got := len(a.requests()); got != 3 {
		t.Errorf("the node saw %d requests, want the second one twice", got)
	}
	if total := r.d.Totals().Retries; total[backend.Stale] != 1 || total[backend.Reset] != 1 {
		t.Errorf("retries counted: %v", total)
	}
}

// TestRetryBudget: tries after a 5xx are a share of what is under way, and the
// rest of the requests gets the 5xx.
func TestRetryBudget(t *testing.T) {
	const many = 12
	a := startNode(t, "a", answers(unavailable))
	stop := make(chan struct{})
	b := startNode(t, "b", func(c *conn) {
		c.request()
		<-stop
		c.send(ok("good"))
		c.gone()
	})
	r := start(t, setup{set: func(s *dataplane.Settings) { s.RetryBudget = 0 }}, a, b)
	var clients []*client
	for i := range many {
		c := r.dial()
		c.send(post(fmt.Sprintf("budget-%d", i), chatBody))
		clients = append(clients, c)
	}
	eventually(t, "three retries under way and the others answered", func() bool {
		return len(a.requests()) == many && r.d.Active() == 3 && r.d.Retrying() == 3
	})
	close(stop)
	count := map[string]int{}
	for _, c := range clients {
		count[c.answer("POST").body]++
	}
	if count["good"] != 3 || count["busy"] != many-3 {
		t.Errorf("answers %v, want 3 good ones and the rest passed on", count)
	}
	r.settled()
}

// TestNoRetryAfterAByte: once a byte went to the client its connection is cut;
// it must never look like a whole answer.
func TestNoRetryAfterAByte(t *testing.T) {
	lengthHead := "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
	chunkedHead := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct {
		name, request string
		script        func(*conn, func())
	}{
		{"length, closed", chatBody, func(c *conn, wait func()) { c.send(lengthHead, "part"); wait() }},
		{"length, reset", chatBody, func(c *conn, wait func()) { c.send(lengthHead, "part"); wait(); c.reset() }},
		{"chunked, closed", chatBody, func(c *conn, wait func()) { c.send(chunkedHead, chunk("part")); wait() }},
		{"chunked, reset", chatBody, func(c *conn, wait func()) { c.send(chunkedHead, chunk("part")); wait(); c.reset() }},
		{"chunked, malformed", chatBody, func(c *conn, wait func()) { c.send(chunkedHead, chunk("part")); wait(); c.send("-1\r\n"); c.gone() }},
		{"stream, closed", streamed, func(c *conn, wait func()) { c.send(streamHead, chunk(event("part"))); wait() }},
		{"stream, silent", streamed, func(c *conn, wait func()) { c.send(streamHead, chunk(event("part"))); wait(); c.gone() }},
		{"until close, reset", chatBody, func(c *conn, wait func()) { c.send("HTTP/1.1 200 OK\r\n\r\npart"); wait(); c.reset() }},
		{"1.0 and chunked, closed", "1.0", func(c *conn, wait func()) { c.send(chunkedHead, chunk("part")); wait() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := make(chan struct{})
			a := startNode(t, "a", func(n *conn) {
				n.request()
				c.script(n, func() { <-got })
			})
			b := startNode(t, "b", answers(ok("wrong")))
			r := start(t, setup{set: func(s *dataplane.Settings) { s.IdleStreamNs = int64(200e6) }}, a, b)
			cl := r.dial()
			request := post("cut", c.request)
			if c.request == "1.0" {
				request = strings.Replace(post("cut", chatBody), "HTTP/1.1", "HTTP/1.0", 1)
			}
			cl.send(request)
			skipHead(t, cl)
			if _, err := cl.r.Peek(4); err != nil {
				t.Fatalf("no byte of the body: %v", err)
			}
			close(got)
			rest, err := io.ReadAll(cl.r)
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the client read %q and then %v, want a reset", rest, err)
			}
			r.settled()
			rec := r.record("cut")
			if tries(rec) != "a:mid_stream" || rec.Outcome != backend.MidStream || rec.Status != 200 {
				t.Errorf("record: %s, %v, %d", tries(rec), rec.Outcome, rec.Status)
			}
			if len(b.requests()) != 0 {
				t.Error("another node was asked")
			}
			if load := r.nodes[0].Load; load.Failures.Load() != 1 || load.Successes.Load() != 0 {
				t.Errorf("%d failures, %d successes counted", load.Failures.Load(), load.Successes.Load())
			}
		})
	}
}
