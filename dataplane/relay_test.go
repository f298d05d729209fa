package dataplane_test

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"

	"warmpath/dataplane"
	"warmpath/dataplane/backend"
)

func TestKeepAliveReusesTheNodesConnection(t *testing.T) {
	a := startNode(t, "a", answers(ok(`{"usage":{"prompt_tokens":9,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":0}}}`)))
	r := start(t, setup{}, a)
	c := r.dial()
	for i := range 5 {
		id := fmt.Sprintf("keep-%d", i)
		c.send(post(id, chatBody, "Authorization: Bearer k\r\nConnection: X-Secret\r\nX-Secret: 1\r\n"))
		got := c.answer("POST")
		if got.StatusCode != 200 || got.Header.Get("X-Request-Id") != id || got.Header.Get("X-Routed-To") != "a" || got.Header.Get("X-Request-Duration") == "" || got.err != nil {
			t.Fatalf("answer %v %v %v", got.StatusCode, got.Header, got.err)
		}
		rec := r.record(id)
		if tries(rec) != "a:ok" || rec.Outcome != backend.OK || rec.Status != 200 || rec.EnginePrompt != 9 || rec.CompletionTokens != 4 || rec.CachedTokens != 0 {
			t.Fatalf("record %+v", rec)
		}
	}
	if n := a.accepted.Load(); n != 1 {
		t.Errorf("%d connections to the node for requests in a row, want 1", n)
	}
	for _, s := range a.requests() {
		if s.body != chatBody || s.ContentLength != int64(len(chatBody)) || s.Host != a.address || s.Header.Get("Authorization") != "Bearer k" ||
			s.Header.Get("X-Secret") != "" || s.Header.Get("X-Forwarded-For") != "127.0.0.1" {
			t.Errorf("the node saw %v %q", s.Header, s.body)
		}
	}
	r.settled()
	if n := r.nodes[0].Load.Successes.Load(); n != 5 {
		t.Errorf("%d successes counted, want 5", n)
	}
}

func TestGetIsPassedOn(t *testing.T) {
	a := startNode(t, "a", answers(ok("{}")))
	r := start(t, setup{}, a)
	c := r.dial()
	c.send("GET /v1/files?limit=3 HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := c.answer("GET"); got.StatusCode != 200 || got.body != "{}" {
		t.Errorf("answer %d %q", got.StatusCode, got.body)
	}
	if s := a.requests()[0]; s.Method != "GET" || s.RequestURI != "/v1/files?limit=3" || s.Header.Get("X-Request-Id") == "" {
		t.Errorf("the node saw %s %s %v", s.Method, s.RequestURI, s.Header)
	}
	r.settled()
}

func TestPipelineIsAnsweredInOrder(t *testing.T) {
	first := make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		for {
			s, more := c.request()
			if !more {
				return
			}
			if s.Header.Get("X-Request-Id") == "p-0" {
				<-first // all three are at the router by then
			}
			c.send(ok(s.Header.Get("X-Request-Id")))
		}
	})
	r := start(t, setup{}, a)
	c := r.dial()
	c.send(post("p-0", chatBody) + post("p-1", chatBody) + "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" + post("p-2", chatBody))
	close(first)
	for _, want := range []string{"p-0", "p-1", `"object":"list"`, "p-2"} {
		if got := c.answer("POST"); !strings.Contains(got.body, want) {
			t.Fatalf("answer %q, want %q", got.body, want)
		}
	}
	r.settled()
}

