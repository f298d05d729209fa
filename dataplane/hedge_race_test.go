package dataplane_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/backend"
	"warmpath/dataplane/policy"
)

// blamed is true when the node of the slot has failed.
func blamed(slot int) func(*router, []*node) bool {
	return func(r *router, _ []*node) bool { return r.nodes[slot].Load.Failures.Load() > 0 }
}

// gates open when the two conditions of a raceCase are met, in turn.
type gates [2]chan struct{}

const ( // when a script goes on
	atOnce = iota
	one
	two
)

// then reads a request, waits for a gate and does something else.
func then(gate int, does func(*conn)) func(*conn, gates) {
	return func(c *conn, g gates) {
		c.request()
		if gate != atOnce {
			<-g[gate-1]
		}
		does(c)
	}
}

func sends(text string) func(*conn) {
	return func(c *conn) {
		c.send(text)
		c.gone()
	}
}

func waits(c *conn) { c.gone() }

func ends(*conn) {}

func breaks(c *conn) { c.reset() }

const (
	tooMany = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nbusy"
	pings   = streamHead + "8\r\n: ping\n\n\r\n"
)

var (
	first  = streamHead + chunk(event("first")) + "0\r\n\r\n"
	second = streamHead + chunk(event("second")+`data: {"usage":{"completion_tokens":7}}`+"\n\n") + "0\r\n\r\n"
	third  = streamHead + chunk(event("third")) + "0\r\n\r\n"
)

// raceCase is what the nodes do in turn, and when.
type raceCase struct {
	name    string
	set     func(*dataplane.Settings)
	nodes   []func(*conn, gates) // nil: not reachable
	one     func(*router, []*node) bool
	two     func(*router, []*node) bool
	status  int
	body    string
	tries   string
	outcome backend.Class
	won     uint64
}

