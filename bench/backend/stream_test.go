package backend

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"warmpath/bench/load/stamp"
)

func TestStreamFlag(t *testing.T) {
	long := strings.Repeat(`\"a\": `, 1000)
	for body, want := range map[string]bool{
		``:                false,
		`{"stream":true}`: true,
		`{"model":"bench","stream": true,"messages":"` + long + `"}`:                                        true,
		`{"messages":"` + long + `","stream":true,"stream_options":{"include_usage":true},"max_tokens":99}`: true,
		`{"messages":"` + long + `","stream":false}`:                                                        false,
		`{"messages":"` + long + `","model":"stream"}`:                                                      false,
		`{"messages":"` + strings.Repeat("y", tailBytes) + `"}`:                                             false,
	} {
		for _, piece := range []int{1, 7, headBytes, 100, tailBytes + 1, len(body) + 1} {
			var e edges
			e.reset()
			for rest := []byte(body); len(rest) > 0; {
				n := min(piece, len(rest))
				e.add(rest[:n], n == len(rest))
				rest = rest[n:]
			}
			if e.stream() != want {
				t.Errorf("%.60s… in pieces of %d: %v", body, piece, !want)
			}
		}
	}
}

// FuzzEdges checks that pieces make no difference, and that the flag is found
// wherever it is near an end.
func FuzzEdges(f *testing.F) {
	f.Add([]byte(`{"stream":true,`), []byte(`x"stream": true}`), uint8(3))
	f.Add(bytes.Repeat([]byte("y"), 300), []byte{}, uint8(200))
	f.Fuzz(func(t *testing.T, head, tail []byte, piece uint8) {
		body := slices.Concat(head, bytes.Repeat([]byte(" "), 40), tail)
		var whole, apart edges
		whole.add(body, true)
		step := int(piece)%len(body) + 1
		for rest := body; len(rest) > 0; rest = rest[min(step, len(rest)):] {
			apart.add(rest[:min(step, len(rest))], step >= len(rest))
		}
		if whole.stream() != apart.stream() {
			t.Fatalf("%q in pieces of %d: %v", body, step, apart.stream())
		}
	})
}

// read is one line of a stream and when it came.
type read struct {
	line string
	at   int64
}

