package dataplane_test

import (
	"encoding/json"
	"strings"
	"testing"

	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
)

// expectError looks at an error of the router's own.
func expectError(t *testing.T, got answer, status int, code, part string) {
	t.Helper()
	var body struct {
		Error struct {
			Message, Type, Code string
			Param               *string
			RequestID           string `json:"request_id"`
		}
	}
	if err := json.Unmarshal([]byte(got.body), &body); err != nil || got.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("error body %q of type %q: %v", got.body, got.Header.Get("Content-Type"), err)
	}
	e := body.Error
	if got.StatusCode != status || e.Code != code || !strings.Contains(e.Message, part) || e.Type == "" {
		t.Errorf("got %d %q, want %d, code %s, with %q", got.StatusCode, got.body, status, code, part)
	}
	if id := got.Header.Get("X-Request-Id"); id == "" || id != e.RequestID {
		t.Errorf("request id %q in the head and %q in the body", id, e.RequestID)
	}
}

// TestRefusals: every request that the router answers itself, and whether the
// connection can go on after it.
func TestRefusals(t *testing.T) {
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n" }
	for _, c := range []struct {
		name, request string
		status        int
		code, part    string
		kept          bool
	}{
		{"two lengths", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400, "several_content_lengths", "", false},
		{"length and coding", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "content_length_and_transfer_encoding", "", false},
		{"unknown coding", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "unknown_transfer_encoding", "", false},
		{"no host", "GET /v1/files HTTP/1.1\r\n\r\n", 400, "missing_host", "", false},
		{"bare line feed", "GET /v1/files HTTP/1.1\nHost: x\n\n", 400, "bare_lf", "", false},
		{"bad chunk", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "bad_chunk_size", "", false},
		{"long head", "GET /v1/files HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("y", 9<<10), 431, "head_too_large", "", false},
		{"many fields", "GET /v1/files HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 60) + "\r\n", 431, "too_many_fields", "", false},
		{"expectation", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 200-maybe\r\nContent-Length: 3\r\n\r\n", 417, "unknown_expectation", "", false},
		{"CONNECT", "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", 405, "connect_refused", "", false},
		{"long body, announced", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n", 413, "body_too_large", "limits.body_bytes", false},
		{"long body, expected", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n", 413, "body_too_large", "limits.body_bytes", false},
		{"long body, chunked", "POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(strings.Repeat(" ", 70<<10)), 413, "body_too_large", "limits.body_bytes", false},
		{"bad JSON", post("id", `{"model":"m",}`), 400, "invalid_json", "13", false},
		{"JSON that ends", post("id", `{"model":"m"`), 400, "invalid_json", "12", false},
		{"a body of no bytes", post("id", ""), 400, "invalid_json", "byte 0", true},
		{"a path with escapes", post("id", "{}")[:5] + "/v1/%6coad" + post("id", "{}")[len("POST /v1/chat/completions"):], 400, "bad_path", "escapes", false},
		{"no such model", post("id", `{"model":"nope","prompt":"x"}`), 404, "model_not_found", "nope", true},
		{"escaped alias", post("id", `{"model":"no\u0070e","prompt":"x"}`), 404, "model_not_found", "nope", true},
		{"too long a prompt", post("id", `{"model":"m","prompt":[1`+strings.Repeat(",2", 2999)+`]}`), 400, "context_length_exceeded", "3000 tokens", true},
		{"no such route", get("/metrics"), 404, "not_found", "", false},
		{"GET of a prompt route", get("/v1/completions"), 405, "method_not_allowed", "", false},
		{"POST of models", "POST /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 405, "method_not_allowed", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := startNode(t, "a", answers(ok("{}")))
			r := start(t, setup{
				set:  func(s *dataplane.Settings) { s.BodyBytes = 64 << 10 },
				node: func(_ int, n *fleet.Node) { n.MaxModelLen = 2048 },
			}, a)
			cl := r.dial()
			cl.send(c.request)
			got := cl.answer("POST")
			expectError(t, got, c.status, c.code, c.part)
			if got.Close == c.kept {
				t.Errorf("Connection: close is %v, want %v", got.Close, !c.kept)
			}
			if c.status == 405 && got.Header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
			if c.kept {
				cl.alive()
			} else {
				cl.ended()
			}
			r.settled()
			if n := len(a.requests()); n != 0 {
				t.Errorf("the node saw %d requests", n)
			}
		})
	}
}

// TestLingeringClose: a client that goes on sending gets the refusal
// nevertheless, because nothing is left unread when we close.
func TestLingeringClose(t *testing.T) {
	r := start(t, setup{set: func(s *dataplane.Settings) { s.BodyBytes = 64 << 10 }}, startNode(t, "a", answers(ok("{}"))))
	for range 5 {
		c := r.dial()
		c.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 700000\r\n\r\n")
		for range 70 {
			c.send(strings.Repeat("x", 10_000))
		}
		expectError(t, c.answer("POST"), 413, "body_too_large", "")
		c.ended()
		_ = c.Close()
	}
	r.settled()
	eventually(t, "no client", func() bool { return r.d.Totals().Clients == 0 })
}

func TestSlowRequests(t *testing.T) {
	for name, request := range map[string]string{
		"head": "GET /v1/files HTTP/1.1\r\nHos",
		"body": strings.TrimSuffix(post("slow", chatBody), chatBody[3:]),
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, setup{set: func(s *dataplane.Settings) { s.HeadNs = int64(100e6) }}, startNode(t, "a", answers(ok("{}"))))
			c := r.dial()
			c.send(request)
			expectError(t, c.answer("POST"), 408, "request_timeout", "timeouts.head")
			c.ended()
			r.settled()
		})
	}
	t.Run("silence", func(t *testing.T) { // a client that says nothing is owed nothing
		r := start(t, setup{set: func(s *dataplane.Settings) { s.HeadNs = int64(100e6) }}, startNode(t, "a", answers(ok("{}"))))
		r.dial().ended()
	})
	t.Run("idle", func(t *testing.T) {
		r := start(t, setup{set: func(s *dataplane.Settings) { s.IdleClientNs = int64(100e6) }}, startNode(t, "a", answers(ok("{}"))))
		c := r.dial()
		c.send(post("x", chatBody))
		c.answer("POST")
		c.ended()
	})
}

// TestTimesOfZeroAreOff: a time-out of zero never ends anything.
func TestTimesOfZeroAreOff(t *testing.T) {
	ticks := make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		for {
			if _, more := c.request(); !more {
				return
			}
			c.send(streamHead)
			<-ticks
			c.send(chunk(event("one")))
			<-ticks
			c.send("0\r\n\r\n")
		}
	})
	r := start(t, setup{set: func(s *dataplane.Settings) {
		s.HeadNs, s.FirstEventNs, s.IdleStreamNs, s.RequestNs, s.IdleClientNs, s.IdleNodeNs = 0, 0, 0, 0, 0, 0
	}}, a)
	// A few ticks of the wheel pass between any two steps.
	pass := func() {
		then := r.d.NowNs() + int64(100e6)
		eventually(t, "four ticks", func() bool { return r.d.NowNs() > then })
	}
	c := r.dial()
	pass()
	request := post("zero", streamed)
	for _, piece := range []string{request[:9], request[9 : len(request)-5], request[len(request)-5:]} {
		c.send(piece)
		pass()
	}
	ticks <- struct{}{}
	pass()
	ticks <- struct{}{}
	if got := c.answer("POST"); got.err != nil || got.body != event("one") {
		t.Fatalf("got %q %v", got.body, got.err)
	}
	pass()
	if n := r.d.Totals().NodeIdle; n != 1 {
		t.Errorf("%d idle connections to the node, want 1", n)
	}
	c.alive()
	r.settled()
}

