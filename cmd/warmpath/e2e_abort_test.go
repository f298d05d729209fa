package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	abortWithin = 100 * time.Millisecond // from the client's leaving to the engine's knowing
	abortTimes  = 10
)

// engineWork is what an engine has to do, as it says itself.
type engineWork struct {
	Running, Waiting int
	Aborted          int64
	Generated        int64 `json:"generated_tokens"`
}

func (e *engines) work(t *testing.T) engineWork {
	t.Helper()
	var all []engineWork
	getJSON(t, e.admin+"/engines", &all)
	return all[0]
}

// leaver is a client that goes away.
type leaver struct {
	net.Conn
	in *bufio.Reader
}

// leaver connects; with kept it has had an answer before.
func (r *serving) leaver(t *testing.T, kept bool) *leaver {
	t.Helper()
	c := r.dial(t)
	l := &leaver{c, bufio.NewReader(c)}
	if kept {
		l.ask(t, chatBody(fmt.Sprintf("Before %d.", bodies.Add(1)), `,"max_tokens":1`), true)
	}
	return l
}

// ask sends a request and, with whole, reads its answer.
func (l *leaver) ask(t *testing.T, body []byte, whole bool) {
	t.Helper()
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", chatPath, len(body))
	if _, err := l.Write(append([]byte(head), body...)); err != nil {
		t.Fatal(err)
	}
	if !whole {
		return
	}
	resp, err := http.ReadResponse(l.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the first request got %d, %v", resp.StatusCode, err)
	}
}

// leave goes away, with a reset or in order.
func (l *leaver) leave(reset bool) {
	if c, ok := l.Conn.(*net.TCPConn); ok && reset {
		_ = c.SetLinger(0)
	}
	_ = l.Close()
}

// abortPhase is how far a request is when its client leaves.
type abortPhase struct {
	name    string
	more    string                        // of the body
	words   int                           // of the prompt
	reached func(was, is engineWork) bool // by the engine's account
	begun   bool                          // and the client has seen its first event
}

var abortPhases = []abortPhase{
	{name: "queued", more: `,"max_tokens":2000`, words: 10, reached: func(_, is engineWork) bool { return is.Running == 1 && is.Waiting == 1 }},
	{name: "in prefill", more: `,"max_tokens":2000`, words: 20_000, reached: func(was, is engineWork) bool { return is.Running == 1 && is.Generated == was.Generated }},
	{name: "in prefill, stream", more: `,"max_tokens":2000` + streaming, words: 20_000, reached: func(was, is engineWork) bool { return is.Running == 1 && is.Generated == was.Generated }},
	{name: "generating", more: `,"max_tokens":2000`, words: 10, reached: func(was, is engineWork) bool { return is.Running == 1 && is.Generated > was.Generated+2 }},
	{name: "mid-stream", more: `,"max_tokens":2000` + streaming, words: 10, reached: func(was, is engineWork) bool { return is.Running == 1 && is.Generated > was.Generated+2 }, begun: true},
}

// TestAbort: an engine is rid of a request within 100 ms of its client's leaving,
// whatever it is doing with it, on a connection's first request and on a later
// one. Of ten times the median counts, and one may be later.
func TestAbort(t *testing.T) {
	sim := startEngines(t, 1, "--max-num-seqs", "1", "--prefill-tps", "2000", "--chunk", "64", "--decode-base-ms", "10")
	r := serve(t, settings, nodeList(sim.urls...))
	for i := range abortPhases {
		p := &abortPhases[i]
		for _, kept := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, kept=%v", p.name, kept), func(t *testing.T) { p.run(t, r, sim, kept) })
		}
	}
	was := sim.work(t).Aborted
	if n := engineMetric(t, sim.urls[0], `vllm:request_success_total{engine="0",finished_reason="abort",model_name="sim"}`); n != float64(was) || n < float64(abortTimes*2*len(abortPhases)) {
		t.Errorf("the engine's metrics count %v aborts, its state %d", n, was)
	}
	if n := engineMetric(t, sim.urls[0], `vllm:num_requests_running{engine="0",model_name="sim"}`); n != 0 {
		t.Errorf("the engine says that %v requests run", n)
	}
	if n := r.metric(t, `node_failures_total{kind="reset",node="sim-0"}`); n != 0 || r.node(t, "sim-0").Breaker != "closed" {
		t.Errorf("the node is blamed %v times for clients that left", n)
	}
	r.settled(t)
}

