package scan

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// checkAllWays compares skipString, with each kind of blocks that this machine
// has, with skipStringGeneric at offset p of b.
func checkAllWays(t *testing.T, b []byte, p int) {
	t.Helper()
	wantQ, wantEnd, wantEscaped := skipStringGeneric(b, p)
	eachWay(func(way string) {
		q, end, escaped := skipString(b, p)
		if q != wantQ || end != wantEnd || end == endQuote && escaped != wantEscaped {
			t.Fatalf("text %q from %d, with %s: stopped at %d with %d, escaped %v; without blocks %d, %d, %v", b, p, way, q, end, escaped, wantQ, wantEnd, wantEscaped)
		}
	})
}

// TestSkipStringAllWays joins random pieces, good and bad, so that each kind
// of piece comes to lie across the borders of blocks.
func TestSkipStringAllWays(t *testing.T) {
	good := []string{"a", "bcd", "é", "中", "한", "ก", "🙂", `\n`, `\"`, `\\`, `\\\\\\`, `\u00e9`, `\uD83D`, "plain words in between, of some length", `\/`}
	bad := []string{`\u12g4`, `\q`, "\x80", "\xe4\xb8", "\xed\xa0\x80", "\xf0\x9f\x99", "\xc1\xbf", "\x1f", "\xf4\x90\x80\x80", `\u"`, `\`, "\xff", "\xe0\x9f\xbf", "\xf0\x8f\xbf\xbf"}
	r := rand.New(rand.NewPCG(7, 8))
	rounds := 60000
	if testing.Short() || raceEnabled {
		rounds = 5000
	}
	var b []byte
	for range rounds {
		b = append(b[:0], `{"x":"中`[:r.IntN(7)]...)
		for range 2 {
			b = append(b, "abc"...)
		}
		p := len(b)
		kinds, dirty := 1+r.IntN(len(good)), r.IntN(3) == 0
		for n := r.IntN(120); n > 0; n-- {
			b = append(b, good[r.IntN(kinds)]...)
			if dirty && r.IntN(60) == 0 {
				b = append(b, bad[r.IntN(len(bad))]...)
			}
		}
		if r.IntN(4) > 0 {
			b = append(b, '"')
			b = append(b, bytes.Repeat([]byte("\x01"), r.IntN(100))...) // what follows must not matter
		}
		checkAllWays(t, b, p)
	}
}

func FuzzSkipString(f *testing.F) {
	f.Add([]byte(`text \u00e9 \" \\" and more`), uint8(60), uint8(1))
	f.Add([]byte("中文\xe4\xb8"), uint8(20), uint8(62))
	f.Fuzz(func(t *testing.T, piece []byte, pad, times uint8) {
		b := append([]byte("{\"a"), bytes.Repeat([]byte("p"), int(pad))...)
		p := 3
		for range int(times%70) + 1 {
			b = append(b, piece...)
		}
		b = append(b, bytes.Repeat([]byte("q"), 70)...)
		checkAllWays(t, b, p)
		checkAllWays(t, append(b, '"'), p)
	})
}
