package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warmpath/bench/load/stamp"
)

var chatBodies = [][]byte{[]byte(`{"stream":true,"n":1}`), []byte(`{"stream":true,"n":2}`)}

// raw serves connections by hand until the test ends, and returns its URL.
func raw(t *testing.T, serve func(net.Conn, *bufio.Reader)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var under sync.WaitGroup
	under.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			under.Go(func() {
				defer conn.Close()
				serve(conn, bufio.NewReader(conn))
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		under.Wait()
	})
	return "http://" + listener.Addr().String()
}

// request reads one request with its body; nil at the connection's end.
func request(r *bufio.Reader) *http.Request {
	req, err := http.ReadRequest(r)
	if err != nil {
		return nil
	}
	_, _ = io.Copy(io.Discard, req.Body) // what lacks shows in the next request
	return req
}

func mustRun(t *testing.T, o Options) *Report {
	t.Helper()
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != r.OK+r.Errors+r.Cut {
		t.Errorf("%d requests, %d ok + %d errors + %d cut", r.Requests, r.OK, r.Errors, r.Cut)
	}
	return r
}

const (
	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
	oneToken   = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"
)

func chunked(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

// TestStallShowsInPercentiles holds one request on the only connection for 400
// of 800 ms. Whoever measures from the time of sending sees one slow request;
// half of the users had one.
func TestStallShowsInPercentiles(t *testing.T) {
	var served atomic.Int64
	url := raw(t, func(conn net.Conn, r *bufio.Reader) {
		for request(r) != nil {
			if served.Add(1) == 10 {
				<-time.After(400 * time.Millisecond)
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		}
	})
	r := mustRun(t, Options{URL: url, Rate: 250, Arrivals: Constant, MaxConnections: 1, Duration: 800 * time.Millisecond})
	if r.OK != 200 || r.ConnectionsMade != 1 {
		t.Errorf("%d ok, %d connections; want 200 over 1", r.OK, r.ConnectionsMade)
	}
	if r.E2EL.P90 < 250 || r.E2EL.Max < 390 {
		t.Errorf("from due times: p90 %.0f ms, max %.0f ms; want the stall of 400 ms in it", r.E2EL.P90, r.E2EL.Max)
	}
	if r.Service.P90 > r.E2EL.P90/2 {
		t.Errorf("from sending: p90 %.0f ms, from due times %.0f ms", r.Service.P90, r.E2EL.P90)
	}
	if r.Late.Requests < 80 || r.Late.MaxMs < 350 {
		t.Errorf("late: %+v, want the 100 that were due in the stall", r.Late)
	}
}

func TestOpenLoopCountsAllThatWasDue(t *testing.T) {
	var served atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodGet || req.URL.RequestURI() != "/v1/files?a=b" || req.Header.Get("X-Test") != "yes" {
			t.Errorf("%s %s %v", req.Method, req.URL, req.Header)
		}
		served.Add(1)
	}))
	defer server.Close()
	var window []bool
	r := mustRun(t, Options{
		URL: server.URL + "/v1/files?a=b", Rate: 400, Arrivals: Constant, Headers: map[string]string{"X-Test": "yes"},
		Duration: 300 * time.Millisecond, Warmup: 100 * time.Millisecond,
		Window: func(open bool) { window = append(window, open) },
	})
	if r.Requests != 120 || r.OK != 120 || r.E2EL.Count != 120 {
		t.Errorf("%d requests, %d ok, %d measured; want 120", r.Requests, r.OK, r.E2EL.Count)
	}
	if served.Load() != 160 {
		t.Errorf("%d served, warm-up included; want 160", served.Load())
	}
	if len(window) != 2 || !window[0] || window[1] {
		t.Errorf("window: %v", window)
	}
	if r.ElapsedS < 0.3 || r.RequestsPerS > 400.1 {
		t.Errorf("%v s, %v requests/s", r.ElapsedS, r.RequestsPerS)
	}
}