func (p *abortPhase) run(t *testing.T, r *serving, sim *engines, kept bool) {
	next := func() *leaver { return r.leaver(t, kept) }
	if p.name == "queued" { // behind a request that holds the engine's only place
		var made []*leaver
		for range abortTimes {
			made = append(made, next())
		}
		next = func() *leaver {
			l := made[0]
			made = made[1:]
			return l
		}
		first, was := r.leaver(t, false), sim.work(t)
		first.ask(t, chatBody(fmt.Sprintf("First in line %d.", bodies.Add(1)), `,"max_tokens":100000`), false)
		eventually(t, 10*time.Second, "the engine is busy", func() bool { return sim.work(t).Generated > was.Generated })
		defer func() {
			first.leave(false)
			eventually(t, 5*time.Second, "the engine is idle", func() bool { return sim.work(t).Running == 0 })
		}()
	}
	var took []time.Duration
	for i := range abortTimes {
		took = append(took, p.once(t, next(), sim, i%2 == 1))
	}
	slices.Sort(took)
	t.Logf("median %v, all %v", took[len(took)/2], took)
	if late := took[len(took)-2]; took[len(took)/2] > abortWithin || late > abortWithin {
		t.Errorf("the engine went on for %v (median), and more than once for %v", took[len(took)/2], late)
	}
}

// once lets a client leave and returns how long its engine went on.
func (p *abortPhase) once(t *testing.T, l *leaver, sim *engines, reset bool) time.Duration {
	t.Helper()
	was := sim.work(t)
	text := fmt.Sprintf("Request %d. %s", bodies.Add(1), strings.Repeat("word ", p.words))
	l.ask(t, chatBody(text, p.more), false)
	if p.begun {
		if _, err := http.ReadResponse(l.in, nil); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 10*time.Second, "the request is "+p.name, func() bool { return p.reached(was, sim.work(t)) })
	left := time.Now()
	l.leave(reset)
	look := time.NewTicker(time.Millisecond)
	defer look.Stop()
	for late := time.After(5 * time.Second); ; {
		if is := sim.work(t); is.Aborted == was.Aborted+1 && is.Running+is.Waiting == was.Running+was.Waiting {
			return time.Since(left)
		}
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("the engine goes on: %+v", sim.work(t))
		}
	}
}

// engineMetric reads one series of an engine's own metrics.
func engineMetric(t *testing.T, url, series string) float64 {
	t.Helper()
	text := engineText(t, url)
	v, found := seriesOf(t, text, series)
	if !found {
		t.Fatalf("the engine has no series %s:\n%s", series, text)
	}
	return v
}

// engineText is what an engine's metrics route says.
func engineText(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// slack is how late what a time-out does may come: a tick of the control plane,
// and a machine that has something else to do.
const slack = 150 * time.Millisecond

// within wants what attempt measures to come in time; that it comes late is held
// against a busy machine twice.
func within(t *testing.T, what string, limit time.Duration, attempt func() time.Duration) {
	t.Helper()
	for range 3 {
		took := attempt()
		if took < limit {
			t.Errorf("%s after %v, before its time-out of %v", what, took, limit)
		}
		if took <= limit+slack {
			return
		}
		t.Logf("%s %v after its time-out of %v", what, took-limit, limit)
	}
	t.Errorf("%s later than %v after its time-out three times", what, slack)
}

// soon waits until ok holds and looks often.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for late := time.After(15 * time.Second); !ok(); {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// TestDrainProcessEnds: what is under way when timeouts.drain_process has passed
// is cut, and the exit code says so.
func TestDrainProcessEnds(t *testing.T) {
	const limit = 300 * time.Millisecond
	sim := startEngines(t, 1, "--decode-base-ms", "20")
	within(t, "the stream was cut", limit, func() time.Duration {
		r := serve(t, settings, "timeouts: {drain_process: 300ms}\n", nodeList(sim.urls...))
		l := r.leaver(t, false)
		l.ask(t, chatBody("A long story, please.", `,"max_tokens":5000`+streaming), false)
		resp, err := http.ReadResponse(l.in, nil)
		if err != nil {
			t.Fatal(err)
		}
		asked := time.Now()
		r.signal(t, syscall.SIGTERM)
		_, err = io.Copy(io.Discard, resp.Body)
		took := time.Since(asked)
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the stream ended with %v, want a reset", err)
		}
		if code := r.wait(t, 5*time.Second); code != 1 || !strings.Contains(r.err.String(), "requests cut after 300ms: 1") {
			t.Errorf("exit code %d: %s", code, r.err.String())
		}
		return took
	})
}

