package report

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func mustAddrPort(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTokens(t *testing.T) {
	long := strings.Repeat("x", tokenBytesMax)
	tokens, err := OpenTokens(tokensFile(t, "# comment\n\na: "+tokenA+"\r\nb:   "+tokenB+"\na: "+long+"\n"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ field, worker string }{
		{"Bearer " + tokenA, "a"},
		{"bearer  " + tokenA + " ", "a"},
		{"Bearer " + tokenB, "b"},
		{"Bearer " + long, "a"},
		{"Bearer " + tokenA + "x", ""},
		{"Bearer " + tokenA[1:], ""},
		{"Bearer ", ""},
		{"Bearer", ""},
		{"", ""},
		{"Basic " + tokenA, ""},
		{tokenA, ""},
	} {
		if worker, ok := tokens.Worker(c.field); worker != c.worker || ok != (c.worker != "") {
			t.Errorf("%q speaks for %q", c.field, worker)
		}
	}
}

func TestWrongTokens(t *testing.T) {
	const good = "0123456789abcdef"
	for _, c := range []struct{ text, words string }{
		{"a", "line 1: there is no colon"},
		{"a:" + good, "line 1: there is no blank"},
		{": " + good, "line 1: worker_id: the name is empty"},
		{"a b: " + good, "line 1: worker_id"},
		{" a : " + good, "line 1: worker_id"},
		{"\na: " + good[1:], "line 2: the token has 15 characters; use 16 to 256"},
		{"a: " + strings.Repeat("x", 257), "the token has 257 characters"},
		{"a: " + good + " " + good, "character 17 of the token is a blank"},
		{"a: 0123456789abcdé", "character 15 of the token"},
		{"a: " + good + "\nb: " + good, "line 2: the token of line 1 stands again"},
		{"a: " + good + "\na: " + good, "line 2: the token of line 1 stands again"},
		{"x\ny", "line 1: there is no colon; write \"worker_id: token\"\nline 2: there is no colon"},
		{strings.Repeat("#", tokensFileBytes+1), "more than 1048576 bytes"},
	} {
		_, err := OpenTokens(tokensFile(t, c.text), slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), c.words) || strings.Contains(err.Error(), good) {
			t.Errorf("%.40q: %v, want %q", c.text, err, c.words)
		}
	}
}

func TestTokensFile(t *testing.T) {
	for _, c := range []struct {
		mode os.FileMode
		ok   bool
	}{{0o600, true}, {0o400, true}, {0o640, true}, {0o644, false}, {0o660, false}, {0o604, false}, {0o601, false}} {
		path := tokensFile(t, "")
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		_, err := OpenTokens(path, slog.New(slog.DiscardHandler))
		if (err == nil) != c.ok || !c.ok && !strings.Contains(err.Error(), fmt.Sprintf("%04o", c.mode)) {
			t.Errorf("mode %04o: %v", c.mode, err)
		}
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "none"), t.TempDir()} {
		if _, err := OpenTokens(path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "reports.tokens_file") {
			t.Errorf("%v", err)
		}
	}
}

// A file that has become wrong changes nothing, and is complained of once.
func TestTokensKeepLastGood(t *testing.T) {
	path := tokensFile(t, "a: "+tokenA+"\n")
	var log strings.Builder
	tokens, err := OpenTokens(path, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	taken := func() bool { _, ok := tokens.Worker("Bearer " + tokenA); return ok }
	write("a nonsense\n")
	for range 3 {
		tokens.look()
	}
	if !taken() || strings.Count(log.String(), "last good") != 1 {
		t.Errorf("taken %v: %s", taken(), log.String())
	}
	_ = os.Remove(path)
	tokens.look()
	if !taken() || strings.Count(log.String(), "last good") != 2 {
		t.Errorf("taken %v: %s", taken(), log.String())
	}
	write("b: " + tokenA + "\n")
	tokens.look()
	if worker, _ := tokens.Worker("Bearer " + tokenA); worker != "b" {
		t.Errorf("the token speaks for %q", worker)
	}
	if err := tokens.Reload(); err != nil {
		t.Error(err)
	}
}

// FuzzTokens: no file of tokens breaks the router, and none gives a short token.
func FuzzTokens(f *testing.F) {
	f.Add([]byte("# x\na: 0123456789abcdef\n"))
	f.Add([]byte("a:\n:\n: \n\xff: 0123456789abcdef"))
	f.Fuzz(func(t *testing.T, text []byte) {
		workers, err := parseTokens(text)
		if err == nil {
			for _, worker := range workers {
				if worker == "" {
					t.Fatal("a token of nobody")
				}
			}
		}
	})
}
