package dataplane_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
)

// prompt makes a body whose one message has words of that kind, in all about
// 60 units of text.
func longPrompt(kind string, more ...string) string {
	b := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat(kind+" ", 16000/(len(kind)+1)) + `"}`
	for _, m := range more {
		b += `,{"role":"assistant","content":"` + m + `"},{"role":"user","content":"go on"}`
	}
	return b + "]}"
}

// level takes the trips away, so that nodes differ in nothing but their load
// and what they hold.
func level(_ int, n *fleet.Node) { n.RoundTripSeconds = fleet.Gauge{} }

// TestBurstOfOnePrompt: a burst of one new prompt goes to one node as long as
// that is the best place, though no indexer has heard of it yet.
func TestBurstOfOnePrompt(t *testing.T) {
	for _, deaf := range []bool{true, false} {
		t.Run(fmt.Sprintf("deaf=%v", deaf), func(t *testing.T) {
			wait := make(chan struct{})
			script := func(c *conn) {
				for {
					if _, more := c.request(); !more {
						return
					}
					<-wait
					c.send(ok("{}"))
				}
			}
			nodes := []*node{startNode(t, "a", script), startNode(t, "b", script), startNode(t, "c", script)}
			r := start(t, setup{node: level, deaf: deaf}, nodes...)
			var clients []*client
			for i := range 6 {
				c := r.dial()
				c.send(post(fmt.Sprintf("burst-%d", i), longPrompt("same")))
				eventually(t, "the request decided", func() bool { return r.d.Active() == int64(i+1) })
				clients = append(clients, c)
			}
			close(wait)
			for _, c := range clients {
				if got := c.answer("POST"); got.StatusCode != 200 {
					t.Fatalf("got %d %s", got.StatusCode, got.body)
				}
			}
			first := r.record("burst-0")
			if first.Exactness != dataplane.ExactText || first.PromptTokens < 3900 || first.PromptTokens > 4100 {
				t.Errorf("the first was identified by %v with %d tokens", first.Exactness, first.PromptTokens)
			}
			for i := range 5 {
				rec := r.record(fmt.Sprintf("burst-%d", i+1))
				if rec.Node != first.Node || rec.Reason != policy.ReasonPrefix || rec.Candidates[0].MatchedTokens < 3800 {
					t.Errorf("request %d went to %s for %v with %d tokens matched; the first went to %s", i+1, rec.Node, rec.Reason, rec.Candidates[0].MatchedTokens, first.Node)
				}
			}
			r.settled()
		})
	}
}

// TestNextTurnFindsItsNode: the second turn of a conversation is routed by the
// prefix, also on another loop, once the index has it.
func TestNextTurnFindsItsNode(t *testing.T) {
	nodes := []*node{startNode(t, "a", answers(ok("{}"))), startNode(t, "b", answers(ok("{}"))), startNode(t, "c", answers(ok("{}")))}
	r := start(t, setup{node: level, loops: 2}, nodes...)
	for i := range 5 {
		first, second := fmt.Sprintf("turn-%d-1", i), fmt.Sprintf("turn-%d-2", i)
		kind := fmt.Sprintf("word%d", i)
		c := r.dial()
		c.send(post(first, longPrompt(kind)))
		c.answer("POST")
		// Explain would not do: it asks a loop, which knows at once what it has told.
		eventually(t, "the index to know", r.d.Told)
		other := r.dial() // the lighter loop is the other one
		other.send(post(second, longPrompt(kind, "an answer")))
		other.answer("POST")
		one, two := r.record(first), r.record(second)
		if two.Node != one.Node || two.Reason != policy.ReasonPrefix || two.Candidates[0].MatchedTokens < 3800 {
			t.Errorf("turn 1 went to %s for %v, turn 2 to %s for %v with %d matched", one.Node, one.Reason, two.Node, two.Reason, two.Candidates[0].MatchedTokens)
		}
	}
	totals := r.d.Totals()
	if totals.MatchedTokens[dataplane.ExactText] < 5*3800 {
		t.Errorf("%d matched tokens counted", totals.MatchedTokens[dataplane.ExactText])
	}
	r.settled()
}