// TestAnswersOfEveryForm sends raw answers through and looks at raw bytes.
func TestAnswersOfEveryForm(t *testing.T) {
	const get, get10 = "GET /v1/files HTTP/1.1\r\nHost: x\r\n\r\n", "GET /v1/files HTTP/1.0\r\n\r\n"
	chunked := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	for _, c := range []struct {
		name, request, answer string
		status                int
		body                  string
		header                string // one line that must be there
		closed                bool
		nodeKept              bool
	}{
		{"length", get, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", 200, "abc", "Content-Length: 3", false, true},
		{"chunked", get, chunked + chunk("abc") + chunk("de") + "0\r\n\r\n", 200, "abcde", "Transfer-Encoding: chunked", false, true},
		{"chunked with trailers", get, chunked + chunk("abc") + "0\r\nX-T: 1\r\n\r\n", 200, "abc", "Transfer-Encoding: chunked", false, true},
		{"until close", get, "HTTP/1.1 200 OK\r\n\r\nabc", 200, "abc", "Connection: close", true, false},
		{"node closes", get, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", 200, "abc", "Content-Length: 3", false, false},
		{"empty", get, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, "", "Content-Length: 0", false, true},
		{"204", get, "HTTP/1.1 204 No Content\r\n\r\n", 204, "", "X-Routed-To: a", false, true},
		{"304", get, "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\nETag: \"x\"\r\n\r\n", 304, "", "ETag: \"x\"", false, true},
		{"103 first", get, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + ok("{}"), 103, "", "Link: </a>", false, true},
		{"100 first", get, "HTTP/1.1 100 Continue\r\n\r\n" + ok("{}"), 200, "{}", "Content-Length: 2", false, true},
		{"404", get, "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", 404, "{}", "Content-Length: 2", false, true},
		{"429", get, "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", 429, "", "Retry-After: 7", false, true},
		{"1.0 chunked", get10, chunked + chunk("abc") + chunk("de") + "0\r\n\r\n", 200, "abcde", "Connection: close", true, true},
		{"1.0 keep-alive", "GET /v1/files HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", ok("{}"), 200, "{}", "Connection: keep-alive", false, true},
		{"1.0 keep-alive, chunked", "GET /v1/files HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", chunked + chunk("abc") + "0\r\n\r\n", 200, "abc", "Connection: close", true, true},
		{"1.0 and 103", get10, "HTTP/1.1 103 Early Hints\r\n\r\n" + ok("{}"), 200, "{}", "Connection: close", true, true},
		{"client closes", "GET /v1/files HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", ok("{}"), 200, "{}", "Connection: close", true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			untilClose := c.name == "until close"
			a := startNode(t, "a", func(n *conn) {
				for {
					if _, more := n.request(); !more {
						return
					}
					if n.send(c.answer); untilClose {
						return
					}
				}
			})
			r := start(t, setup{}, a)
			cl := r.dial()
			cl.send(c.request)
			got := cl.answer("GET")
			if got.StatusCode != c.status || got.body != c.body || got.err != nil {
				t.Fatalf("got %d %q %v, want %d %q", got.StatusCode, got.body, got.err, c.status, c.body)
			}
			name, value, _ := strings.Cut(c.header, ": ")
			values := got.Header.Values(name)
			switch name { // net/http takes these out
			case "Transfer-Encoding":
				values = got.TransferEncoding
			case "Connection":
				if got.Close {
					values = []string{"close"}
				}
			}
			if len(values) != 1 || values[0] != value {
				t.Errorf("%s is %q, want %q", name, values, value)
			}
			if c.status == 103 {
				if got := cl.answer("GET"); got.StatusCode != 200 || got.body != "{}" {
					t.Errorf("after the hints: %d %q", got.StatusCode, got.body)
				}
			}
			if c.closed {
				cl.ended()
			} else {
				cl.alive()
			}
			r.settled()
			if idle := r.d.Totals().NodeIdle; (idle == 1) != c.nodeKept {
				t.Errorf("%d idle connections to the node, kept should be %v", idle, c.nodeKept)
			}
		})
	}
}

func TestHead(t *testing.T) {
	a := startNode(t, "a", answers("HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n"))
	r := start(t, setup{}, a)
	c := r.dial()
	for range 2 {
		c.send("HEAD /v1/files HTTP/1.1\r\nHost: x\r\n\r\n")
		if got := c.answer("HEAD"); got.StatusCode != 200 || got.body != "" || got.ContentLength != 1234 {
			t.Fatalf("got %d %q, length %d", got.StatusCode, got.body, got.ContentLength)
		}
	}
	c.send("HEAD /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := c.answer("HEAD"); got.StatusCode != 200 || got.body != "" || got.ContentLength <= 0 {
		t.Errorf("models: %d %q, length %d", got.StatusCode, got.body, got.ContentLength)
	}
	c.alive()
	r.settled()
	if n := a.accepted.Load(); n != 1 {
		t.Errorf("%d connections to the node, want 1", n)
	}
}

// TestChunkedRequestIsSentWithLength also cuts the request at every byte.
func TestChunkedRequestIsSentWithLength(t *testing.T) {
	a := startNode(t, "a", answers(ok("{}")))
	r := start(t, setup{}, a)
	request := "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" +
		chunk(chatBody[:7]) + chunk(chatBody[7:8]) + chunk(chatBody[8:]) + "0\r\nX-T: 1\r\n\r\n"
	c := r.dial()
	for at := 0; at < len(request); at += 5 {
		c.send(request[:at])
		release := r.d.HoldLoop // the two pieces come apart more often than not
		release()()
		c.send(request[at:])
		if got := c.answer("POST"); got.StatusCode != 200 {
			t.Fatalf("cut at %d: %d %q", at, got.StatusCode, got.body)
		}
	}
	for _, s := range a.requests() {
		if s.ContentLength != int64(len(chatBody)) || len(s.TransferEncoding) > 0 || s.body != chatBody || len(s.Trailer) > 0 {
			t.Fatalf("the node saw length %d, codings %v, body %q", s.ContentLength, s.TransferEncoding, s.body)
		}
	}
	r.settled()
}

func TestExpectContinue(t *testing.T) {
	a := startNode(t, "a", answers(ok("{}")))
	r := start(t, setup{}, a)
	c := r.dial()
	whole := post("e-1", chatBody, "Expect: 100-continue\r\n")
	head := whole[:len(whole)-len(chatBody)]
	c.send(head)
	if got := c.answer("POST"); got.StatusCode != 100 {
		t.Fatalf("got %d before the body, want 100", got.StatusCode)
	}
	c.send(chatBody)
	if got := c.answer("POST"); got.StatusCode != 200 {
		t.Fatalf("got %d", got.StatusCode)
	}
	c.send(whole) // with the body behind it there is no need to ask
	if got := c.answer("POST"); got.StatusCode != 200 {
		t.Fatalf("got %d for a request that did not wait", got.StatusCode)
	}
	if n := len(a.requests()); n != 2 {
		t.Errorf("the node saw %d requests, want 2", n)
	}
	r.settled()
}

// TestEarlyAnswer: the node answers before it has read the request, and the
// next request must not be sent behind the rest of this one.
func TestEarlyAnswer(t *testing.T) {
	const size = 7 << 20
	second := make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		if c.n == 0 {
			_ = c.SetReadBuffer(4 << 10)
			_, _ = io.ReadFull(c.r, make([]byte, 1000))
			c.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\n{}")
			<-second
			return
		}
		close(second)
		answers(ok("{}"))(c)
	})
	r := start(t, setup{}, a)
	c := r.dial()
	c.send(post("early", `{"model":"m","prompt":"`+strings.Repeat("x", size)+`"}`))
	if got := c.answer("POST"); got.StatusCode != 413 || got.body != "{}" {
		t.Fatalf("got %d %q", got.StatusCode, got.body)
	}
	c.send(post("next", chatBody))
	if got := c.answer("POST"); got.StatusCode != 200 {
		t.Fatalf("the next request got %d", got.StatusCode)
	}
	if n := a.accepted.Load(); n != 2 {
		t.Errorf("%d connections to the node, want a fresh one for the next request", n)
	}
	r.settled()
}

