package eventloop

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const patience = 5 * time.Second

func startLoop(t *testing.T) *Loop {
	t.Helper()
	l, err := New()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Run() }()
	t.Cleanup(func() {
		l.Stop()
		if err := <-done; err != nil {
			t.Errorf("loop ended with %v", err)
		}
		if n := l.Open(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
		if err := l.Execute(func() {}); !errors.Is(err, ErrStopped) {
			t.Errorf("a task after the end: %v, want ErrStopped", err)
		}
	})
	return l
}

// on runs f on the loop and waits for it.
func (l *Loop) on(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	if err := l.Execute(func() { defer close(done); f() }); err != nil {
		t.Fatal(err)
	}
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the loop stands still")
	}
}

// user records what it is told; read, if set, is what Readable does.
type user struct {
	conn   Conn
	read   func(*Conn)
	events chan string
	closed chan error
}

func newUser() *user { return &user{events: make(chan string, 1000), closed: make(chan error, 10)} }

func (u *user) Readable(c *Conn) {
	if u.read != nil {
		u.read(c)
		return
	}
	var b [64]byte
	n, err := c.Read(b[:])
	if n > 0 {
		u.events <- string(b[:n])
	}
	if err != nil {
		c.Fail(err)
	}
}
func (u *user) Drained(*Conn)               { u.events <- "drained" }
func (u *user) Connected(*Conn)             { u.events <- "connected" }
func (u *user) Waits(*Conn)                 {}
func (u *user) Ended(*Conn, error)          { u.events <- "ended" }
func (u *user) Closed(_ *Conn, err error)   { u.closed <- err }
func (u *user) want(t *testing.T, s string) { t.Helper(); wait(t, u.events, s) }

func wait(t *testing.T, from <-chan string, s string) {
	t.Helper()
	select {
	case got := <-from:
		if got != s {
			t.Fatalf("%q happened, want %q", got, s)
		}
	case <-time.After(patience):
		t.Fatalf("%q has not happened", s)
	}
}

func (u *user) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-u.closed:
		return err
	case <-time.After(patience):
		t.Fatal("the connection was not closed")
		return nil
	}
}

// pair adds one end of a new pair of sockets and returns the other.
func (l *Loop) pair(t *testing.T, u *user) *net.UnixConn {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	l.on(t, func() {
		if err := l.Add(&u.conn, fds[0], u); err != nil {
			t.Error(err)
		}
	})
	return fileConn(t, fds[1]).(*net.UnixConn)
}

