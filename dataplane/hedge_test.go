package dataplane_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
)

const hedgeNs = int64(75e6)

// hedging turns hedging on, and then sets what else there is.
func hedging(more func(*dataplane.Settings)) func(*dataplane.Settings) {
	return func(s *dataplane.Settings) {
		s.HedgeNs = hedgeNs
		if more != nil {
			more(s)
		}
	}
}

// prefillsAtOnce makes every prompt worth a hedge.
func prefillsAtOnce(_ int, n *fleet.Node) {
	n.PrefillTokensPerSecond = fleet.Gauge{Value: 1e12, Known: true}
}

// pass waits until so much time has passed.
func (r *router) pass(ns int64) {
	then := r.d.NowNs() + ns
	eventually(r.t, "time to pass", func() bool { return r.d.NowNs() > then })
}

// hedged is true when the second node has a request.
func hedged(r *router, n []*node) bool { return len(n[1].requests()) > 0 }

// TestNoHedge: when a silent request is left to its node.
func TestNoHedge(t *testing.T) {
	const long = `{"model":"m","stream":true,"messages":[{"role":"user","content":"hello hello"}]}`
	slow := func(slot int, n *fleet.Node) { // 2 tokens take longer than any test
		if slot == 1 {
			n.PrefillTokensPerSecond = fleet.Gauge{Value: .01, Known: true}
		}
	}
	busy := func(slot int, n *fleet.Node) {
		if slot == 1 {
			n.Load.PrefillTokens.Add(1 << 30)
		}
	}
	for _, c := range []struct {
		name    string
		set     func(*dataplane.Settings)
		node    func(int, *fleet.Node)
		request string
		nodes   int
	}{
		{"it is off", func(s *dataplane.Settings) { s.HedgeNs = 0 }, nil, post("no", streamed), 2},
		{"not a stream", nil, nil, post("no", chatBody), 2},
		{"not asked for a stream, and answered with one", nil, nil, post("no", strings.Replace(chatBody, "hello", "unasked", 1)), 2},
		{"not a prompt", nil, nil, strings.Replace(post("no", streamed), "/v1/chat/completions", "/v1/audio/speech", 1), 2},
		{"no other node", nil, nil, post("no", streamed), 1},
		{"the other prefills too slowly", nil, slow, post("no", streamed), 2},
		{"the other has too much to prefill", nil, busy, post("no", streamed), 2},
		{"the other is full", nil, func(slot int, n *fleet.Node) {
			if slot == 1 {
				n.MaxInFlight = 1
				n.Load.Requests.Add(1)
			}
		}, post("no", streamed), 2},
		{"the body is not held", func(s *dataplane.Settings) { s.RetryBodyBytes = 10 }, nil, post("no", long), 2},
		{"no tries are left", func(s *dataplane.Settings) { s.Retries = 0 }, nil, post("no", streamed), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			begin, answer := "", ok("first")
			switch {
			case strings.Contains(c.request, `"stream":true`):
				answer = first
			case strings.Contains(c.request, "unasked"):
				begin, answer = pings, strings.TrimPrefix(first, streamHead)
			}
			var nodes []*node
			release := make(chan struct{})
			for i := range c.nodes {
				nodes = append(nodes, startNode(t, fmt.Sprintf("n%d", i), func(n *conn) {
					n.request()
					n.send(begin)
					<-release
					sends(answer)(n)
				}))
			}
			r := start(t, setup{set: hedging(c.set), node: c.node}, nodes...)
			cl := r.dial()
			cl.send(c.request)
			r.pass(4 * hedgeNs)
			close(release)
			if got := cl.answer("POST"); got.StatusCode != 200 || !strings.Contains(got.body, "first") {
				t.Errorf("got %d %q", got.StatusCode, got.body)
			}
			if rec := r.record("no"); tries(rec) != "n0:ok" || r.d.Totals().Hedges != 0 {
				t.Errorf("tries %s, %d hedges", tries(rec), r.d.Totals().Hedges)
			}
			for _, n := range r.nodes { // what the test itself has raised
				n.Load.PrefillTokens.Store(n.Load.PrefillTokens.Load() &^ (1 << 30))
				if n.MaxInFlight > 0 {
					n.Load.Requests.Add(-1)
				}
			}
			r.settled()
		})
	}
}