var raceCases = []raceCase{
	{"the rival wins", nil, []func(*conn, gates){then(atOnce, waits), then(atOnce, sends(second))}, nil, nil, 200, "second", "n0:outrun n1:ok", backend.OK, 1},
	{"the rival wins, the first has sent a head", nil, []func(*conn, gates){then(atOnce, sends(pings)), then(atOnce, sends(second))}, nil, nil, 200, "second", "n0:outrun n1:ok", backend.OK, 1},
	{"the rival wins with a stream that its connection ends", nil, []func(*conn, gates){then(atOnce, waits), then(atOnce, func(c *conn) {
		c.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: second\n\n")
	})}, nil, nil, 200, "second", "n0:outrun n1:ok", backend.OK, 1},
	{"the rival wins with half an event that its connection ends", nil, []func(*conn, gates){then(atOnce, waits), then(atOnce, func(c *conn) {
		c.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: second")
	})}, nil, nil, 200, "second", "n0:outrun n1:ok", backend.OK, 1},
	{"the rival wins with an answer that is no stream", nil, []func(*conn, gates){then(atOnce, sends(pings)), then(atOnce, sends(ok("second")))}, nil, nil, 200, "second", "n0:outrun n1:ok", backend.OK, 1},
	{"the first wins", nil, []func(*conn, gates){then(one, sends(first)), then(atOnce, waits)}, hedged, nil, 200, "first", "n0:ok n1:outrun", backend.OK, 0},
	{"the first wins, the rival has sent a head", nil, []func(*conn, gates){then(one, sends(first)), then(atOnce, sends(pings))}, hedged, nil, 200, "first", "n0:ok n1:outrun", backend.OK, 0},
	{"the first wins with an answer that is no stream", nil, []func(*conn, gates){then(one, sends(ok("first"))), then(atOnce, waits)}, hedged, nil, 200, "first", "n0:ok n1:outrun", backend.OK, 0},
	{"the first wins with 400", nil, []func(*conn, gates){then(one, sends("HTTP/1.1 400 Bad Request\r\nContent-Length: 5\r\n\r\nfirst")), then(atOnce, waits)}, hedged, nil, 400, "first", "n0:ok n1:outrun", backend.OK, 0},

	{"the rival is refused", nil, []func(*conn, gates){then(one, sends(first)), nil}, blamed(1), nil, 200, "first", "n0:ok n1:refused", backend.OK, 0},
	{"the rival is reset", nil, []func(*conn, gates){then(one, sends(first)), then(atOnce, breaks)}, blamed(1), nil, 200, "first", "n0:ok n1:reset", backend.OK, 0},
	{"the rival ends without an answer", nil, []func(*conn, gates){then(one, sends(first)), then(atOnce, ends)}, blamed(1), nil, 200, "first", "n0:ok n1:reset", backend.OK, 0},
	{"the rival ends behind its head", nil, []func(*conn, gates){then(one, sends(first)), then(atOnce, func(c *conn) { c.send(pings) })}, blamed(1), nil, 200, "first", "n0:ok n1:reset", backend.OK, 0},
	{"the rival answers 500", nil, []func(*conn, gates){then(one, sends(first)), then(atOnce, sends(serverError))}, blamed(1), nil, 200, "first", "n0:ok n1:status", backend.OK, 0},
	{"the rival answers 429", nil, []func(*conn, gates){then(one, sends(first)), then(atOnce, func(c *conn) { c.send(tooMany); c.gone() })}, left(1), nil, 200, "first", "n0:ok n1:outrun", backend.OK, 0},
	{"the rival sends an error event", nil, []func(*conn, gates){then(one, sends(first)), then(atOnce, sends(streamHead+chunk(errorPayload)))}, blamed(1), nil, 200, "first", "n0:ok n1:error_event", backend.OK, 0},
	{"the rival sends garbage", nil, []func(*conn, gates){then(one, sends(first)), then(atOnce, sends("SSH-2.0-x\r\n"))}, blamed(1), nil, 200, "first", "n0:ok n1:malformed", backend.OK, 0},
	{"the rival sends a bad chunk", nil, []func(*conn, gates){then(one, sends(first)), then(atOnce, sends(streamHead+"zz\r\n"))}, blamed(1), nil, 200, "first", "n0:ok n1:malformed", backend.OK, 0},

	{"the first is reset", nil, []func(*conn, gates){then(one, breaks), then(two, sends(second))}, hedged, blamed(0), 200, "second", "n0:reset n1:ok", backend.OK, 1},
	{"the first ends behind its head", nil, []func(*conn, gates){func(c *conn, g gates) { c.request(); c.send(pings); <-g[0] }, then(two, sends(second))}, hedged, blamed(0), 200, "second", "n0:reset n1:ok", backend.OK, 1},
	{"the first answers 500", nil, []func(*conn, gates){then(one, sends(serverError)), then(two, sends(second))}, hedged, blamed(0), 200, "second", "n0:status n1:ok", backend.OK, 1},
	{"the first answers 500, no tries are left", func(s *dataplane.Settings) { s.Retries = 1 }, []func(*conn, gates){then(one, sends(serverError)), then(two, sends(second))}, hedged, blamed(0), 200, "second", "n0:status n1:ok", backend.OK, 1},
	{"the first sends an error event", nil, []func(*conn, gates){then(one, sends(streamHead+chunk(errorPayload))), then(two, sends(second))}, hedged, blamed(0), 200, "second", "n0:error_event n1:ok", backend.OK, 1},
	{"the first fails while the rival has sent a head", nil, []func(*conn, gates){then(one, breaks), func(c *conn, g gates) {
		c.request()
		c.send(pings)
		<-g[1]
		c.send(chunk(event("second")), "0\r\n\r\n")
		c.gone()
	}}, hedged, blamed(0), 200, "second", "n0:reset n1:ok", backend.OK, 1},
	{"the first is silent for too long", func(s *dataplane.Settings) { s.FirstEventNs = int64(200e6) }, []func(*conn, gates){then(atOnce, waits), then(one, sends(second))}, blamed(0), nil, 200, "second", "n0:silent n1:ok", backend.OK, 1},

	{"both die", nil, []func(*conn, gates){then(one, breaks), then(two, breaks), then(atOnce, sends(third))}, hedged, blamed(0), 502, "tried: n0, n1", "n0:reset n1:reset", backend.Reset, 1},
	{"both die, the rival first", nil, []func(*conn, gates){then(one, breaks), then(atOnce, breaks), then(atOnce, sends(third))}, blamed(1), nil, 502, "tried: n0, n1", "n0:reset n1:reset", backend.Reset, 0},
	{"both fail, another is good", nil, []func(*conn, gates){then(one, sends(unavailable)), then(two, sends(streamHead+chunk(errorPayload))), then(atOnce, sends(third))}, hedged, blamed(0), 200, "third", "n0:status n1:error_event n2:ok", backend.OK, 1},
	{"both fail, the rival first, another is good", nil, []func(*conn, gates){then(one, breaks), then(atOnce, sends(unavailable)), then(atOnce, sends(third))}, blamed(1), nil, 200, "third", "n0:reset n1:status n2:ok", backend.OK, 0},
	{
		"another hedge is not tried", func(s *dataplane.Settings) { s.Retries = 5 },
		[]func(*conn, gates){then(one, breaks), then(atOnce, sends(unavailable)), then(two, sends(third)), then(atOnce, waits)},
		blamed(1), later, 200, "third", "n0:reset n1:status n2:ok", backend.OK, 0,
	},
	{"both fail, the last 503 is passed on", nil, []func(*conn, gates){then(one, sends(serverError)), then(two, sends(unavailable))}, hedged, blamed(0), 503, "busy", "n0:status n1:status", backend.Status, 1},
	{"both are silent for too long", func(s *dataplane.Settings) { s.FirstEventNs = int64(200e6) }, []func(*conn, gates){then(atOnce, waits), then(atOnce, waits)}, nil, nil, 504, "tried: n0, n1", "n0:silent n1:silent", backend.Silent, 1},
	{"the request takes too long", func(s *dataplane.Settings) { s.RequestNs = int64(250e6) }, []func(*conn, gates){then(atOnce, waits), then(atOnce, waits)}, nil, nil, 504, "timeouts.request", "n0:deadline n1:deadline", backend.Deadline, 0},
}

