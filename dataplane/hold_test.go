package dataplane_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
)

// expecting publishes these nodes, which serve m, and that others of m are on their
// way. Of the model other no node is, nor is one expected.
func (r *router) expecting(nodes ...*fleet.Node) {
	r.publishWith(func(s *fleet.Snapshot) { s.Models[0].Expected = true }, nodes...)
}

func (r *router) publishWith(change func(*fleet.Snapshot), nodes ...*fleet.Node) {
	m := fleet.Model{Name: "m", Aliases: []string{"alias"}, UnitTokens: 16}
	for slot, n := range nodes {
		if n != nil {
			m.Slots = append(m.Slots, slot)
		}
	}
	s := &fleet.Snapshot{
		Version: r.holder.Load().Version + 1, Seed: 1, Asked: true, Nodes: nodes,
		Models: []fleet.Model{m, {Name: "other", UnitTokens: 16}},
	}
	change(s)
	r.holder.Store(s.Seal())
}

// as returns a copy of a node of the router in another state.
func (r *router) as(slot int, state fleet.State) *fleet.Node {
	n := *r.nodes[slot]
	n.State = state
	return &n
}

// waiting waits until so many requests are held for a model.
func (r *router) waiting(model string, n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d requests to wait for %q", n, model), func() bool { return r.d.Holds()[model].Now == n })
}

// zero is a router whose nodes are not there yet.
func zero(t *testing.T, s setup, nodes ...*node) *router {
	t.Helper()
	s.noModels = true
	r := start(t, s, nodes...)
	r.expecting()
	return r
}

// held wants the counters of what waited for m, by outcome, and that nothing does.
func (r *router) held(model string, want map[dataplane.HoldOutcome]uint64) {
	r.t.Helper()
	h := r.d.Holds()[model]
	ever := uint64(0)
	for _, how := range dataplane.HoldOutcomes {
		if h.Ended[how] != want[how] {
			r.t.Errorf("%d waits for %q ended as %v, want %d", h.Ended[how], model, how, want[how])
		}
		if how != dataplane.HoldFull {
			ever += h.Ended[how]
		}
	}
	if h.Now != 0 || h.Ever != ever {
		r.t.Errorf("%d wait for %q, of %d that ever did; want 0 of %d", h.Now, model, h.Ever, ever)
	}
	if totals := r.d.Totals(); totals.HeldBytes != 0 {
		r.t.Errorf("%d bytes count as held", totals.HeldBytes)
	}
}

