package dataplane_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/policy"
)

// window makes bodies beyond 64 KiB be decided on early, and those beyond a MiB
// not be held for another try.
func window(s *dataplane.Settings) {
	s.RoutingWindowBytes, s.RetryBodyBytes, s.BodyBytes = 64<<10, 1<<20, 1<<30
}

// longBody is a chat body of about n bytes whose model comes first.
func longBody(n int) string {
	return `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("lorem ipsum ", n/12) + `"}]}`
}

func postHead(id string, framing string) string {
	return "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: " + id + "\r\nContent-Type: application/json\r\n" + framing + "\r\n"
}

func lengthOf(body string) string { return fmt.Sprintf("Content-Length: %d\r\n", len(body)) }

// partly is a node that tells when a request's head has come, and then reads its
// body and answers.
func partly(t *testing.T, name string) (n *node, begun chan *http.Request) {
	begun = make(chan *http.Request, 16)
	return startNode(t, name, func(c *conn) {
		for {
			r, err := http.ReadRequest(c.r)
			if err != nil {
				return
			}
			begun <- r
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			c.node.mu.Lock()
			c.node.seen = append(c.node.seen, &seenRequest{r, string(body)})
			c.node.mu.Unlock()
			c.send(ok(fmt.Sprint(len(body))))
		}
	}), begun
}

func arrives(t *testing.T, begun chan *http.Request) *http.Request {
	t.Helper()
	select {
	case r := <-begun:
		return r
	case <-time.After(patience):
		t.Fatal("no request has come to the node")
		return nil
	}
}

func TestALongBodyIsSentOnBeforeItIsIn(t *testing.T) {
	body := longBody(300_000)
	const first = 100_000
	for name, c := range map[string]struct {
		head, begin, rest string
		length            int64
	}{
		"length":  {postHead("up", lengthOf(body)), body[:first], body[first:], int64(len(body))},
		"chunked": {postHead("up", "Transfer-Encoding: chunked\r\n"), chunk(body[:first]), chunk(body[first:first+5]) + chunk(body[first+5:]) + "0\r\n\r\n", -1},
		"an upload that is no JSON": {
			strings.Replace(strings.Replace(postHead("up", lengthOf(body)), "/v1/chat/completions", "/v1/files", 1), "application/json", "multipart/form-data", 1),
			body[:first], body[first:], int64(len(body)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, begun := partly(t, "a")
			r := start(t, setup{set: window}, a)
			cl := r.dial()
			cl.send(c.head + c.begin)
			if got := arrives(t, begun); got.ContentLength != c.length {
				t.Errorf("the node was announced %d bytes, want %d", got.ContentLength, c.length)
			}
			cl.send(c.rest)
			if got := cl.answer("POST"); got.StatusCode != 200 || got.body != fmt.Sprint(len(body)) {
				t.Fatalf("got %d %s", got.StatusCode, got.body)
			}
			if a.requests()[0].body != body {
				t.Error("the node got another body")
			}
			cl.send(post("next", chatBody))
			if got := cl.answer("POST"); got.StatusCode != 200 || got.body != fmt.Sprint(len(chatBody)) {
				t.Fatalf("the next request got %d %s", got.StatusCode, got.body)
			}
			if n := a.accepted.Load(); n != 1 {
				t.Errorf("%d connections to the node, want 1", n)
			}
			r.settled()
		})
	}
}

// TestABodyTooLongToBeHeldHasAConnectionOfItsOwn: an idle one may be closed by its
// node at any time, and then the body would be wanted again.
func TestABodyTooLongToBeHeldHasAConnectionOfItsOwn(t *testing.T) {
	whole := func(s *dataplane.Settings) { s.RetryBodyBytes, s.BodyBytes = 1<<20, 1<<30 }
	for name, set := range map[string]func(*dataplane.Settings){"passed on": window, "whole": whole} {
		t.Run(name, func(t *testing.T) {
			a, _ := partly(t, "a")
			r := start(t, setup{set: set}, a)
			cl := r.dial()
			for i, c := range []struct {
				bytes       int
				connections int64
			}{{100, 1}, {1 << 19, 1}, {3 << 19, 2}, {100, 2}} {
				body := longBody(c.bytes)
				cl.send(post(fmt.Sprint(i), body))
				if got := cl.answer("POST"); got.StatusCode != 200 || got.body != fmt.Sprint(len(body)) {
					t.Fatalf("request %d got %d %s", i, got.StatusCode, got.body)
				}
				if n := a.accepted.Load(); n != c.connections {
					t.Errorf("%d connections to the node after request %d, want %d", n, i, c.connections)
				}
			}
			r.settled()
		})
	}
}