// TestNodeLeavesWithNotesPending: the node that a note names is gone from the
// snapshot before any indexer took the note, and the same prompt comes again.
func TestNodeLeavesWithNotesPending(t *testing.T) {
	a, b := startNode(t, "a", answers(ok("{}"))), startNode(t, "b", answers(ok("{}")))
	r := start(t, setup{deaf: true}, a, b)
	c := r.dial()
	c.send(post("before", longPrompt("same")))
	c.answer("POST")
	if rec := r.record("before"); rec.Node != "a" {
		t.Fatalf("the first request went to %s", rec.Node)
	}
	r.publish(nil, r.nodes[1])
	c.send(post("after", longPrompt("same")))
	if got := c.answer("POST"); got.StatusCode != 200 {
		t.Fatalf("got %d %s", got.StatusCode, got.body)
	}
	rec := r.record("after")
	if rec.Node != "b" || rec.Reason != policy.ReasonOnly || len(rec.PassedOver) != 0 {
		t.Errorf("record %+v", rec)
	}
	r.settled()
}

// TestPassedOver: a holder that may not take the request is named with why.
func TestPassedOver(t *testing.T) {
	a, b := startNode(t, "a", answers(ok("{}"))), startNode(t, "b", answers(ok("{}")))
	r := start(t, setup{}, a, b)
	c := r.dial()
	c.send(post("first", longPrompt("same")))
	c.answer("POST")
	leaving := *r.nodes[0]
	leaving.State = fleet.Draining
	r.publish(&leaving, r.nodes[1])
	c.send(post("second", longPrompt("same")))
	c.answer("POST")
	rec := r.record("second")
	if rec.Node != "b" || rec.Reason != policy.ReasonOnly || len(rec.PassedOver) != 1 || rec.PassedOver[0].Node != "a" || rec.PassedOver[0].Why != "draining" {
		t.Errorf("record %+v", rec)
	}
	r.settled()
}

func TestExplain(t *testing.T) {
	a, b := startNode(t, "a", answers(ok("{}"))), startNode(t, "b", answers(ok("{}")))
	r := start(t, setup{}, a, b)
	explain := func(path, body string) (dataplane.Record, *dataplane.ExplainError) {
		rec, err := r.d.Explain(path, []byte(body))
		var e *dataplane.ExplainError
		if err != nil && !errors.As(err, &e) {
			t.Fatal(err)
		}
		return rec, e
	}
	rec, err := explain("/v1/chat/completions", longPrompt("same"))
	if err != nil || rec.Node != "a" || len(rec.Candidates) != 2 || rec.PromptTokens < 3900 || rec.Model != "m" || rec.Ended || rec.ID == "" {
		t.Errorf("explained %+v, %v", rec, err)
	}
	for _, c := range []struct {
		path, body string
		status     int
		code       string
	}{
		{"/v1/chat/completions", `{"model":"nope"}`, 404, "model_not_found"},
		{"/v1/chat/completions", `{"model":`, 400, "invalid_json"},
		{"/v1/models", `{}`, 405, "method_not_allowed"},
		{"/v1/files", `{}`, 404, "not_found"},
		{"/nowhere", `{}`, 404, "not_found"},
	} {
		if _, err := explain(c.path, c.body); err == nil || err.Status != c.status || err.Code != c.code {
			t.Errorf("%s %.30s: %v, want %d %s", c.path, c.body, err, c.status, c.code)
		}
	}
	if _, err := r.d.Explain("not a path\r\n", nil); err == nil {
		t.Error("a path that is none was explained")
	}
	// Nothing was sent, and nothing is under way.
	if len(a.requests())+len(b.requests()) != 0 {
		t.Error("an explained request was sent")
	}
	r.settled()
	r.publish()
	if _, err := explain("/v1/chat/completions", chatBody); err == nil || err.Status != 503 {
		t.Errorf("without nodes: %v, want 503", err)
	}
	if err := r.d.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.d.Explain("/v1/chat/completions", []byte(chatBody)); !errors.Is(err, dataplane.ErrNoLoops) {
		t.Errorf("after the end: %v, want ErrNoLoops", err)
	}
}