// TestHeldUntilANodeComes: whatever names the model, and however little is known
// of it before the first node is there.
func TestHeldUntilANodeComes(t *testing.T) {
	unknown := func(s *fleet.Snapshot) { s.Models, s.Default, s.Expected = nil, -1, true }
	for _, c := range []struct {
		name    string
		before  func(*fleet.Snapshot) // without a node
		request string
		model   string // as it is counted
		meant   string // as it is known in the end
	}{
		{"by its name", func(s *fleet.Snapshot) { s.Models[0].Expected = true }, chatBody, "m", "m"},
		{"by its alias", func(s *fleet.Snapshot) { s.Models[0].Expected = true }, strings.Replace(chatBody, `"m"`, `"alias"`, 1), "m", "m"},
		{"a stream", func(s *fleet.Snapshot) { s.Models[0].Expected = true }, streamed, "m", "m"},
		{"the default", func(s *fleet.Snapshot) { s.Models[0].Expected = true }, `{"messages":[{"role":"user","content":"x"}]}`, "m", "m"},
		{"any is expected", func(s *fleet.Snapshot) { s.Expected = true }, chatBody, "m", "m"},
		{"nobody has named it", unknown, chatBody, "", "m"},
		{"its node was not asked yet", func(s *fleet.Snapshot) { unknown(s); s.Asked = false }, chatBody, "", "m"},
		{"none is named, and none known", unknown, `{"prompt":"x"}`, "", "m"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, setup{noModels: true, loops: 2}, startNode(t, "a", answers(ok("good"))))
			r.publishWith(c.before)
			cl := r.dial()
			cl.send(post("held", c.request))
			r.waiting(c.model, 1)
			enough := 60 * time.Millisecond
			eventually(t, "it to have waited a while", func() bool {
				rec, ok := r.d.RecordOf("held")
				if ok && (rec.Hold != dataplane.HoldWaiting || rec.Ended || rec.Node != "" || rec.Reason != policy.ReasonNone) {
					t.Fatalf("while it waits: %+v", rec)
				}
				return ok && rec.HeldSeconds > enough.Seconds()
			})
			r.publish(r.nodes...)
			if got := cl.answer("POST"); got.StatusCode != 200 || got.body != "good" || got.Header.Get("X-Routed-To") != "a" {
				t.Fatalf("got %d %q", got.StatusCode, got.body)
			}
			rec := r.record("held")
			if rec.Hold != dataplane.HoldSent || rec.Model != c.meant || rec.Reason != policy.ReasonOnly || tries(rec) != "a:ok" {
				t.Errorf("record %+v", rec)
			}
			// Time that it waited is part of the whole, and not of routing.
			if rec.HeldSeconds < enough.Seconds() || rec.HeldSeconds+rec.RoutingSeconds > rec.DurationSeconds {
				t.Errorf("it waited %v s and was routed %v s of %v s", rec.HeldSeconds, rec.RoutingSeconds, rec.DurationSeconds)
			}
			if all := r.d.Records(100); len(all) != 1 {
				t.Errorf("%d records of one request", len(all))
			}
			cl.alive()
			r.held(c.model, map[dataplane.HoldOutcome]uint64{dataplane.HoldSent: 1})
			if totals := r.d.Totals(); totals.Queue.Total != 1 || totals.Queue.Sum < enough.Seconds() || totals.Routing.Total != 1 {
				t.Errorf("waits %+v, routing %+v", totals.Queue, totals.Routing)
			}
			r.settled()
		})
	}
}

// TestNotHeld: what is answered at once, though nodes may be on their way.
func TestNotHeld(t *testing.T) {
	expected := func(s *fleet.Snapshot) { s.Models[0].Expected = true }
	get := func(path string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: x\r\nX-Request-Id: refused\r\n\r\n"
	}
	long := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("some words ", 4000) + `"}]}`
	for _, c := range []struct {
		name    string
		snap    func(*fleet.Snapshot)
		node    func(*fleet.Node) // nil: there is none
		request string
		status  int
		code    string
	}{
		{"nothing is expected", func(*fleet.Snapshot) {}, nil, post("refused", chatBody), 503, "no_node_available"},
		{"another model is", expected, nil, post("refused", strings.Replace(chatBody, `"m"`, `"other"`, 1)), 503, "no_node_available"},
		{"a model that nobody knows", expected, func(*fleet.Node) {}, post("refused", strings.Replace(chatBody, `"m"`, `"x"`, 1)), 404, "model_not_found"},
		{"… when nodes have said what they serve", func(s *fleet.Snapshot) { s.Expected = true }, func(*fleet.Node) {}, post("refused", strings.Replace(chatBody, `"m"`, `"x"`, 1)), 404, "model_not_found"},
		{"all nodes are at their caps", expected, func(n *fleet.Node) { n.MaxInFlight = 1; n.Load.Requests.Store(1) }, post("refused", chatBody), 503, "no_node_available"},
		{"too long for a node that loads", expected, func(n *fleet.Node) { n.State, n.MaxModelLen = fleet.Warming, 100 }, post("refused", long), 400, "context_length_exceeded"},
		{"it asks for no model's work", expected, nil, get("/v1/files"), 503, "no_node_available"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, setup{noModels: true}, startNode(t, "a", answers(ok("good"))))
			if c.node == nil {
				r.nodes = nil
			} else {
				c.node(r.nodes[0])
			}
			r.publishWith(c.snap, r.nodes...)
			cl := r.dial()
			cl.send(c.request)
			expectError(t, cl.answer(strings.Fields(c.request)[0]), c.status, c.code, "")
			if holds := r.d.Holds(); len(holds) != 0 {
				t.Errorf("waits are counted: %+v", holds)
			}
		})
	}
}