// later is true when another hedge would have been due for long.
func later(r *router, _ []*node) bool { return r.d.NowNs() > 10*hedgeNs }

// left is true when nothing is under way at a node that had a request.
func left(slot int) func(*router, []*node) bool {
	return func(r *router, n []*node) bool {
		return len(n[slot].requests()) > 0 && r.nodes[slot].Load.Requests.Load() == 0
	}
}

// run serves one request by the case, and returns the router for more to be
// looked at, and the body of the answer.
func (c *raceCase) run(t *testing.T) (*router, string) {
	g := gates{make(chan struct{}), make(chan struct{})}
	var nodes []*node
	for i, script := range c.nodes {
		plain := (func(*conn))(nil)
		if script != nil {
			plain = func(c *conn) { script(c, g) }
		}
		nodes = append(nodes, startNode(t, fmt.Sprintf("n%d", i), plain))
	}
	r := start(t, setup{set: hedging(c.set)}, nodes...)
	cl := r.dial()
	cl.send(post("race", streamed))
	for i, done := range []func(*router, []*node) bool{c.one, c.two} {
		if done != nil {
			eventually(t, fmt.Sprint("condition ", i+1), func() bool { return done(r, nodes) })
		}
		close(g[i])
	}
	got := cl.answer("POST")
	if got.StatusCode != c.status || !strings.Contains(got.body, c.body) || got.err != nil {
		t.Errorf("got %d %q %v, want %d with %q", got.StatusCode, got.body, got.err, c.status, c.body)
	}
	if !got.Close {
		cl.alive()
	}
	r.settled()
	for i, n := range nodes {
		if seen := n.requests(); len(seen) > 1 || len(seen) == 1 && seen[0].body != streamed {
			t.Errorf("n%d saw %d requests", i, len(seen))
		}
	}
	return r, got.body
}

// TestRaces: what becomes of a request that is at two nodes.
func TestRaces(t *testing.T) {
	for _, c := range raceCases {
		t.Run(c.name, func(t *testing.T) {
			r, body := c.run(t)
			rec := r.record("race")
			if tries(rec) != c.tries || rec.Outcome != c.outcome || rec.Status != c.status {
				t.Errorf("record: %s, %v, %d; want %s, %v, %d", tries(rec), rec.Outcome, rec.Status, c.tries, c.outcome, c.status)
			}
			won := c.won > 0 || len(rec.Tries) > 2
			if (rec.Reason == policy.ReasonRetry) != won || rec.First == policy.ReasonRetry {
				t.Errorf("reason %v, first %v", rec.Reason, rec.First)
			}
			if strings.Contains(body, "completion_tokens") && (rec.CompletionTokens != 7 || rec.FirstEventAfter*1e9 < float64(hedgeNs)) {
				t.Errorf("%d tokens, the first event after %v s", rec.CompletionTokens, rec.FirstEventAfter)
			}
			totals := r.d.Totals()
			if totals.Hedges != 1 || totals.HedgesWon != c.won {
				t.Errorf("%d hedges, %d won; want 1, %d", totals.Hedges, totals.HedgesWon, c.won)
			}
			for i, try := range rec.Tries {
				load := r.nodes[i].Load
				if failed := try.Class.Blames(); failed != (load.Failures.Load() == 1) || (load.Successes.Load() == 1) != (try.Class == backend.OK) {
					t.Errorf("%s: %v, yet %d failures and %d successes are counted", try.Node, try.Class, load.Failures.Load(), load.Successes.Load())
				}
			}
		})
	}
}