// TestALongBodyFindsItsBeginning: what has come of a message that has not ended
// tells where a body belongs that is decided on before it is in.
func TestALongBodyFindsItsBeginning(t *testing.T) {
	const first = 100_000
	for name, body := range map[string]string{
		"a message": longBody(300_000),
		"a part":    strings.Replace(strings.Replace(longBody(300_000), `"content":"`, `"content":[{"type":"text","text":"`, 1), `"}]}`, `"}]}]}`, 1),
		"a prompt":  `{"model":"m","prompt":"` + strings.Repeat("lorem ipsum ", 25_000) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			a, begunA := partly(t, "a")
			b, begunB := partly(t, "b")
			r := start(t, setup{set: window, node: level}, a, b)
			for i, id := range []string{"one", "two"} {
				cl := r.dial()
				cl.send(postHead(id, lengthOf(body)) + body[:first])
				select {
				case <-begunA:
				case <-begunB:
				case <-time.After(patience):
					t.Fatal("no request has come to a node")
				}
				cl.send(body[first:])
				if got := cl.answer("POST"); got.StatusCode != 200 {
					t.Fatalf("got %d %s", got.StatusCode, got.body)
				}
				rec := r.record(id)
				if rec.Exactness != dataplane.ExactText || rec.PromptTokens < 74_000 || rec.PromptTokens > 76_000 {
					t.Errorf("request %s was identified by %v, with %d tokens", id, rec.Exactness, rec.PromptTokens)
				}
				if i == 1 && (rec.Reason != policy.ReasonPrefix || rec.Node != r.record("one").Node || rec.Candidates[0].MatchedTokens < first/4*9/10) {
					t.Errorf("the second went to %s for %v with %d tokens matched, the first to %s", rec.Node, rec.Reason, rec.Candidates[0].MatchedTokens, r.record("one").Node)
				}
			}
			r.settled()
		})
	}
}

// TestALongImageIsNoText: what has yet to come of an image says nothing about the
// prompt's length.
func TestALongImageIsNoText(t *testing.T) {
	body := `{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"what is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` +
		strings.Repeat("QUJD", 75_000) + `"}}]}]}`
	a, begun := partly(t, "a")
	r := start(t, setup{set: window}, a)
	cl := r.dial()
	cl.send(postHead("image", lengthOf(body)) + body[:100_000])
	arrives(t, begun)
	cl.send(body[100_000:])
	if got := cl.answer("POST"); got.StatusCode != 200 {
		t.Fatalf("got %d %s", got.StatusCode, got.body)
	}
	if rec := r.record("image"); rec.PromptTokens > 1000 {
		t.Errorf("the prompt is taken to have %d tokens", rec.PromptTokens)
	}
	r.settled()
}

// TestWhatARuleNeedsIsWaitedFor: a body that has not named its model, or under
// session its session, is not decided on.
func TestWhatARuleNeedsIsWaitedFor(t *testing.T) {
	content := `"messages":[{"role":"user","content":"` + strings.Repeat("lorem ipsum ", 20_000) + `"}]`
	body := `{` + content + `,"model":"m"}`
	a, begun := partly(t, "a")
	r := start(t, setup{set: window}, a)
	cl := r.dial()
	cl.send(postHead("late", lengthOf(body)) + body[:200_000])
	eventually(t, "what was sent at the router", func() bool { return r.d.Held().Request == 200_000 })
	select {
	case <-begun:
		t.Error("the request was sent on before its model was known")
	default:
	}
	cl.send(body[200_000:])
	if got := cl.answer("POST"); got.StatusCode != 200 || a.requests()[0].body != body {
		t.Errorf("got %d %s", got.StatusCode, got.body)
	}
	r.settled()
}