// TestExpectedModelsAreListed, and the router is healthy while requests may wait.
func TestExpectedModelsAreListed(t *testing.T) {
	r := zero(t, setup{})
	cl := r.dial()
	cl.alive()
	for _, c := range []struct {
		expected bool
		status   int
	}{{true, 200}, {false, 503}} {
		r.publishWith(func(s *fleet.Snapshot) { s.Models[0].Expected = c.expected })
		cl.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
		if got := cl.answer("GET"); got.StatusCode != c.status {
			t.Errorf("health %d, want %d", got.StatusCode, c.status)
		}
	}
}

// TestHoldBounds: beyond them a request is answered at once, and the others wait on.
func TestHoldBounds(t *testing.T) {
	body := func(n int) string {
		return `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("x", n) + `"}]}`
	}
	for _, c := range []struct {
		name  string
		set   func(*dataplane.Settings)
		held  []string
		above string
	}{
		{"requests", func(s *dataplane.Settings) { s.HoldRequests = 3 }, []string{chatBody, chatBody, chatBody}, chatBody},
		{"bytes in all", func(s *dataplane.Settings) { s.HoldBytes = 600 << 10 }, []string{body(250 << 10), body(250 << 10)}, body(250 << 10)},
		{"one that is too long", func(s *dataplane.Settings) { s.HoldBytes = 600 << 10 }, []string{chatBody}, body(700 << 10)},
		{"a quarter of the memory", func(s *dataplane.Settings) { s.MemoryBytes = 4 << 20 }, []string{body(500 << 10)}, body(900 << 10)},
		{"none at all", func(s *dataplane.Settings) { s.HoldRequests = -1 }, nil, chatBody},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := zero(t, setup{set: c.set, loops: 2}, startNode(t, "a", answers(ok("good"))))
			var clients []*client
			for i, b := range c.held {
				cl := r.dial()
				cl.send(post(fmt.Sprint("held-", i), b))
				clients = append(clients, cl)
			}
			r.waiting("m", len(c.held))
			for i := range 2 {
				over := r.dial()
				over.send(post(fmt.Sprint("over-", i), c.above))
				got := over.answer("POST")
				expectError(t, got, 503, "hold_full", "hold_")
				if got.Header.Get("Retry-After") != "10" {
					t.Errorf("Retry-After %q", got.Header.Get("Retry-After"))
				}
				over.alive()
				if rec := r.record(fmt.Sprint("over-", i)); rec.Hold != dataplane.HoldFull || rec.HeldSeconds != 0 || rec.Status != 503 {
					t.Errorf("record %+v", rec)
				}
			}
			r.publish(r.nodes...)
			for _, cl := range clients {
				if got := cl.answer("POST"); got.body != "good" {
					t.Errorf("got %d %q", got.StatusCode, got.body)
				}
			}
			r.held("m", map[dataplane.HoldOutcome]uint64{dataplane.HoldSent: uint64(len(c.held)), dataplane.HoldFull: 2})
			r.settled()
		})
	}
}

