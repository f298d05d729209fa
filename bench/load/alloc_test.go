package load

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"warmpath/bench/load/stamp"
)

// TestAnswersDoNotAlloc sends one request after the other over one connection,
// whose answers come in awkward pieces.
func TestAnswersDoNotAlloc(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; the plain run checks this")
	}
	event := []byte(`data: {"id":"x",` + stamp.Field + `,"choices":[{"delta":{"content":"a"}}]}` + "\n\n")
	stamp.Put(event[stamp.At(event):], stamp.Now())
	var stream bytes.Buffer
	stream.WriteString("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	for range 5 {
		stream.WriteString("57\r\n")
		stream.Write(append(event, bytes.Repeat([]byte(":"), 0x57-len(event)-1)...))
		stream.WriteString("\n\r\n")
	}
	stream.WriteString("41\r\ndata: {\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":5    }}\n\n\n\n\r\nE\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
	plain := "HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("x", 9000)
	for _, c := range []struct {
		name, answer string
		piece        int
	}{
		{"stream", stream.String(), 1 << 20},
		{"stream in pieces", stream.String(), 50},
		{"plain", plain, 1 << 20},
		{"plain in pieces", plain, 700},
	} {
		l, peer := pipe(t, Options{Stream: strings.HasPrefix(c.name, "stream")})
		pieces := slices.Collect(slices.Chunk([]byte(c.answer), c.piece))
		one := func() {
			l.send(l.now)
			conn := l.busy.first
			for _, piece := range pieces {
				feed(t, conn, peer, piece)
			}
			drain(t, peer)
			if conn.busy || conn.state != connOpen {
				t.Fatalf("%s: %s", c.name, outcome(conn))
			}
		}
		const runs = 200
		one()
		if n := testing.AllocsPerRun(runs, one); n != 0 {
			t.Errorf("%s: %v allocations a request", c.name, n)
		}
		if l.t.ok != runs+2 {
			t.Errorf("%s: %d ok of %d; %s", c.name, l.t.ok, runs+2, l.t.firstError)
		}
	}
}

func TestWaitingDoesNotAlloc(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; the plain run checks this")
	}
	l, peer := pipe(t, Options{})
	for _, coarse := range []bool{false, true} {
		l.poll.coarse = coarse
		l.send(l.now)
		c := l.busy.first
		feed(t, c, peer, []byte("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n"))
		if n := testing.AllocsPerRun(100, func() {
			if events, err := l.poll.wait(1000); err != nil || len(events) > 1 {
				t.Fatal(events, err)
			}
		}); n != 0 {
			t.Errorf("coarse %v: %v allocations a wait", coarse, n)
		}
		feed(t, c, peer, []byte("x"))
	}
}

func TestArrivalsDoNotAlloc(t *testing.T) {
	a := newArrivals(&Options{Rate: 1e6}, 0, int64(longest))
	if n := testing.AllocsPerRun(1000, a.advance); n != 0 {
		t.Errorf("%v allocations an arrival", n)
	}
	s := newStarts(10, 0, 100)
	if n := testing.AllocsPerRun(1000, func() { s.pop(); s.push(1) }); n != 0 {
		t.Errorf("%v allocations a start", n)
	}
}

// TestBuffersAreBounded feeds what a connection keeps between reads: a line
// without end, a body without end, and long ones that end.
func TestBuffersAreBounded(t *testing.T) {
	l, peer := pipe(t, Options{Stream: true})
	piece := bytes.Repeat([]byte("x"), 32<<10)
	send := func(head string, pieces int, tail string) *conn {
		l.send(l.now)
		c := l.busy.first
		feed(t, c, peer, []byte(head))
		for range pieces {
			if c.busy {
				feed(t, c, peer, piece)
			}
		}
		if tail != "" {
			feed(t, c, peer, []byte(tail))
		}
		drain(t, peer)
		return c
	}
	l.o.Stream = false
	c := send("HTTP/1.1 200 OK\r\nContent-Length: 3276801\r\n\r\n", 100, "x")
	if c.busy || l.t.ok != 1 || cap(c.tail) > 2*tailBytes {
		t.Errorf("a long body: %s, kept %d bytes", outcome(c), cap(c.tail))
	}
	l.o.Stream = true
	c = send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 655374\r\n\r\n", 20, "data: [DONE]\n\n")
	if c.busy || cap(c.lines.part) > keptBytes {
		t.Errorf("a long line: busy %v, kept %d bytes", c.busy, cap(c.lines.part))
	}
	c = send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", 100, "")
	if c.busy || l.t.failed[failLongLine] != 1 || cap(c.lines.part) > keptBytes {
		t.Errorf("a line without end: %s, kept %d bytes", outcome(c), cap(c.lines.part))
	}
}
