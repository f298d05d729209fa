package dataplane_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"warmpath/dataplane"
)

// quiet is one connection on which neither side allocates: buffers are made
// once, and messages are delimited by hand.
type quiet struct {
	c   net.Conn
	buf []byte
}

var (
	headEnd   = []byte("\r\n\r\n")
	lengthKey = []byte("\r\nContent-Length: ")

	chunkedKey   = []byte("\r\nTransfer-Encoding: chunked")
	lastOfChunks = []byte("\r\n0\r\n\r\n")
)

// message reads one head and its body, whose length stands in the head; else it
// is chunked and ends with the last chunk.
func (q *quiet) message() (whole []byte, err error) {
	have := 0
	for {
		n, err := q.c.Read(q.buf[have:])
		if err != nil {
			return nil, err
		}
		have += n
		end := bytes.Index(q.buf[:have], headEnd)
		if end < 0 {
			continue
		}
		need := end + len(headEnd) + length(q.buf[:end])
		chunked := bytes.Contains(q.buf[:end], chunkedKey)
		for have < need || chunked && !bytes.HasSuffix(q.buf[:have], lastOfChunks) {
			if n, err = q.c.Read(q.buf[have:]); err != nil {
				return nil, err
			}
			have += n
		}
		return q.buf[:have], nil
	}
}

