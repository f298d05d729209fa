package eventloop

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// selfTestPatience is how long SelfTest waits for what takes microseconds.
const selfTestPatience = 5 * time.Second

// SelfTest proves on a pair of sockets that a running loop does what the package
// relies on: bytes are told of, a pause holds them back, its end lets them
// through, and a half-close is seen during a pause. Any goroutine but the loop's
// may call it.
func (l *Loop) SelfTest() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("test event loop: socketpair: %w", err)
	}
	peer := pair[1]
	defer unix.Close(peer)
	t := &selfTest{happened: make(chan string, 16)} // more than can happen
	steps := []struct {
		do   func()
		want string
	}{
		{func() { _ = l.Add(&t.conn, pair[0], t) }, ""},
		{func() { t.say(peer, "a") }, "read a"},
		{t.conn.Pause, ""},
		{func() { t.say(peer, "b") }, ""},
		{t.conn.Resume, "read b"},
		{t.conn.Pause, ""},
		{func() { _ = unix.Shutdown(peer, unix.SHUT_WR) }, "ended"},
		{t.conn.Close, "closed"},
	}
	for i, s := range steps {
		if err := l.Execute(s.do); err != nil {
			return fmt.Errorf("test event loop: %w", err)
		}
		got, err := t.next(l, s.want != "")
		if err != nil {
			return fmt.Errorf("test event loop: %w", err)
		}
		if got != s.want {
			_ = l.Execute(t.conn.Close)
			return fmt.Errorf("test event loop: step %d: %q happened, want %q: this kernel (or what stands in for it) does not report sockets as epoll(7) says; run on Linux itself", i, got, s.want)
		}
	}
	return nil
}

// next returns what happened: with wait, what happens first, else what has
// happened after some turns of the loop, if anything.
func (t *selfTest) next(l *Loop, wait bool) (string, error) {
	patience := time.After(selfTestPatience)
	if wait {
		select {
		case got := <-t.happened:
			return got, nil
		case <-patience:
			return "", nil
		}
	}
	for range 3 { // events come with the turn after what caused them
		done := make(chan struct{})
		if err := l.Execute(func() { close(done) }); err != nil {
			return "", err
		}
		select {
		case <-done:
		case <-patience:
			return "", errors.New("it does not run its tasks")
		}
	}
	select {
	case got := <-t.happened:
		return got, nil
	default:
		return "", nil
	}
}

// selfTest is the handler of SelfTest.
type selfTest struct {
	conn     Conn
	happened chan string
}

func (t *selfTest) say(fd int, what string) { _, _ = unix.Write(fd, []byte(what)) }

func (t *selfTest) Readable(c *Conn) {
	var b [8]byte
	if n, err := c.Read(b[:]); n > 0 || err != nil {
		t.happened <- "read " + string(b[:n])
	}
}
func (t *selfTest) Drained(*Conn)       {}
func (t *selfTest) Connected(*Conn)     {}
func (t *selfTest) Waits(*Conn)         {}
func (t *selfTest) Ended(*Conn, error)  { t.happened <- "ended" }
func (t *selfTest) Closed(*Conn, error) { t.happened <- "closed" }
