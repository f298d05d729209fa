package dataplane_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/dataplane"
	"warmpath/dataplane/backend"
	"warmpath/dataplane/fleet"
)

// Each time-out of the configuration, and where a peer that hangs is met by it:
//
//	timeouts.connect        TestTimeouts; TestConnectTimesOut (moves on)
//	timeouts.head           TestTimeouts; TestSlowRequests, TestASlowUploadTimesOut, TestAbuse (cmd/warmpath)
//	timeouts.first_event    TestTimeouts; TestRetries (moves on), TestLongSilenceIsNotHeldForEver, TestCoreStopped (cmd/warmpath)
//	timeouts.idle_stream    TestTimeouts, TestNodeTakesNothing, TestClientTakesNothing; TestSlowClient, TestAnswersNobodyTakes, TestUploadsThatStop
//	timeouts.request        TestTimeouts
//	timeouts.paths          TestTimeouts; TestRequestTimes (longer, and none)
//	timeouts.idle_client    TestTimeouts
//	timeouts.idle_node      TestIdleNodeIsLetGo
//	timeouts.identify       TestIdentifyEnds; TestHostileWaitEnds
//	timeouts.drain_process  TestDrainGivesUp; TestDrainProcessEnds (cmd/warmpath)
//	timeouts.drain_node     controlplane/state/testdata/drain.txt; TestDrainNodeEnds (cmd/warmpath)
//	health.timeout          TestHealthHangs (cmd/warmpath); controlplane/engine, controlplane/state/testdata/health.txt
//	breaker.open            TestHealthHangs (cmd/warmpath); controlplane/state/testdata/breaker.txt
//	breaker.probe_timeout   TestHealthHangs (cmd/warmpath); controlplane/state/testdata/probe.txt
//	all of them at zero     TestTimesOfZeroAreOff

// slack is how late what a time-out does may come: a tick of the loops, and a
// machine that has something else to do.
const slack = 150 * time.Millisecond

// within wants what attempt measures to come after limit, and at most late after
// it. It must never come early; that it comes too late is held against a busy
// machine twice.
func within(t *testing.T, limit, late time.Duration, attempt func(id string) time.Duration) (attempts int) {
	t.Helper()
	for attempts < 3 {
		attempts++
		took := attempt(fmt.Sprintf("try-%d", attempts))
		switch {
		case t.Failed():
			return attempts
		case took < limit:
			t.Errorf("it came after %v, before the time-out of %v", took, limit)
			return attempts
		case took <= limit+late:
			return attempts
		}
		t.Logf("it came %v after the time-out of %v", took-limit, limit)
	}
	t.Errorf("it came later than %v after its time-out three times", late)
	return attempts
}

// stopwatch is started by whoever falls silent, when it does.
type stopwatch struct {
	mu sync.Mutex
	at time.Time
}

func (w *stopwatch) start() { w.startAt(time.Now()) }

func (w *stopwatch) startAt(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = at
}

func (w *stopwatch) read() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.at)
}

// A node's ways to hang. Each falls silent where it starts the stopwatch.
type nodeHangs func(w *stopwatch, c *conn)

// silentAfter sends text and falls silent.
func silentAfter(text string) nodeHangs {
	return func(w *stopwatch, c *conn) {
		c.request()
		w.start()
		c.send(text)
		c.gone()
	}
}

// drips sends text, and then goes on sending what moves nothing.
func drips(text, drop string) nodeHangs {
	return func(_ *stopwatch, c *conn) {
		c.request()
		c.send(text)
		trickle(c, drop)
		c.gone()
	}
}

// trickle sends one piece every 10 ms until the peer has gone.
func trickle(to io.Writer, piece string) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		if _, err := io.WriteString(to, piece); err != nil {
			return
		}
	}
}

// hang is a peer that stands still, and what becomes of it.
type hang struct {
	name  string
	limit time.Duration
	set   func(s *dataplane.Settings) // nothing else is as short as the key that is tested
	rate  float64                     // of the node's prefill, tokens a second; 0 = not known

	deaf bool      // the node answers no SYN
	node nodeHangs // nil: it answers

	before  string // request that is answered before
	request string // … or the part of it that the client sends
	drop    string // … and what it then sends on and on

	status  int    // 0 = the connection ends without an answer
	code    string // error.code of it
	cut     bool   // it begins, and ends with a reset
	tries   string // of the record; "" = nothing was decided
	outcome backend.Class
	blamed  bool // the node
}

const ms = int64(1e6)

