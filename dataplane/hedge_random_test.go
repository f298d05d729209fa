package dataplane_test

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/backend"
	"warmpath/dataplane/prefix"
)

// raceNode does something else with every request, by its id: answers soon or
// late, in pieces of any length, not at all, or with any failure.
type raceNode struct{ open *atomic.Int64 }

func randomOf(words ...string) *rand.Rand {
	return rand.New(rand.NewPCG(prefix.SessionKey([]byte(strings.Join(words, "\x00"))), 1))
}

// answerOf is what a node streams as its answer to a request.
func answerOf(node, id string) string {
	rnd := randomOf("answer", node, id)
	var b strings.Builder
	for i := range 1 + rnd.IntN(20) {
		b.WriteString(event(fmt.Sprintf("%s %s %d %s", node, id, i, strings.Repeat("x", rnd.IntN(200)))))
	}
	return b.String() + "data: [DONE]\n\n"
}

// pieces sends text in chunks that end anywhere, but the end of the stream.
func (c *conn) pieces(rnd *rand.Rand, text string) {
	for len(text) > 0 {
		n := 1 + rnd.IntN(len(text))
		c.send(chunk(text[:n]))
		text = text[n:]
	}
}

func (n raceNode) script(c *conn) {
	n.open.Add(1)
	defer n.open.Add(-1)
	for {
		req, more := c.request()
		if !more || !n.play(c, req.Header.Get("X-Request-Id")) {
			return
		}
	}
}

// play answers one request and reports whether the connection goes on.
func (n raceNode) play(c *conn, id string) (more bool) {
	rnd := randomOf("node", c.node.name, id)
	wait := time.Duration(0)
	if rnd.IntN(4) > 0 {
		wait = time.Duration(rnd.IntN(250)) * time.Millisecond
	}
	begun := rnd.IntN(2) == 0
	if begun {
		c.send(pings)
	}
	<-time.After(wait)
	head := streamHead
	if begun {
		head = ""
	}
	text := answerOf(c.node.name, id)
	switch what := rnd.IntN(20); {
	case what < 10:
		c.send(head)
		c.pieces(rnd, text)
		c.send("0\r\n\r\n")
		return true
	case what < 12:
		c.gone()
	case what == 12:
		c.reset()
	case what == 13 && !begun:
		c.send(serverError)
		return true
	case what == 14 && !begun:
		c.send(tooMany)
		return true
	case what == 15:
		c.send(head, chunk(errorPayload), "0\r\n\r\n")
	case what == 16:
		c.send("garbage\r\n\r\n")
		c.gone()
	case what == 17: // breaks off in the middle
		c.send(head)
		c.pieces(rnd, text[:len(text)/2])
		c.reset()
	}
	return false
}

// raceClient asks again and again, and checks what it gets.
type raceClient struct {
	t  *testing.T
	r  *router
	nc net.Conn
	in *bufio.Reader
}

func (c *raceClient) ask(id string) (whole bool) {
	if c.nc == nil {
		nc, err := net.Dial("tcp", c.r.d.Addr().String())
		if err != nil {
			c.t.Error(err)
			return false
		}
		c.nc, c.in = nc, bufio.NewReader(nc)
	}
	rnd := randomOf("client", id)
	patient := rnd.IntN(8) > 0
	left := time.Now().Add(3 * patience)
	if !patient {
		left = time.Now().Add(time.Duration(rnd.IntN(300)) * time.Millisecond)
	}
	_ = c.nc.SetDeadline(left)
	_, _ = io.WriteString(c.nc, post(id, strings.Replace(streamed, "hello", "hello "+id+strings.Repeat(" more", rnd.IntN(10000)), 1)))
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		if patient || !isTimeout(err) {
			c.t.Errorf("%s: no answer: %v", id, err)
		}
		c.leave()
		return false
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.Close {
		c.leave()
	}
	node, want := resp.Header.Get("X-Routed-To"), answerOf(resp.Header.Get("X-Routed-To"), id)
	got, alive := strings.CutPrefix(string(body), ": ping\n\n")
	switch {
	case resp.StatusCode != 200:
		if s := string(body); err == nil && s != "five" && s != "busy" && !strings.Contains(s, `"request_id":"`+id+`"`) {
			c.t.Errorf("%s: %d %q", id, resp.StatusCode, body)
		}
	case strings.Contains(got, "EngineCore"):
	case err != nil:
		if !strings.HasPrefix(want, got) {
			c.t.Errorf("%s: %s broke off after %q, want %q", id, node, got, want)
		}
	case got != want:
		c.t.Errorf("%s: %s (ping %v) answered %q, want %q", id, node, alive, got, want)
	default:
		return true
	}
	return false
}

