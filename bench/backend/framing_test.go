package backend

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

const post = "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\n"

func TestFramer(t *testing.T) {
	for _, c := range []struct {
		name, in string
		requests int
		fails    bool
	}{
		{"no body", "GET /health HTTP/1.1\r\nHost: a\r\n\r\n", 1, false},
		{"pipeline", strings.Repeat("GET /health HTTP/1.1\r\nHost: a\r\n\r\n", 3), 3, false},
		{"length", post + "Content-Length: 3\r\n\r\nabc" + post + "Content-Length: 0\r\n\r\n", 2, false},
		{"length, cut", post + "Content-Length: 4\r\n\r\nabc", 0, false},
		{"chunked", post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0a\r\n0123456789\r\n0\r\n\r\n", 1, false},
		{"chunked, cut", post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", 0, false},
		{"both lengths", post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 0, true},
		{"two lengths", post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 0, true},
		{"signed length", post + "Content-Length: +3\r\n\r\nabc", 0, true},
		{"chunk extension", post + "Transfer-Encoding: chunked\r\n\r\n3;a\r\n", 0, true},
		{"chunk without end", post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n", 0, true},
		{"long chunk size", post + "Transfer-Encoding: chunked\r\n\r\n000000000003\r\n", 0, true},
		{"bare line feed", "GET /health HTTP/1.1\nHost: a\r\n\r\n", 0, true},
		{"no host", "GET /health HTTP/1.1\r\n\r\n", 0, true},
		{"head without end", strings.Repeat("a", maxHeadBytes+1), 0, true},
	} {
		for _, whole := range []bool{true, false} {
			requests, err := feed([]byte(c.in), whole)
			if requests != c.requests || (err != nil) != c.fails {
				t.Errorf("%s (whole %v): %d requests, error %v", c.name, whole, requests, err)
			}
		}
	}
}

// feed counts the requests of in, given at once or byte by byte.
func feed(in []byte, whole bool) (requests int, err error) {
	var f framer
	start, end := 0, len(in)
	if !whole {
		end = 0
	}
	for {
		for start < end {
			n, done, err := f.step(in[start:end])
			start += n
			if err != nil {
				return requests, err
			}
			if !done {
				break
			}
			requests++
		}
		if end == len(in) {
			return requests, nil
		}
		end++
	}
}

// FuzzFramer checks that what the framer accepts net/http accepts, and ends
// at the same byte.
func FuzzFramer(f *testing.F) {
	f.Add([]byte("GET /health HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte(post + "Content-Length: 3\r\n\r\nabcGET"))
	f.Add([]byte(post + "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nGET"))
	f.Add([]byte(post + "Connection: close\r\nX_y:\t\x80\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var fr framer
		used, done, err := fr.step(in)
		one, oneErr := feed(in, false)
		all, allErr := feed(in, true)
		if one != all || (oneErr != nil) != (allErr != nil) {
			t.Fatalf("byte by byte: %d requests, %v; whole: %d, %v", one, oneErr, all, allErr)
		}
		if err != nil || !done {
			return
		}
		rest := bytes.NewReader(in)
		r := bufio.NewReader(rest)
		req, err := http.ReadRequest(r)
		if err != nil {
			t.Fatalf("net/http refuses what the framer accepts: %v", err)
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			t.Fatalf("net/http refuses the body: %v", err)
		}
		if at := len(in) - rest.Len() - r.Buffered(); at != used {
			t.Fatalf("framer ends at %d, net/http at %d", used, at)
		}
		if fr.close && !req.Close {
			t.Fatalf("framer closes, net/http does not")
		}
	})
}

func TestStepDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates; the plain run checks this")
	}
	in := []byte(post + "Content-Type: application/json\r\nContent-Length: 3\r\n\r\nabc")
	var f framer
	if n := testing.AllocsPerRun(100, func() {
		if used, done, err := f.step(in); used != len(in) || !done || err != nil {
			t.Fatal(used, done, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}

func BenchmarkStep(b *testing.B) {
	in := []byte(post + "Content-Type: application/json\r\nContent-Length: 4096\r\n\r\n" + strings.Repeat("x", 4096))
	var f framer
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		if _, done, err := f.step(in); !done || err != nil {
			b.Fatal(err)
		}
	}
}