// TestBytesBehindAnAnswer: what a node sends that nobody asked for is never
// given to the next request, whether it comes with the answer or later.
func TestBytesBehindAnAnswer(t *testing.T) {
	const poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late=%v", late), func(t *testing.T) {
			more := make(chan struct{})
			a := startNode(t, "a", func(c *conn) {
				if c.n > 0 {
					answers(ok("{}"))(c)
					return
				}
				c.request()
				if !late {
					c.send(ok("{}") + poison)
				} else {
					c.send(ok("{}"))
					<-more
					c.send(poison)
				}
				if !c.gone() {
					t.Error("the router kept the connection")
				}
			})
			r := start(t, setup{}, a)
			c := r.dial()
			c.send(post("b-1", chatBody))
			if got := c.answer("POST"); got.body != "{}" {
				t.Fatalf("got %q", got.body)
			}
			close(more)
			eventually(t, "no idle connection", func() bool { return r.d.Totals().NodeIdle == 0 })
			c.send(post("b-2", chatBody))
			if got := c.answer("POST"); got.body != "{}" {
				t.Fatalf("the next request got %q", got.body)
			}
			r.settled()
		})
	}
}

func TestStreamComesEventByEvent(t *testing.T) {
	step := make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		c.request()
		c.send(streamHead)
		for i := range 4 {
			<-step
			c.send(chunk(event(fmt.Sprint(i))))
		}
		<-step
		c.send(chunk("data: [DONE]\n\n") + "0\r\n\r\n")
		c.gone()
	})
	r := start(t, setup{}, a)
	c := r.dial()
	c.send(post("s-1", streamed))
	want := ""
	for i := range 4 {
		step <- struct{}{}
		if i == 0 {
			skipHead(t, c)
		}
		want = chunk(event(fmt.Sprint(i)))
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c.r, got); err != nil || string(got) != want {
			t.Fatalf("event %d is %q, %v", i, got, err)
		}
		if i == 0 {
			if n := r.nodes[0].Load.PrefillTokens.Load(); n != 0 {
				t.Errorf("%d tokens of prefill are counted after the first event", n)
			}
			if n := r.nodes[0].Load.Requests.Load(); n != 1 {
				t.Errorf("%d requests are counted within the stream", n)
			}
		}
	}
	step <- struct{}{}
	want = chunk("data: [DONE]\n\n") + "0\r\n\r\n"
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c.r, got); err != nil || string(got) != want {
		t.Fatalf("the end is %q, %v", got, err)
	}
	c.alive()
	r.settled()
	if rec := r.record("s-1"); rec.FirstEventAfter <= 0 || rec.Status != 200 || rec.Outcome != backend.OK {
		t.Errorf("record %+v", rec)
	}
	if n := r.d.Totals().Nodes["a"]; n.FirstEvent.Total != 1 || n.InterToken.Total != 4 {
		t.Errorf("%d first events and %d gaps were timed, want 1 and 4", n.FirstEvent.Total, n.InterToken.Total)
	}
}