// TestCutStreamsAreNoErrors breaks every fourth stream off, in two ways.
func TestCutStreamsAreNoErrors(t *testing.T) {
	var streams atomic.Int64
	url := raw(t, func(conn net.Conn, r *bufio.Reader) {
		for request(r) != nil {
			n := streams.Add(1)
			_, _ = io.WriteString(conn, streamHead+chunked(oneToken))
			if n%4 == 0 {
				if n%8 == 0 {
					_, _ = io.WriteString(conn, "0\r\n\r\n")
					continue
				}
				return
			}
			_, _ = io.WriteString(conn, chunked(oneToken+"data: [DONE]\n\n")+"0\r\n\r\n")
		}
	})
	r := mustRun(t, Options{URL: url, Bodies: chatBodies, Stream: true, Rate: 200, Arrivals: Constant, Duration: 400 * time.Millisecond})
	if r.Requests != 80 || r.Cut != 20 || r.Errors != 0 || r.OK != 60 {
		t.Errorf("%d requests, %d ok, %d cut, errors %v (%s); want 80, 60, 20, none", r.Requests, r.OK, r.Cut, r.ErrorKinds, r.FirstError)
	}
	if r.TTFT.Count != 80 || r.ITL.Count != 60 || r.TPOT.Count != 60 || r.OutputTokens != 120 || r.ContentEvents != 140 {
		t.Errorf("ttft of %d, itl of %d, tpot of %d, %d tokens, %d events", r.TTFT.Count, r.ITL.Count, r.TPOT.Count, r.OutputTokens, r.ContentEvents)
	}
}

// TestTTFTIsTheFirstContent: the head comes at once, the first event later.
func TestTTFTIsTheFirstContent(t *testing.T) {
	url := raw(t, func(conn net.Conn, r *bufio.Reader) {
		for request(r) != nil {
			_, _ = io.WriteString(conn, streamHead+chunked(`data: {"choices":[{"delta":{"role":"assistant","content":""}}]}`+"\n\n"))
			<-time.After(60 * time.Millisecond)
			_, _ = io.WriteString(conn, chunked(oneToken))
			<-time.After(30 * time.Millisecond)
			_, _ = io.WriteString(conn, chunked(oneToken+"data: [DONE]\n\n")+"0\r\n\r\n")
		}
	})
	r := mustRun(t, Options{
		URL: url, Bodies: chatBodies, Stream: true, Rate: 50, Duration: 300 * time.Millisecond,
		Goodput: Goodput{TTFT: time.Millisecond, E2EL: time.Minute},
	})
	if r.OK == 0 || r.TTFT.Min < 60 || r.ITL.Max < 30 || r.E2EL.Min < 90 || r.TPOT.Max < 30 {
		t.Errorf("ok %d, ttft %v, itl %v, tpot %v, e2el %v", r.OK, r.TTFT.Min, r.ITL.Min, r.TPOT.Min, r.E2EL.Min)
	}
	if r.GoodPerS != 0 {
		t.Errorf("%v good requests/s with a first token within 1 ms", r.GoodPerS)
	}
}