// TestDrainNodeEnds: a node that is removed and not idle within
// timeouts.drain_node goes, said in the log; the stream it is in the middle of
// goes on.
func TestDrainNodeEnds(t *testing.T) {
	sim := startEngines(t, 2, "--decode-base-ms", "20")
	within(t, "the node went", time.Second, func() time.Duration {
		r := serve(t, settings, "timeouts: {drain_node: 1s}\n", nodeList(sim.urls...))
		l := r.leaver(t, false)
		l.ask(t, r.bodyFor(t, "sim-0", `,"max_tokens":120`+streaming), false)
		resp, err := http.ReadResponse(l.in, nil)
		if err != nil || resp.Header.Get("X-Routed-To") != "sim-0" {
			t.Fatalf("%+v, %v", resp, err)
		}
		asked := time.Now()
		if status, said := r.adminDo(t, http.MethodDelete, "/api/nodes/sim-0", ""); status != http.StatusAccepted {
			t.Fatalf("remove: %d %s", status, said)
		}
		soon(t, "the node is gone", func() bool { return r.node(t, "sim-0") == nil })
		took := time.Since(asked)
		const words = "node did not drain in time"
		soon(t, "the log says so", func() bool { return strings.Contains(r.err.String(), words) })
		if text, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(text), "[DONE]") {
			t.Errorf("the stream ended with %v after %d bytes", err, len(text))
		}
		if n := strings.Count(r.err.String(), words); n != 1 {
			t.Errorf("the log says %d times that the node did not drain", n)
		}
		return took
	})
}

// frail is an engine whose routes do as they are told.
type frail struct {
	*httptest.Server
	health, chat atomic.Int64 // status of the answers; 0 = it hangs
	slowly       atomic.Int64 // ns that an answer of the health route takes
	chats, most  atomic.Int64 // requests now, and the most at once
	probed       atomic.Int64 // when the last probe came, Unix nanoseconds
	release      chan struct{}
}

