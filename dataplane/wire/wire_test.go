package wire

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"
	"testing"
)

// TestTables compares the classes of bytes with the grammar written out.
func TestTables(t *testing.T) {
	for c := range 256 {
		b := byte(c)
		alnum := b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
		for _, want := range []struct {
			name string
			bit  uint8
			is   bool
		}{
			{"token", isToken, alnum || b < 0x7f && strings.IndexByte("!#$%&'*+-.^_`|~", b) >= 0},
			{"target", isTarget, b > 0x20 && b < 0x7f && b != '#'},
			{"host", isHost, alnum || b < 0x7f && strings.IndexByte("-._~!$&'()*+;=", b) >= 0},
			{"quoted", isQuoted, b == '\t' || b >= 0x20 && b != 0x7f && b != '"' && b != '\\'},
		} {
			if got := class[b]&want.bit != 0; got != want.is {
				t.Errorf("byte %#x is %s: %v", c, want.name, got)
			}
		}
		const digits = "0123456789abcdef"
		if got, want := int(hexValue(b)), strings.IndexByte(digits, b|0x20); b >= '0' && alnum && want >= 0 && (b > '9' || b < 'A') {
			if got != want {
				t.Errorf("hexValue(%#x) = %d, want %d", c, got, want)
			}
		} else if got < 16 {
			t.Errorf("hexValue(%#x) = %d", c, got)
		}
	}
}

// TestScans compares the scans by eight bytes with scans by one, over random
// bytes of alphabets in which borders are frequent.
func TestScans(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	alphabets := []string{"ab-\t ~\x80\xff", "aZ-_:09\x1f\x7f\x80\xfa@[`{", "azAZ\x20\x1f\x7e\x7f\xe1\xfa\xad"}
	for range 200_000 {
		b := make([]byte, rnd.IntN(30))
		alphabet := alphabets[rnd.IntN(len(alphabets))]
		for i := range b {
			b[i] = alphabet[rnd.IntN(len(alphabet))]
			if rnd.IntN(20) == 0 {
				b[i] = byte(rnd.IntN(256))
			}
		}
		text, name := 0, 0
		for text < len(b) && (b[text] == '\t' || b[text] >= 0x20 && b[text] != 0x7f) {
			text++
		}
		for name < len(b) && class[b[name]]&isToken != 0 {
			name++
		}
		if got := scanText(b, 0); got != text {
			t.Fatalf("scanText(%q) = %d, want %d", b, got, text)
		}
		if got := scanName(b, 0); got != name {
			t.Fatalf("scanName(%q) = %d, want %d", b, got, name)
		}
	}
}

// TestFieldID compares the look-up with a map, over known names in any case
// and names that differ from one in one byte.
func TestFieldID(t *testing.T) {
	twin := map[string]FieldID{}
	for id, name := range fieldNames {
		if id > 0 && name == "" {
			t.Fatal("no name for field", id)
		}
		if name != "" {
			twin[name] = FieldID(id)
		}
	}
	const tokens = "!#$%&'*+-.^_`|~0123456789ABCMNZabcmnz"
	for name, id := range twin {
		for i := range len(name) {
			for j := range len(tokens) {
				b := []byte(name)
				b[i] = tokens[j]
				if got, want := fieldID(b), twin[strings.ToLower(string(b))]; got != want {
					t.Fatalf("fieldID(%q) = %d, want %d", b, got, want)
				}
			}
		}
		for _, b := range []string{strings.ToUpper(name), textproto.CanonicalMIMEHeaderKey(name)} {
			if got := fieldID([]byte(b)); got != id {
				t.Fatalf("fieldID(%q) = %d, want %d", b, got, id)
			}
		}
		for _, b := range []string{name + "x", name[1:], name[:len(name)-1]} {
			if got := fieldID([]byte(b)); got != twin[b] {
				t.Fatalf("fieldID(%q) = %d", b, got)
			}
		}
	}
	if got := fieldID(bytes.Repeat([]byte("x"), 100)); got != FieldOther {
		t.Fatal(got)
	}
}