func TestErrorsByKind(t *testing.T) {
	for _, c := range []struct{ kind, answer string }{
		{"status_429", "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nbusy"},
		{"closed", ""},
		{"malformed", "HTTP/1.1 200 OK\nContent-Length: 0\n\n" + strings.Repeat("x", maxHeadBytes)},
		{"not_streamed", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"},
		{"error_event", streamHead + chunked("data: {\"error\":{}}\n\ndata: [DONE]\n\n") + "0\r\n\r\n"},
	} {
		url := raw(t, func(conn net.Conn, r *bufio.Reader) {
			if request(r) != nil {
				_, _ = io.WriteString(conn, c.answer)
			}
		})
		r := mustRun(t, Options{URL: url, Bodies: chatBodies, Stream: true, Rate: 100, Arrivals: Constant, Duration: 100 * time.Millisecond})
		if r.Errors != 10 || r.ErrorKinds[c.kind] != 10 || r.OK+r.Cut != 0 || r.FirstError == "" {
			t.Errorf("%s: %v, %d ok, %d cut, first %q", c.kind, r.ErrorKinds, r.OK, r.Cut, r.FirstError)
		}
	}
}

func TestTimeouts(t *testing.T) {
	url := raw(t, func(_ net.Conn, r *bufio.Reader) {
		for request(r) != nil {
		}
	})
	start := time.Now()
	r := mustRun(t, Options{
		URL: url, Rate: 100, Arrivals: Constant, MaxConnections: 3, Timeout: 80 * time.Millisecond, Duration: 200 * time.Millisecond,
	})
	if r.Errors != 20 || r.ErrorKinds["timeout"]+r.ErrorKinds["unsent"] != 20 || r.MostConcurrent != 3 {
		t.Errorf("%v, %d at once", r.ErrorKinds, r.MostConcurrent)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("the run took %s, with a timeout of 80 ms", took)
	}
}

// TestUnsent: what waits for a connection until its time is up is not sent any
// more, and counted.
func TestUnsent(t *testing.T) {
	l, peer := pipe(t, Options{Timeout: time.Second})
	a := newArrivals(&Options{Rate: 10, Arrivals: Constant}, l.now, l.now+1e9)
	l.arrivals, l.open = a, l.now
	l.now += 1e8
	l.dispatch()
	if l.nBusy != 1 || l.blocked {
		t.Fatalf("%d under way, blocked %v", l.nBusy, l.blocked)
	}
	l.now += 5e8
	if l.dispatch(); l.nBusy != 1 || !l.blocked {
		t.Fatalf("%d under way, blocked %v; there is one connection", l.nBusy, l.blocked)
	}
	l.now += 1e9 // seven requests were due more than a second ago, the first of them sent
	due := l.busy.first.due
	l.timeoutNs = 2e9 // of the one that was sent, let it be answered
	feed(t, l.busy.first, peer, []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
	l.now, l.timeoutNs = due+16e8, 1e9
	l.dispatch()
	if l.t.failed[failUnsent] != 6 || l.t.ok != 1 || l.busy.first.due != due+7e8 {
		t.Errorf("%d unsent, %d ok, under way the one due after %d ms", l.t.failed[failUnsent], l.t.ok, (l.busy.first.due-due)/1e6)
	}
}

func TestRefusedConnections(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + listener.Addr().String()
	_ = listener.Close()
	r := mustRun(t, Options{URL: url, Rate: 100, Arrivals: Constant, Duration: 100 * time.Millisecond})
	if r.ErrorKinds["connect"] != 10 || !strings.Contains(r.FirstError, "refused") {
		t.Errorf("%v, %q", r.ErrorKinds, r.FirstError)
	}
	const duration = 200 * time.Millisecond
	r = mustRun(t, Options{URL: url, Concurrency: 5, Duration: duration})
	if most := 5 * (1 + int64(duration)/pauseNs); r.Errors == 0 || r.Errors > most {
		t.Errorf("a closed loop tried %d times, want 1 to %d", r.Errors, most)
	}
}

func TestClosedLoop(t *testing.T) {
	var now, most, conns atomic.Int64
	url := raw(t, func(conn net.Conn, r *bufio.Reader) {
		conns.Add(1)
		for request(r) != nil {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			_, _ = io.WriteString(conn, streamHead+chunked(oneToken))
			<-time.After(5 * time.Millisecond)
			now.Add(-1)
			_, _ = io.WriteString(conn, chunked(oneToken+"data: [DONE]\n\n")+"0\r\n\r\n")
		}
	})
	r := mustRun(t, Options{URL: url, Bodies: chatBodies, Stream: true, Concurrency: 8, Duration: 300 * time.Millisecond, Warmup: 50 * time.Millisecond})
	if conns.Load() != 8 || r.ConnectionsMade != 8 || r.MostConcurrent != 8 {
		t.Errorf("%d connections, %d made, %d concurrent; want 8", conns.Load(), r.ConnectionsMade, r.MostConcurrent)
	}
	if r.OK < 20 || r.Errors+r.Cut != 0 || r.Unfinished != 8 {
		t.Errorf("ok %d, errors %v, cut %d, unfinished %d", r.OK, r.ErrorKinds, r.Cut, r.Unfinished)
	}
	if want := float64(r.ContentEvents) / 0.3; r.OutputTokensPS < want*0.99 || r.OutputTokensPS > want*1.01 {
		t.Errorf("%v tokens/s of %d events", r.OutputTokensPS, r.ContentEvents)
	}
}

// TestClosingServer ends each connection with its answer; no request is lost.
func TestClosingServer(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
		"HTTP/1.1 200 OK\r\n\r\nok",
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", // and an idle connection ends
	} {
		url := raw(t, func(conn net.Conn, r *bufio.Reader) {
			if request(r) != nil {
				_, _ = io.WriteString(conn, answer)
			}
		})
		r := mustRun(t, Options{URL: url, Rate: 100, Arrivals: Constant, Duration: 200 * time.Millisecond})
		// A request may meet an idle connection that the server is about to end.
		if met := r.ErrorKinds["closed"]; r.OK+met != 20 || met > 5 || r.ConnectionsMade < 20-met {
			t.Errorf("%q: %d ok over %d connections, %v", answer, r.OK, r.ConnectionsMade, r.ErrorKinds)
		}
	}
}

// TestLongBodies need room in the socket more than once, and an answer that
// comes before the body was written.
func TestLongBodies(t *testing.T) {
	body := []byte(strings.Repeat("x", 8<<20))
	var whole atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if n, err := io.Copy(io.Discard, req.Body); err == nil && n == int64(len(body)) {
			whole.Add(1)
		}
		_, _ = io.WriteString(w, "ok")
	}))
	defer server.Close()
	o := Options{URL: server.URL, Bodies: [][]byte{body}, Rate: 50, Arrivals: Constant, Duration: 100 * time.Millisecond}
	if r := mustRun(t, o); r.OK != 5 || whole.Load() != 5 {
		t.Errorf("%d ok, %d whole: %s", r.OK, whole.Load(), r.FirstError)
	}
	over := make(chan struct{})
	defer close(over)
	o.URL = raw(t, func(conn net.Conn, r *bufio.Reader) {
		if _, err := r.ReadString('\n'); err == nil {
			_, _ = io.WriteString(conn, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")
			<-over // reads no more
		}
	})
	if r := mustRun(t, o); r.ErrorKinds["status_413"] != 5 || r.ConnectionsMade != 5 {
		t.Errorf("%v over %d connections", r.ErrorKinds, r.ConnectionsMade)
	}
}

