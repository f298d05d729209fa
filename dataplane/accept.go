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
	"golang.org/x/sys/unix"
)

const (
	refusedAtOnce    = 64 // connections beyond the cap that get an answer; more are closed
	acceptBackoffMin = 5 * time.Millisecond
	acceptBackoffMax = time.Second
	scarceBelow      = 64                   // descriptors left: each connection is then handed over by itself
	acceptHealed     = 2 * acceptBackoffMax // without a failure
)

// acceptor takes client connections from the listener and hands each to the
// loop with the fewest. The listener is ours and not gnet's, because an accept
// error (EMFILE, ENFILE, ENOBUFS, ENOMEM) ends a gnet engine and must not end
// us: the connection waits in the kernel's queue until descriptors are back.
type acceptor struct {
	d        *Dataplane
	once     sync.Once
	onTheWay sync.WaitGroup // connections being handed to loops
	quit     chan struct{}
	failed   atomic.Uint64 // accepts that failed, and hand-overs
	refused  atomic.Uint64 // beyond the cap
	starved  atomic.Bool
	heal     *time.Timer
}

func (a *acceptor) init(d *Dataplane) {
	a.d = d
	a.quit = make(chan struct{})
	a.heal = time.AfterFunc(acceptHealed, a.healed)
}

func (a *acceptor) stop() {
	a.once.Do(func() {
		close(a.quit)
		a.heal.Stop()
		_ = a.d.opt.Listener.Close()
	})
}

func (a *acceptor) run() {
	wait := acceptBackoffMin
	for {
		c, err := a.d.opt.Listener.Accept()
		if err == nil {
			scarce := scarceDescriptors(c)
			if scarce && !a.keepUntil(c) {
				return
			}
			wait = acceptBackoffMin
			a.handOver(c)
			if scarce {
				a.onTheWay.Wait()
			}
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
		a.starve(err)
		if !a.pause(wait) {
			return
		}
		wait = min(2*wait, acceptBackoffMax)
	}
}

// keepUntil holds an accepted connection until there is a descriptor to hand it
// over with, for that takes one more for a moment; false if the acceptor is
// stopped first. Nothing else may be on its way then, or it would be taken for
// room.
func (a *acceptor) keepUntil(c net.Conn) bool {
	a.onTheWay.Wait()
	for wait := acceptBackoffMin; ; wait = min(2*wait, acceptBackoffMax) {
		err := descriptorLeft()
		if err == nil {
			return true
		}
		a.starve(err)
		if !a.pause(wait) {
			_ = c.Close()
			return false
		}
	}
}

// starve counts a failure, and says so once until it heals.
func (a *acceptor) starve(err error) {
	a.failed.Add(1)
	if !a.starved.Swap(true) {
		a.d.opt.Log.Error("cannot accept connections; they wait in the kernel's queue until this heals", "err", err, "remedy", acceptRemedy(err))
	}
	a.heal.Reset(acceptHealed)
}

// healed runs when no accept has failed for a while.
func (a *acceptor) healed() {
	if a.starved.Swap(false) {
		a.d.opt.Log.Info("accepting connections again", "without_failure_for", acceptHealed)
	}
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

// scarceDescriptors reports whether the process nears its limit of descriptors:
// the kernel gives out the lowest free number, so a low one says that there are
// enough.
func scarceDescriptors(c net.Conn) bool {
	var limit unix.Rlimit
	sc, ok := c.(syscall.Conn)
	if !ok || unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return true
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return true
	}
	number := uint64(0)
	err = raw.Control(func(fd uintptr) { number = uint64(fd) })
	return err != nil || number+scarceBelow > limit.Cur
}

// descriptorLeft tries whether the process can have one more.
func descriptorLeft() error {
	// Any descriptor will do to copy; standard error is one.
	fd, err := unix.FcntlInt(2, unix.F_DUPFD_CLOEXEC, 3)
	if errors.Is(err, unix.EBADF) { // started without one: nothing to tell by
		return nil
	}
	if err != nil {
		return err
	}
	return unix.Close(fd)
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
	a.onTheWay.Add(1)
	result, err := l.el.Enroll(gnet.NewContext(context.Background(), c), nc)
	if err != nil {
		a.onTheWay.Done()
		_ = nc.Close()
		a.lost(l)
		return
	}
	go func() {
		defer a.onTheWay.Done()
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