// TestHoldsEnd: without a node a wait ends in time, whichever time that is; and so
// it does when the nodes that come serve something else.
func TestHoldsEnd(t *testing.T) {
	const limit = 200 * time.Millisecond
	for _, c := range []struct {
		name   string
		set    func(*dataplane.Settings)
		how    dataplane.HoldOutcome
		status int
		code   string
	}{
		{"hold_time", func(s *dataplane.Settings) { s.HoldNs = int64(limit) }, dataplane.HoldLate, 503, "no_node_in_time"},
		{"timeouts.request", func(s *dataplane.Settings) { s.RequestNs = int64(limit) }, dataplane.HoldTimeout, 504, "timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := zero(t, setup{set: c.set})
			cl := r.dial()
			attempts := within(t, limit, slack, func(id string) time.Duration {
				began := time.Now()
				cl.send(post(id, chatBody))
				got := cl.answer("POST")
				took := time.Since(began)
				expectError(t, got, c.status, c.code, "")
				if wait := got.Header.Get("Retry-After"); (wait != "") != (c.status == 503) {
					t.Errorf("Retry-After %q", wait)
				}
				if rec := r.record(id); rec.Hold != c.how || rec.Status != c.status || rec.HeldSeconds == 0 {
					t.Errorf("record %+v", rec)
				}
				return took
			})
			r.held("m", map[dataplane.HoldOutcome]uint64{c.how: uint64(attempts)})
			r.settled()
		})
	}
	t.Run("another model comes", func(t *testing.T) {
		r := start(t, setup{noModels: true}, startNode(t, "a", answers(ok("good"))))
		r.publishWith(func(s *fleet.Snapshot) { s.Models, s.Expected = nil, true })
		cl := r.dial()
		cl.send(post("refused", strings.Replace(chatBody, `"m"`, `"x"`, 1)))
		r.waiting("", 1)
		r.publish(r.nodes...)
		expectError(t, cl.answer("POST"), 404, "model_not_found", "x")
		if rec := r.record("refused"); rec.Hold != dataplane.HoldRefused || rec.Status != 404 {
			t.Errorf("record %+v", rec)
		}
		r.held("", map[dataplane.HoldOutcome]uint64{dataplane.HoldRefused: 1})
	})
	t.Run("nothing is expected any more", func(t *testing.T) { // as of a node that has come and is not ready
		r := zero(t, setup{}, startNode(t, "a", answers(ok("good"))))
		cl := r.dial()
		cl.send(post("waits", chatBody))
		r.waiting("m", 1)
		r.publish(r.as(0, fleet.Joining))
		r.publish(r.as(0, fleet.Warming))
		r.d.HoldLoop()()
		r.waiting("m", 1)
		r.publish(r.nodes...)
		if got := cl.answer("POST"); got.body != "good" {
			t.Errorf("got %d %q", got.StatusCode, got.body)
		}
	})
}

