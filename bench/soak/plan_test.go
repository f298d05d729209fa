package soak

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// TestPlansFollowFromTheSeed makes the same plans twice, and others for another
// seed.
func TestPlansFollowFromTheSeed(t *testing.T) {
	differ := 0
	for seq := range 200 {
		a, again, other := newPlan(1, 3, seq, false), newPlan(1, 3, seq, false), newPlan(2, 3, seq, false)
		if !reflect.DeepEqual(a, again) || a.faultOf(0) != again.faultOf(0) {
			t.Fatalf("request %d: %v, then %v", seq, &a, &again)
		}
		if other.id = a.id; !reflect.DeepEqual(a, other) {
			differ++
		}
	}
	if differ < 190 {
		t.Errorf("of 200 plans %d depend on the seed", differ)
	}
}

// TestPlansCoverEverything looks for each behaviour among many plans.
func TestPlansCoverEverything(t *testing.T) {
	seen, faults, kinds := map[string]bool{}, map[faultKind]bool{}, map[string]bool{}
	for seq := range 40_000 {
		p := newPlan(1, 1, seq, false)
		if p.bad != nil {
			kinds[p.bad.name] = true
			continue
		}
		faults[p.faultOf(0).kind] = true
		for what, is := range map[string]bool{
			"local": p.kind == kindLocal, "stalled": p.kind == kindStalled, "stream": p.stream, "chunked": p.chunked, "trailers": p.trailers,
			"expect": p.expect, "absolute": p.absolute, "1.0": p.minor == 0, "closes": p.closes, "fresh": p.fresh, "batch": p.batch > 1,
			"pieces": p.sending == sendPieces, "slowly": p.sending == sendSlowly, "slow reader": p.slowRead, "leaves " + leavingNames[p.leave]: true,
			"large": p.large(), "not kept": p.textLen > retryBytes, "interim": p.answer.interim, "early": p.answer.early, "HEAD": p.method == "HEAD",
			"204": p.answer.status == 204, "429": p.answer.status == 429, "long answer": p.answer.textLen > 1<<20, "answer " + formNames[p.answer.form]: true,
		} {
			seen[what] = seen[what] || is
		}
	}
	for what, is := range seen {
		if !is {
			t.Errorf("no plan is %s", what)
		}
	}
	if len(faults) != int(faultKinds) || len(kinds) != len(badRequests) || len(seen) != 22+len(leavingNames)+len(formNames) {
		t.Errorf("%d faults of %d, %d bad requests of %d, %d behaviours", len(faults), faultKinds, len(kinds), len(badRequests), len(seen))
	}
}

// TestContents checks that bodies are what they are said to be, and that those
// of two tries differ.
func TestContents(t *testing.T) {
	for seq := range 300 {
		p := newPlan(1, 1, seq, true)
		if b := p.body(); p.json && !json.Valid(b) || len(b) < p.textLen {
			t.Fatalf("request %d has the body %q", seq, b)
		}
		a, ends := p.content(1, 0, noFault)
		b, _ := p.content(2, 1, noFault)
		if p.noContent(p.answer.status) != (len(a) == 0) || len(a) > 0 && bytes.Equal(a, b) {
			t.Fatalf("request %d: the contents of two tries are %q and %q", seq, a, b)
		}
		if p.stream && (len(ends) != p.answer.events+1 || ends[len(ends)-1] != len(a) || !bytes.HasSuffix(a, []byte("data: [DONE]\n\n"))) {
			t.Fatalf("request %d: a stream of %d events ends at %d: %q", seq, p.answer.events, ends, a)
		}
	}
}