// TestDrain: idle clients are let go, a stream that runs comes to its end, and
// nobody new is taken.
func TestDrain(t *testing.T) {
	step := make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		c.request()
		c.send(streamHead, chunk(event("one")))
		<-step
		c.send(chunk(event("two")) + "0\r\n\r\n")
		c.gone()
	})
	r := start(t, setup{}, a)
	idle, fresh, half, busy := r.dial(), r.dial(), r.dial(), r.dial()
	idle.alive()
	half.send("GET /v1/models HTTP/1.1\r\n")
	busy.send(post("busy", streamed))
	body := busy.stream(t)
	eventually(t, "all of them at the loop", func() bool { _, _, open := r.d.Leftovers(); return open == 4 && r.d.Active() == 2 })
	drained := make(chan int64, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		drained <- r.d.Drain(ctx, time.Second)
	}()
	idle.ended()
	fresh.ended()
	half.send("Host: x\r\n\r\n") // a request that had begun is still answered
	if got := half.answer("GET"); got.StatusCode != 200 || !got.Close {
		t.Errorf("got %d, close %v", got.StatusCode, got.Close)
	}
	half.ended()
	eventually(t, "new connections to be refused", func() bool {
		c, err := net.DialTimeout("tcp", r.d.Addr().String(), time.Second)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	select {
	case n := <-drained:
		t.Fatalf("drained with %d left while a stream runs", n)
	default:
	}
	close(step)
	got := make([]byte, 200)
	n, want := 0, event("one")+event("two")
	for n < len(want) {
		k, err := body.Read(got[n:])
		if n += k; err != nil {
			break
		}
	}
	if string(got[:n]) != want {
		t.Errorf("the stream ended as %q", got[:n])
	}
	for _, c := range []*client{idle, fresh, half, busy} {
		if c == busy {
			if n, err := body.Read(got); n != 0 || err == nil {
				t.Errorf("%d bytes behind the stream", n)
			}
			c.ended()
		}
		_ = c.Close()
	}
	if n := <-drained; n != 0 {
		t.Errorf("%d requests were left, want none", n)
	}
	r.settled()
}

// TestDrainGivesUp: what does not end in time is counted.
func TestDrainGivesUp(t *testing.T) {
	a := startNode(t, "a", hangs)
	r := start(t, setup{}, a)
	c := r.dial()
	c.send(post("stuck", chatBody))
	eventually(t, "the request at the node", func() bool { return len(a.requests()) == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if n := r.d.Drain(ctx, time.Second); n != 1 {
		t.Errorf("%d requests left, want 1", n)
	}
}

// TestManyLoops runs plain traffic over several loops at once.
func TestManyLoops(t *testing.T) {
	nodes := []*node{startNode(t, "a", answers(ok("{}"))), startNode(t, "b", answers(goodStream))}
	r := start(t, setup{node: level, loops: 3, set: func(s *dataplane.Settings) {
		rule, err := policy.New("round_robin", nil)
		if err != nil {
			t.Fatal(err)
		}
		s.Policy = rule
	}}, nodes...)
	const clients, each = 12, 30
	failed := make(chan string, clients)
	for i := range clients {
		c := r.dial()
		go func() {
			for k := range each {
				if _, err := c.Write([]byte(post(fmt.Sprintf("c%d-%d", i, k), streamed))); err != nil {
					failed <- err.Error()
					return
				}
				if got := c.answer("POST"); got.StatusCode != 200 || got.err != nil {
					failed <- fmt.Sprintf("%d %s %v", got.StatusCode, got.body, got.err)
					return
				}
			}
			failed <- ""
		}()
	}
	for range clients {
		if f := <-failed; f != "" {
			t.Error(f)
		}
	}
	r.settled()
	total := uint64(0)
	for _, n := range r.d.Totals().Requests {
		total += n
	}
	if total != clients*each {
		t.Errorf("%d requests counted, want %d", total, clients*each)
	}
	if got := len(r.d.Records(1000)); got != clients*each {
		t.Errorf("%d records kept, want %d", got, clients*each)
	}
}

// TestStopWithRequestsLeft: what is not answered yet gets an answer, what has
// begun ends with a reset, and nothing is taken for whole.
func TestStopWithRequestsLeft(t *testing.T) {
	a := startNode(t, "a", func(c *conn) {
		if seen, ok := c.request(); ok && strings.Contains(seen.body, `"stream":true`) {
			c.send(streamHead, chunk(event("one")))
		}
		c.gone()
	})
	r := start(t, setup{}, a)
	waits, begun := r.dial(), r.dial()
	waits.send(post("waits", chatBody))
	begun.send(post("begun", `{"model":"m","stream":true,"prompt":"x"}`))
	body := begun.stream(t)
	if _, err := io.ReadFull(body, make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both to be under way", func() bool { return r.d.Active() == 2 })
	stopped := make(chan error, 1)
	go func() { stopped <- r.d.Stop() }()
	expectError(t, waits.answer("POST"), 503, "stopping", "stopped")
	if _, err := io.Copy(io.Discard, body); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the stream ended with %v, want a reset", err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