// TestNoHedgeBeforeSent: a node that does not take the whole request is not late
// with its answer; it has a time-out of its own.
func TestNoHedgeBeforeSent(t *testing.T) {
	n0 := startNode(t, "n0", func(*conn) { <-t.Context().Done() })
	n1 := startNode(t, "n1", answers(second))
	r := start(t, setup{
		set: hedging(func(s *dataplane.Settings) {
			s.RetryBodyBytes, s.IdleStreamNs = 8<<20, 5*hedgeNs
		}),
		node: prefillsAtOnce,
	}, n0, n1)
	cl := r.dial()
	cl.send(post("unsent", strings.Replace(prompt2("long", 7<<20), `"model"`, `"stream":true,"model"`, 1)))
	if got := cl.answer("POST"); !strings.Contains(got.body, "second") {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
	r.settled()
	if rec, hedges := r.record("unsent"), r.d.Totals().Hedges; tries(rec) != "n0:silent n1:ok" || hedges != 0 {
		t.Errorf("tries %s, %d hedges", tries(rec), hedges)
	}
}

// TestHedgeWaitsUntilWorthIt: a node is not asked before the request has waited
// for as long as that one is predicted to need, by its load at that time.
func TestHedgeWaitsUntilWorthIt(t *testing.T) {
	rate := func(of ...float64) func(int, *fleet.Node) { // tokens a second, by slot
		return func(slot int, n *fleet.Node) { n.PrefillTokensPerSecond = fleet.Gauge{Value: of[slot], Known: true} }
	}
	auto := func(s *dataplane.Settings) { s.HedgeAuto = true }
	for _, c := range []struct {
		name  string
		set   func(*dataplane.Settings)
		node  func(int, *fleet.Node)
		least time.Duration
	}{
		{"own prefill", nil, rate(1e6, 5), 400 * time.Millisecond},
		{"auto: twice what is predicted", auto, rate(10, 1e6), 400 * time.Millisecond},
		{"auto: at least so much", auto, rate(1e6, 1e6), time.Duration(hedgeNs)},
	} {
		t.Run(c.name, func(t *testing.T) {
			came := make(chan time.Time, 2)
			script := func(n *conn) {
				n.request()
				came <- time.Now()
				if n.node.name == "n1" {
					n.send(second)
				}
				n.gone()
			}
			r := start(t, setup{set: hedging(c.set), node: c.node}, startNode(t, "n0", script), startNode(t, "n1", script))
			cl := r.dial()
			began := time.Now()
			cl.send(post("later", streamed)) // two tokens
			if got := cl.answer("POST"); !strings.Contains(got.body, "second") {
				t.Errorf("got %d %q", got.StatusCode, got.body)
			}
			<-came
			if waited := (<-came).Sub(began); waited < c.least || waited > c.least+2*time.Second {
				t.Errorf("the second node was asked after %v, want %v", waited, c.least)
			}
			r.settled()
		})
	}
}

// TestHedgeGoesByLoadsAsNow: what was queued at the decision does not matter, what
// is queued now does.
func TestHedgeGoesByLoadsAsNow(t *testing.T) {
	n0, n1 := startNode(t, "n0", hangs), startNode(t, "n1", answers(second))
	r := start(t, setup{set: hedging(nil)}, n0, n1)
	load := r.nodes[1].Load
	load.PrefillTokens.Add(1 << 30)
	cl := r.dial()
	cl.send(post("now", streamed))
	r.pass(3 * hedgeNs)
	if len(n1.requests()) > 0 {
		t.Error("a node with much queued was asked")
	}
	load.PrefillTokens.Add(-1 << 30)
	if got := cl.answer("POST"); !strings.Contains(got.body, "second") {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
	r.settled()
}

// TestHedgeBudget: a hedge is a try that the retry budget pays for.
func TestHedgeBudget(t *testing.T) {
	const many = 8
	release := make(chan struct{})
	n0 := startNode(t, "n0", func(c *conn) {
		c.request()
		<-release
		sends(first)(c)
	})
	n1 := startNode(t, "n1", hangs)
	r := start(t, setup{set: hedging(func(s *dataplane.Settings) { s.RetryBudget = 0 })}, n0, n1)
	var clients []*client
	for i := range many {
		c := r.dial()
		c.send(post(fmt.Sprint("budget-", i), streamed))
		clients = append(clients, c)
	}
	eventually(t, "three hedges, and the others refused", func() bool {
		return len(n0.requests()) == many && len(n1.requests()) == 3 && r.d.Retrying() == 3 && r.d.Totals().BudgetEmpty >= many-3
	})
	close(release)
	for _, c := range clients {
		if got := c.answer("POST"); !strings.Contains(got.body, "first") {
			t.Errorf("got %d %q", got.StatusCode, got.body)
		}
	}
	r.settled()
	if totals := r.d.Totals(); totals.Hedges != 3 || totals.HedgesWon != 0 {
		t.Errorf("%d hedges, %d won", totals.Hedges, totals.HedgesWon)
	}
}

// TestHedgeNotes: a node is expected to hold a prompt once it is known to have
// it, not while another may answer before it.
func TestHedgeNotes(t *testing.T) {
	body := strings.Replace(prompt2("noted", 8<<10), `"model"`, `"stream":true,"model"`, 1)
	for _, won := range []bool{true, false} {
		t.Run(fmt.Sprint("won ", won), func(t *testing.T) {
			asked := make(chan struct{})
			n0 := startNode(t, "n0", func(c *conn) {
				c.request()
				if won {
					c.gone()
					return
				}
				<-asked
				sends(first)(c)
			})
			n1 := startNode(t, "n1", func(c *conn) {
				c.request()
				close(asked)
				if won {
					c.send(second)
				}
				c.gone()
			})
			r := start(t, setup{
				set:  hedging(nil),
				node: prefillsAtOnce,
			}, n0, n1)
			c := r.dial()
			c.send(post("noted", body))
			c.answer("POST")
			r.settled()
			held := map[string]bool{}
			eventually(t, "the notes to be applied", func() bool {
				rec, err := r.d.Explain("/v1/chat/completions", []byte(body))
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range rec.Candidates {
					held[c.Node] = c.MatchedTokens > 0
				}
				return held["n0"]
			})
			if held["n1"] != won {
				t.Errorf("the rival's node is expected to hold the prompt: %v", held["n1"])
			}
		})
	}
}