func TestNothingToSendTo(t *testing.T) {
	retry := func(t *testing.T, got answer) {
		t.Helper()
		if got.Header.Get("Retry-After") == "" {
			t.Error("no Retry-After")
		}
	}
	t.Run("no snapshot", func(t *testing.T) {
		r := start(t, setup{noModels: true})
		c := r.dial()
		c.send(post("none", chatBody))
		got := c.answer("POST")
		expectError(t, got, 503, "no_node_available", "")
		retry(t, got)
		c.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
		expectError(t, c.answer("GET"), 503, "no_node_available", "")
	})
	t.Run("nodes not asked", func(t *testing.T) {
		r := start(t, setup{}, startNode(t, "a", answers(ok("{}"))))
		s := *r.holder.Load()
		s.Models, s.Asked, s.Default = nil, false, -1
		r.holder.Store(s.Seal())
		c := r.dial()
		c.send(post("none", chatBody))
		got := c.answer("POST")
		expectError(t, got, 503, "starting", "")
		retry(t, got)
	})
	t.Run("all are leaving", func(t *testing.T) {
		r := start(t, setup{node: func(_ int, n *fleet.Node) { n.State = fleet.Draining }}, startNode(t, "a", answers(ok("{}"))))
		c := r.dial()
		c.send(post("none", chatBody))
		got := c.answer("POST")
		expectError(t, got, 503, "no_node_available", "")
		retry(t, got)
		if rec := r.record("none"); rec.Node != "" || len(rec.Tries) != 0 || rec.Status != 503 {
			t.Errorf("record %+v", rec)
		}
	})
	t.Run("no model named", func(t *testing.T) {
		r := start(t, setup{}, startNode(t, "a", answers(ok("{}"))))
		s := *r.holder.Load()
		s.Default = -1
		r.holder.Store(s.Seal())
		c := r.dial()
		c.send(post("none", `{"prompt":"x"}`))
		expectError(t, c.answer("POST"), 400, "model_required", "names no model")
		c.send(post("alias", `{"model":"alias","prompt":"x"}`))
		if got := c.answer("POST"); got.StatusCode != 200 {
			t.Errorf("the alias got %d %s", got.StatusCode, got.body)
		}
		if rec := r.record("alias"); rec.Model != "m" {
			t.Errorf("the record's model is %q, want the canonical name", rec.Model)
		}
	})
	t.Run("empty bodies", func(t *testing.T) { // the engine says what it wants
		r := start(t, setup{}, startNode(t, "a", answers("HTTP/1.1 422 Unprocessable Content\r\nContent-Length: 0\r\n\r\n")))
		c := r.dial()
		for _, length := range []string{"", "Content-Length: 0\r\n"} {
			c.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\n" + length + "\r\n")
			if got := c.answer("POST"); got.StatusCode != 422 && got.StatusCode != 400 {
				t.Errorf("got %d %s", got.StatusCode, got.body)
			}
		}
	})
}

