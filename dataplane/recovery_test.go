package dataplane_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"warmpath/dataplane"
	"warmpath/dataplane/backend"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
)

// outcome is what becomes of a request whose first node fails.
type outcome struct {
	status  int
	body    string // part of it
	tries   string
	outcome backend.Class
}

// moved is what becomes of one that another node answers.
func moved(class backend.Class) outcome {
	return outcome{200, "good", "a:" + class.String() + " b:ok", backend.OK}
}

// stays is what becomes of one that no other node may be asked for.
func stays(status int, body string, class backend.Class) outcome {
	return outcome{status, body, "a:" + class.String(), class}
}

// same is what becomes of one that the same node answers on a fresh connection.
var same = outcome{200, "good", "a:ok", backend.OK}

// failure is one way in which a node fails before a byte of its answer went to
// the client.
type failure struct {
	name     string
	node     func(*conn) // nil: nobody listens
	warm     bool        // it has answered a request on the same connection before …
	gone     bool        // … and has closed it
	streams  bool        // only of streams
	enough   outcome     // while the retry budget lasts
	none     outcome     // when it is used up
	failures int64       // counted on the node
}

var failures = []failure{
	{name: "unsent: the idle connection was closed before", node: hangsUp, warm: true, gone: true, enough: same, none: same},
	{name: "stale: the idle connection is closed under the request", node: takesAndHangsUp, warm: true, enough: same, none: same},
	{name: "refused", enough: moved(backend.Refused), none: moved(backend.Refused), failures: 1},
	{name: "reset", node: resets, enough: moved(backend.Reset), none: moved(backend.Reset), failures: 1},
	{name: "closed before a byte", node: closes, enough: moved(backend.Reset), none: moved(backend.Reset), failures: 1},
	{name: "closed within the head", node: saysAndCloses("HTTP/1.1 200 OK\r\nConte"), enough: moved(backend.Reset), none: moved(backend.Reset), failures: 1},
	{name: "closed after a 100", node: saysAndCloses("HTTP/1.1 100 Continue\r\n\r\n"), enough: moved(backend.Reset), none: moved(backend.Reset), failures: 1},
	{name: "500", node: answers(serverError), enough: moved(backend.Status), none: stays(500, "five", backend.Status), failures: 1},
	{name: "503", node: answers(unavailable), enough: moved(backend.Status), none: stays(503, "busy", backend.Status), failures: 1},
	{name: "not HTTP", node: says("SSH-2.0-x\r\n"), enough: moved(backend.Malformed), none: stays(502, "not HTTP; tried: a", backend.Malformed), failures: 1},
	{name: "closed before the first event", node: saysAndCloses(streamHead + chunk(": ping\n\n")), streams: true, enough: moved(backend.Reset), none: moved(backend.Reset), failures: 1},
	{name: "an error event first", node: answers(streamHead + chunk(errorPayload) + "0\r\n\r\n"), streams: true, enough: moved(backend.ErrorEvent), none: stays(200, "EngineCore", backend.ErrorEvent), failures: 1},
	{name: "no first event in time", node: says(streamHead), streams: true, enough: moved(backend.Silent), none: stays(504, "in time; tried: a", backend.Silent), failures: 1},
}

// hangsUp answers one request and closes; on later connections it is healthy.
func hangsUp(c *conn) {
	if c.n > 0 {
		answersBoth(c)
		return
	}
	c.request()
	c.send(ok("first"))
}

// takesAndHangsUp answers one request, and closes when the next has come.
func takesAndHangsUp(c *conn) {
	if c.n > 0 {
		answersBoth(c)
		return
	}
	c.request()
	c.send(ok("first"))
	c.request()
}

// answersBoth answers streams and others, whichever is asked for.
func answersBoth(c *conn) {
	for {
		seen, more := c.request()
		switch {
		case !more:
			return
		case strings.Contains(seen.body, `"stream":true`):
			c.send(goodStream)
		default:
			c.send(ok("good"))
		}
	}
}

