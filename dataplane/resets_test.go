package dataplane_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/dataplane"
)

// What a node has sent before it reset the connection, or ended it, is its
// client's; what the end says of the node is said when it comes, however late the
// client is.

// TestAWholeAnswerBeforeAReset: the router's host has acknowledged all of it when
// the node's connection is reset. A client that is slow still gets all.
func TestAWholeAnswerBeforeAReset(t *testing.T) {
	const size = 4 << 20
	reset := make(chan error, 1)
	a := startNode(t, "a", func(c *conn) {
		c.request()
		c.send(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size))
		c.send(strings.Repeat("x", size))
		reset <- c.acknowledged()
		c.reset()
	})
	r := start(t, setup{}, a)
	c := r.dial()
	_ = c.SetReadBuffer(128 << 10)
	c.send("GET /v1/files HTTP/1.1\r\nHost: x\r\n\r\n")
	eventually(t, "the node to be paused", func() bool { slow, _, _ := r.d.Leftovers(); return slow == 1 })
	skipHead(t, c)
	read := c.readUntil(reset)
	if read == size {
		t.Fatal("the client had taken all before the reset")
	}
	n, err := io.Copy(io.Discard, io.LimitReader(c.r, int64(size-read)))
	if read += int(n); err != nil || read < size {
		t.Errorf("the client got %d bytes of %d, then %v", read, size, err)
	}
	r.settled()
}

// acknowledged waits until the router's host has all that was sent.
func (c *conn) acknowledged() error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for left := 1; left > 0; <-tick.C {
		err := withFD(c, func(fd int) (err error) {
			left, err = unix.IoctlGetInt(fd, unix.SIOCOUTQ)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// withFD calls f with the descriptor of a socket.
func withFD(socket syscall.Conn, f func(fd int) error) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = f(int(fd)) })
	return errors.Join(err, inner)
}

// readUntil reads a little at a time until the node says that the router's host has
// all it sent: the node's side empties only as the client reads.
func (c *client) readUntil(taken <-chan error) (read int) {
	c.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-taken:
			if err != nil {
				c.t.Fatal(err)
			}
			return read
		default:
			n, err := c.r.Discard(16 << 10)
			if read += n; err != nil {
				c.t.Fatalf("after %d bytes, before the node had sent all: %v", read, err)
			}
			<-tick.C
		}
	}
}

