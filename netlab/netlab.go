package netlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Lab is a router's host and a node's, joined by a cable.
type Lab struct {
	t            testing.TB
	Router, Node Host
	loss         *Loss // at both ends of the cable; nil = nothing was ever lost
}

// Host is one namespace.
type Host struct {
	Namespace string // "" = the one that the test runs in
	Link      string // its end of the cable
	Address   string // IPv4
}

var labs atomic.Int64

// New makes a lab for the test.
func New(t testing.TB) *Lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces are made")
	}
	id := fmt.Sprintf("wp%d-%d", os.Getpid(), labs.Add(1))
	l := &Lab{
		t:      t,
		Router: Host{id + "-router", "cable-r", "10.78.0.1"},
		Node:   Host{id + "-node", "cable-n", "10.78.0.2"},
	}
	t.Cleanup(func() {
		for _, h := range []Host{l.Router, l.Node} {
			_ = exec.Command("ip", "netns", "del", h.Namespace).Run()
		}
	})
	for _, h := range []Host{l.Router, l.Node} {
		l.ip("netns", "add", h.Namespace)
		l.ip("-n", h.Namespace, "link", "set", "lo", "up")
	}
	l.ip("-n", l.Router.Namespace, "link", "add", l.Router.Link, "type", "veth", "peer", "name", l.Node.Link, "netns", l.Node.Namespace)
	for _, h := range []Host{l.Router, l.Node} {
		l.ip("-n", h.Namespace, "addr", "add", h.Address+"/24", "dev", h.Link)
		l.ip("-n", h.Namespace, "link", "set", h.Link, "up")
	}
	return l
}

func (l *Lab) ip(args ...string) {
	l.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Command is a program that runs on a host.
func (h Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", h.Namespace, name}, args...)...)
}

// In runs f on a host. Only f's own thread is there: not the goroutines that it
// starts.
func (h Host) In(f func() error) error {
	if h.Namespace == "" {
		return f()
	}
	return In(h.Namespace, f)
}

// In runs f in the network namespace of a name, on a thread that comes home
// afterwards: what f starts there and ends with its thread lives on.
func In(namespace string, f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends if it cannot be brought home
		home, err := enter(filepath.Join("/var/run/netns", namespace))
		if err != nil {
			done <- err
			return
		}
		err = f()
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back == nil {
			runtime.UnlockOSThread()
		}
		done <- errors.Join(err, home.Close())
	}()
	return <-done
}

// enter moves the thread into a namespace, and returns the one it was in.
func enter(path string) (home *os.File, err error) {
	if home, err = os.Open("/proc/thread-self/ns/net"); err != nil {
		return nil, err
	}
	there, err := os.Open(path)
	if err == nil {
		err = errors.Join(unix.Setns(int(there.Fd()), unix.CLONE_NEWNET), there.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("enter network namespace: %w", err), home.Close())
	}
	return home, nil
}

// Listen listens on a host, at a port that is free, until the test ends.
func (l *Lab) Listen(h Host) net.Listener {
	l.t.Helper()
	var ln net.Listener
	if err := h.In(func() (err error) {
		ln, err = net.Listen("tcp", h.Address+":0")
		return err
	}); err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// Serve listens on a host and has each connection handled on its own, until the
// test ends. It returns where.
func (l *Lab) Serve(h Host, handle func(net.Conn)) *net.TCPAddr {
	l.t.Helper()
	ln := l.Listen(h)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				handle(c)
			}()
		}
	}()
	return ln.Addr().(*net.TCPAddr)
}

// Echo is a handler that sends back what comes.
func Echo(c net.Conn) { _, _ = io.Copy(c, c) }

// Lose has so many in a thousand of the packets in each direction vanish, whatever
// they are: 1000 is a node whose host has died, 0 ends it.
func (l *Lab) Lose(perMille int) {
	l.t.Helper()
	if l.loss == nil {
		l.loss = NewLoss(l.t, l.Node, l.Router)
	}
	l.loss.Set(perMille)
}