// TestOutrunIsNoFailure: it neither blames a node nor leads to another try.
func TestOutrunIsNoFailure(t *testing.T) {
	if c := backend.Outrun; c.String() != "outrun" || c.Blames() || c.Lost() || c.Retryable() {
		t.Errorf("%v: blames %v, lost %v, retryable %v", c, c.Blames(), c.Lost(), c.Retryable())
	}
}

// TestClientLeavesRace: both nodes are left at once.
func TestClientLeavesRace(t *testing.T) {
	for name, answer := range map[string]string{"before the heads": "", "behind the heads": pings} {
		t.Run(name, func(t *testing.T) {
			gone := make(chan time.Time, 2)
			script := func(c *conn) {
				c.request()
				c.send(answer)
				if c.gone() {
					gone <- time.Now()
				}
			}
			n := []*node{startNode(t, "n0", script), startNode(t, "n1", script)}
			r := start(t, setup{set: hedging(nil)}, n...)
			c := r.dial()
			c.send(post("leave", streamed))
			eventually(t, "the hedge", func() bool { return hedged(r, n) })
			left := time.Now()
			_ = c.Close()
			for range n {
				if after := (<-gone).Sub(left); after > 100*time.Millisecond {
					t.Errorf("a node was left after %v", after)
				}
			}
			r.settled()
			rec := r.record("leave")
			if tries(rec) != "n0:client_gone n1:client_gone" || rec.Outcome != backend.ClientGone || rec.Status != 499 {
				t.Errorf("record: %s, %v, %d", tries(rec), rec.Outcome, rec.Status)
			}
		})
	}
}