// pausedAnswer starts an answer of announced bytes, of which the node sends so many
// and then goes on with then. On return they are the router's, and the client has
// taken read of them.
func pausedAnswer(t *testing.T, set func(*dataplane.Settings), announced, size int, then func(*conn)) (r *router, c *client, read int) {
	t.Helper()
	taken := make(chan error, 1)
	a := startNode(t, "a", func(c *conn) {
		c.request()
		c.send(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", announced), strings.Repeat("x", size))
		taken <- c.acknowledged()
		then(c)
	})
	r = start(t, setup{set: set}, a)
	c = r.dial()
	_ = c.SetReadBuffer(128 << 10)
	c.send(post("slow", chatBody))
	eventually(t, "the node to be paused", func() bool { slow, _, _ := r.d.Leftovers(); return slow == 1 })
	skipHead(t, c)
	return r, c, c.readUntil(taken)
}

// TestAPausedNodeResets: the node has nothing of the request any more, and is not
// blamed as if it failed when the client gets there.
func TestAPausedNodeResets(t *testing.T) {
	for name, whole := range map[string]bool{"a part": false, "all": true} {
		t.Run(name, func(t *testing.T) {
			const size = 4 << 20
			announced := size
			if !whole {
				announced *= 2
			}
			r, c, read := pausedAnswer(t, nil, announced, size, (*conn).reset)
			load := r.nodes[0].Load
			eventually(t, "its load to be given back", func() bool { return load.Requests.Load() == 0 && load.TotalTokens.Load() == 0 })
			if slow, _, _ := r.d.Leftovers(); slow != 1 || load.Failures.Load() != 0 {
				t.Fatalf("%d paused, %d failures, before the client has read on", slow, load.Failures.Load())
			}
			endedNs := r.d.NowNs()
			eventually(t, "time to pass", func() bool { return r.d.NowNs() > endedNs+11e8 })
			load.Consecutive.Store(2) // of those that failed since
			n, err := io.Copy(io.Discard, io.LimitReader(c.r, int64(announced-read)))
			switch {
			case whole && err != nil:
				t.Errorf("the client got %d bytes of %d, then %v", read+int(n), size, err)
			case !whole && !errors.Is(err, syscall.ECONNRESET):
				t.Errorf("a part of the answer ended with %v, want a reset", err)
			}
			r.settled()
			want := [4]int64{0, 0, 1, 2}
			if whole {
				want = [4]int64{0, 0, 0, 2}
			}
			if got := [4]int64{load.Successes.Load(), load.Failures.Load(), load.Resets.Load(), load.Consecutive.Load()}; got != want {
				t.Errorf("successes, failures, resets, in a row: %v, want %v", got, want)
			}
		})
	}
}

// TestAWholeAnswerBeforeALateReset: its end is that of the connection, which the
// node's host resets later.
func TestAWholeAnswerBeforeALateReset(t *testing.T) {
	const size = 4 << 20
	taken := make(chan error, 1)
	a := startNode(t, "a", func(c *conn) {
		c.request()
		c.send("HTTP/1.1 200 OK\r\n\r\n", strings.Repeat("x", size))
		_ = c.CloseWrite()
		taken <- c.acknowledged()
		c.reset()
	})
	r := start(t, setup{}, a)
	c := r.dial()
	_ = c.SetReadBuffer(128 << 10)
	c.send("GET /v1/files HTTP/1.0\r\nHost: x\r\n\r\n")
	eventually(t, "the node to be paused", func() bool { slow, _, _ := r.d.Leftovers(); return slow == 1 })
	skipHead(t, c)
	read := c.readUntil(taken)
	eventually(t, "its load to be given back", func() bool { return r.nodes[0].Load.Requests.Load() == 0 })
	n, err := io.Copy(io.Discard, c.r)
	if read += int(n); err != nil || read != size {
		t.Errorf("the client got %d bytes of %d, then %v", read, size, err)
	}
	r.settled()
}

// TestUnaskedBytesBeforeAReset: a node says something on an idle connection and
// resets it as the next request is about to be sent there.
func TestUnaskedBytesBeforeAReset(t *testing.T) {
	say, said := make(chan struct{}), make(chan struct{})
	a := startNode(t, "a", func(c *conn) {
		c.request()
		if c.n > 0 {
			c.send(ok("right"))
			return
		}
		c.send(ok("first"))
		<-say
		c.send(ok("wrong"))
		c.reset()
		close(said)
	})
	r := start(t, setup{}, a)
	c := r.dial()
	c.send(post("1", chatBody))
	c.answer("POST")
	release := r.d.HoldLoop()
	c.send(post("2", chatBody)) // the loop finds it before what the node does
	close(say)
	<-said
	release()
	if got := c.answer("POST"); got.body != "right" {
		t.Errorf("the second request got %q", got.body)
	}
	r.settled()
}

// TestOldBytesAreNoSignOfLife: what has waited in the router's host while a client
// was slow says nothing of the node when it is read.
func TestOldBytesAreNoSignOfLife(t *testing.T) {
	const size = 4 << 20
	more := make(chan struct{})
	r, c, read := pausedAnswer(t, nil, size+5, size, func(c *conn) {
		<-more
		c.send("again")
		c.gone()
	})
	heard := &r.nodes[0].Load.HeardNs
	fromNs := r.d.NowNs()
	eventually(t, "time to pass", func() bool { return r.d.NowNs() > fromNs+100e6 })
	was := heard.Load() // the loop has seen by now that the last of them have come
	if read == size {
		t.Fatal("the client had taken all")
	}
	if _, err := io.CopyN(io.Discard, c.r, int64(size-read)); err != nil {
		t.Fatal(err)
	}
	if now := heard.Load(); now != was {
		t.Errorf("heard %v later, by bytes that had come before", time.Duration(now-was))
	}
	close(more)
	if _, err := c.r.Discard(5); err != nil {
		t.Fatal(err)
	}
	if heard.Load() == was {
		t.Error("not heard by bytes that came just now")
	}
	r.settled()
}

// TestAnAnswerToABodyThatIsNotRead: the node answers, and closes with most of the
// body unread, which resets the connection while the router has more to send.
func TestAnAnswerToABodyThatIsNotRead(t *testing.T) {
	const answer = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge"
	body := longBody(8 << 20)
	for name, set := range map[string]func(*dataplane.Settings){
		"whole":     func(s *dataplane.Settings) { s.BodyBytes = 1 << 30 },
		"passed on": func(s *dataplane.Settings) { s.BodyBytes = 1 << 30; window(s) },
	} {
		t.Run(name, func(t *testing.T) {
			answered, closed := make(chan struct{}), make(chan struct{})
			a := startNode(t, "a", func(c *conn) {
				<-answered
				c.send(answer)
				_ = c.Close() // the kernel resets it, with the body unread
				close(closed)
			})
			r := start(t, setup{set: set}, a)
			c := r.dial()
			done := sendAhead(c, postHead("large", lengthOf(body))+body, 1)
			eventually(t, "the request to be under way", func() bool { return r.nodes[0].Load.Requests.Load() == 1 })
			release := r.d.HoldLoop() // so that the answer and the reset are there at once
			close(answered)
			<-closed
			release()
			if got := c.answer("POST"); got.StatusCode != 413 || got.body != "large" {
				t.Errorf("got %d %q, want the node's answer", got.StatusCode, got.body)
			}
			_ = c.Close()
			<-done
			r.settled()
			if n := r.nodes[0].Load.Failures.Load(); n != 0 {
				t.Errorf("%d failures of the node, which has answered", n)
			}
		})
	}
}

// lastAnswer asks for an answer of which the kernel takes little, and of whose end the
// connection's is the only sign.
func lastAnswer(t *testing.T, set func(*dataplane.Settings)) (*router, *client) {
	t.Helper()
	piece := strings.Repeat("x", lastAnswerBytes)
	a := startNode(t, "a", func(c *conn) {
		c.request()
		c.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(piece) + "0\r\n\r\n")
		c.gone()
	})
	r := start(t, setup{narrow: true, set: set}, a)
	c := r.dial()
	_ = c.SetReadBuffer(4 << 10)
	c.send("GET /v1/files HTTP/1.0\r\nHost: x\r\n\r\n")
	eventually(t, "the rest of the answer to wait", func() bool { _, draining, _ := r.d.Leftovers(); return draining == 1 })
	return r, c
}