func TestDifference(t *testing.T) {
	want := appendText(nil, "owner", 200)
	other := appendText(nil, "other", 200)
	if d := difference(want[:150], want, 0); d != "" {
		t.Errorf("the start differs: %s", d)
	}
	for name, got := range map[string][]byte{
		"longer": append(bytes.Clone(want), 'x'), "another's": other, "a line left out": want[lineBytes:],
	} {
		if difference(got, want, 0) == "" {
			t.Errorf("%s: no difference", name)
		}
	}
	if d := difference(other[64:], want[64:], 64); !strings.HasPrefix(d, "byte 65: ") || !strings.Contains(d, "other:1") {
		t.Errorf("another's text is said to be %s", d)
	}
}

// TestMessages reads bodies and heads whole, byte by byte, and cut at each place.
func TestMessages(t *testing.T) {
	content := appendText(nil, "c", 300)
	chunked := appendChunked(nil, content, []int{10, 10, 64, 299}, ";a=b", "X-A: 1\r\n")
	for _, c := range []struct {
		kind bodyKind
		wire []byte
	}{{bodyLength, content}, {bodyChunked, chunked}} {
		for _, apart := range []bool{false, true} {
			if got, err := readAll(c.kind, c.wire, apart); err != nil || !bytes.Equal(got, content) {
				t.Fatalf("kind %d: %q, %v", c.kind, got, err)
			}
		}
		for cut := range c.wire {
			got, err := readAll(c.kind, c.wire[:cut], false)
			if !errors.Is(err, io.ErrUnexpectedEOF) || !bytes.HasPrefix(content, got) {
				t.Fatalf("kind %d cut at %d: %q, %v", c.kind, cut, got, err)
			}
		}
	}
	for _, bad := range []string{"x\r\n", "3\nabc\r\n", "3\r\nabcd\r\n", "-1\r\n", "3\r\nabc\r\n0\r\nbad\r\n\r\n"} {
		if _, err := readAll(bodyChunked, []byte(bad), false); !errors.Is(err, errFraming) {
			t.Errorf("chunks %q: %v", bad, err)
		}
	}
}

func readAll(kind bodyKind, wire []byte, apart bool) ([]byte, error) {
	var r io.Reader = bytes.NewReader(wire)
	if apart {
		r = iotest.OneByteReader(r)
	}
	b := &body{r: bufio.NewReader(r), kind: kind}
	if kind == bodyLength {
		b.left = 300
	}
	return io.ReadAll(b)
}

func TestHeads(t *testing.T) {
	h, err := readHead(bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\nA:  b \r\na: c\r\nConnection: x, Close\r\n\r\nrest")))
	if err != nil || len(h.all("a")) != 2 || h.all("a")[0] != "b" || !h.closes() {
		t.Errorf("%+v, %v", h, err)
	}
	for text, want := range map[string]error{
		"": io.EOF, "HTTP/1.1 2": io.ErrUnexpectedEOF, "HTTP/1.1 200 OK\r\nA: b\r\n": io.ErrUnexpectedEOF, "HTTP/1.1 200 OK\r\n": io.ErrUnexpectedEOF,
		"HTTP/1.1 200 OK\n\n": errFraming, "HTTP/1.1 200 OK\r\nA : b\r\n\r\n": errFraming, "HTTP/1.1 200 OK\r\n b\r\n\r\n": errFraming, "\r\n\r\n": errFraming,
		"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", maxHeadBytes) + "\r\n\r\n": errFraming,
	} {
		if _, err := readHead(bufio.NewReader(strings.NewReader(text))); !errors.Is(err, want) {
			t.Errorf("%.40q: %v, want %v", text, err, want)
		}
	}
	for _, two := range []string{"Content-Length: 1\r\nContent-Length: 1", "Content-Length: 1\r\nTransfer-Encoding: chunked", "Transfer-Encoding: gzip", "Content-Length: +1"} {
		h, err := readHead(bufio.NewReader(strings.NewReader("HTTP/1.1 200 OK\r\n" + two + "\r\n\r\n")))
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := bodyOf(h, bodyNone); !errors.Is(err, errFraming) {
			t.Errorf("%q: %v", two, err)
		}
	}
}