// TestStopEndsRace: the client gets an answer, and both nodes are left.
func TestStopEndsRace(t *testing.T) {
	gone := make(chan bool, 2)
	script := func(c *conn) {
		c.request()
		gone <- c.gone()
	}
	n := []*node{startNode(t, "n0", script), startNode(t, "n1", script)}
	r := start(t, setup{set: hedging(nil)}, n...)
	c := r.dial()
	c.send(post("stop", streamed))
	eventually(t, "the hedge", func() bool { return hedged(r, n) })
	if err := r.d.Stop(); err != nil {
		t.Error(err)
	}
	if got := c.answer("POST"); got.StatusCode != http.StatusServiceUnavailable || !strings.Contains(got.body, "stopping") {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
	for range n {
		if !<-gone {
			t.Error("a node was not left")
		}
	}
	for _, n := range r.nodes {
		if n.Load.Requests.Load() != 0 || n.Load.PrefillTokens.Load() != 0 || n.Load.TotalTokens.Load() != 0 {
			t.Errorf("%s: counters are left over", n.Name)
		}
	}
}

// TestDrainServesRace: what is under way is answered.
func TestDrainServesRace(t *testing.T) {
	release := make(chan struct{})
	n := []*node{startNode(t, "n0", hangs), startNode(t, "n1", func(c *conn) {
		c.request()
		<-release
		sends(second)(c)
	})}
	r := start(t, setup{set: hedging(nil)}, n...)
	c := r.dial()
	c.send(post("drain", streamed))
	eventually(t, "the hedge", func() bool { return hedged(r, n) })
	drained := make(chan int64)
	go func() { drained <- r.d.Drain(t.Context(), time.Second) }()
	eventually(t, "draining", r.d.Draining)
	close(release)
	if got := c.answer("POST"); !strings.Contains(got.body, "second") || !got.Close {
		t.Errorf("got %d %q, close %v", got.StatusCode, got.body, got.Close)
	}
	c.ended()
	_ = c.Close()
	if left := <-drained; left != 0 {
		t.Errorf("%d requests were left", left)
	}
	r.settled()
}

// TestHedgeStaleConnection: the rival's node closes an idle connection; it is asked
// again, and not blamed.
func TestHedgeStaleConnection(t *testing.T) {
	n0 := startNode(t, "n0", func(c *conn) {
		for {
			if _, more := c.request(); !more {
				return
			}
		}
	})
	n1 := startNode(t, "n1", func(c *conn) {
		c.request()
		c.send(second)
		if c.n == 0 {
			c.request()
			return
		}
		c.gone()
	})
	r := start(t, setup{set: hedging(nil)}, n0, n1)
	c := r.dial()
	for i := range 2 {
		c.send(post(fmt.Sprint("stale-", i), streamed))
		if got := c.answer("POST"); !strings.Contains(got.body, "second") {
			t.Fatalf("got %d %q", got.StatusCode, got.body)
		}
	}
	r.settled()
	if rec := r.record("stale-1"); tries(rec) != "n0:outrun n1:ok" || len(n1.requests()) != 3 || r.nodes[1].Load.Failures.Load() != 0 {
		t.Errorf("tries %s, %d requests, %d failures", tries(rec), len(n1.requests()), r.nodes[1].Load.Failures.Load())
	}
}

// TestHedgeLongBody: a body that waits for the rival's node to take it is the
// request's own, whoever has the request in the end.
func TestHedgeLongBody(t *testing.T) {
	body := strings.Replace(prompt2("long", 7<<20), `"model"`, `"stream":true,"model"`, 1)
	for _, c := range []struct {
		name, want, tries string
		n0                func(*conn)              // once the rival's node was asked
		n1                func(*conn, func() bool) // once n0 has failed, if it does; the func takes the body
	}{
		{"the rival wins", "second", "n0:outrun n1:ok", waits, func(c *conn, take func() bool) {
			if c.send(streamHead, chunk(event("second"))); take() {
				c.send("0\r\n\r\n")
			}
			c.gone()
		}},
		{"the first wins", "first", "n0:ok n1:outrun", sends(first), func(c *conn, _ func() bool) { c.gone() }},
		{"the first fails", "second", "n0:reset n1:ok", breaks, func(c *conn, take func() bool) {
			if take() {
				c.send(second)
			}
			c.gone()
		}},
		{"the first fails, and the rival's node takes no more", "did not answer in time", "n0:reset n1:silent", breaks, func(c *conn, _ func() bool) {
			<-t.Context().Done()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked, goOn := make(chan struct{}), make(chan struct{})
			n0 := startNode(t, "n0", func(n *conn) {
				n.request()
				<-asked
				c.n0(n)
			})
			n1 := startNode(t, "n1", func(n *conn) {
				req, err := http.ReadRequest(n.r)
				if err != nil {
					t.Errorf("n1: %v", err)
					return
				}
				close(asked)
				<-goOn
				c.n1(n, func() bool {
					got, err := io.ReadAll(req.Body)
					if err != nil || string(got) != body {
						t.Errorf("n1 got %d bytes of the body, %v", len(got), err)
					}
					return err == nil
				})
			})
			r := start(t, setup{
				set:  hedging(func(s *dataplane.Settings) { s.RetryBodyBytes, s.FirstEventNs, s.IdleStreamNs = 8<<20, 0, int64(2e9) }),
				node: prefillsAtOnce,
			}, n0, n1)
			cl := r.dial()
			cl.send(post("body", body))
			<-asked
			if strings.Contains(c.tries, "reset") {
				eventually(t, "the first to fail", func() bool { return r.nodes[0].Load.Failures.Load() == 1 })
			}
			close(goOn)
			if got := cl.answer("POST"); !strings.Contains(got.body, c.want) || got.err != nil {
				t.Errorf("got %d %q %v", got.StatusCode, got.body, got.err)
			}
			cl.alive()
			r.settled()
			if rec := r.record("body"); tries(rec) != c.tries {
				t.Errorf("tries %s, want %s", tries(rec), c.tries)
			}
		})
	}
}

// TestHedgeConnects: what becomes of a rival that has no connection yet.
func TestHedgeConnects(t *testing.T) {
	for _, c := range []struct {
		name   string
		does   func(*conn) // the first node, once the rival connects
		late   bool        // … and is given up
		body   string
		tries  string
		blamed int64
	}{
		{"it is given up in time", sends(first), true, "first", "n0:ok n1:refused", 1},
		{"the first wins", sends(first), false, "first", "n0:ok n1:outrun", 0},
		{"the first fails", breaks, false, "tried: n0, n1", "n0:reset n1:refused", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			fillQueue(t, ln)
			release := make(chan struct{})
			n0 := startNode(t, "n0", func(n *conn) {
				n.request()
				<-release
				c.does(n)
			})
			r := start(t, setup{set: hedging(func(s *dataplane.Settings) { s.ConnectNs = int64(400e6) })}, n0, &node{t: t, name: "n1", address: ln.Addr().String()})
			cl := r.dial()
			cl.send(post("connect", streamed))
			eventually(t, "the hedge", func() bool { return r.nodes[1].Load.Requests.Load() == 1 })
			if c.late {
				eventually(t, "the rival to be dropped", func() bool { return r.nodes[1].Load.Refused.Load() == 1 })
			}
			close(release)
			if got := cl.answer("POST"); !strings.Contains(got.body, c.body) {
				t.Errorf("got %d %q", got.StatusCode, got.body)
			}
			r.settled()
			if rec := r.record("connect"); tries(rec) != c.tries || r.nodes[1].Load.Failures.Load() != c.blamed {
				t.Errorf("tries %s, %d failures", tries(rec), r.nodes[1].Load.Failures.Load())
			}
		})
	}
}