func skipHead(t *testing.T, c *client) {
	t.Helper()
	for {
		line, err := c.r.ReadString('\n')
		if err != nil {
			t.Fatalf("no head: %v", err)
		}
		if line == "\r\n" {
			return
		}
	}
}

// TestWhoTheClientIs: what a stranger says of its address is replaced, a
// trusted proxy's word is kept and extended.
func TestWhoTheClientIs(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		t.Run(fmt.Sprintf("trusted=%v", trusted), func(t *testing.T) {
			a := startNode(t, "a", answers(ok("{}")))
			r := start(t, setup{set: func(s *dataplane.Settings) {
				if trusted {
					s.TrustedSource = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
				}
			}}, a)
			c := r.dial()
			c.send(post("bad id!", chatBody, "X-Forwarded-For: 9.9.9.9\r\nX-Real-IP: 8.8.8.8\r\n"))
			got := c.answer("POST")
			seen := a.requests()[0].Header
			forwarded, real := "127.0.0.1", "127.0.0.1"
			if trusted {
				forwarded, real = "9.9.9.9, 127.0.0.1", "8.8.8.8"
			}
			if seen.Get("X-Forwarded-For") != forwarded || len(seen.Values("X-Forwarded-For")) != 1 || seen.Get("X-Real-IP") != real {
				t.Errorf("the node saw %v", seen)
			}
			if id := got.Header.Get("X-Request-Id"); id == "bad id!" || id == "" || id != seen.Get("X-Request-Id") {
				t.Errorf("request id %q for the client, %q for the node", id, seen.Get("X-Request-Id"))
			}
			r.settled()
		})
	}
}

// TestLongSilenceIsNotHeldForEver: comments without end before the first event
// are let through once they are longer than what is held.
func TestLongSilenceIsNotHeldForEver(t *testing.T) {
	wait := make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		c.request()
		c.send(streamHead)
		for range 80 {
			c.send(chunk(": " + strings.Repeat("p", 1022) + "\n\n"))
		}
		<-wait
		c.send(chunk(event("one")) + "0\r\n\r\n")
		c.gone()
	})
	r := start(t, setup{}, a)
	c := r.dial()
	c.send(post("held", streamed))
	body := c.stream(t) // there is a head before any event
	close(wait)
	whole, err := io.ReadAll(body)
	if err != nil || !strings.HasSuffix(string(whole), event("one")) || len(whole) < 80<<10 {
		t.Errorf("got %d bytes, %v", len(whole), err)
	}
	r.settled()
}
