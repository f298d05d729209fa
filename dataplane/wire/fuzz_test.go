package wire

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// seed adds the inputs of the scenarios of one command.
func seed(f *testing.F, command string, add func(b []byte)) {
	files, _ := filepath.Glob("testdata/*.txt")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for block := range strings.SplitSeq(string(text), "\n\n") {
			for strings.HasPrefix(block, "#") {
				_, block, _ = strings.Cut(block, "\n")
			}
			head, _, _ := strings.Cut(block, "\n----")
			first, input, _ := strings.Cut(head, "\n")
			if strings.HasPrefix(first, command) && len(input) < 2000 {
				add(unescape(f, strings.ReplaceAll(input, "\n", "")))
			}
		}
	}
}

// values groups fields by their canonical name, as net/http does.
func values(b []byte, fields []Field, all bool) http.Header {
	h := http.Header{}
	for _, f := range fields {
		switch {
		case f.ID == FieldTransferEncoding, f.ID == FieldTrailer, !all && (f.Drop || f.ID == FieldContentLength):
		default:
			key := textproto.CanonicalMIMEHeaderKey(string(f.Name.Of(b)))
			h[key] = append(h[key], string(f.Value.Of(b)))
		}
	}
	return h
}

// normal removes what net/http adds to or takes from a header.
func normal(h http.Header, added ...string) http.Header {
	h = h.Clone()
	delete(h, "Trailer")
	for _, name := range added {
		delete(h, name)
	}
	return h
}

// sameHeader compares; net/http adds Cache-Control for Pragma.
func sameHeader(a, b http.Header) bool {
	if a["Pragma"] != nil || b["Pragma"] != nil {
		delete(a, "Cache-Control")
		delete(b, "Cache-Control")
	}
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}

func newReader(b []byte) *bufio.Reader {
	return bufio.NewReaderSize(bytes.NewReader(b), 1<<17)
}

// badTrailer reports the one thing that net/http refuses and we drop: a
// Trailer field that announces framing fields.
func badTrailer(err error) bool { return strings.Contains(err.Error(), "bad trailer key") }

// FuzzRequest: what we accept, net/http accepts, and reads the same way; how
// bytes are split does not matter; what we send on is read as what we read.
func FuzzRequest(f *testing.F) {
	seed(f, "request", func(b []byte) { f.Add(b) })
	seed(f, "forward", func(b []byte) { f.Add(b) })
	seed(f, "body", func(b []byte) {
		f.Add(append([]byte("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"), b...))
	})
	f.Fuzz(checkRequest)
}

func checkRequest(t *testing.T, b []byte) {
	r, n, err := parseRequest(t, b, nil)
	if n == 0 || err != nil {
		return
	}
	rd := newReader(bytes.TrimLeft(b, "\r\n"))
	req, e := http.ReadRequest(rd)
	if e != nil {
		if badTrailer(e) {
			return
		}
		t.Fatalf("%q: net/http: %v", b, e)
	}
	if req.Method != string(r.MethodName.Of(b)) || req.RequestURI != string(r.Target.Of(b)) ||
		req.Host != string(r.Host.Of(b)) || req.ProtoMinor != int(r.Minor) {
		t.Fatalf("%q: net/http reads %+v", b, req)
	}
	if ours := normal(values(b, r.Fields, true), "Host"); !sameHeader(ours, normal(req.Header, "Host")) {
		t.Fatalf("%q: fields %v, net/http %v", b, ours, req.Header)
	}
	length, chunked := max(r.ContentLength, 0), len(req.TransferEncoding) > 0
	if r.Body == BodyChunked {
		length = -1
	}
	if length != req.ContentLength || (r.Body == BodyChunked) != chunked {
		t.Fatalf("%q: length %d, net/http %d %v", b, length, req.ContentLength, req.TransferEncoding)
	}
	content := sameBody(t, b, n, r.Body, r.ContentLength, rd, req.Body)
	checkForwarded(t, b, r, req, content)
}

// sameBody reads a body whole; where we find its end, so does net/http.
func sameBody(t *testing.T, b []byte, n int, kind BodyKind, length int64, rd *bufio.Reader, body io.Reader) []byte {
	var d Body
	d.Start(kind, length)
	content, used, err := readBody(&d, b[n:], len(b))
	if err != nil || d.End() != nil {
		return nil
	}
	theirs, e := io.ReadAll(body)
	rest, _ := io.ReadAll(rd)
	if e != nil || !bytes.Equal(theirs, content) || !bytes.Equal(rest, b[n+used:]) {
		t.Fatalf("%q: content %q, rest %q; net/http %q, %q, %v", b, content, b[n+used:], theirs, rest, e)
	}
	return content
}

func checkForwarded(t *testing.T, b []byte, r *Request, req *http.Request, content []byte) {
	o := RequestOptions{ContentLength: int64(len(content)), Rank: -1}
	head := AppendRequestHead(nil, b, r, &o)
	sent, e := http.ReadRequest(newReader(head))
	if e != nil {
		t.Fatalf("%q: forwarded %q: %v", b, head, e)
	}
	uri := req.URL.RequestURI()
	if r.Method == MethodOptions && r.Path.Len() == 0 && r.Target.End == r.Path.End {
		uri = "*"
	}
	if sent.Method != req.Method || sent.Host != req.Host || sent.URL.RequestURI() != uri || sent.ContentLength != int64(len(content)) {
		t.Fatalf("%q: forwarded %q", b, head)
	}
	if ours := normal(values(b, r.Fields, false), "Host"); !sameHeader(ours, normal(sent.Header, "Host", "Content-Length")) {
		t.Fatalf("%q: forwarded %q: fields %v", b, head, ours)
	}
	var again Request
	again.Reset()
	if n, err := again.Parse(head, nil); n != len(head) && r.Host.Len() > 0 {
		t.Fatalf("%q: forwarded %q: %d %v", b, head, n, err)
	}
}