// TestAnUploadMovesWhileItIsHeld: its node dies in the middle of a body that is
// still held, and another one gets all of it.
func TestAnUploadMovesWhileItIsHeld(t *testing.T) {
	for name, c := range map[string]struct {
		size  int
		moved bool
	}{"held": {800_000, true}, "too long to be held": {1_500_000, false}} {
		t.Run(name, func(t *testing.T) {
			body := longBody(c.size)
			got := make(chan struct{})
			a := startNode(t, "a", func(c *conn) {
				if _, err := http.ReadRequest(c.r); err != nil {
					return
				}
				_, _ = io.CopyN(io.Discard, c.r, 300_000)
				close(got)
				c.reset()
			})
			b, _ := partly(t, "b")
			r := start(t, setup{set: window}, a, b)
			cl := r.dial()
			cl.send(postHead("moves", lengthOf(body)) + body[:400_000])
			<-got
			if c.moved {
				cl.send(body[400_000:])
				if got := cl.answer("POST"); got.StatusCode != 200 || b.requests()[0].body != body {
					t.Errorf("got %d %s", got.StatusCode, got.body)
				}
				if rec := r.record("moves"); tries(rec) != "a:reset b:ok" {
					t.Errorf("tries %s", tries(rec))
				}
			} else {
				if got := cl.answer("POST"); got.StatusCode != 502 {
					t.Errorf("got %d %s", got.StatusCode, got.body)
				}
				cl.ended()
			}
			r.settled()
		})
	}
}

