package load

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"warmpath/bench/load/stamp"

	"warmpath/scenariotest"
)

// TestScenarios replays testdata/answers.txt.
func TestScenarios(t *testing.T) {
	scenariotest.Run(t, "testdata/answers.txt", func(t *testing.T, c scenariotest.Case) string {
		asked, answer, ends := parseScenario(c.Input)
		got := play(t, asked, answer, ends, false)
		if apart := play(t, asked, answer, ends, true); apart != got {
			t.Errorf("%s: byte by byte: %s\nat once: %s", c.At, apart, got)
		}
		return got
	})
}

func parseScenario(lines []string) (asked, answer string, ends bool) {
	for _, line := range lines {
		switch {
		case asked == "":
			asked = line
		case line == "(end)":
			ends = true
		default:
			line = strings.NewReplacer(`\r`, "\r", `\n`, "\n").Replace(line)
			if chunk, ok := strings.CutPrefix(line, "> "); ok {
				line = fmt.Sprintf("%X\r\n%s\r\n", len(chunk), chunk)
			}
			answer += line
		}
	}
	return asked, answer, ends
}

// play lets a connection read an answer and says what came of it.
func play(t *testing.T, asked, answer string, ends, apart bool) string {
	t.Helper()
	l, peer := pipe(t, Options{Stream: asked == "stream"})
	l.send(l.now)
	c := l.busy.first
	step := len(answer)
	if apart {
		step = 1
	}
	for piece := range slices.Chunk([]byte(answer), max(step, 1)) {
		if c.state != connOpen {
			break
		}
		feed(t, c, peer, piece)
	}
	if c.busy && ends {
		drain(t, peer) // else its end is a reset
		_ = unix.Close(peer)
		c.read()
	}
	return outcome(c)
}

// outcome says in one or two lines how the only request of a loop ended.
func outcome(c *conn) string {
	t := c.l.t
	fate := "closed"
	switch {
	case c.busy:
		fate = "waiting"
	case c.state == connOpen:
		fate = "reusable"
	}
	sum, kinds := t.errors()
	switch {
	case t.ok == 1 && sum == 0 && t.cut == 0:
		return fmt.Sprintf("ok, %s\ncontent %d, answer %d, prompt %d, cached %d\n", fate, t.endedContents, t.answerTokens, t.promptTokens, t.cachedTokens)
	case t.cut == 1 && sum == 0 && t.ok == 0:
		return "cut 1, " + fate + "\n"
	}
	var parts []string
	for kind, n := range kinds {
		parts = append(parts, fmt.Sprintf("%s %d (%s)", kind, n, t.firstError))
	}
	slices.Sort(parts)
	return strings.Join(append(parts, fate), ", ") + "\n"
}

// pipe is a loop with one open connection, and its other end. Nothing is due.
func pipe(t testing.TB, o Options) (l *loop, peer int) {
	t.Helper()
	o.URL, o.Rate, o.Duration = "http://test", 1, 1e9
	o = o.withDefaults()
	poll, err := newPoller()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(poll.close)
	l = &loop{
		o: o, t: newTally(), poll: poll, buf: make([]byte, readBytes), timeoutNs: int64(o.Timeout), most: 1,
		requests: [][]byte{[]byte("GET / HTTP/1.1\r\nHost: test\r\n\r\n")},
		arrivals: &arrivals{next: never}, now: stamp.Now(),
	}
	l.shut = l.now + int64(longest)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := l.vacant()
	c.fd, c.state = pair[0], connOpen
	if err := poll.add(c.fd, watched, c.slot, c.generation); err != nil {
		t.Fatal(err)
	}
	l.idle.push(c)
	l.nIdle++
	t.Cleanup(func() {
		l.closeAll()
		_ = unix.Close(pair[1]) // fails when the test closed it
	})
	return l, pair[1]
}

// feed sends a piece from the other end and lets the connection read it.
func feed(t testing.TB, c *conn, peer int, piece []byte) {
	t.Helper()
	if n, err := unix.Write(peer, piece); n != len(piece) || err != nil {
		t.Fatal(n, err)
	}
	c.read()
}

// drain reads what was sent to the other end.
func drain(t testing.TB, peer int) {
	t.Helper()
	var buf [1 << 10]byte
	for {
		n, err := unix.Read(peer, buf[:])
		if err != nil && err != unix.EAGAIN {
			t.Fatal(err)
		}
		if n <= 0 {
			return
		}
	}
}