// TestRecovery: each failure before a byte, of streams and others, while the
// retry budget lasts and when it is used up. A request that a dead node has lost
// moves without it.
func TestRecovery(t *testing.T) {
	for i := range failures {
		f := &failures[i]
		for _, stream := range []bool{true, false} {
			if f.streams && !stream {
				continue
			}
			for _, spent := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/stream=%v, budget spent=%v", f.name, stream, spent), func(t *testing.T) { f.run(t, stream, spent) })
			}
		}
	}
}

func (f *failure) run(t *testing.T, stream, spent bool) {
	a, b := startNode(t, "a", f.node), startNode(t, "b", answersBoth)
	r, release := startSpending(t, spent, a, b)
	cl := r.dial()
	if f.warm {
		cl.send(post("warm", chatBody))
		cl.answer("POST")
		if f.gone {
			eventually(t, "the idle connection gone", func() bool { return r.d.Totals().NodeIdle == 0 })
		}
	}
	request, want := chatBody, f.enough
	if stream {
		request = streamed
	}
	if spent {
		want = f.none
	}
	cl.send(post("moves", request))
	got := cl.answer("POST")
	if got.StatusCode != want.status || !strings.Contains(got.body, want.body) || got.err != nil {
		t.Errorf("got %d %q %v, want %d with %q", got.StatusCode, got.body, got.err, want.status, want.body)
	}
	cl.alive()
	rec := r.record("moves")
	if tries(rec) != want.tries || rec.Outcome != want.outcome {
		t.Errorf("record: %s, %v; want %s, %v", tries(rec), rec.Outcome, want.tries, want.outcome)
	}
	if n := r.nodes[0].Load.Failures.Load(); n != f.failures {
		t.Errorf("%d failures counted on the node, want %d", n, f.failures)
	}
	for _, seen := range b.requests() {
		if seen.body != request {
			t.Errorf("the other node got another body: %q", seen.body)
		}
	}
	release()
	r.settled()
}

// startSpending starts a router before the nodes of model m. With spent as many
// retries are under way as the budget allows, until release.
func startSpending(t *testing.T, spent bool, nodes ...*node) (r *router, release func()) {
	t.Helper()
	held := make(chan struct{})
	sick := startNode(t, "sick", answers(unavailable))
	slow := startNode(t, "slow", func(c *conn) {
		c.request()
		<-held
		c.send(ok("late"))
		c.gone()
	})
	r = start(t, setup{set: func(s *dataplane.Settings) { s.RetryBudget, s.FirstEventNs = 0, 150*ms }}, append(slices.Clone(nodes), sick, slow)...)
	s := *r.holder.Load()
	m, other := fleet.Model{Name: "m", UnitTokens: 16}, fleet.Model{Name: "other", UnitTokens: 16, Slots: []int{len(nodes), len(nodes) + 1}}
	for slot := range nodes {
		m.Slots = append(m.Slots, slot)
	}
	s.Models = []fleet.Model{m, other}
	r.holder.Store(s.Seal())
	if !spent {
		return r, func() {}
	}
	const allowed = 3 // however small the budget
	var waiting []*client
	for i := range allowed {
		c := r.dial()
		c.send(post(fmt.Sprintf("spends-%d", i), `{"model":"other","prompt":"x"}`))
		waiting = append(waiting, c)
	}
	eventually(t, "the budget to be used up", func() bool { return r.d.Retrying() == allowed })
	return r, func() {
		close(held)
		for _, c := range waiting {
			if got := c.answer("POST"); got.body != "late" {
				t.Errorf("a retry got %d %q", got.StatusCode, got.body)
			}
		}
	}
}