// TestWhatComesLateCanStillBeRefused: the node never gets the end of it.
func TestWhatComesLateCanStillBeRefused(t *testing.T) {
	begin := longBody(1_300_000)
	begin = begin[:len(begin)-1]
	for name, c := range map[string]struct{ end, code string }{
		"another model":   {`,"model":"other"}`, "repeated_key"},
		"other messages":  {`,"messages":[]}`, "repeated_key"},
		"not JSON":        {`,]`, "invalid_json"},
		"a late key":      {`,"tools":[]}`, ""},
		"the same inside": {`,"metadata":{"model":"x"}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			body := begin + c.end
			a, begun := partly(t, "a")
			r := start(t, setup{set: window}, a)
			cl := r.dial()
			cl.send(postHead("late", lengthOf(body)) + body[:200_000])
			arrives(t, begun)
			cl.send(body[200_000:])
			got := cl.answer("POST")
			if c.code == "" {
				if got.StatusCode != 200 || a.requests()[0].body != body {
					t.Fatalf("got %d %s", got.StatusCode, got.body)
				}
			} else {
				expectError(t, got, 400, c.code, "")
				cl.ended()
				if len(a.requests()) != 0 {
					t.Error("the node got a whole request")
				}
			}
			r.settled()
		})
	}
}

// TestAnUploadGoesAsFastAsItsNode: 64 MB to a node that reads slowly, with next
// to nothing held in between.
func TestAnUploadGoesAsFastAsItsNode(t *testing.T) {
	const size = 64 << 20
	sum := make(chan [32]byte, 1)
	a := startNode(t, "a", func(c *conn) {
		r, err := http.ReadRequest(bufio.NewReaderSize(c.r, 4096))
		if err != nil {
			return
		}
		h := sha256.New()
		_, _ = io.Copy(h, r.Body)
		sum <- [32]byte(h.Sum(nil))
		c.send(ok("{}"))
	})
	r := start(t, setup{set: window}, a)
	cl := r.dial()
	body := longBody(size)
	done := sendAhead(cl, postHead("big", lengthOf(body))+body, 1)
	most := 0
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
wait:
	for {
		select {
		case <-done:
			break wait
		case <-tick.C:
			most = max(most, r.d.Held().Request)
		}
	}
	if got := cl.answer("POST"); got.StatusCode != 200 {
		t.Fatalf("got %d %s", got.StatusCode, got.body)
	}
	if <-sum != sha256.Sum256([]byte(body)) {
		t.Error("the node got another body")
	}
	if most > 2<<20 {
		t.Errorf("%d bytes were held", most)
	}
	t.Logf("at most %d bytes were held", most)
	r.settled()
}

// TestAnswerBeforeTheBodyIsIn passes it on and ends the connections of both.
func TestAnswerBeforeTheBodyIsIn(t *testing.T) {
	body := longBody(300_000)
	a := startNode(t, "a", func(c *conn) {
		if _, err := http.ReadRequest(c.r); err != nil {
			return
		}
		c.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
		c.gone()
	})
	r := start(t, setup{set: window}, a)
	cl := r.dial()
	cl.send(postHead("early", lengthOf(body)) + body[:100_000])
	if got := cl.answer("POST"); got.StatusCode != 413 || got.body != "no" || !got.Close {
		t.Errorf("got %d %q, close %v", got.StatusCode, got.body, got.Close)
	}
	cl.ended()
	r.settled()
}

// TestUploadsThatStop: whichever side stands still, the other is let go.
func TestUploadsThatStop(t *testing.T) {
	body := longBody(32 << 20)
	t.Run("the client", func(t *testing.T) {
		begun, nodeGone := make(chan *http.Request, 1), make(chan bool, 1)
		a := startNode(t, "a", func(c *conn) {
			if r, err := http.ReadRequest(c.r); err == nil {
				begun <- r
				nodeGone <- c.gone()
			}
		})
		r := start(t, setup{set: func(s *dataplane.Settings) { window(s); s.HeadNs = int64(300e6) }}, a)
		cl := r.dial()
		cl.send(postHead("stops", lengthOf(body)) + body[:100_000])
		arrives(t, begun)
		_ = cl.CloseWrite() // which is leaving; its time would be 12 s else
		if !<-nodeGone {
			t.Error("the node's connection stays")
		}
		r.settled()
	})
	t.Run("the node", func(t *testing.T) {
		a := startNode(t, "a", func(c *conn) {
			if _, err := http.ReadRequest(c.r); err == nil {
				<-c.node.t.Context().Done()
			}
		})
		r := start(t, setup{set: func(s *dataplane.Settings) { window(s); s.IdleStreamNs = int64(300e6) }}, a)
		cl := r.dial()
		done := sendAhead(cl, postHead("stuck", lengthOf(body))+body, 1)
		got := cl.answer("POST")
		expectError(t, got, 504, "node_silent", "")
		_ = cl.Close()
		<-done
		r.settled()
	})
}

// TestASlowUploadTimesOut: a client that sends nothing more has the time of a
// head and of what it sent at the slowest rate.
func TestASlowUploadTimesOut(t *testing.T) {
	body := longBody(300_000)
	nodeGone := make(chan bool, 1)
	a := startNode(t, "a", func(c *conn) {
		if _, err := http.ReadRequest(c.r); err != nil {
			return
		}
		nodeGone <- c.gone()
	})
	r := start(t, setup{set: func(s *dataplane.Settings) { window(s); s.HeadNs, s.RoutingWindowBytes = int64(200e6), 4<<10 }}, a)
	cl := r.dial()
	cl.send(postHead("slow", lengthOf(body)) + body[:5000])
	expectError(t, cl.answer("POST"), 408, "request_timeout", "")
	if !<-nodeGone {
		t.Error("the node's connection stays")
	}
	r.settled()
	if n := r.nodes[0].Load.Failures.Load(); n != 0 {
		t.Errorf("%d failures counted on the node", n)
	}
}

// TestUploadsAreCutAnywhere sends one body in pieces of every odd size, with
// another request right behind it.
func TestUploadsAreCutAnywhere(t *testing.T) {
	a := startNode(t, "a", func(c *conn) {
		for {
			s, more := c.request()
			if !more {
				return
			}
			c.send(ok(fmt.Sprint(len(s.body))))
		}
	})
	r := start(t, setup{set: func(s *dataplane.Settings) { window(s); s.RoutingWindowBytes, s.RetryBodyBytes = 1000, 2000 }}, a)
	cl := r.dial()
	want := 0
	for size := 1; size < 9000; size = size*3/2 + 1 {
		for _, chunked := range []bool{false, true} {
			body := longBody(9000 + size)
			framing, wire := lengthOf(body), []byte(body)
			if chunked {
				framing, wire = "Transfer-Encoding: chunked\r\n", nil
				for rest := body; rest != ""; {
					n := min(size, len(rest))
					wire = append(wire, chunk(rest[:n])...)
					rest = rest[n:]
				}
				wire = append(wire, "0\r\n\r\n"...)
			}
			all := append(append([]byte(postHead("cut", framing)), wire...), post("behind", chatBody)...)
			for b := bytes.NewBuffer(all); b.Len() > 0; {
				cl.send(string(b.Next(max(size, 97))))
			}
			for _, n := range []int{len(body), len(chatBody)} {
				if got := cl.answer("POST"); got.StatusCode != 200 || got.body != fmt.Sprint(n) {
					t.Fatalf("size %d, chunked %v: got %d %s", size, chunked, got.StatusCode, got.body)
				}
			}
			if s := a.requests(); s[want].body != body || s[want+1].body != chatBody {
				t.Fatalf("size %d, chunked %v: the node got another body", size, chunked)
			}
			want += 2
		}
	}
	r.settled()
}

// steadily reads a body in pieces, one a tick.
func steadily(c *conn, body io.Reader, piece int) (n int) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for b := make([]byte, piece); ; <-tick.C {
		k, err := io.ReadFull(body, b)
		if n += k; err != nil {
			return n
		}
	}
}

// TestASlowNodeIsNotSilent: as long as it takes something of a body it is not let
// go, however long the whole takes.
func TestASlowNodeIsNotSilent(t *testing.T) {
	a := startNode(t, "a", func(c *conn) {
		_ = c.SetReadBuffer(64 << 10)
		if r, err := http.ReadRequest(c.r); err == nil {
			c.send(ok(fmt.Sprint(steadily(c, r.Body, 256<<10))))
		}
	})
	r := start(t, setup{set: func(s *dataplane.Settings) { s.BodyBytes, s.IdleStreamNs = 64<<20, int64(500e6) }}, a)
	cl := r.dial()
	body := longBody(20 << 20)
	done := sendAhead(cl, post("slow", body), 1)
	if got := cl.answer("POST"); got.StatusCode != 200 || got.body != fmt.Sprint(len(body)) {
		t.Errorf("got %d %s; tries %s", got.StatusCode, got.body, tries(r.record("slow")))
	}
	<-done
	r.settled()
}

// TestAnUploadGoesOnBehindAnEarlyHead: the silence of a node that still takes the
// body is none.
func TestAnUploadGoesOnBehindAnEarlyHead(t *testing.T) {
	a := startNode(t, "a", func(c *conn) {
		r, err := http.ReadRequest(c.r)
		if err != nil {
			return
		}
		c.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nno")
		_, _ = io.Copy(io.Discard, r.Body)
		c.send("ok")
	})
	r := start(t, setup{set: func(s *dataplane.Settings) { window(s); s.IdleStreamNs = int64(1e9) }}, a)
	cl := r.dial()
	body := longBody(600_000)
	cl.send(postHead("early", lengthOf(body)) + body[:100_000])
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for at := 100_000; at < len(body); at += 12_500 {
			if _, err := io.WriteString(cl, body[at:min(len(body), at+12_500)]); err != nil {
				return
			}
			<-tick.C
		}
	}()
	if got := cl.answer("POST"); got.err != nil || got.body != "nook" {
		t.Errorf("got %d %q, %v; tries %s", got.StatusCode, got.body, got.err, tries(r.record("early")))
	}
	r.settled()
}

// TestAnUploadGoesOnBeforeItsAnswerIsRead: a client that reads only when it has
// sent all is not slow meanwhile, though its node, which answers early, is paused.
func TestAnUploadGoesOnBeforeItsAnswerIsRead(t *testing.T) {
	const answered = 8 << 20
	a := startNode(t, "a", func(c *conn) {
		r, err := http.ReadRequest(c.r)
		if err != nil {
			return
		}
		go func() {
			c.send(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", answered))
			c.send(strings.Repeat("x", answered))
		}()
		_, _ = io.Copy(io.Discard, r.Body)
		c.gone()
	})
	r := start(t, setup{alone: true, set: func(s *dataplane.Settings) { window(s); s.IdleStreamNs = int64(3e9) }}, a)
	cl := r.dial()
	body := longBody(400_000)
	cl.send(postHead("early", lengthOf(body)) + body[:100_000])
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for at := 100_000; at < len(body); at += 10_000 { // for twice the time between two looks at the client, and more
		if _, err := io.WriteString(cl, body[at:min(len(body), at+10_000)]); err != nil {
			t.Fatalf("after %d bytes: %v; tries %s", at, err, tries(r.record("early")))
		}
		<-tick.C
	}
	if got := cl.answer("POST"); got.err != nil || len(got.body) != answered {
		t.Errorf("got %d, %d bytes, %v; tries %s", got.StatusCode, len(got.body), got.err, tries(r.record("early")))
	}
	_ = cl.Close()
	r.settled()
}