// TestMergedAndSplitChunks: reads and merged tell what happened on the way.
func TestMergedAndSplitChunks(t *testing.T) {
	url := raw(t, func(conn net.Conn, r *bufio.Reader) {
		event := []byte(`data: {` + stamp.Field + `,"choices":[{"delta":{"content":"a"}}]}` + "\n\n")
		stamped := func() string {
			stamp.Put(event[stamp.At(event):], stamp.Now())
			return chunked(string(event))
		}
		for request(r) != nil {
			_, _ = io.WriteString(conn, streamHead)
			<-time.After(5 * time.Millisecond)
			_, _ = io.WriteString(conn, stamped()+stamped()+stamped()) // three in one read
			<-time.After(5 * time.Millisecond)
			one := stamped()
			_, _ = io.WriteString(conn, one[:40]) // one in two
			<-time.After(5 * time.Millisecond)
			_, _ = io.WriteString(conn, one[40:])
			<-time.After(5 * time.Millisecond)
			_, _ = io.WriteString(conn, stamped()+chunked("data: [DONE]\n\n")+"0\r\n\r\n")
		}
	})
	r := mustRun(t, Options{URL: url, Bodies: chatBodies, Stream: true, Rate: 20, Arrivals: Constant, Duration: 500 * time.Millisecond})
	if r.OK != 10 || r.Chunks == nil || r.Chunks.Received != 50 || r.Chunks.Reads != 40 || r.Chunks.Merged != 20 || r.Chunks.ClockSkew != 0 {
		t.Fatalf("%d ok, chunks %+v", r.OK, r.Chunks)
	}
	if r.ChunkUs.Count != 50 || r.ChunkUs.Max < 5000 || r.ChunkUs.Min <= 0 || r.ChunkUs.Min > 5000 {
		t.Errorf("%+v; one in five was held for 5 ms", *r.ChunkUs)
	}
}

func TestCancelled(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	for _, o := range []Options{{Concurrency: 3}, {Rate: 300}} {
		ctx, cancel := context.WithCancel(t.Context())
		o.URL, o.Duration, o.Warmup = server.URL, time.Hour, 10*time.Millisecond
		o.Window = func(open bool) {
			if open {
				context.AfterFunc(ctx, func() {}) // still running
				go cancel()
			}
		}
		r, err := Run(ctx, o)
		if !errors.Is(err, context.Canceled) || r == nil {
			t.Errorf("%+v: report %v, error %v", o, r, err)
		}
		cancel()
	}
}