// stream posts to the address and returns the lines of the answer.
func stream(t *testing.T, conn net.Conn, r *bufio.Reader) (lines []read) {
	t.Helper()
	const body = `{"model":"bench","stream":true,"messages":[]}`
	if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if kind := res.Header.Get("Content-Type"); res.StatusCode != 200 || !strings.HasPrefix(kind, "text/event-stream") {
		t.Fatalf("status %d, type %q", res.StatusCode, kind)
	}
	text := bufio.NewScanner(res.Body)
	for text.Scan() {
		lines = append(lines, read{text.Text(), stamp.Now()})
	}
	if err := text.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestStream reads two streams of one connection: their form, their stamps and
// their pace.
func TestStream(t *testing.T) {
	o := Options{Loops: 1, Model: "bench", Chunks: 5, ChunkBytes: 140, Interval: 20 * time.Millisecond}
	conn, err := net.Dial("tcp", startWith(t, o)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r := bufio.NewReader(conn)
	for range 2 {
		begun := stamp.Now()
		lines := stream(t, conn, r)
		if len(lines) != 12 || lines[10].line != "data: [DONE]" {
			t.Fatalf("%d lines: %v", len(lines), lines)
		}
		var stamps []int64
		for i := 0; i < 10; i += 2 {
			event := lines[i].line
			sent, ok := stamp.Find([]byte(event))
			if !ok || sent > lines[i].at || lines[i+1].line != "" || len(event)+2 != o.ChunkBytes {
				t.Errorf("event %q of %d bytes, read at %d", event, len(event)+2, lines[i].at)
			}
			if !json.Valid([]byte(strings.TrimPrefix(event, "data: "))) {
				t.Errorf("not JSON: %s", event)
			}
			stamps = append(stamps, sent)
		}
		if took := time.Duration(stamps[4] - begun); took < 4*o.Interval || !slices.IsSorted(stamps) {
			t.Errorf("five chunks within %s, sent at %v", took, stamps)
		}
	}
}

// TestPipelineWaitsForStream sends a stream, a plain request and a last stream
// at once; the answers come in this order, and then the connection ends.
func TestPipelineWaitsForStream(t *testing.T) {
	o := Options{Loops: 1, Model: "bench", Chunks: 3, Interval: time.Millisecond}
	conn, err := net.Dial("tcp", startWith(t, o)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const streamed = "Content-Length: 15\r\n\r\n{\"stream\":true}"
	if _, err := io.WriteString(conn, post+streamed+"GET /v1/files HTTP/1.1\r\nHost: a\r\n\r\n"+post+"Connection: close\r\n"+streamed); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, piece := range strings.Split(string(got), "HTTP/1.1 200 OK")[1:] {
		order = append(order, fmt.Sprint(strings.Count(piece, `"content":"y`), strings.Contains(piece, "[DONE]"), strings.Contains(piece, "file-0")))
	}
	if want := []string{"3 true false", "0 false true", "3 true false"}; !slices.Equal(order, want) {
		t.Errorf("%v, want %v", order, want)
	}
}

// TestManyStreams: each keeps its own pace, and those whose client left are
// forgotten.
func TestManyStreams(t *testing.T) {
	o := Options{Loops: 2, Model: "bench", Chunks: 1000, Interval: 5 * time.Millisecond}
	address := startWith(t, o)[0]
	phases := map[int64]bool{}
	for range 40 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(conn)
		if _, err := io.WriteString(conn, post+"Content-Length: 15\r\n\r\n{\"stream\":true}"); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			line, err := r.ReadString('\n')
			for ; err == nil && !strings.HasPrefix(line, "data: "); line, err = r.ReadString('\n') {
			}
			if err != nil {
				t.Fatal(err)
			}
			sent, _ := stamp.Find([]byte(line))
			phases[sent%int64(o.Interval)/1e5] = true
		}
		_ = conn.Close()
	}
	if len(phases) < 10 {
		t.Errorf("40 streams have %d phases of 50", len(phases))
	}
}

func TestOptions(t *testing.T) {
	good := Options{Addresses: []string{"127.0.0.1:0"}, Loops: 1}
	if o, err := good.withDefaults(); err != nil || o.Chunks != 20 || o.ChunkBytes != 150 || o.Interval != 10*time.Millisecond {
		t.Errorf("%+v, %v", o, err)
	}
	for _, c := range []struct {
		change func(*Options)
		names  string
	}{
		{func(o *Options) { o.Addresses = nil }, "address"},
		{func(o *Options) { o.Loops = 0 }, "loop"},
		{func(o *Options) { o.Chunks = -1 }, "chunks -1"},
		{func(o *Options) { o.ChunkBytes = MinChunkBytes - 1 }, fmt.Sprint(MinChunkBytes)},
		{func(o *Options) { o.ChunkBytes = maxChunkBytes + 1 }, fmt.Sprint(maxChunkBytes)},
		{func(o *Options) { o.Interval = -1 }, "interval"},
	} {
		o := good
		c.change(&o)
		if err := Run(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%+v: %v, want %q in it", o, err, c.names)
		}
	}
	if chunk := newChunkPair(MinChunkBytes).middle; !bytes.Contains(chunk, []byte(`"content":"y"`)) {
		t.Errorf("the shortest chunk: %q", chunk)
	}
}

// TestPacerHeap checks the order of due times against sorting, with removals.
func TestPacerHeap(t *testing.T) {
	p := &pacer{}
	var all []*session
	for i := range 200 {
		s := &session{due: int64(i * 7919 % 1009)}
		all = append(all, s)
		p.push(s)
	}
	for i, s := range all {
		if i%3 == 0 {
			p.remove(s)
		}
	}
	last := int64(-1)
	for len(p.streams) > 0 {
		first := p.streams[0]
		if first.due < last {
			t.Fatalf("%d after %d", first.due, last)
		}
		last = first.due
		p.remove(first)
		if first.at != -1 {
			t.Fatal("a stream that was removed has a place")
		}
	}
}

func TestStampedChunksDoNotAlloc(t *testing.T) {
	p := newChunkPair(150)
	if n := testing.AllocsPerRun(100, func() { _ = p.stamped(false); _ = p.stamped(true) }); n != 0 {
		t.Errorf("%v allocations a chunk", n)
	}
}