// TestMovesOnceWithoutBudget: a request that a dead node has lost moves once
// without the budget, and one that has seen two nodes die goes to no third.
func TestMovesOnceWithoutBudget(t *testing.T) {
	none := (func(*conn))(nil)
	for _, c := range []struct {
		name    string
		request string
		nodes   []func(*conn)
		spent   bool
		want    outcome
	}{
		{"dead, dead", chatBody, []func(*conn){resets, none, answersBoth}, true, outcome{502, "tried: n0, n1", "n0:reset n1:refused", backend.Refused}},
		{"dead, dead, with budget", streamed, []func(*conn){none, closes, answersBoth}, false, outcome{502, "tried: n0, n1", "n0:refused n1:reset", backend.Reset}},
		{"dead, sick", chatBody, []func(*conn){none, answers(unavailable), answersBoth}, true, outcome{503, "busy", "n0:refused n1:status", backend.Status}},
		{"dead, sick, with budget", chatBody, []func(*conn){none, answers(unavailable), answersBoth}, false, outcome{200, "good", "n0:refused n1:status n2:ok", backend.OK}},
		{"dead, silent", streamed, []func(*conn){resets, hangs, answersBoth}, true, outcome{504, "tried: n0, n1", "n0:reset n1:silent", backend.Silent}},
		{"sick, dead, with budget", chatBody, []func(*conn){answers(unavailable), resets, answersBoth}, false, outcome{200, "good", "n0:status n1:reset n2:ok", backend.OK}},
		{"sick, dead", chatBody, []func(*conn){answers(unavailable), resets, answersBoth}, true, outcome{503, "busy", "n0:status", backend.Status}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var nodes []*node
			for i, script := range c.nodes {
				nodes = append(nodes, startNode(t, fmt.Sprintf("n%d", i), script))
			}
			r, release := startSpending(t, c.spent, nodes...)
			cl := r.dial()
			cl.send(post("lost", c.request))
			if got := cl.answer("POST"); got.StatusCode != c.want.status || !strings.Contains(got.body, c.want.body) {
				t.Errorf("got %d %q, want %d with %q", got.StatusCode, got.body, c.want.status, c.want.body)
			}
			if rec := r.record("lost"); tries(rec) != c.want.tries || rec.Outcome != c.want.outcome {
				t.Errorf("record: %s, %v; want %s, %v", tries(rec), rec.Outcome, c.want.tries, c.want.outcome)
			}
			release()
			r.settled()
		})
	}
}

// TestAlternativesInOrder: what is tried next is what the decision has next,
// whatever the slots.
func TestAlternativesInOrder(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1}, {1, 3, 0, 2}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			var nodes []*node
			for i := range order {
				nodes = append(nodes, startNode(t, fmt.Sprintf("n%d", i), answers(unavailable)))
			}
			r := start(t, setup{
				set:  func(s *dataplane.Settings) { s.Retries, s.RetryBudget = 3, 1 },
				node: func(slot int, n *fleet.Node) { n.RoundTripSeconds.Value = float64(slices.Index(order, slot)) * 100 },
			}, nodes...)
			cl := r.dial()
			cl.send(post("order", chatBody))
			cl.answer("POST")
			rec := r.record("order")
			var tried, decided, want []string
			for i, try := range rec.Tries {
				tried = append(tried, try.Node)
				decided = append(decided, rec.Candidates[i].Node)
				want = append(want, nodes[order[i]].name)
			}
			if len(tried) != len(order) || !slices.Equal(tried, decided) || !slices.Equal(tried, want) {
				t.Errorf("tried %v; decided %v; want %v", tried, decided, want)
			}
			if rec.First == policy.ReasonRetry || rec.Reason != policy.ReasonRetry {
				t.Errorf("reasons %v, %v", rec.First, rec.Reason)
			}
			r.settled()
		})
	}
}

