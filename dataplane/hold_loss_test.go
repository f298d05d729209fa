package dataplane_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
)

// nth is a chat body with a number in it.
func nth(i int) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"number %d"}]}`, i)
}

// numbers are those of the requests that a node saw, in its order.
func (n *node) numbers() (seen []int) {
	for _, s := range n.requests() {
		i := -1
		_, _ = fmt.Sscanf(s.body[strings.Index(s.body, "number "):], "number %d", &i)
		seen = append(seen, i)
	}
	return seen
}

// hold sends that many requests, which have to wait, in that order: each when the
// one before is known to.
func (r *router) hold(many int) (clients []*client) {
	r.t.Helper()
	deadline := time.Now().Add(4 * patience)
	for i := range many {
		cl := r.dial()
		cl.send(post(fmt.Sprint("held-", i), nth(i)))
		clients = append(clients, cl)
		for r.d.Holds()["m"].Now <= i {
			if runtime.Gosched(); time.Now().After(deadline) {
				r.t.Fatalf("not within %v: number %d to wait", 4*patience, i)
			}
		}
	}
	return clients
}

// TestManyHeld: a thousand wait, one node comes. Each is answered once, in the order
// in which they came, and no faster than the node's cap allows.
func TestManyHeld(t *testing.T) {
	const many = 1000
	for _, c := range []struct{ loops, limit int }{{1, 1}, {1, 7}, {1, 0}, {2, 1}, {2, 0}} {
		t.Run(fmt.Sprintf("%d loops, cap %d", c.loops, c.limit), func(t *testing.T) {
			a := startNode(t, "a", answers(ok("good")))
			roomy := func(s *dataplane.Settings) { s.Connections = 2 * many }
			r := zero(t, setup{set: roomy, loops: c.loops, node: func(_ int, n *fleet.Node) { n.MaxInFlight = c.limit }}, a)
			clients := r.hold(many)
			over := r.dial()
			over.send(post("over", chatBody))
			expectError(t, over.answer("POST"), 503, "hold_full", "")
			r.publish(r.nodes...)
			for i, cl := range clients {
				if got := cl.answer("POST"); got.StatusCode != 200 || got.body != "good" {
					t.Fatalf("%d got %d %q", i, got.StatusCode, got.body)
				}
			}
			seen := map[int]int{}
			for at, i := range a.numbers() {
				seen[i]++
				if c.loops == 1 && c.limit == 1 && at != i {
					t.Fatalf("number %d came to the node as the %dth", i, at)
				}
			}
			for i := range many {
				if seen[i] != 1 {
					t.Fatalf("number %d came to the node %d times", i, seen[i])
				}
			}
			r.held("m", map[dataplane.HoldOutcome]uint64{dataplane.HoldSent: many, dataplane.HoldFull: 1})
			r.settled()
		})
	}
}

// TestHeldGoFirst: a request that comes when a node is there, but others still wait
// for it, has its turn after them.
func TestHeldGoFirst(t *testing.T) {
	const many = 40 // more than are decided on in one turn
	for _, limit := range []int{0, 1} {
		t.Run(fmt.Sprint("cap ", limit), func(t *testing.T) {
			a := startNode(t, "a", answers(ok("good")))
			r := zero(t, setup{node: func(_ int, n *fleet.Node) { n.MaxInFlight = limit }}, a)
			late := r.dial()
			late.alive()
			clients := r.hold(many)
			release := r.d.HoldLoop()
			r.publish(r.nodes...)
			late.send(post("late", nth(many))) // read before the loop has its next tick, or after
			release()
			for _, cl := range append(clients, late) {
				if got := cl.answer("POST"); got.StatusCode != 200 && limit == 0 {
					t.Errorf("got %d %q", got.StatusCode, got.body)
				}
			}
			if limit == 1 {
				for at, i := range a.numbers() {
					if at != i {
						t.Fatalf("number %d came to the node as the %dth", i, at)
					}
				}
			}
			r.settled()
		})
	}
}

// TestHeldForOneModel: what waits for a model does not keep what waits for another.
func TestHeldForOneModel(t *testing.T) {
	r := zero(t, setup{}, startNode(t, "a", answers(ok("a"))), startNode(t, "b", answers(ok("b"))))
	both := func(slots ...int) {
		r.publishWith(func(s *fleet.Snapshot) {
			s.Expected = true
			s.Models[0].Slots, s.Models[1].Slots = nil, slots
			if len(slots) > 1 {
				s.Models[0].Slots, s.Models[1].Slots = slots[:1], slots[1:]
			}
		}, r.nodes...)
	}
	both()
	first, second := r.dial(), r.dial()
	first.send(post("first", chatBody))
	r.waiting("m", 1)
	second.send(post("second", strings.Replace(chatBody, `"m"`, `"other"`, 1)))
	r.waiting("other", 1)
	both(1)
	if got := second.answer("POST"); got.body != "b" {
		t.Errorf("the second got %d %q", got.StatusCode, got.body)
	}
	r.waiting("m", 1)
	both(0, 1)
	if got := first.answer("POST"); got.body != "a" {
		t.Errorf("the first got %d %q", got.StatusCode, got.body)
	}
	r.settled()
}

// TestHeldForALongerContext: a prompt that is too long for the node that comes first
// waits for one that takes it; it does not keep the others.
func TestHeldForALongerContext(t *testing.T) {
	r := zero(t, setup{node: func(slot int, n *fleet.Node) { n.MaxModelLen = []int{100, 100_000}[slot] }},
		startNode(t, "short", answers(ok("short"))), startNode(t, "long", answers(ok("long"))))
	long, short := r.dial(), r.dial()
	long.send(post("long", prompt2("long", 40_000)))
	r.waiting("m", 1)
	short.send(post("short", chatBody))
	r.waiting("m", 2)
	r.expecting(r.nodes[0], r.as(1, fleet.Warming))
	if got := short.answer("POST"); got.body != "short" {
		t.Errorf("the short one got %d %q", got.StatusCode, got.body)
	}
	r.waiting("m", 1)
	r.expecting(r.nodes...)
	if got := long.answer("POST"); got.body != "long" {
		t.Errorf("the long one got %d %q", got.StatusCode, got.body)
	}
	r.settled()
}

// TestHeldAgain: the first node that comes dies under all that waited for it. They
// wait again, and not for that node before it was away; no request is lost unless it
// sees a second one die.
func TestHeldAgain(t *testing.T) {
	const many = 50
	good := func(c *conn) { answers(ok("good"))(c) }
	for _, c := range []struct {
		name   string
		first  func(*conn)
		second func(*conn)
		next   int // the slot of the node that comes then: another, or the same again
		tries  string
		status int
	}{
		{"reset, then another", (*conn).reset, good, 1, "a:reset b:ok", 200},
		{"reset, then the same", (*conn).reset, good, 0, "a:reset a:ok", 200},
		{"refused, then another", nil, good, 1, "a:refused b:ok", 200},
		{"two die", (*conn).reset, (*conn).reset, 1, "a:reset b:reset", 502},
	} {
		t.Run(c.name, func(t *testing.T) {
			var mu sync.Mutex
			now := c.first
			script := func(n *conn) {
				mu.Lock()
				do := now
				mu.Unlock()
				if _, ok := n.request(); ok {
					do(n)
				}
			}
			a := startNode(t, "a", script)
			if c.first == nil {
				a = startNode(t, "a", nil)
			}
			b := startNode(t, "b", c.second)
			if c.status != 200 {
				b = startNode(t, "b", func(n *conn) { n.request(); c.second(n) })
			}
			r := zero(t, setup{loops: 2}, a, b)
			clients := r.hold(many)
			r.expecting(r.nodes[0])
			eventually(t, "all to be back", func() bool {
				h := r.d.Holds()["m"]
				return h.Now == many && h.Ever == 2*many
			})
			r.expecting(r.nodes[0]) // it still passes for ready: nobody goes there again
			eventually(t, "every loop to have looked", r.d.Walked)
			r.waiting("m", many)
			r.expecting(r.as(0, fleet.Down))
			eventually(t, "every loop to have looked", r.d.Walked)
			mu.Lock()
			now = func(n *conn) { n.send(ok("good")); answers(ok("good"))(n) }
			mu.Unlock()
			next := []*fleet.Node{nil, nil}
			next[c.next] = r.nodes[c.next]
			r.publish(next...)
			for i, cl := range clients {
				if got := cl.answer("POST"); got.StatusCode != c.status {
					t.Fatalf("%d got %d %q", i, got.StatusCode, got.body)
				}
				if rec := r.record(fmt.Sprint("held-", i)); tries(rec) != c.tries || rec.Hold != dataplane.HoldSent {
					t.Fatalf("%d: tries %s, hold %v", i, tries(rec), rec.Hold)
				}
			}
			r.held("m", map[dataplane.HoldOutcome]uint64{dataplane.HoldSent: 2 * many})
			r.settled()
		})
	}
}

// TestHeldAtADeadNode: what waits at a node that is found dead waits for another.
func TestHeldAtADeadNode(t *testing.T) {
	a, b := startNode(t, "a", hangs), startNode(t, "b", answers(ok("good")))
	r := start(t, setup{noModels: true}, a, b)
	r.expecting(r.nodes[0])
	cl := r.dial()
	cl.send(post("moved", chatBody))
	eventually(t, "it waits there", func() bool { return len(a.requests()) == 1 })
	dead := r.as(0, fleet.Down)
	dead.Cause = fleet.CauseDead
	r.expecting(dead)
	r.d.Evacuate([]*fleet.Node{dead})
	r.waiting("m", 1)
	if rec, _ := r.d.RecordOf("moved"); rec.Hold != dataplane.HoldWaiting || rec.Ended {
		t.Errorf("record %+v", rec)
	}
	r.expecting(dead, r.nodes[1])
	if got := cl.answer("POST"); got.body != "good" {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
	if rec := r.record("moved"); tries(rec) != "a:dead b:ok" {
		t.Errorf("tries %s", tries(rec))
	}
	r.settled()
}

// TestHeldUploadIsLost: a node dies in the middle of a body that is passed on while it
// comes. What has come of it waits for the next node, and the rest comes then.
func TestHeldUploadIsLost(t *testing.T) {
	body := longBody(300_000)
	const first = 100_000
	died := make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		if r, err := http.ReadRequest(c.r); err == nil {
			_, _ = io.ReadFull(r.Body, make([]byte, 50_000))
		}
		c.reset()
		close(died)
	})
	b, begun := partly(t, "b")
	r := zero(t, setup{set: window}, a, b)
	cl := r.dial()
	cl.send(postHead("up", lengthOf(body)) + body[:first])
	r.waiting("m", 1)
	r.expecting(r.nodes[0])
	<-died
	eventually(t, "it to wait again", func() bool {
		h := r.d.Holds()["m"]
		return h.Now == 1 && h.Ever == 2
	})
	cl.send(body[first:])
	r.d.HoldLoop()() // what can be read was
	if b := r.d.Held().Request; b >= len(body) {
		t.Errorf("%d bytes of the body are held, though nobody takes it", b)
	}
	r.expecting(nil, r.nodes[1])
	arrives(t, begun)
	if got := cl.answer("POST"); got.body != fmt.Sprint(len(body)) {
		t.Errorf("got %d %q, want a body of %d bytes", got.StatusCode, got.body, len(body))
	}
	if seen := b.requests(); len(seen) != 1 || seen[0].body != body {
		t.Errorf("the second node saw %d requests, or another body", len(seen))
	}
	if rec := r.record("up"); tries(rec) != "a:reset b:ok" || rec.Hold != dataplane.HoldSent {
		t.Errorf("tries %s, hold %v", tries(rec), rec.Hold)
	}
	r.settled()
}

// TestHeldAgainAndLeft: what is said of a node that was lost does not change with what
// becomes of the request.
func TestHeldAgainAndLeft(t *testing.T) {
	r := start(t, setup{noModels: true}, startNode(t, "a", func(c *conn) {
		c.request()
		c.reset()
	}))
	r.expecting(r.nodes...)
	cl := r.dial()
	cl.send(post("left", chatBody))
	r.waiting("m", 1)
	_ = cl.Close()
	r.waiting("m", 0)
	if rec := r.record("left"); tries(rec) != "a:reset" || rec.Hold != dataplane.HoldLeft || rec.Status != 499 {
		t.Errorf("tries %s, record %+v", tries(rec), rec)
	}
	r.settled()
}

// TestHeldPromptsAreIdentified: a worker finds out what the first node has to be
// asked; who waits for that keeps his place.
func TestHeldPromptsAreIdentified(t *testing.T) {
	a := startNode(t, "a", answers(ok("good")))
	r := zero(t, setup{node: func(slot int, n *fleet.Node) { proved(slot, n); n.MaxInFlight = 1 }}, a)
	r.exactly()
	const many = 20
	var clients []*client
	for i := range many {
		cl := r.dial()
		cl.send(post(fmt.Sprint("held-", i), prompt2(fmt.Sprint("kind", i), 100_000)))
		clients = append(clients, cl)
		r.waiting("m", i+1)
	}
	r.publish(r.nodes...)
	for i, cl := range clients {
		if got := cl.answer("POST"); got.body != "good" {
			t.Errorf("%d got %d %q", i, got.StatusCode, got.body)
		}
		if rec := r.record(fmt.Sprint("held-", i)); rec.Exactness != dataplane.ExactTokens || rec.Hold != dataplane.HoldSent || rec.HeldSeconds+rec.RoutingSeconds > rec.DurationSeconds {
			t.Errorf("%d: %v, hold %v, waited %v, routed %v of %v s", i, rec.Exactness, rec.Hold, rec.HeldSeconds, rec.RoutingSeconds, rec.DurationSeconds)
		}
	}
	r.held("m", map[dataplane.HoldOutcome]uint64{dataplane.HoldSent: many})
	r.settled()
}

// TestHoldsAtRandom: nodes come, go, die and come back, are full or not; requests
// come, and clients leave. In the end a good node comes, and whoever is left is
// answered once, if not by the second death that it saw.
func TestHoldsAtRandom(t *testing.T) {
	for seed := range 4 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(uint64(seed), 1))
			dies := func(c *conn) {
				if _, ok := c.request(); ok {
					c.reset()
				}
			}
			nodes := []*node{
				startNode(t, "dies", dies), startNode(t, "refuses", nil), startNode(t, "b", answers(ok("good"))), startNode(t, "full", answers(ok("good"))),
			}
			r := zero(t, setup{loops: 2, node: func(slot int, n *fleet.Node) { n.MaxInFlight = []int{0, 0, 0, 1}[slot] }}, nodes...)
			type asked struct {
				*client
				id string
			}
			var clients []asked
			for step := range 150 {
				switch random.IntN(6) {
				case 0: // another fleet, mostly none
					fleetNow := make([]*fleet.Node, len(nodes))
					for slot := range fleetNow {
						if at := random.IntN(8); at < 3 {
							fleetNow[slot] = r.as(slot, []fleet.State{fleet.Warming, fleet.Down, fleet.Ready}[at])
						}
					}
					r.expecting(fleetNow...)
				case 1:
					if len(clients) > 0 {
						at := random.IntN(len(clients))
						_ = clients[at].Close()
						clients = append(clients[:at], clients[at+1:]...)
					}
				default:
					cl := asked{r.dial(), fmt.Sprint("random-", step)}
					cl.send(post(cl.id, nth(step)))
					clients = append(clients, cl)
				}
			}
			final := make([]*fleet.Node, len(nodes))
			final[2] = r.nodes[2]
			r.expecting(final...)
			for _, cl := range clients {
				got := cl.answer("POST")
				rec := r.record(cl.id)
				switch {
				case got.StatusCode == 200:
				case got.StatusCode == 503 && strings.Contains(got.body, "no_node_available") && rec.Hold == dataplane.HoldNone: // the node was full
				case got.StatusCode == 502 && len(rec.Tries) == 2: // saw two die
				default:
					t.Errorf("%s got %d %q, tries %s, hold %v", cl.id, got.StatusCode, got.body, tries(rec), rec.Hold)
				}
				cl.alive()
			}
			eventually(t, "nobody to wait", func() bool { return r.d.Holds()["m"].Now == 0 })
			r.settled()
		})
	}
}

// TestANodeThatCameLater: a request waits at the only node there is when another one
// comes; the first then dies. The second has it, though nobody expected a node and it
// was none to choose from when the request was decided on.
func TestANodeThatCameLater(t *testing.T) {
	dies := make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		if _, ok := c.request(); ok {
			<-dies
			c.reset()
		}
	})
	b := startNode(t, "b", answers(ok("good")))
	r := start(t, setup{}, a, b)
	r.publish(r.nodes[0])
	const many = 20
	var clients []*client
	for i := range many {
		cl := r.dial()
		cl.send(post(fmt.Sprint("later-", i), nth(i)))
		clients = append(clients, cl)
	}
	eventually(t, "all to wait there", func() bool { return len(a.requests()) == many })
	r.publish(r.nodes...)
	close(dies)
	for i, cl := range clients {
		if got := cl.answer("POST"); got.StatusCode != 200 || got.body != "good" {
			t.Fatalf("%d got %d %q", i, got.StatusCode, got.body)
		}
		if rec := r.record(fmt.Sprint("later-", i)); tries(rec) != "a:reset b:ok" {
			t.Errorf("%d: tries %s", i, tries(rec))
		}
	}
	r.settled()
}