func startFrail(t *testing.T) *frail {
	t.Helper()
	f := &frail{release: make(chan struct{})}
	f.health.Store(http.StatusOK)
	f.chat.Store(http.StatusOK)
	answer := func(w http.ResponseWriter, r *http.Request, status int64, body string) {
		if status == 0 {
			select {
			case <-r.Context().Done():
			case <-f.release:
			}
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(int(status))
		_, _ = io.WriteString(w, body)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) {
		f.probed.Store(time.Now().UnixNano())
		select {
		case <-r.Context().Done():
		case <-time.After(time.Duration(f.slowly.Load())):
		}
		answer(w, r, f.health.Load(), "")
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, http.StatusOK, `{"object":"list","data":[{"id":"sim"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		f.most.Store(max(f.most.Load(), f.chats.Add(1)))
		defer f.chats.Add(-1)
		answer(w, r, f.chat.Load(), `{"choices":[{"message":{"content":"well"}}]}`)
	})
	f.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		close(f.release)
		f.CloseClientConnections()
		f.Close()
	})
	return f
}

// breaks sends requests until the node's breaker is open.
func (r *serving) breaks(t *testing.T, name string) {
	t.Helper()
	soon(t, "the breaker opens", func() bool {
		r.try(t, chatPath, chatBody(fmt.Sprintf("Break %d.", bodies.Add(1)), ""))
		return r.node(t, name).Breaker == "open"
	})
}

// TestHealthHangs: a health route that does not answer is given up after
// health.timeout, an open breaker half opens after breaker.open, and opens again
// when its probe has no answer within breaker.probe_timeout.
func TestHealthHangs(t *testing.T) {
	bad, good := startFrail(t), startFrail(t)
	t.Run("health.timeout", func(t *testing.T) {
		r := serve(t, "listen: 127.0.0.1:0\nlimits: {connections: 100}\nlog: {format: json}\nhealth: {interval: 300ms, interval_down: 300ms, timeout: 200ms, down_after: 1, up_after: 1}\n", nodeList(bad.URL, good.URL))
		within(t, "the node was down", 200*time.Millisecond-looked, func() time.Duration {
			soon(t, "the node is up", func() bool { return r.node(t, "sim-0").State == "ready" })
			bad.health.Store(0)
			defer bad.health.Store(http.StatusOK)
			before := bad.probed.Load()
			soon(t, "a probe hangs", func() bool { return bad.probed.Load() != before })
			soon(t, "the node is down", func() bool { return r.node(t, "sim-0").State == "down" })
			return time.Since(time.Unix(0, bad.probed.Load()))
		})
	})
	t.Run("breaker.open, breaker.probe_timeout", func(t *testing.T) {
		r := serve(t, "listen: 127.0.0.1:0\nlimits: {connections: 100}\nlog: {format: json}\nhealth: {interval: 1h, interval_down: 1h, timeout: 5s, down_after: 100}\nbreaker: {open: 400ms, probe_timeout: 300ms}\n", nodeList(bad.URL, good.URL))
		bad.chat.Store(http.StatusInternalServerError)
		bad.health.Store(0)
		defer bad.health.Store(http.StatusOK)
		r.breaks(t, "sim-0")
		breaker := func(is string) time.Time {
			soon(t, "the breaker is "+is, func() bool { return r.node(t, "sim-0").Breaker == is })
			return time.Now()
		}
		within(t, "the breaker opened again", 300*time.Millisecond-looked, func() time.Duration {
			breaker("open")
			half := breaker("half_open")
			return breaker("open").Sub(half)
		})
		within(t, "the breaker half opened", 400*time.Millisecond-looked, func() time.Duration {
			breaker("half_open")
			opened := breaker("open")
			return breaker("half_open").Sub(opened)
		})
		bad.health.Store(http.StatusOK)
		bad.chat.Store(http.StatusOK)
		breaker("closed")
	})
	t.Run("a breaker's probe may take longer than others", func(t *testing.T) {
		r := serve(t, "listen: 127.0.0.1:0\nlimits: {connections: 100}\nlog: {format: json}\nhealth: {interval: 1h, interval_down: 1h, timeout: 300ms}\nbreaker: {open: 200ms, probe_timeout: 3s}\n", nodeList(bad.URL, good.URL))
		bad.slowly.Store(int64(600 * time.Millisecond))
		defer bad.slowly.Store(0)
		bad.chat.Store(http.StatusInternalServerError)
		r.breaks(t, "sim-0")
		bad.chat.Store(http.StatusOK)
		soon(t, "the breaker is closed", func() bool { return r.node(t, "sim-0").Breaker == "closed" })
		if strings.Contains(r.err.String(), "the probe failed") {
			t.Errorf("the probe was given up before breaker.probe_timeout: %s", tail(r.err.String()))
		}
	})
	t.Run("without a health route", func(t *testing.T) {
		bad.health.Store(http.StatusNotFound)
		defer bad.health.Store(http.StatusOK)
		r := serve(t, "listen: 127.0.0.1:0\nlimits: {connections: 100}\nlog: {format: json}\nhealth: {interval: 1h, interval_down: 1h}\nbreaker: {open: 200ms}\npolicy: {name: round_robin}\n", nodeList(bad.URL, good.URL))
		said := func(text string) func() bool {
			return func() bool {
				r.try(t, chatPath, chatBody(fmt.Sprintf("Try %d.", bodies.Add(1)), ""))
				return strings.Contains(r.err.String(), text)
			}
		}
		bad.chat.Store(http.StatusInternalServerError)
		r.breaks(t, "sim-0")
		soon(t, "a request is the probe, and fails", said("the request failed"))
		bad.chat.Store(0) // so that the probe is under way while others come
		bad.most.Store(0)
		ctx, give := context.WithCancel(t.Context())
		defer give()
		var others sync.WaitGroup
		soon(t, "a request is the probe, and hangs", func() bool {
			others.Go(func() { r.send(ctx, chatPath, "", chatBody(fmt.Sprintf("Other %d.", bodies.Add(1)), ""), nil) })
			return bad.chats.Load() > 0
		})
		for range 30 {
			r.ask(t, chatBody(fmt.Sprintf("Meanwhile %d.", bodies.Add(1)), ""))
		}
		if n := bad.most.Load(); n != 1 {
			t.Errorf("%d requests were the probe at once", n)
		}
		give()
		others.Wait()
		bad.chat.Store(http.StatusOK)
		soon(t, "a request is the probe, and succeeds", said("the request succeeded"))
		if n := r.node(t, "sim-0"); !usable(n) {
			t.Errorf("the node is %s, its breaker %s", n.State, n.Breaker)
		}
	})
}

// looked is how much of a time may have passed before a test saw it begin.
const looked = 20 * time.Millisecond