const lastAnswerBytes = 100 << 10

// readSlowly reads an answer at some 200 KB a second.
func (c *client) readSlowly() (read int, err error) {
	skipHead(c.t.(*testing.T), c)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for err == nil {
		<-tick.C
		var n int
		n, err = c.r.Discard(2 << 10)
		read += n
	}
	return read, err
}

// TestTheLastAnswerIsNotTaken: a client that takes nothing of the answer after which
// its connection is closed sees a cut: the end of the connection is the answer's.
func TestTheLastAnswerIsNotTaken(t *testing.T) {
	for name, set := range map[string]func(*dataplane.Settings){
		"for long":            func(s *dataplane.Settings) { s.IdleStreamNs = 200e6 },
		"while memory is all": func(s *dataplane.Settings) { s.MemoryBytes = lastAnswerBytes / 2 },
	} {
		t.Run(name, func(t *testing.T) {
			r, c := lastAnswer(t, set)
			eventually(t, "the client to be let go", func() bool { _, _, open := r.d.Leftovers(); return open == 0 })
			if n, err := io.Copy(io.Discard, c.r); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%d bytes and then %v, want a reset", n, err)
			}
		})
	}
}

// TestTheLastAnswerIsTakenSlowly: one that takes some of it is waited for, for as
// long as a request may take.
func TestTheLastAnswerIsTakenSlowly(t *testing.T) {
	t.Run("in time", func(t *testing.T) {
		_, c := lastAnswer(t, func(s *dataplane.Settings) { s.IdleStreamNs = 500e6 })
		if n, err := c.readSlowly(); n != lastAnswerBytes || !errors.Is(err, io.EOF) {
			t.Errorf("%d bytes and then %v, want %d and the end", n, err, lastAnswerBytes)
		}
	})
	t.Run("too slowly", func(t *testing.T) {
		_, c := lastAnswer(t, func(s *dataplane.Settings) { s.IdleStreamNs, s.RequestNs = 500e6, 900e6 })
		if n, err := c.readSlowly(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%d bytes and then %v, want a reset", n, err)
		}
	})
}

// TestTheLastAnswerAtTheEnd: a loop that is stopped cuts what its clients have not
// taken, and a client that ends its sending direction is cut too.
func TestTheLastAnswerAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(*router, *client){
		"of the loop":   func(r *router, _ *client) { r.d.Stop() },
		"of the client": func(_ *router, c *client) { _ = c.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			r, c := lastAnswer(t, nil)
			end(r, c)
			if n, err := io.Copy(io.Discard, c.r); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%d bytes and then %v, want a reset", n, err)
			}
		})
	}
}
