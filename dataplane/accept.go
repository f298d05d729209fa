package dataplane

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/panjf2000/gnet/v2"
)

const (
	refusedAtOnce    = 64 // connections beyond the cap that get an answer; more are closed
	acceptBackoffMin = 5 * time.Millisecond
	acceptBackoffMax = time.Second
)

// acceptor takes client connections from the listener and hands each to the
// loop with the fewest. The listener is ours and not gnet's, because an accept
// error (EMFILE, ENFILE, ENOBUFS, ENOMEM) ends a gnet engine and must not end
// us: the connection waits in the kernel's queue until descriptors are back.
type acceptor struct {
	d       *Dataplane
	once    sync.Once
	quit    chan struct{}
	failed  atomic.Uint64 // accepts that failed, and hand-overs
	refused atomic.Uint64 // beyond the cap
	starved atomic.Bool
}

func (a *acceptor) init(d *Dataplane) {
	a.d = d
	a.quit = make(chan struct{})
}

func (a *acceptor) stop() {
	a.once.Do(func() {
		close(a.quit)
		_ = a.d.opt.Listener.Close()
	})
}

func (a *acceptor) run() {
	wait := acceptBackoffMin
	for {
		c, err := a.d.opt.Listener.Accept()
		if err == nil {
			if a.starved.Swap(false) {
				a.d.opt.Log.Info("accepting connections again")
			}
			wait = acceptBackoffMin
			a.handOver(c)
			continue
		}
		select {
		case <-a.quit:
			return
		default:
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		a.failed.Add(1)
		if !a.starved.Swap(true) {
			a.d.opt.Log.Error("cannot accept connections; they wait in the kernel's queue until this heals", "err", err, "remedy", acceptRemedy(err))
		}
		select {
		case <-a.quit:
			return
		case <-time.After(wait):
		}
		wait = min(2*wait, acceptBackoffMax)
	}
}

func acceptRemedy(err error) string {
	switch {
	case errors.Is(err, syscall.EMFILE):
		return "raise RLIMIT_NOFILE or lower limits.connections"
	case errors.Is(err, syscall.ENFILE):
		return "raise fs.file-max"
	default:
		return "free kernel memory"
	}
}

// handOver gives c to a loop. gnet duplicates the descriptor and closes ours.
func (a *acceptor) handOver(nc net.Conn) {
	l := a.d.lightest()
	c := &client{loop: l, source: sourceOf(nc.RemoteAddr())}
	over := a.d.clients.Add(1) - int64(a.d.settings.Load().Connections)
	c.refused = over > 0
	if over > refusedAtOnce { // even to be told so costs a descriptor for a while
		a.refused.Add(1)
		a.d.clients.Add(-1)
		_ = nc.Close()
		return
	}
	l.clients.Add(1)
	result, err := l.el.Enroll(gnet.NewContext(context.Background(), c), nc)
	if err != nil {
		_ = nc.Close()
		a.lost(l)
		return
	}
	go func() {
		if r := <-result; r.Err != nil {
			a.lost(l)
		}
	}()
}

// lost corrects the counts for a connection that no loop ever opened.
func (a *acceptor) lost(l *loop) {
	a.failed.Add(1)
	a.d.clients.Add(-1)
	l.clients.Add(-1)
}

func sourceOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
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
