package load

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// reading is what a reader made of bytes.
type reading struct {
	status   int
	body     string
	used     int  // bytes up to the answer's end
	complete bool // by its framing, or by the end of the connection
	failed   bool
}

// readAll lets a reader read pieces of the given size, then the end of the
// connection.
func readAll(in []byte, piece int) (got reading) {
	var r reader
	var body strings.Builder
	defer func() { got.status, got.body = r.status, body.String() }()
	r.reset()
	for start := 0; start < len(in); start += piece {
		b := in[start:min(start+piece, len(in))]
		for len(b) > 0 || r.pending() {
			n, data, p, err := r.next(b)
			got.used += n
			b = b[n:]
			body.Write(data)
			if err != nil {
				got.failed = true
				return got
			}
			if p == partEnd {
				got.complete = true
				return got
			}
		}
	}
	got.complete = r.inBody() && r.eof()
	return got
}

// readStandard does the same with net/http. It skips interim answers, which
// net/http leaves to its caller.
func readStandard(in []byte) (got reading, err error) {
	rest := bytes.NewReader(in)
	b := bufio.NewReader(rest)
	for {
		res, err := http.ReadResponse(b, &http.Request{Method: http.MethodGet})
		if err != nil {
			return got, err
		}
		if res.StatusCode < 200 {
			continue
		}
		body, err := io.ReadAll(res.Body)
		return reading{status: res.StatusCode, body: string(body), used: len(in) - rest.Len() - b.Buffered(), complete: true}, err
	}
}

var answerSeeds = []string{
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP",
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	"HTTP/1.1 200\r\ncontent-length:3\r\nContent-Length: 3\r\n\r\nabc",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n00A;x=\"y\"\r\n0123456789\r\n0\r\n\r\nHTTP",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\nC:\r\n\r\n",
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
	"HTTP/1.1 200 OK\r\nConnection: close, x\r\n\r\nto the end",
	"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1",
	"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n",
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nA: b\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 1\r\n\r\nx",
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello",
	"HTTP/1.1 200 OK\r\nX Y: z\r\n\r\n",
	"HTTP/2 200\r\n\r\n",
}

// FuzzReader checks that what the reader accepts net/http accepts, with the
// same status, body and end, and that pieces make no difference.
func FuzzReader(f *testing.F) {
	for _, seed := range answerSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		all := readAll(in, max(len(in), 1))
		for _, piece := range []int{1, 2, 3, 7} {
			if apart := readAll(in, piece); apart.failed != all.failed || !apart.failed && apart != all {
				t.Fatalf("in pieces of %d: %+v; at once: %+v", piece, apart, all)
			}
		}
		if all.failed || !all.complete {
			return
		}
		want, err := readStandard(in)
		if err != nil {
			t.Fatalf("net/http refuses what the reader accepts: %v\n%+v", err, all)
		}
		if all != want {
			t.Fatalf("reader: %+v\nnet/http: %+v", all, want)
		}
	})
}

// TestReaderAcceptsValid keeps the reader from passing the fuzz target by
// refusing everything.
func TestReaderAcceptsValid(t *testing.T) {
	for _, seed := range answerSeeds[:11] {
		want, err := readStandard([]byte(seed))
		if err != nil {
			if got := readAll([]byte(seed), 1); got.complete || got.failed {
				t.Errorf("%q: net/http says %v, the reader %+v", seed, err, got)
			}
			continue
		}
		if got := readAll([]byte(seed), 1); got != want {
			t.Errorf("%q: %+v, want %+v", seed, got, want)
		}
	}
	for _, seed := range answerSeeds[11:] {
		if got := readAll([]byte(seed), 1); !got.failed && got.complete {
			t.Errorf("%q was accepted: %+v", seed, got)
		}
	}
}

func TestHeadIsBounded(t *testing.T) {
	for _, in := range []string{
		"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", maxHeadBytes),
		"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("b", maxHeadBytes) + "\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: " + strings.Repeat("b", maxHeadBytes),
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + strings.Repeat("b", maxHeadBytes),
	} {
		for _, piece := range []int{1, 1000, len(in)} {
			if got := readAll([]byte(in), piece); !got.failed {
				t.Errorf("%.40q… in pieces of %d: %+v", in, piece, got)
			}
		}
	}
}