// TestAlternativesThatLeft: one that takes no requests any more when its turn
// comes is passed over, and so is one that is full.
func TestAlternativesThatLeft(t *testing.T) {
	for name, change := range map[string]func(*fleet.Node){
		"draining":     func(n *fleet.Node) { n.State = fleet.Draining },
		"down":         func(n *fleet.Node) { n.State = fleet.Down },
		"breaker open": func(n *fleet.Node) { n.Breaker = fleet.Open },
		"another one":  func(n *fleet.Node) { n.Generation++ },
		"full":         func(n *fleet.Node) { n.MaxInFlight = 1; n.Load = &fleet.Load{}; n.Load.Requests.Store(1) },
	} {
		t.Run(name, func(t *testing.T) {
			there, fail := make(chan struct{}), make(chan struct{})
			a := startNode(t, "a", func(c *conn) {
				c.request()
				close(there)
				<-fail
				c.reset()
			})
			b, c := startNode(t, "b", answers(ok("wrong"))), startNode(t, "c", answers(ok("good")))
			r := start(t, setup{}, a, b, c)
			cl := r.dial()
			cl.send(post("left", chatBody))
			<-there
			left := *r.nodes[1]
			change(&left)
			r.publish(r.nodes[0], &left, r.nodes[2])
			close(fail)
			if got := cl.answer("POST"); got.body != "good" {
				t.Errorf("got %d %q", got.StatusCode, got.body)
			}
			if rec := r.record("left"); tries(rec) != "a:reset c:ok" {
				t.Errorf("tries %s", tries(rec))
			}
			r.settled()
		})
	}
}

// TestAlternativesBeyondTheBest: of many candidates only the best are kept. When all of
// them are gone, the others are tried, those that have the model and the least to do
// first.
func TestAlternativesBeyondTheBest(t *testing.T) {
	const many = policy.Ordered + 4
	there, fail := make(chan struct{}), make(chan struct{})
	nodes := []*node{startNode(t, "first", func(c *conn) {
		c.request()
		close(there)
		<-fail
		c.reset()
	})}
	for i := 1; i < many; i++ {
		says := map[bool]string{true: "good", false: "wrong"}[i == many-2]
		nodes = append(nodes, startNode(t, fmt.Sprintf("n%02d", i), answers(ok(says))))
	}
	r := start(t, setup{node: func(slot int, n *fleet.Node) {
		n.RoundTripSeconds.Value = float64(slot) * 100
		if slot >= policy.Ordered && slot != many-2 {
			n.Load.Requests.Store(5)
		}
		if slot == many-1 {
			n.MaxModelLen = 1
			n.Load.Requests.Store(0)
		}
	}}, nodes...)
	cl := r.dial()
	cl.send(post("far", chatBody))
	<-there
	later := slices.Clone(r.nodes)
	for i := range policy.Ordered {
		gone := *later[i]
		gone.State = fleet.Down
		later[i] = &gone
	}
	r.publish(later...)
	close(fail)
	if got := cl.answer("POST"); got.body != "good" {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
	if rec := r.record("far"); tries(rec) != fmt.Sprintf("first:reset n%02d:ok", many-2) || rec.Considered != many-1 || len(rec.Candidates) != policy.Ordered {
		t.Errorf("tries %s of %d candidates, %d kept", tries(rec), rec.Considered, len(rec.Candidates))
	}
	for slot := range r.nodes { // what was made up
		if slot >= policy.Ordered && slot < many-2 {
			r.nodes[slot].Load.Requests.Store(0)
		}
	}
	r.settled()
}

// TestWhatClientsKeep: an answer that breaks off is never tried elsewhere, with
// as much budget as there may be, and what came of it is what its node sent.
func TestWhatClientsKeep(t *testing.T) {
	long := strings.Repeat("0123456789", 2000)
	for name, c := range map[string]struct{ request, head, sends string }{
		"stream":         {streamed, streamHead, chunk(event("one")) + chunk(event(long)) + chunk(event("three"))},
		"stream, halves": {streamed, streamHead, chunk(event("one")) + "fff\r\ndata: {" + long[:500]},
		"length":         {chatBody, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", long},
		"chunked":        {chatBody, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk(long) + "10\r\nhalf"},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan struct{})
			a := startNode(t, "a", func(n *conn) {
				n.request()
				n.send(c.head)
				for rest := c.sends; rest != ""; { // many small reads at the router
					k := min(len(rest), 700)
					n.send(rest[:k])
					rest = rest[k:]
				}
				<-got
				n.reset()
			})
			b := startNode(t, "b", answersBoth)
			r := start(t, setup{set: func(s *dataplane.Settings) { s.RetryBudget, s.Retries = 1, 3 }}, a, b)
			cl := r.dial()
			cl.send(post("keeps", c.request))
			skipHead(t, cl)
			kept := make([]byte, len(c.sends))
			if _, err := io.ReadFull(cl.r, kept); err != nil || string(kept) != c.sends {
				t.Errorf("the client got other bytes than the node sent, or %v", err)
			}
			close(got)
			if rest, err := io.ReadAll(cl.r); err == nil || isTimeout(err) || len(rest) > 0 {
				t.Errorf("the answer ended with %q and %v, want a reset", rest, err)
			}
			if rec := r.record("keeps"); tries(rec) != "a:mid_stream" || rec.Outcome != backend.MidStream {
				t.Errorf("record: %s, %v", tries(rec), rec.Outcome)
			}
			if len(b.requests()) != 0 || len(r.d.Totals().Retries) != 0 {
				t.Error("another node was asked")
			}
			r.settled()
		})
	}
}