// TestIPv6 compares with net/netip, over addresses and broken ones.
func TestIPv6(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	parts := []string{":", ":", ":", "::", "1", "ab", "FFFF", "12345", "192.0.2.1", "0.0.0.0", "256.1.1.1", "1.2.3", "01.2.3.4", "g", ".", "1.2.3.4.5"}
	for range 300_000 {
		var b strings.Builder
		for range rnd.IntN(20) {
			b.WriteString(parts[rnd.IntN(len(parts))])
			if rnd.IntN(2) == 0 {
				b.WriteByte(':')
			}
		}
		s := b.String()
		addr, err := netip.ParseAddr(s)
		if want := err == nil && addr.Is6(); validIPv6([]byte(s)) != want {
			t.Fatalf("validIPv6(%q) = %v", s, !want)
		}
	}
}

// TestDribble feeds a head of the largest size a byte at a time. The bound on
// time that this implies is loose: a quadratic parser would need minutes.
func TestDribble(t *testing.T) {
	for _, b := range []string{
		"GET /" + strings.Repeat("a", 1<<20) + " HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\nX:" + strings.Repeat(" \t", 1<<19) + "\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("x", 1<<20) + ": y\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X: y\r\n", 1<<17) + "\r\n",
	} {
		parseRequest(t, []byte(b), &Limits{HeadBytes: 1 << 21, Fields: 1 << 18, TargetBytes: 1 << 21})
	}
	parseResponse(t, []byte("HTTP/1.1 200 "+strings.Repeat("a", 1<<20)+"\r\n\r\n"), &Limits{HeadBytes: 1 << 21}, MethodGet)
}

func TestFind(t *testing.T) {
	b := []byte("GET / HTTP/1.1\r\nHost: a\r\nVia: x\r\nVia: y\r\n\r\n")
	var r Request
	r.Reset()
	if n, err := r.Parse(b, nil); n != len(b) {
		t.Fatal(err)
	}
	if f, ok := r.Find(FieldVia); !ok || string(f.Value.Of(b)) != "x" {
		t.Fatal(f, ok)
	}
	if _, ok := r.Find(FieldContentType); ok {
		t.Fatal("found what is not there")
	}
	r.Reset()
	if _, ok := r.Find(FieldVia); ok || len(r.Fields) != 0 || cap(r.Fields) == 0 {
		t.Fatal("Reset keeps fields or drops their memory")
	}
}

func TestAppendSimple(t *testing.T) {
	o := SimpleOptions{
		ContentType: "application/json", Body: []byte(`{"error":{}}`), RequestID: []byte("r1"),
		RetryAfterSeconds: 3, Minor: 1, KeepAlive: true,
	}
	const head = "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: 12\r\n" +
		"X-Request-Id: r1\r\nRetry-After: 3\r\n"
	if got := string(AppendSimple(nil, 429, &o)); got != head+"\r\n"+`{"error":{}}` {
		t.Errorf("%q", got)
	}
	o.Head, o.Minor = true, 0
	if got := string(AppendSimple(nil, 429, &o)); got != head+"Connection: keep-alive\r\n\r\n" {
		t.Errorf("%q", got)
	}
	if got := string(AppendSimple(nil, 405, &SimpleOptions{Allow: "GET, POST", Minor: 1})); got !=
		"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\nAllow: GET, POST\r\nConnection: close\r\n\r\n" {
		t.Errorf("%q", got)
	}
	if got := string(AppendSimple(nil, 204, &SimpleOptions{Minor: 1, KeepAlive: true, Body: []byte("x")})); got != "HTTP/1.1 204 No Content\r\n\r\n" {
		t.Errorf("%q", got)
	}
	if got := string(AppendSimple(nil, 599, &SimpleOptions{Minor: 1, KeepAlive: true})); got != "HTTP/1.1 599 \r\nContent-Length: 0\r\n\r\n" {
		t.Errorf("%q", got)
	}
	mustPanic(t, func() { AppendSimple(nil, 100, &o) })
}

func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if s, ok := recover().(string); !ok || !strings.HasPrefix(s, "BUG: ") {
			t.Errorf("no BUG panic: %q", s)
		}
	}()
	f()
}