func length(head []byte) (n int) {
	at := bytes.Index(head, lengthKey)
	if at < 0 {
		return 0
	}
	for _, c := range head[at+len(lengthKey):] {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// quietNode answers every message with the same bytes.
func quietNode(answer string) func(*conn) {
	return func(c *conn) {
		q, text := &quiet{c.TCPConn, make([]byte, 2<<20)}, []byte(answer)
		for {
			if _, err := q.message(); err != nil {
				return
			}
			if _, err := c.Write(text); err != nil {
				return
			}
		}
	}
}

// asker sends prompts of that size, of 64 kinds in turn.
type asker struct {
	quiet
	request []byte
	at      int // where the kind stands in the request
	n       int
}

func newAsker(r *router, size int, chunks bool) *asker {
	mark := "kind-00"
	piece := " some words of a prompt with \\\"escapes\\\""
	text := mark + strings.Repeat(piece, (size-140)/len(piece))
	body := `{"model":"m","max_tokens":64,"messages":[{"role":"system","content":"You are terse."},{"role":"user","content":"` + text + ` end"}]}`
	request := "POST /v1/chat/completions HTTP/1.1\r\nHost: router:8080\r\nAuthorization: Bearer secret\r\nContent-Type: application/json\r\nUser-Agent: bench\r\n"
	if half := len(body) / 2; chunks {
		request += "Transfer-Encoding: chunked\r\n\r\n" + chunk(body[:half]) + chunk(body[half:]) + "0\r\n\r\n"
	} else {
		request += "Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	}
	return &asker{quiet{r.dial().TCPConn, make([]byte, 64<<10)}, []byte(request), strings.Index(request, mark) + 5, 0}
}

func (a *asker) ask() error {
	a.n++
	kind := a.n & 63
	a.request[a.at], a.request[a.at+1] = byte('0'+kind>>3), byte('0'+kind&7)
	if _, err := a.c.Write(a.request); err != nil {
		return err
	}
	b, err := a.message()
	if err == nil && !bytes.HasPrefix(b, []byte("HTTP/1.1 200")) {
		return fmt.Errorf("got %q", b)
	}
	return err
}

const quietAnswer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 80\r\n\r\n" +
	`{"usage":{"prompt_tokens":1000,"completion_tokens":4,"total_tokens":1004},"x":1}`

// mallocs counts the allocations of the whole process while f runs.
func mallocs(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs
}

// TestRequestPathAllocs: from a client's bytes to the node and back to the
// client nothing is allocated once the loop is warm.
func TestRequestPathAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const quietChunks = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n28\r\n" +
		`{"usage":{"prompt_tokens":1000,"completi` + "\r\n28\r\n" + `on_tokens":4,"total_tokens":1004},"x":1}` + "\r\n0\r\n\r\n"
	for name, c := range map[string]struct {
		size   int
		chunks bool   // of the request
		answer string // … and of its answer
		window int64
	}{
		"4K":                          {4 << 10, false, quietAnswer, 0},
		"64K":                         {64 << 10, false, quietAnswer, 0},
		"1M":                          {1 << 20, false, quietAnswer, 0},
		"4K, chunked both ways":       {4 << 10, true, quietChunks, 0},
		"1M, sent on before it is in": {1 << 20, false, quietAnswer, 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			set := func(s *dataplane.Settings) { s.RoutingWindowBytes = c.window }
			r := start(t, setup{alone: true, set: set}, startNode(t, "a", quietNode(c.answer)), startNode(t, "b", quietNode(c.answer)))
			a := newAsker(r, c.size, c.chunks)
			wholePathAllocs(t, r, a)
			if rec := r.d.Records(1); rec[0].Exactness != dataplane.ExactText {
				t.Errorf("the prompt was identified by %v", rec[0].Exactness)
			}
			r.settled()
		})
	}
}

// wholePathAllocs expects that a warm router allocates nothing for what a asks.
func wholePathAllocs(t *testing.T, r *router, a *asker) {
	t.Helper()
	rounds := func(n int) {
		for range n {
			if err := a.ask(); err != nil {
				t.Fatal(err)
			}
		}
	}
	rounds(500)
	requests := min(3000, 1<<30/len(a.request))
	runtime.GC()
	rounds(100)     // pools that the collector has emptied fill again
	const tries = 3 // what the runtime itself allocates meanwhile is not a request's
	for n := 1; ; n++ {
		began := time.Now()
		busy := mallocs(func() { rounds(requests) })
		took := time.Since(began)
		idle := mallocs(func() { <-time.After(took) }) // the ticks of the loops
		each := (float64(busy) - float64(idle)) / float64(requests)
		t.Logf("%d allocations in %d requests, %d in the same time without any: %.4f a request", busy, requests, idle, each)
		switch {
		case each <= 0.05:
			return
		case n == tries:
			t.Errorf("%.4f allocations a request, want none", each)
			return
		}
	}
}

// TestStreamPathAllocs: the same for event streams, per event.
func TestStreamPathAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	const events = 5000
	one, step := []byte(chunk(event(strings.Repeat("token", 30)))), make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		c.request()
		c.send(streamHead)
		for range step {
			if _, err := c.Write(one); err != nil {
				return
			}
		}
		c.send("0\r\n\r\n")
		c.gone()
	})
	r := start(t, setup{alone: true}, a)
	c := r.dial()
	c.send(post("stream", streamed))
	step <- struct{}{}
	skipHead(t, c)
	got := make([]byte, len(one))
	read := func() {
		if _, err := io.ReadFull(c.r, got); err != nil {
			t.Fatal(err)
		}
	}
	rounds := func(n int) {
		for range n {
			step <- struct{}{}
			read()
		}
	}
	read()
	rounds(500)
	began := time.Now()
	busy := mallocs(func() { rounds(events) })
	took := time.Since(began)
	idle := mallocs(func() { <-time.After(took) })
	each := (float64(busy) - float64(idle)) / events
	t.Logf("%d allocations in %d events, %d in the same time without any: %.4f an event", busy, events, idle, each)
	if each > 0.01 {
		t.Errorf("%.4f allocations an event, want none", each)
	}
	close(step)
	if b, err := c.r.Peek(5); err != nil || string(b) != "0\r\n\r\n" {
		t.Errorf("the stream ended with %q, %v", b, err)
	}
	r.settled()
}

func benchmarkRequest(b *testing.B, size int) {
	r := start(b, setup{}, startNode(b, "a", quietNode(quietAnswer)))
	a := newAsker(r, size, false)
	for range 200 {
		if err := a.ask(); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(a.request)))
	b.ReportAllocs()
	for b.Loop() {
		if err := a.ask(); err != nil {
			b.Fatal(err)
		}
	}
}

// One client, one request at a time: round trip through the router to a node
// that answers at once, both in this process.
func BenchmarkRequest4K(b *testing.B)  { benchmarkRequest(b, 4<<10) }
func BenchmarkRequest64K(b *testing.B) { benchmarkRequest(b, 64<<10) }
