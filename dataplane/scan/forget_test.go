package scan

import (
	"strings"
	"testing"
)

// forgetting scans a body in pieces and forgets what it can after each. It
// returns what such a pass has to say, and the most that it had to keep.
func forgetting(body []byte, piece int) (s *Scanner, err *Error, kept int) {
	s = &Scanner{}
	var held []byte
	for rest := body; ; {
		n := min(piece, len(rest))
		held, rest = append(held, rest[:n]...), rest[n:]
		if _, err = s.Scan(held, len(rest) == 0); err != nil || len(rest) == 0 {
			return s, err, kept
		}
		held = held[:copy(held, held[s.Forget():])]
		kept = max(kept, len(held))
	}
}

// checkForgetting compares such a pass with want, which remembers.
func checkForgetting(t *testing.T, body []byte, want *Scanner, wantErr *Error, piece int) {
	t.Helper()
	got, err, _ := forgetting(body, piece)
	if (err == nil) != (wantErr == nil) || err != nil && err.What != wantErr.What {
		t.Fatalf("body %q in pieces of %d: %v, want %v", body, piece, err, wantErr)
	}
	if err != nil {
		return
	}
	if got.Seen() != want.Seen() || got.Repeated() != want.Repeated() {
		t.Fatalf("body %q in pieces of %d: keys %b, %b again; want %b, %b", body, piece, got.Seen(), got.Repeated(), want.Seen(), want.Repeated())
	}
	g, w := got.Result(), want.Result()
	if g.Stream != w.Stream || g.MaxTokens != w.MaxTokens || g.PrefixLen != w.PrefixLen {
		t.Fatalf("body %q in pieces of %d: %v %d %d, want %v %d %d", body, piece, g.Stream, g.MaxTokens, g.PrefixLen, w.Stream, w.MaxTokens, w.PrefixLen)
	}
}

func TestForgettingSaysTheSame(t *testing.T) {
	check := func(body []byte) {
		s, err := scanAll(body)
		for piece := 1; piece < 40; piece++ {
			checkForgetting(t, body, s, err, piece)
		}
	}
	for _, body := range bodies {
		check([]byte(body))
	}
	for _, c := range refusedBodies {
		check([]byte(c.body))
	}
	check(chatBody(mixedText(200)))
}

// TestForgettingHasABound: however long a value is, next to nothing is kept; a
// key or a number without end is refused.
func TestForgettingHasABound(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct {
		body string
		kept int
		what string
	}{
		"a long text":   {`{"model":"m","messages":[{"role":"user","content":"` + long + `"}]}`, 64, ""},
		"a long value":  {`{"metadata":"` + long + `","x":1}`, 64, ""},
		"a long key":    {`{"` + long + `":1}`, longestHeldToken + 2000, "key or number"},
		"a long number": {`{"x":1` + strings.Repeat("0", 1<<20) + `}`, longestHeldToken + 2000, "key or number"},
	} {
		_, err, kept := forgetting([]byte(c.body), 1000)
		if kept > c.kept || (err == nil) != (c.what == "") || err != nil && !strings.Contains(err.What, c.what) {
			t.Errorf("%s: kept %d bytes, %v", name, kept, err)
		}
	}
}