func TestConnectionCap(t *testing.T) {
	r := start(t, setup{set: func(s *dataplane.Settings) { s.Connections = 2 }}, startNode(t, "a", answers(ok("{}"))))
	first, second := r.dial(), r.dial()
	first.alive()
	second.alive()
	third := r.dial()
	got := third.answer("GET")
	expectError(t, got, 503, "too_many_connections", "limits.connections")
	if got.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	third.ended()
	_ = third.Close()
	_ = first.Close()
	eventually(t, "one client", func() bool { return r.d.Totals().Clients == 1 })
	r.dial().alive()
	if n := r.d.Totals().Refused; n != 1 {
		t.Errorf("%d refused connections counted, want 1", n)
	}
	r.settled()
}

// TestRequestTimes: the limit of a path wins over the common one, and a stream
// that falls silent is cut.
func TestRequestTimes(t *testing.T) {
	set := func(s *dataplane.Settings) {
		s.RequestNs = int64(100e6)
		s.RequestNsByPath = map[string]int64{"/v1/files": int64(30e9), "/v1/batches": 0}
	}
	wait := make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		c.request()
		<-wait
		c.send(ok("{}"))
		c.gone()
	})
	r := start(t, setup{set: set}, a)
	slow, long, unlimited := r.dial(), r.dial(), r.dial()
	slow.send(post("slow", chatBody))
	long.send("GET /v1/files HTTP/1.1\r\nHost: x\r\n\r\n")
	unlimited.send("GET /v1/batches HTTP/1.1\r\nHost: x\r\n\r\n")
	expectError(t, slow.answer("POST"), 504, "timeout", "timeouts.request")
	then := r.d.NowNs() + int64(100e6)
	eventually(t, "the others to be late too", func() bool { return r.d.NowNs() > then })
	close(wait)
	for _, c := range []*client{long, unlimited} {
		if got := c.answer("GET"); got.StatusCode != 200 {
			t.Errorf("got %d %s", got.StatusCode, got.body)
		}
	}
	r.settled()
	if rec := r.record("slow"); rec.Status != 504 || tries(rec) != "a:deadline" || r.nodes[0].Load.Failures.Load() != 0 {
		t.Errorf("record: %d, %s", rec.Status, tries(rec))
	}
}