func (c *raceClient) leave() {
	_ = c.nc.Close()
	c.nc = nil
}

// TestRandomRaces: whatever nodes and clients do, an answer is one node's, whole,
// or visibly none, and every counter comes back.
func TestRandomRaces(t *testing.T) {
	const clients, each = 48, 10 // fewer than a loop keeps records of
	n := raceNode{&atomic.Int64{}}
	r := start(t, setup{loops: 2, set: hedging(func(s *dataplane.Settings) {
		s.FirstEventNs, s.RetryBudget = int64(300e6), 1
	}), node: prefillsAtOnce}, startNode(t, "n0", n.script), startNode(t, "n1", n.script), startNode(t, "n2", n.script))
	var whole atomic.Int64
	var wait sync.WaitGroup
	for i := range clients {
		wait.Go(func() {
			c := &raceClient{t: t, r: r}
			for k := range each {
				if c.ask(fmt.Sprintf("race-%d-%d", i, k)) {
					whole.Add(1)
				}
			}
			if c.nc != nil {
				c.leave()
			}
		})
	}
	wait.Wait()
	r.settled()
	r.judgeRaces(clients*each, int(whole.Load()))
	eventually(t, "no connection to a node but idle ones", func() bool { return n.open.Load() == int64(r.d.Totals().NodeIdle) })
}

// judgeRaces compares what was recorded with what was counted.
func (r *router) judgeRaces(requests, whole int) {
	recs, totals := r.d.Records(requests+1), r.d.Totals()
	ok, failed, outrun := map[string]int64{}, map[string]int64{}, uint64(0)
	for _, rec := range recs {
		seen := map[string]bool{}
		for _, try := range rec.Tries {
			if seen[try.Node] {
				r.t.Errorf("%s: tries %s", rec.ID, tries(rec))
			}
			seen[try.Node] = true
			switch {
			case try.Class == backend.OK:
				ok[try.Node]++
				if rec.Node != try.Node || rec.Outcome != backend.OK {
					r.t.Errorf("%s: at %s in the end, outcome %v, tries %s", rec.ID, rec.Node, rec.Outcome, tries(rec))
				}
			case try.Class.Blames():
				failed[try.Node]++
			case try.Class == backend.Outrun:
				outrun++
			}
		}
		if !rec.Ended {
			r.t.Errorf("%s has not ended", rec.ID)
		}
	}
	for _, n := range r.nodes {
		if n.Load.Successes.Load() != ok[n.Name] || n.Load.Failures.Load() != failed[n.Name] {
			r.t.Errorf("%s: %d successes and %d failures; the records say %d and %d", n.Name, n.Load.Successes.Load(), n.Load.Failures.Load(), ok[n.Name], failed[n.Name])
		}
	}
	r.t.Logf("%d requests, %d answers whole; %d hedges, %d won, %d tries outrun, %d retries", len(recs), whole, totals.Hedges, totals.HedgesWon, outrun, totals.Retries)
	if len(recs) < requests-requests/10 || whole < requests/2 || totals.Hedges < uint64(requests/4) || outrun < totals.Hedges/4 {
		r.t.Error("that is not what the test is for")
	}
}