// TestHeldClientsLeave: they are forgotten at once.
func TestHeldClientsLeave(t *testing.T) {
	r := zero(t, setup{set: window}, startNode(t, "a", answers(ok("good"))))
	body := longBody(300_000)
	var clients []*client
	for i, request := range []string{
		post("all", chatBody),
		post("begun", body)[:100_000], // its client is not read while it waits
		post("ahead", chatBody) + post("next", chatBody),
		post("stays", chatBody),
	} {
		cl := r.dial()
		cl.send(request)
		clients = append(clients, cl)
		r.waiting("m", i+1)
	}
	for i, cl := range clients[:3] {
		if i == 0 {
			_ = cl.CloseWrite() // as good as gone
		} else {
			_ = cl.Close()
		}
		r.waiting("m", 3-i)
	}
	for _, id := range []string{"all", "begun", "ahead"} {
		if rec := r.record(id); rec.Hold != dataplane.HoldLeft || rec.Status != 499 {
			t.Errorf("record %+v", rec)
		}
	}
	eventually(t, "one request under way", func() bool { return r.d.Active() == 1 })
	r.publish(r.nodes...)
	if got := clients[3].answer("POST"); got.body != "good" {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
	r.held("m", map[dataplane.HoldOutcome]uint64{dataplane.HoldLeft: 3, dataplane.HoldSent: 1})
	r.settled()
}

// TestHeldWhenTheRouterEnds: nobody is made to wait for a node by a process that
// ends, be it that another takes over or that it is stopped.
func TestHeldWhenTheRouterEnds(t *testing.T) {
	ends := map[string]func(*router){
		"drained": func(r *router) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if left := r.d.Drain(ctx, time.Second); left != 0 {
				r.t.Errorf("%d requests left", left)
			}
		},
		"stopped": func(r *router) {
			if err := r.d.Stop(); err != nil {
				r.t.Error(err)
			}
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			r := zero(t, setup{loops: 2})
			var clients []*client
			for i := range 10 {
				cl := r.dial()
				cl.send(post(fmt.Sprint("held-", i), chatBody))
				clients = append(clients, cl)
			}
			r.waiting("m", len(clients))
			done := make(chan struct{})
			go func() { defer close(done); end(r) }()
			for _, cl := range clients {
				got := cl.answer("POST")
				expectError(t, got, 503, "stopping", "")
				if got.Header.Get("Retry-After") != "1" || !got.Close {
					t.Errorf("Retry-After %q, close %v", got.Header.Get("Retry-After"), got.Close)
				}
			}
			<-done
		})
	}
	t.Run("asked while it drains", func(t *testing.T) {
		r := zero(t, setup{})
		cl := r.dial()
		cl.alive()
		drained := make(chan int64)
		go func() { drained <- r.d.Drain(t.Context(), time.Second) }()
		eventually(t, "draining", r.d.Draining)
		cl.send(post("late", chatBody))
		expectError(t, cl.answer("POST"), 503, "stopping", "")
		if left := <-drained; left != 0 {
			t.Errorf("%d requests left", left)
		}
		r.held("m", nil)
	})
}

// TestWhatComesWhileARequestIsHeld: the rest of its body, and requests behind it.
func TestWhatComesWhileARequestIsHeld(t *testing.T) {
	body := longBody(300_000)
	for name, c := range map[string]struct{ begin, rest string }{
		"the rest of a long body":  {postHead("one", lengthOf(body)) + body[:100_000], body[100_000:]},
		"the rest of one in parts": {postHead("one", "Transfer-Encoding: chunked\r\n") + chunk(body[:100_000]), chunk(body[100_000:]) + "0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			a, begun := partly(t, "a")
			r := zero(t, setup{set: window}, a)
			cl := r.dial()
			cl.send(c.begin)
			r.waiting("m", 1)
			cl.send(c.rest + post("two", chatBody))
			r.d.HoldLoop()() // what can be read was
			if b := r.d.Held().Request; b >= len(body) {
				t.Errorf("%d bytes of the body are held, though it was begun only", b)
			}
			r.publish(r.nodes...)
			arrives(t, begun)
			if got := cl.answer("POST"); got.body != fmt.Sprint(len(body)) {
				t.Errorf("got %d %q, want a body of %d bytes", got.StatusCode, got.body, len(body))
			}
			arrives(t, begun)
			if got := cl.answer("POST"); got.body != fmt.Sprint(len(chatBody)) {
				t.Errorf("the next got %d %q", got.StatusCode, got.body)
			}
			if seen := a.requests(); len(seen) != 2 || seen[0].body != body || seen[1].body != chatBody {
				t.Errorf("the node saw %d requests, or not those", len(seen))
			}
			r.settled()
		})
	}
	t.Run("Expect: 100-continue", func(t *testing.T) {
		r := zero(t, setup{}, startNode(t, "a", answers(ok("good"))))
		cl := r.dial()
		cl.send(postHead("polite", lengthOf(chatBody)+"Expect: 100-continue\r\n"))
		if got := cl.answer("POST"); got.StatusCode != http.StatusContinue {
			t.Fatalf("got %d", got.StatusCode)
		}
		cl.send(chatBody)
		r.waiting("m", 1)
		r.publish(r.nodes...)
		if got := cl.answer("POST"); got.body != "good" {
			t.Errorf("got %d %q", got.StatusCode, got.body)
		}
	})
}