// TestMisuse covers the programming errors.
func TestMisuse(t *testing.T) {
	b := []byte("GET / HTTP/1.0\r\n\r\n")
	var r Request
	if n, _ := r.Parse(b, nil); n != len(b) || r.ContentLength != -1 {
		t.Fatal("a zero Request must work")
	}
	mustPanic(t, func() { _, _ = r.Parse(b, nil) })
	mustPanic(t, func() { r.Find(FieldOther) })
	a := []byte("HTTP/1.1 200 OK\r\n\r\n")
	var p Response
	if n, _ := p.Parse(a, nil, MethodGet); n != len(a) {
		t.Fatal("a zero Response must work")
	}
	mustPanic(t, func() { _, _ = p.Parse(a, nil, MethodGet) })
	mustPanic(t, func() { AppendResponseHead(nil, a, &p, &ResponseOptions{Chunked: true}) })
	var d Body
	mustPanic(t, func() { d.Start(BodyLength, -1) })
	mustPanic(t, func() { d.Start(9, 0) })
	mustPanic(t, func() { AppendChunkHead(nil, 0) })
	d = Body{}
	if data, n, err := d.Next(b); data.Len() != 0 || n != 0 || err != nil || !d.Done() || d.End() != nil {
		t.Fatal("the zero Body must be done")
	}
}

func TestChunks(t *testing.T) {
	var b []byte
	for _, piece := range []string{"a", strings.Repeat("b", 300)} {
		b = append(AppendChunkHead(b, len(piece)), piece+ChunkEnd...)
	}
	b = append(b, LastChunk...)
	var d Body
	d.Start(BodyChunked, 0)
	content, used, err := readBody(&d, b, len(b))
	if err != nil || used != len(b) || !d.Done() || string(content) != "a"+strings.Repeat("b", 300) {
		t.Fatalf("%q %d %v", content, used, err)
	}
}

func TestValidRequestID(t *testing.T) {
	for id, want := range map[string]bool{
		"": false, "a": true, "0aZ.9_:-": true, strings.Repeat("x", 128): true, strings.Repeat("x", 129): false,
		"a b": false, "a/b": false, "a\r\nb": false, "é": false, "a@": false, "[": false, "`": false, "{": false,
	} {
		if ValidRequestID([]byte(id)) != want {
			t.Errorf("ValidRequestID(%q) = %v", id, !want)
		}
	}
}

// TestStatusText: net/http knows the same phrases, but for those that RFC 9110 renamed.
func TestStatusText(t *testing.T) {
	for status := range 600 {
		got, want := StatusText(status), http.StatusText(status)
		switch status {
		case 413:
			want = "Content Too Large"
		case 414:
			want = "URI Too Long"
		case 416:
			want = "Range Not Satisfiable"
		case 422:
			want = "Unprocessable Content"
		}
		if got != "" && got != want {
			t.Errorf("StatusText(%d) = %q, net/http %q", status, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	if got := faultHost.request.Error(); got != "wire: "+faultHost.request.What {
		t.Error(got)
	}
	if MethodOther.String() != "other" || MethodPatch.String() != "PATCH" {
		t.Error("names of methods")
	}
	for m, name := range methodNames[1:] {
		if methodOf([]byte(name)) != Method(m+1) {
			t.Error(name)
		}
	}
}

// TestAllocs proves that the steady state allocates nothing.
func TestAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var r Request
	var p Response
	var d Body
	client, node, bad := []byte(clientHead), []byte(nodeHead), []byte("GET / HTTP/1.1\r\n\r\n")
	body := []byte("5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n")
	dst := make([]byte, 0, 4096)
	simple := SimpleOptions{ContentType: "application/json", Body: body, RequestID: []byte("r1"), Minor: 1}
	failed := false
	run := func() {
		r.Reset()
		n, err := r.Parse(client[:100], nil)
		failed = failed || n != 0 || err != nil
		n, err = r.Parse(client, nil)
		failed = failed || n != len(client) || err != nil
		dst = AppendRequestHead(dst[:0], client, &r, &requestOptions)
		p.Reset()
		n, err = p.Parse(node, nil, MethodPost)
		failed = failed || n != len(node) || err != nil
		dst = AppendResponseHead(dst[:0], node, &p, &responseOptions)
		r.Reset()
		_, err = r.Parse(bad, nil)
		failed = failed || err != &faultHostMissing.request
		d.Start(BodyChunked, 0)
		for rest := body; !d.Done() && !failed; rest = rest[n:] {
			_, n, err = d.Next(rest)
			failed = failed || err != nil
		}
		dst = AppendSimple(dst[:0], 503, &simple)
	}
	if n := testing.AllocsPerRun(100, run); n != 0 || failed {
		t.Fatalf("%v allocations, failed %v", n, failed)
	}
}
