package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/dataplane/eventloop"
)

const (
	refusedAtOnce     = 64 // connections beyond the cap that get an answer; more are closed
	acceptBackoffMin  = 5 * time.Millisecond
	acceptBackoffMax  = time.Second
	clientUnsentBytes = 128 << 10            // what the kernel takes of an answer beyond what is sent
	acceptHealed      = 2 * acceptBackoffMax // without a failure
)

// acceptor takes client connections from the listener and hands each to the
// loop with the fewest. An accept error (EMFILE, ENFILE, ENOBUFS, ENOMEM) ends
// nothing: the connection waits in the kernel's queue until there is room again.
type acceptor struct {
	d       *Dataplane
	file    *os.File        // the listener's socket
	raw     syscall.RawConn // … to wait for
	once    sync.Once
	quit    chan struct{}
	ended   chan struct{} // closed when nothing is accepted any more
	failed  atomic.Uint64 // accepts that failed, and hand-overs
	refused atomic.Uint64 // beyond the cap
	short   lack
}

// init readies the listener: what is set of it here its connections inherit.
func (a *acceptor) init(d *Dataplane) error {
	a.d = d
	a.quit, a.ended = make(chan struct{}), make(chan struct{})
	a.short.init(d.opt.Log, acceptHealed, "cannot accept connections; they wait in the kernel's queue until this heals", "accepting connections again")
	file, err := d.opt.Listener.File() // the listener itself cannot be waited for without making net.Conns
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	a.file, a.raw = file, raw
	return errors.Join(raw.Control(func(fd uintptr) { err = tuneClients(int(fd)) }), err)
}

// tuneClients sets of the listener what clients' connections inherit. What the
// kernel takes of an answer beyond what it has sent is bounded (TCP_NOTSENT_LOWAT;
// tcp(7)): a reader that has stopped would hold up to net.ipv4.tcp_wmem of kernel
// memory, megabytes; some thousands of them exhaust net.ipv4.tcp_mem, and the host's
// other connections, new ones too, lose segments. What is on its way to a fast
// reader is not bounded by it. A bound that the host has for all connections holds,
// also on a socket that was handed over.
func tuneClients(ln int) error {
	if err := eventloop.Tune(ln); err != nil {
		return err
	}
	bound := clientUnsentBytes
	if eventloop.HostBoundsUnsent() {
		bound = 0 // the host's
	}
	if err := unix.SetsockoptInt(ln, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bound); err != nil {
		return fmt.Errorf("setsockopt TCP_NOTSENT_LOWAT: %w", err)
	}
	return nil
}

func (a *acceptor) stop() {
	a.once.Do(func() {
		close(a.quit)
		a.short.stop()
		_ = a.file.Close()
		_ = a.d.opt.Listener.Close()
	})
}

func (a *acceptor) run() {
	defer close(a.ended)
	wait := acceptBackoffMin
	for {
		fd, source, err := a.accept()
		if err == nil {
			wait = acceptBackoffMin
			a.handOver(fd, source)
			continue
		}
		select {
		case <-a.quit:
			return
		default:
		}
		if errors.Is(err, os.ErrClosed) {
			return
		}
		a.starve(err)
		if !a.pause(wait) {
			return
		}
		wait = min(2*wait, acceptBackoffMax)
	}
}

// accept waits for the next connection. It takes the bare descriptor: the loops
// need no net.Conn.
func (a *acceptor) accept() (fd int, source netip.Addr, err error) {
	var peer unix.Sockaddr
	waited := a.raw.Read(func(ln uintptr) bool {
		for {
			fd, peer, err = unix.Accept4(int(ln), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			switch err {
			case unix.EINTR, unix.ECONNABORTED: // it left while it was in the queue
			default:
				return err != unix.EAGAIN
			}
		}
	})
	if waited != nil {
		return -1, source, waited
	}
	if err != nil {
		return -1, source, fmt.Errorf("accept: %w", err)
	}
	return fd, sourceOf(peer), nil
}

// starve counts a failure, and says so once until it heals.
func (a *acceptor) starve(err error) {
	a.failed.Add(1)
	a.short.seen(err)
}

// pause waits, false if the acceptor is stopped first.
func (a *acceptor) pause(wait time.Duration) bool {
	select {
	case <-a.quit:
		return false
	case <-time.After(wait):
		return true
	}
}

// handOver gives a connection to a loop.
func (a *acceptor) handOver(fd int, source netip.Addr) {
	l := a.d.lightest()
	c := &client{loop: l, source: source}
	over := a.d.clients.Add(1) - int64(a.d.settings.Load().Connections)
	c.refused = over > 0
	if over > refusedAtOnce { // even to be told so costs a descriptor for a while
		a.refused.Add(1)
		a.d.clients.Add(-1)
		_ = unix.Close(fd)
		return
	}
	l.clients.Add(1)
	err := l.el.Execute(func() {
		l.now = a.d.nowNs()
		if err := l.el.Add(&c.conn, fd, c); err != nil { // the kernel has no memory for it
			a.starve(err)
			a.lost(l)
			return
		}
		l.openClient(c)
	})
	if err != nil {
		_ = unix.Close(fd)
		a.lost(l)
	}
}

// lost corrects the counts for a connection that no loop ever opened.
func (a *acceptor) lost(l *loop) {
	a.failed.Add(1)
	a.d.clients.Add(-1)
	l.clients.Add(-1)
}

func sourceOf(peer unix.Sockaddr) netip.Addr {
	switch p := peer.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(p.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(p.Addr).Unmap()
	default:
		return netip.Addr{}
	}
}

// lightest returns the loop with the fewest clients; the first of equals.
func (d *Dataplane) lightest() *loop {
	best := d.loops[0]
	for _, l := range d.loops[1:] {
		if l.clients.Load() < best.clients.Load() {
			best = l
		}
	}
	return best
}