// TestHintsAreNoAnswer: a 103 that went to the client is no part of an answer
// (RFC 9110, section 15.2): another node may still give it.
func TestHintsAreNoAnswer(t *testing.T) {
	a := startNode(t, "a", saysAndCloses("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"))
	b := startNode(t, "b", answers(ok("good")))
	r := start(t, setup{}, a, b)
	cl := r.dial()
	cl.send(post("hints", chatBody))
	if hints, err := http.ReadResponse(cl.r, nil); err != nil || hints.StatusCode != http.StatusEarlyHints {
		t.Fatalf("got %+v, %v", hints, err)
	}
	if got := cl.answer("POST"); got.StatusCode != 200 || got.body != "good" {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
	if rec := r.record("hints"); tries(rec) != "a:reset b:ok" {
		t.Errorf("tries %s", tries(rec))
	}
	r.settled()
}

// TestStaleNodeLeft: a node closes an idle connection under a request because it
// leaves the fleet. There is nobody to be asked again: the next alternative is.
func TestStaleNodeLeft(t *testing.T) {
	for _, spent := range []bool{false, true} {
		t.Run(fmt.Sprintf("budget spent=%v", spent), func(t *testing.T) {
			there, leave := make(chan struct{}), make(chan struct{})
			a := startNode(t, "a", func(c *conn) {
				c.request()
				c.send(ok("first"))
				c.request()
				close(there)
				<-leave
			})
			b := startNode(t, "b", answersBoth)
			r, release := startSpending(t, spent, a, b)
			cl := r.dial()
			cl.send(post("warm", chatBody))
			cl.answer("POST")
			cl.send(post("left", chatBody))
			<-there
			now := *r.holder.Load()
			now.Nodes = slices.Clone(now.Nodes)
			now.Nodes[0] = nil
			now.Models = slices.Clone(now.Models)
			now.Models[0].Slots = []int{1}
			r.holder.Store(now.Seal())
			close(leave)
			if got := cl.answer("POST"); got.StatusCode != 200 || got.body != "good" {
				t.Errorf("got %d %q", got.StatusCode, got.body)
			}
			if rec := r.record("left"); tries(rec) != "a:stale b:ok" {
				t.Errorf("tries %s", tries(rec))
			}
			release()
			r.settled()
		})
	}
}
