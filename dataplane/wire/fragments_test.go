package wire

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// mix returns n random elements of parts, joined.
func mix(rnd *rand.Rand, n int, parts []string) string {
	var b strings.Builder
	for range n {
		b.WriteString(parts[rnd.IntN(len(parts))])
	}
	return b.String()
}

// mostly returns good nine times of ten, else a mix of parts.
func mostly(rnd *rand.Rand, good string, parts []string) string {
	if rnd.IntN(10) > 0 {
		return good
	}
	return mix(rnd, rnd.IntN(4), parts)
}

var (
	noise   = []string{" ", "\t", "\r", "\n", "\r\n", "\x00", "\x7f", "\xe9", ":", ",", ";", "#", "%", "%41", "/", "?", "*", "@", "[", "]", "\"", "a", "1", "::1"}
	methods = []string{"GET", "POST", "OPTIONS", "HEAD", "PRI", "get", "CONNECT"}
	targets = []string{"/", "/a?b", "*", "http://b", "http://b/c", "https://[::1]:8?d", "//e", "/%41", "HTTP://f?/g"}
	names   = []string{
		"Host", "host", "Content-Length", "Transfer-Encoding", "Connection", "Expect", "Trailer", "Upgrade",
		"Pragma", "Cache-Control", "X-A", "x-b", "TE", "Keep-Alive", "Content-Type", "X_C",
	}
	vals = []string{
		"a", "", "5", "05", "chunked", "Chunked", "gzip", "close", "keep-alive", "upgrade", "x-a", "100-continue",
		"no-cache", "a:80", "[::1]", "b.c", "h2c", "text/event-stream", "x-a, close", "content-length, x-b",
	}
	chunks = []string{
		"5\r\nhello\r\n", "0\r\n", "\r\n", "a\r\n0123456789\r\n", "1;a\r\nx\r\n", "1;a=\"b;\\\"\"\r\nx\r\n", "01\r\nx\r\n",
		"X-T: y\r\n", "hello", "0;a=b\r\n", "F\r\n0123456789abcde\r\n", "1; a = b ;c\r\nx\r\n", "1;c\n", "2\r\nx", "GET / HTTP/1.1\r\n",
	}
)

// randomHead makes messages near the border between good and bad.
func randomHead(rnd *rand.Rand, first string) []byte {
	var b strings.Builder
	b.WriteString(first + mostly(rnd, "\r\n", noise))
	if rnd.IntN(8) > 0 {
		b.WriteString("Host: a\r\n")
	}
	for range rnd.IntN(4) {
		ows := []string{" ", "", "\t", "  "}
		b.WriteString(mostly(rnd, names[rnd.IntN(len(names))], noise) + mostly(rnd, ":", noise) + ows[rnd.IntN(4)])
		b.WriteString(mostly(rnd, vals[rnd.IntN(len(vals))], noise) + ows[rnd.IntN(4)] + mostly(rnd, "\r\n", noise))
	}
	b.WriteString("\r\n" + mix(rnd, rnd.IntN(5), chunks))
	if rnd.IntN(2) == 0 {
		b.WriteString("0\r\n\r\n")
	}
	return []byte(b.String())
}

// TestFragments runs the checks of the fuzz tests on messages put together
// from fragments, which reach states that changes of single bytes seldom do.
func TestFragments(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	runs := 20_000
	if testing.Short() || raceEnabled {
		runs = 3_000
	}
	for range runs {
		method, target := methods[rnd.IntN(len(methods))], targets[rnd.IntN(len(targets))]
		version := []string{"HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0"}[rnd.IntN(4)]
		first := mostly(rnd, method, noise) + mostly(rnd, " ", noise) + mostly(rnd, target, append(targets, noise...)) + " " + mostly(rnd, version, noise)
		checkRequest(t, randomHead(rnd, first))
		status := []string{"200 OK", "204 ", "304 N", "100 C", "500 x\ty", "101 S", "206 \xe9"}[rnd.IntN(7)]
		checkResponse(t, randomHead(rnd, mostly(rnd, version, noise)+mostly(rnd, " ", noise)+mostly(rnd, status, noise)), uint8(rnd.IntN(2)))
		checkBody(t, []byte(mix(rnd, rnd.IntN(6), chunks)+mostly(rnd, "0\r\n\r\n", noise)), uint8(rnd.IntN(12)))
	}
}