// FuzzResponse is the same for responses.
func FuzzResponse(f *testing.F) {
	for _, m := range []Method{MethodPost, MethodHead} {
		seed(f, "response", func(b []byte) { f.Add(b, uint8(m)) })
		seed(f, "relay", func(b []byte) { f.Add(b, uint8(m)) })
		seed(f, "body", func(b []byte) {
			f.Add(append([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), b...), uint8(m))
		})
	}
	f.Fuzz(checkResponse)
}

func checkResponse(t *testing.T, b []byte, method uint8) {
	m := MethodPost
	if method%2 == 1 {
		m = MethodHead
	}
	r, n, err := parseResponse(t, b, nil, m)
	if n == 0 || err != nil {
		return
	}
	rd := newReader(b)
	resp, e := http.ReadResponse(rd, &http.Request{Method: m.String()})
	if e != nil {
		if badTrailer(e) {
			return
		}
		t.Fatalf("%q: net/http: %v", b, e)
	}
	_, reason, _ := strings.Cut(resp.Status, " ")
	if resp.StatusCode != r.Status || resp.ProtoMinor != int(r.Minor) || strings.TrimSpace(reason) != strings.TrimSpace(string(r.Reason.Of(b))) {
		t.Fatalf("%q: net/http reads %+v", b, resp)
	}
	if ours := normal(values(b, r.Fields, true), "Connection"); !sameHeader(ours, normal(resp.Header, "Connection")) {
		t.Fatalf("%q: fields %v, net/http %v", b, ours, resp.Header)
	}
	content := sameBody(t, b, n, r.Body, r.ContentLength, rd, resp.Body)
	checkRelayed(t, b, r, m, content)
}

func checkRelayed(t *testing.T, b []byte, r *Response, m Method, content []byte) {
	for _, o := range []ResponseOptions{
		{Minor: 1, KeepAlive: true, Chunked: true, ContentLength: -1, DurationSeconds: -1},
		{Minor: 1, KeepAlive: true, ContentLength: int64(len(content)), DurationSeconds: -1},
		{Minor: 0, KeepAlive: true, ContentLength: -1, DurationSeconds: -1},
	} {
		head := AppendResponseHead(nil, b, r, &o)
		resp, e := http.ReadResponse(newReader(head), &http.Request{Method: m.String()})
		if e != nil || resp.StatusCode != r.Status {
			t.Fatalf("%q: relayed %q: %v", b, head, e)
		}
		if ours := normal(values(b, r.Fields, false)); !sameHeader(ours, normal(resp.Header, "Content-Length", "Connection")) {
			t.Fatalf("%q: relayed %q: fields %v", b, head, ours)
		}
		var again Response
		again.Reset()
		n, err := again.Parse(head, nil, m)
		if n != len(head) {
			t.Fatalf("%q: relayed %q: %v", b, head, err)
		}
		if o.MustClose(r) != (again.Body == BodyUntilClose) || o.MustClose(r) && again.KeepAlive {
			t.Fatalf("%q: relayed %q: body %v", b, head, again.Body)
		}
	}
}

// FuzzBody compares with net/http's chunked reader, for all ways to cut. What is
// left without trailer fields is the same body without trailers.
func FuzzBody(f *testing.F) {
	for _, size := range []uint8{1, 5, 200} {
		seed(f, "body", func(b []byte) { f.Add(b, size) })
	}
	f.Fuzz(checkBody)
}

func checkBody(t *testing.T, b []byte, size uint8) {
	var whole, pieces Body
	whole.Start(BodyChunked, 0)
	pieces.Start(BodyChunked, 0)
	content, kept, used, err := readKept(&whole, b, len(b)+1)
	cut, keptCut, usedCut, errCut := readKept(&pieces, b, int(size)+1)
	if !bytes.Equal(content, cut) || !bytes.Equal(kept, keptCut) || used != usedCut || err != errCut || whole.Done() != pieces.Done() {
		t.Fatalf("%q: whole %q %d %v, cut %q %d %v", b, content, used, err, cut, usedCut, errCut)
	}
	if !whole.Done() {
		return
	}
	theirs, e := io.ReadAll(httputil.NewChunkedReader(newReader(b)))
	if e != nil || !bytes.Equal(theirs, content) {
		t.Fatalf("%q: content %q, net/http %q %v", b, content, theirs, e)
	}
	var again Body
	again.Start(BodyChunked, 0)
	same, all, n, e2 := readKept(&again, kept, len(kept)+1)
	if e2 != nil || n != len(kept) || !again.Done() || !bytes.Equal(all, kept) || !bytes.Equal(same, content) || !bytes.HasSuffix(kept, []byte("\r\n\r\n")) {
		t.Fatalf("%q: %q without trailers is read as %q, %d bytes, %v", b, kept, same, n, e2)
	}
	if most := 6*len(content) + MaxExtensionBytes + MaxTrailerBytes + 5; used > most {
		t.Fatalf("%d bytes of wire form for %d of content", used, len(content))
	}
}
