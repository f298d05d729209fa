package dataplane_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/dataplane"
	"warmpath/dataplane/backend"
	"warmpath/dataplane/eventloop"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
)

// spoken collects what a data plane logs.
type spoken struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *spoken) count(text string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.b.String(), text)
}

// TestAcceptFailsAndRecovers makes accepting fail in a way that is not for want of
// descriptors: the socket listens no more. It is said once, clients that are
// there go on, and when it listens again others are served.
func TestAcceptFailsAndRecovers(t *testing.T) {
	t.Parallel()
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := ln.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var said spoken
	set := defaults(t)
	holder := fleet.NewHolder()
	d, err := dataplane.Start(dataplane.Options{
		Listener: ln, Loops: 1, Fleet: holder, Index: index.New(index.Options{MemoryBytes: index.MinMemoryBytes}), Settings: &set,
		Log: slog.New(slog.NewTextHandler(&said, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &router{t: t, d: d, holder: holder, set: set}
	r.publish()
	t.Cleanup(func() { _ = d.Stop() })
	there := r.dial()
	there.alive()
	onSocket := func(f func(fd int) error) {
		t.Helper()
		var err error
		if e := raw.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil || err != nil {
			t.Fatal(e, err)
		}
	}
	for round := range 2 {
		onSocket(func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) })
		failures := d.Totals().AcceptFailures
		eventually(t, "accepting to fail again and again", func() bool { return d.Totals().AcceptFailures > failures+3 })
		there.alive()
		onSocket(func(fd int) error { return unix.Listen(fd, 16) })
		var port int
		onSocket(func(fd int) error { // it may have got another one
			name, err := unix.Getsockname(fd)
			if at, ok := name.(*unix.SockaddrInet4); ok {
				port = at.Port
			}
			return err
		})
		nc, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(patience))
		(&client{nc.(*net.TCPConn), t, bufio.NewReader(nc)}).alive()
		eventually(t, "the log to say that it is over", func() bool { return said.count("accepting connections again") == round+1 })
		if n := said.count("cannot accept connections"); n != round+1 {
			t.Errorf("the log says %d times that accepting fails, want %d", n, round+1)
		}
	}
}

// withoutDescriptors runs f while this process can open no descriptor. No other
// test may run beside.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	none := was
	none.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// TestNoDescriptorForANode: a request that needs a new connection to a node gets
// 503 at once, and the node is not blamed; when there are descriptors again it is
// served.
func TestNoDescriptorForANode(t *testing.T) {
	a, b := startNode(t, "a", answers(ok("good"))), startNode(t, "b", answers(ok("good")))
	r := start(t, setup{alone: true}, a, b)
	c := r.dial()
	c.alive()
	for _, request := range []string{chatBody, streamed} {
		withoutDescriptors(t, func() {
			c.send(post("none", request))
			expectError(t, c.answer("POST"), 503, "node_failed", "for want of descriptors, ports or memory here; tried: a")
		})
	}
	if rec := r.record("none"); tries(rec) != "a:local" || rec.Outcome != backend.Local {
		t.Errorf("record: %s, %v", tries(rec), rec.Outcome)
	}
	c.send(post("some", chatBody))
	if got := c.answer("POST"); got.body != "good" {
		t.Errorf("got %d %q", got.StatusCode, got.body)
	}
	r.settled()
	if n := r.nodes[0].Load.Failures.Load() + r.nodes[1].Load.Failures.Load(); n != 0 {
		t.Errorf("%d failures counted on the nodes", n)
	}
}

// TestDialClass: what this host lacks is no fault of a node's; all else is.
func TestDialClass(t *testing.T) {
	for _, c := range []struct {
		err  error
		want backend.Class
	}{
		{unix.EMFILE, backend.Local},
		{unix.ENFILE, backend.Local},
		{unix.ENOBUFS, backend.Local},
		{unix.ENOMEM, backend.Local},
		{unix.EADDRNOTAVAIL, backend.Local}, // every port is in use
		{unix.EAGAIN, backend.Local},        // the routing cache is full
		{unix.ENOSPC, backend.Local},        // the poller watches as much as it may
		{unix.ECONNREFUSED, backend.Refused},
		{unix.ETIMEDOUT, backend.Refused},
		{unix.EHOSTUNREACH, backend.Refused},
		{unix.ENETUNREACH, backend.Refused},
		{unix.ECONNRESET, backend.Refused},
		{&net.DNSError{Err: "no such host", IsNotFound: true}, backend.Refused},
		{errors.New("anything else"), backend.Refused},
	} {
		for _, err := range []error{c.err, &eventloop.ConnectError{Err: fmt.Errorf("socket: %w", c.err)}, &net.OpError{Op: "dial", Err: c.err}} {
			if got := backend.DialClass(err); got != c.want {
				t.Errorf("%v is %v, want %v", err, got, c.want)
			}
		}
		if c.want == backend.Local && (c.want.Blames() || c.want.Retryable() || c.want.Lost()) {
			t.Error("a node is blamed, or another asked, for what this host lacks")
		}
	}
}

// TestLookUpWithoutDescriptors: a name that could not be asked for is no fault of
// the node that has it.
func TestLookUpWithoutDescriptors(t *testing.T) {
	failed := &net.DNSError{Err: "dial udp: socket: too many open files", IsTemporary: true}
	withoutDescriptors(t, func() {
		if got := backend.DialClass(fmt.Errorf("connect to node: %w", failed)); got != backend.Local {
			t.Errorf("without descriptors %v is %v, want %v", failed, got, backend.Local)
		}
	})
	if got := backend.DialClass(failed); got != backend.Refused {
		t.Errorf("with descriptors %v is %v, want %v", failed, got, backend.Refused)
	}
}