func TestSelfTest(t *testing.T) {
	l := startLoop(t)
	for range 20 {
		if err := l.SelfTest(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadsUntilTheEnd(t *testing.T) {
	l, u := startLoop(t), newUser()
	peer := l.pair(t, u)
	for _, s := range []string{"one", "two"} {
		_, _ = peer.Write([]byte(s))
		u.want(t, s)
	}
	_, _ = peer.Write([]byte("last"))
	_ = peer.CloseWrite() // behind bytes that were not read
	u.want(t, "last")
	if err := u.end(t); !errors.Is(err, io.EOF) {
		t.Errorf("it ended with %v, want io.EOF", err)
	}
}

// TestAReaderThatStopsIsCalledAgain reads one byte a call: an edge comes once.
func TestAReaderThatStopsIsCalledAgain(t *testing.T) {
	l, u := startLoop(t), newUser()
	u.read = func(c *Conn) {
		var b [1]byte
		if n, err := c.Read(b[:]); n == 1 {
			u.events <- string(b[:])
		} else if err != nil {
			c.Fail(err)
		}
	}
	peer := l.pair(t, u)
	_, _ = peer.Write([]byte("abc"))
	_ = peer.Close()
	for _, s := range []string{"a", "b", "c"} {
		u.want(t, s)
	}
	if err := u.end(t); !errors.Is(err, io.EOF) {
		t.Errorf("it ended with %v, want io.EOF", err)
	}
}

func TestPauseHoldsBack(t *testing.T) {
	l, u := startLoop(t), newUser()
	peer := l.pair(t, u)
	l.on(t, u.conn.Pause)
	_, _ = peer.Write([]byte("held"))
	_ = peer.CloseWrite()
	u.want(t, "ended") // which does not read
	l.on(t, u.conn.Resume)
	u.want(t, "held")
	if err := u.end(t); !errors.Is(err, io.EOF) {
		t.Errorf("it ended with %v, want io.EOF", err)
	}
}

// TestPausedInTheTurnOfTheEnd pauses with bytes read and the end seen: that the
// peer has left must be told all the same.
func TestPausedInTheTurnOfTheEnd(t *testing.T) {
	l, u := startLoop(t), newUser()
	u.read = func(c *Conn) {
		var b [4]byte
		n, _ := c.Read(b[:])
		u.events <- string(b[:n])
		c.Pause()
	}
	peer := l.pair(t, u)
	l.on(t, func() { // both come in one event
		_, _ = peer.Write([]byte("last"))
		_ = peer.CloseWrite()
	})
	u.want(t, "last")
	u.want(t, "ended")
}

// TestResetWhilePaused: it is told of, and what came before can still be read.
func TestResetWhilePaused(t *testing.T) {
	l, u := startLoop(t), newUser()
	ours, theirs := tcpPair(t)
	l.on(t, func() { _ = l.Add(&u.conn, ours, u); u.conn.Pause() })
	_, _ = theirs.Write([]byte("last"))
	_ = theirs.SetLinger(0)
	_ = theirs.Close()
	u.want(t, "ended")
	l.on(t, u.conn.Resume)
	u.want(t, "last")
	if err := u.end(t); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("it ended with %v, want ECONNRESET", err)
	}
}

// TestWhatWaitsGoesOutInOrder writes more than the socket takes, copied and lent
// by turns, to a peer that begins to read late.
func TestWhatWaitsGoesOutInOrder(t *testing.T) {
	l, u := startLoop(t), newUser()
	peer := l.pair(t, u)
	var want []byte
	l.on(t, func() {
		for i := range 40 {
			head, body := bytes.Repeat([]byte{byte(i)}, 3000), bytes.Repeat([]byte{byte(100 + i)}, 50_000)
			want = append(append(want, head...), body...)
			if i%2 == 0 {
				u.conn.Write(head, body)
				clear(body) // it was copied
			} else {
				u.conn.WriteLent(head, body)
			}
			clear(head)
		}
		if u.conn.Pending() == 0 || u.conn.Pending() >= len(want) {
			t.Errorf("%d of %d bytes wait", u.conn.Pending(), len(want))
		}
	})
	got := make([]byte, len(want))
	if _, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the peer got something else (error %v)", err)
	}
	u.want(t, "drained")
}

func TestWriteToAPeerThatHasGone(t *testing.T) {
	l, u := startLoop(t), newUser()
	ours, theirs := tcpPair(t)
	l.on(t, func() { _ = l.Add(&u.conn, ours, u); u.conn.Pause() })
	_ = theirs.SetLinger(0)
	l.on(t, func() {
		_ = theirs.Close()
		for u.conn.Open() {
			u.conn.Write([]byte("x"), nil)
		}
		u.conn.Write([]byte("x"), nil) // of no effect
		u.conn.Close()
	})
	if err := u.end(t); err == nil {
		t.Error("it ended without an error")
	}
	select {
	case <-u.closed:
		t.Error("closed twice")
	default:
	}
}

func TestConnect(t *testing.T) {
	l, u := startLoop(t), newUser()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddrPort(ln.Addr().String())
	l.on(t, func() {
		if err := l.Connect(&u.conn, address, u, nil); err != nil {
			t.Error(err)
		}
		u.conn.Write([]byte("early"), nil) // may be written before it is there
	})
	u.want(t, "connected")
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != "early" {
		t.Errorf("the peer got %q, %v", got, err)
	}
	_ = nc.Close()
	_ = ln.Close()
	_ = u.end(t)

	refused := newUser()
	l.on(t, func() {
		if err := l.Connect(&refused.conn, address, refused, nil); err != nil {
			refused.closed <- err // loopback may say so at once
		}
	})
	var bad *ConnectError
	if err := refused.end(t); !errors.As(err, &bad) || !errors.Is(err, unix.ECONNREFUSED) || bad.Address != address {
		t.Errorf("connecting to nobody: %v, want a *ConnectError of ECONNREFUSED", err)
	}
}

// TestADescriptorUsedAgain closes a connection within the turn in which an end
// was reported for it, and opens another with its number.
func TestADescriptorUsedAgain(t *testing.T) {
	l := startLoop(t)
	first, second, third := newUser(), newUser(), newUser()
	p1, p2 := l.pair(t, first), l.pair(t, second)
	var p3 atomic.Int64
	replace := func(victim *user) func(*Conn) {
		return func(*Conn) {
			if p3.Load() != 0 {
				return
			}
			fd := victim.conn.FD()
			victim.conn.Close()
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil || fds[0] != fd {
				t.Logf("got descriptor %d instead of %d (%v)", fds[0], fd, err)
			}
			_ = l.Add(&third.conn, fds[0], third)
			third.conn.Pause()
			p3.Store(int64(fds[1]))
		}
	}
	first.read, second.read = replace(second), replace(first)
	l.on(t, func() { // both events come in one turn
		_ = p1.Close()
		_ = p2.Close()
	})
	l.on(t, func() {})
	eventually(t, func() bool { return p3.Load() != 0 })
	l.on(t, func() {})
	select {
	case e := <-third.events:
		t.Errorf("the new connection was told %q", e)
	case err := <-third.closed:
		t.Errorf("the new connection was closed: %v", err)
	default:
	}
	_ = unix.Close(int(p3.Load()))
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatal("it has not happened")
		}
	}
}

// again connects anew from within Closed, to the same address.
type again struct {
	*user
	loop *Loop
	left int
}

func (a *again) Closed(c *Conn, err error) {
	a.closed <- err
	var failed *ConnectError
	if a.left--; a.left > 0 && errors.As(err, &failed) {
		if err := a.loop.Connect(c, failed.Address, a, nil); err != nil {
			a.closed <- err
		}
	}
}

// TestConnectAgainFromWithin: what was reported of the connection that failed is
// not the next one's.
func TestConnectAgainFromWithin(t *testing.T) {
	l := startLoop(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := netip.MustParseAddrPort(ln.Addr().String())
	_ = ln.Close()
	a := &again{newUser(), l, 3}
	l.on(t, func() {
		if err := l.Connect(&a.conn, address, a, nil); err != nil {
			t.Skip("this kernel says at once that nobody listens")
		}
	})
	for range 3 {
		var failed *ConnectError
		if err := a.end(t); !errors.As(err, &failed) {
			t.Errorf("it ended with %v, want a *ConnectError", err)
		}
	}
	select {
	case e := <-a.events:
		t.Errorf("%q was told of connections that never were", e)
	default:
	}
}