func connectNs(s *dataplane.Settings) { s.ConnectNs = 150 * ms }
func headNs(s *dataplane.Settings)    { s.HeadNs = 150 * ms }
func firstNs(s *dataplane.Settings)   { s.FirstEventNs = 150 * ms }
func idleNs(s *dataplane.Settings)    { s.IdleStreamNs = 150 * ms }
func requestNs(s *dataplane.Settings) { s.RequestNs = 150 * ms }

// ID stands for the request's id.
const idOfRequest = "ID"

// hangs150 are hangs that are met after 150 ms, and some after longer.
var hangs150 = []hang{
	{name: "connect: no answer to a SYN", set: connectNs, deaf: true, request: chatBody, status: 502, code: "node_failed", tries: "a:refused", outcome: backend.Refused, blamed: true},
	{name: "connect: no answer to a SYN, stream", set: connectNs, deaf: true, request: streamed, status: 502, code: "node_failed", tries: "a:refused", outcome: backend.Refused, blamed: true},

	{name: "head: no byte", set: headNs},
	{name: "head: half a line", set: headNs, request: "POST /v1/chat/comp", status: 408, code: "request_timeout"},
	{name: "head: without its end", set: headNs, request: "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n", status: 408, code: "request_timeout"},
	{name: "head: a byte now and then", set: headNs, request: "GET /v1/files HTTP/1.1\r\nHost: x\r\nX-A: ", drop: "a", status: 408, code: "request_timeout"},
	{name: "head: a field now and then", set: func(s *dataplane.Settings) { headNs(s); s.Head.Fields, s.Head.HeadBytes = 10_000, 1<<20 }, request: "GET /v1/files HTTP/1.1\r\nHost: x\r\n", drop: "A: b\r\n", status: 408, code: "request_timeout"},
	{name: "head: of the second request", set: headNs, before: chatBody, request: "POST /v1/chat/comp", status: 408, code: "request_timeout"},
	{name: "head: no body", set: headNs, request: postHead(idOfRequest, "Content-Length: 99\r\n"), status: 408, code: "request_timeout"},
	{name: "head: half a body", set: headNs, request: postHead(idOfRequest, "Content-Length: 99\r\n") + `{"model":`, status: 408, code: "request_timeout"},
	{name: "head: a chunk without its end", set: headNs, request: postHead(idOfRequest, "Transfer-Encoding: chunked\r\n") + "9\r\n{", status: 408, code: "request_timeout"},
	{name: "head: empty lines between requests", set: headNs, request: "\r\n\r\n", status: 408, code: "request_timeout"},

	{name: "first_event: no byte", set: firstNs, node: silentAfter(""), request: streamed, status: 504, code: "node_silent", tries: "a:silent", outcome: backend.Silent, blamed: true},
	{name: "first_event: half a head", set: firstNs, node: silentAfter("HTTP/1.1 200 OK\r\nConte"), request: streamed, status: 504, code: "node_silent", tries: "a:silent", outcome: backend.Silent, blamed: true},
	{name: "first_event: a head byte by byte", set: firstNs, node: drips("HTTP/1.1 200 OK\r\nX-A: ", "a"), request: streamed, status: 504, code: "node_silent", tries: "a:silent", outcome: backend.Silent, blamed: true},
	{name: "first_event: one 100 after the other", set: firstNs, node: drips("", "HTTP/1.1 100 Continue\r\n\r\n"), request: streamed, status: 504, code: "node_silent", tries: "a:silent", outcome: backend.Silent, blamed: true},
	{name: "first_event: a head alone", set: firstNs, node: silentAfter(streamHead), request: streamed, status: 504, code: "node_silent", tries: "a:silent", outcome: backend.Silent, blamed: true},
	{name: "first_event: comments", set: firstNs, node: drips(streamHead, chunk(": ping\n\n")), request: streamed, status: 504, code: "node_silent", tries: "a:silent", outcome: backend.Silent, blamed: true},
	{name: "first_event: half an event", set: firstNs, node: silentAfter(streamHead + chunk(`data: {"half`)), request: streamed, status: 504, code: "node_silent", tries: "a:silent", outcome: backend.Silent, blamed: true},
	{
		name: "first_event: auto, its floor", set: func(s *dataplane.Settings) { firstNs(s); s.FirstAuto = true }, rate: 1e6, node: silentAfter(""), request: streamed,
		status: 504, code: "node_silent", tries: "a:silent", outcome: backend.Silent, blamed: true,
	},
	{ // 2 tokens at 20 a second are 100 ms
		name: "first_event: auto, three times what is predicted", set: func(s *dataplane.Settings) { firstNs(s); s.FirstAuto = true }, rate: 20, node: silentAfter(""), request: streamed,
		limit: 300 * time.Millisecond, status: 504, code: "node_silent", tries: "a:silent", outcome: backend.Silent, blamed: true,
	},
	{
		name: "first_event: 0", set: func(s *dataplane.Settings) { s.FirstEventNs = 0; requestNs(s) }, node: silentAfter(streamHead), request: streamed,
		status: 504, code: "timeout", tries: "a:deadline", outcome: backend.Deadline,
	},
	{
		name: "first_event: not of an answer in one piece", set: func(s *dataplane.Settings) { s.FirstEventNs = 50 * ms; requestNs(s) }, node: silentAfter(""), request: chatBody,
		status: 504, code: "timeout", tries: "a:deadline", outcome: backend.Deadline,
	},

	{name: "idle_stream: a node within a stream", set: idleNs, node: silentAfter(streamHead + chunk(event("one"))), request: streamed, status: 200, cut: true, tries: "a:mid_stream", outcome: backend.MidStream, blamed: true},
	{name: "idle_stream: a node within an event", set: idleNs, node: silentAfter(streamHead + chunk(event("one")) + "40\r\ndata: {"), request: streamed, status: 200, cut: true, tries: "a:mid_stream", outcome: backend.MidStream, blamed: true},
	{name: "idle_stream: a node within an answer in one piece", set: idleNs, node: silentAfter("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), request: chatBody, status: 200, cut: true, tries: "a:mid_stream", outcome: backend.MidStream, blamed: true},
	{name: "idle_stream: a node before the first byte of a body", set: idleNs, node: silentAfter("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"), request: chatBody, status: 200, cut: true, tries: "a:mid_stream", outcome: backend.MidStream, blamed: true},
	{name: "idle_stream: a node after [DONE]", set: idleNs, node: silentAfter(streamHead + chunk(event("one")) + chunk("data: [DONE]\n\n")), request: streamed, status: 200, cut: true, tries: "a:mid_stream", outcome: backend.MidStream, blamed: true},

	{name: "request: no answer", set: requestNs, node: silentAfter(""), request: chatBody, status: 504, code: "timeout", tries: "a:deadline", outcome: backend.Deadline},
	{name: "request: half a head", set: requestNs, node: silentAfter("HTTP/1.1 200 OK\r\nConte"), request: chatBody, status: 504, code: "timeout", tries: "a:deadline", outcome: backend.Deadline},
	{name: "request: a stream without an end", set: requestNs, node: drips(streamHead, chunk(event("on"))), request: streamed, status: 200, cut: true, tries: "a:deadline", outcome: backend.Deadline},
	{name: "request: an answer without an end", set: requestNs, node: drips("HTTP/1.1 200 OK\r\n\r\n", "on"), request: chatBody, status: 200, cut: true, tries: "a:deadline", outcome: backend.Deadline},
	{name: "request: while connecting", set: requestNs, deaf: true, request: chatBody, status: 504, code: "timeout", tries: "a:deadline", outcome: backend.Deadline},
	{name: "request: half a body", set: requestNs, request: postHead(idOfRequest, "Content-Length: 99\r\n") + `{"model":`, status: 408, code: "request_timeout"},

	{
		name: "paths: shorter than request", set: func(s *dataplane.Settings) {
			s.RequestNsByPath = map[string]int64{"/v1/chat/completions": 150 * ms, "/v1/files": 1}
		}, node: silentAfter(""), request: chatBody, status: 504, code: "timeout", tries: "a:deadline", outcome: backend.Deadline,
	},

	{name: "idle_client: after an answer", set: func(s *dataplane.Settings) { s.IdleClientNs = 150 * ms }, before: chatBody},
	{name: "idle_client: after an answer of our own", set: func(s *dataplane.Settings) { s.IdleClientNs = 150 * ms }, before: "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"},
}

// TestTimeouts lets a peer hang in every way that a client can see, and wants it
// to end in time, with the right answer, and with the node blamed or not.
func TestTimeouts(t *testing.T) {
	for i := range hangs150 {
		h := &hangs150[i]
		if h.limit == 0 {
			h.limit = 150 * time.Millisecond
		}
		t.Run(h.name, h.run)
	}
}

func (h *hang) run(t *testing.T) {
	w := &stopwatch{}
	var a *node
	if h.deaf {
		a = deafNode(t)
	} else {
		a = startNode(t, "a", func(c *conn) {
			if h.node == nil {
				answers(ok("{}"))(c)
				return
			}
			h.node(w, c)
		})
	}
	r := start(t, setup{alone: true, set: h.set, node: func(_ int, n *fleet.Node) {
		if h.rate > 0 {
			n.PrefillTokensPerSecond = fleet.Gauge{Value: h.rate, Known: true}
		}
	}}, a)
	attempts := within(t, h.limit, slack, func(id string) time.Duration { return h.attempt(t, r, w, id) })
	r.settled()
	want := int64(0)
	if h.blamed {
		want = int64(attempts)
	}
	if got := r.nodes[0].Load.Failures.Load(); got != want {
		t.Errorf("%d failures counted on the node after %d hangs, want %d", got, attempts, want)
	}
}

// deafNode is one that answers no SYN: its listener's queue is full.
func deafNode(t *testing.T) *node {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	fillQueue(t, ln)
	return &node{t: t, name: "a", address: ln.Addr().String()}
}

// whole makes a request of a body; what is more than a body stays as it is.
func whole(request, id string) string {
	if strings.HasPrefix(request, "{") {
		return post(id, request)
	}
	return strings.Replace(request, "X-Request-Id: "+idOfRequest, "X-Request-Id: "+id, 1)
}

// attempt hangs once and returns how long after falling silent it was over.
func (h *hang) attempt(t *testing.T, r *router, w *stopwatch, id string) time.Duration {
	t.Helper()
	w.start()
	cl := r.dial()
	defer cl.Close()
	if h.before != "" {
		cl.send(whole(h.before, id+"-before"))
		cl.answer("POST")
	}
	if h.request != "" {
		w.start()
		cl.send(whole(h.request, id))
	}
	if h.drop != "" {
		go trickle(cl, h.drop)
	}
	resp, err := http.ReadResponse(cl.r, nil)
	took := w.read()
	if h.status == 0 {
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the client got %v, %v; want the end of the connection", resp, err)
		}
		return took
	}
	if err != nil {
		t.Fatalf("the client got no answer: %v", err)
	}
	body, err := io.ReadAll(resp.Body)
	if h.cut {
		if took = w.read(); err == nil || isTimeout(err) {
			t.Errorf("the answer ended with %v, want a reset", err)
		}
	} else {
		expectError(t, answer{resp, string(body), err}, h.status, h.code, "")
	}
	if resp.StatusCode != h.status {
		t.Errorf("status %d, want %d", resp.StatusCode, h.status)
	}
	h.checkRecord(t, r, id)
	return took
}

func (h *hang) checkRecord(t *testing.T, r *router, id string) {
	t.Helper()
	if h.tries == "" {
		if rec, ok := r.d.RecordOf(id); ok {
			t.Errorf("nothing was decided, and yet there is a record: %+v", rec)
		}
		return
	}
	if rec := r.record(id); tries(rec) != h.tries || rec.Outcome != h.outcome || rec.Status != h.status {
		t.Errorf("record: %s, %v, %d; want %s, %v, %d", tries(rec), rec.Outcome, rec.Status, h.tries, h.outcome, h.status)
	}
}

// TestNodeTakesNothing: a node that does not take a request is let go after
// timeouts.idle_stream, be the request passed on as it comes or whole. Whether it
// takes anything is looked at once in that time.
func TestNodeTakesNothing(t *testing.T) {
	const limit = 300 * time.Millisecond
	body := longBody(24 << 20)
	for _, early := range []bool{true, false} {
		t.Run(fmt.Sprintf("before it is in=%v", early), func(t *testing.T) {
			a := startNode(t, "a", func(c *conn) { <-c.node.t.Context().Done() })
			r := start(t, setup{alone: true, set: func(s *dataplane.Settings) {
				s.BodyBytes, s.IdleStreamNs = 1<<30, int64(limit)
				if early {
					window(s)
				}
			}}, a)
			attempts := within(t, limit, limit+slack, func(id string) time.Duration {
				w := &stopwatch{}
				cl := r.dial()
				defer cl.Close()
				done := sendAhead(cl, postHead(id, lengthOf(body))+body, 1)
				missed := false // its start, by a test that did not have the processor
				sent := time.Now()
				eventually(t, "the request to be under way", func() bool {
					if time.Since(sent) > patience/2 {
						rec, known := r.d.RecordOf(id) // waits for the loop
						missed = known && rec.Ended
					}
					at := time.Now()
					if missed || r.nodes[0].Load.Requests.Load() == 1 {
						return true
					}
					w.startAt(at)
					return false
				})
				got := cl.answer("POST")
				took := w.read()
				if missed {
					took = time.Hour
				}
				expectError(t, got, 504, "node_silent", "")
				_ = cl.Close()
				<-done
				if rec := r.record(id); tries(rec) != "a:silent" || rec.Outcome != backend.Silent {
					t.Errorf("record: %s, %v", tries(rec), rec.Outcome)
				}
				return took
			})
			r.settled()
			if got := r.nodes[0].Load.Silent.Load(); got != int64(attempts) {
				t.Errorf("%d silences counted on the node after %d", got, attempts)
			}
		})
	}
}

// TestClientTakesNothing: a client that takes nothing of its answer for
// timeouts.idle_stream is let go, its node with it and without blame.
func TestClientTakesNothing(t *testing.T) {
	const limit = 300 * time.Millisecond
	piece := strings.Repeat("z", 64<<10)
	for name, c := range map[string]struct{ request, head, piece string }{
		"answer": {chatBody, "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n", piece},
		"stream": {streamed, streamHead, chunk(event(piece))},
	} {
		t.Run(name, func(t *testing.T) {
			over := make(chan struct{}, 3)
			a := startNode(t, "a", func(n *conn) {
				n.request()
				n.send(c.head)
				for {
					if _, err := io.WriteString(n, c.piece); err != nil {
						over <- struct{}{}
						return
					}
				}
			})
			r := start(t, setup{alone: true, set: func(s *dataplane.Settings) { s.IdleStreamNs = int64(limit) }}, a)
			within(t, limit, slack, func(id string) time.Duration {
				cl := r.dial()
				defer cl.Close()
				_ = cl.SetReadBuffer(16 << 10)
				cl.send(post(id, c.request))
				took := cl.sinceTaken(over)
				if rec := r.record(id); tries(rec) != "a:client_gone" || rec.Outcome != backend.ClientGone {
					t.Errorf("record: %s, %v", tries(rec), rec.Outcome)
				}
				return took
			})
			r.settled()
			if got := r.nodes[0].Load.Failures.Load(); got != 0 {
				t.Errorf("%d failures counted on the node", got)
			}
		})
	}
}

// sinceTaken returns, when over comes, for how long at most the client's socket has
// taken nothing, by looks at it each millisecond.
func (c *client) sinceTaken(over chan struct{}) time.Duration {
	c.t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		c.t.Fatal(err)
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	before, held := time.Now(), 0
	last := before
	for {
		select {
		case <-over:
			return time.Since(last)
		case <-tick.C:
		}
		looked, now := time.Now(), 0
		err := raw.Control(func(fd uintptr) { now, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
		if err == nil && now > held {
			last, held = before, now // a test that did not have the processor looks late
		}
		before = looked
	}
}

// TestIdleNodeIsLetGo: a node's connection that nobody uses is closed in time.
func TestIdleNodeIsLetGo(t *testing.T) {
	w, over := &stopwatch{}, make(chan time.Duration, 3)
	a := startNode(t, "a", func(c *conn) {
		c.request()
		w.start()
		c.send(ok("{}"))
		if c.gone() {
			over <- w.read()
		}
	})
	r := start(t, setup{alone: true, set: func(s *dataplane.Settings) { s.IdleNodeNs = 150 * ms }}, a)
	within(t, 150*time.Millisecond, slack, func(id string) time.Duration {
		cl := r.dial()
		defer cl.Close()
		cl.send(post(id, chatBody))
		cl.answer("POST")
		return <-over
	})
	r.settled()
	if n := r.d.Totals().NodeIdle; n != 0 {
		t.Errorf("%d idle connections are left", n)
	}
}

// TestIdentifyEnds: a prompt that no worker comes to an end with is sent on in
// time, by its text.
func TestIdentifyEnds(t *testing.T) {
	r := start(t, setup{alone: true, node: proved, set: func(s *dataplane.Settings) { s.IdentifyNs = 150 * ms }}, startNode(t, "a", discards))
	b := r.block()
	defer close(b.resume)
	entered := false
	within(t, 150*time.Millisecond, slack, func(id string) time.Duration {
		w := &stopwatch{}
		cl := r.dial()
		defer cl.Close()
		w.start()
		cl.send(post(id, user(quoted(strings.Repeat("a", 200_000)))))
		if !entered { // the one worker stays there
			<-b.entered
			entered = true
		}
		if got := cl.answer("POST"); got.StatusCode != 200 {
			t.Errorf("got %d %s", got.StatusCode, got.body)
		}
		took := w.read()
		expectText(t, r, id, "not known in time")
		return took
	})
	if got := r.nodes[0].Load.Failures.Load(); got != 0 {
		t.Errorf("%d failures counted on the node", got)
	}
}
