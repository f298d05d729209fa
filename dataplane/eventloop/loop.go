package eventloop

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrStopped is what Execute returns, and what connections end with, when the
// loop has ended.
var ErrStopped = errors.New("event loop has ended")

// Handler is told what becomes of its connections, on the loop's goroutine. It
// may close any connection of the loop, its own too, from within.
type Handler interface {
	// Readable: c has bytes, or its end. The handler reads until Read says that
	// nothing is left, or pauses, or returns to be called again.
	Readable(c *Conn)
	// Drained: the peer's socket has taken all that waited for it, or c is Mute.
	Drained(c *Conn)
	// Connected: Connect has succeeded.
	Connected(c *Conn)
	// Waits: something has come while c is paused.
	Waits(c *Conn)
	// Ended: the peer has ended its sending direction while c is paused, or, if err
	// is not nil, c has failed. What came before can be read when the pause ends,
	// and then its end. It may be told again. Of one that is not paused, reading
	// tells.
	Ended(c *Conn, err error)
	// Closed runs once, whoever closed c, possibly under a Write. err is nil when
	// Close or Abort did; a failed Connect ends here too, with an *ConnectError.
	Closed(c *Conn, err error)
}

// Loop is one event loop.
type Loop struct {
	poller  *poller
	conns   []*Conn // by descriptor
	open    int
	mark    int32    // of the connection that was added last
	ready   []*Conn  // what is to be read in the next turn though nothing will be told of it
	calls   []*Conn  // ready, while it is gone through
	spare   [][]byte // buffers of bytes that waited
	stamp   stamp    // scratch of ReadStamped
	yield   bool     // before the next sleep, let other goroutines have the processor
	yielded time.Time
	quiet   int // sleeps since a connection had something
	stop    bool
}

// New opens a loop. Run runs it.
func New() (*Loop, error) {
	p, err := openPoller()
	if err != nil {
		return nil, fmt.Errorf("open event loop: %w", err)
	}
	return &Loop{poller: p}, nil
}

// Run serves until Stop, and closes every connection then. It returns why it
// ended, nil after Stop.
func (l *Loop) Run() error {
	var err error
	for err == nil && !l.stop {
		err = l.turn()
	}
	l.poller.close()
	l.runTasks() // of those that were let in none is lost
	for _, c := range l.conns {
		if c != nil {
			c.end(ErrStopped)
		}
	}
	l.poller.free()
	return err
}

// turn takes what has happened and has it handled. It waits only when there was
// nothing: to look costs a tenth of what it costs to fall asleep and be woken.
func (l *Loop) turn() error {
	events, err := l.poller.look()
	if err == nil && len(events) == 0 && len(l.ready) == 0 {
		events, err = l.sleep()
	}
	woken := false
	l.ready, l.calls = l.calls[:0], l.ready
	for i := range events {
		if e := &events[i]; int(e.Fd) == l.poller.wake {
			woken = true
		} else {
			l.quiet = 0
			l.event(e)
		}
	}
	for i, c := range l.calls {
		l.calls[i], c.called = nil, false
		if c.More() {
			c.arrived(0)
		}
	}
	if woken {
		l.runTasks()
	}
	return err
}

// quietAfter is how often the loop is woken for nothing but tasks before it takes itself
// for idle.
const quietAfter = 8

// sleep waits until something happens: in the kernel, from where the way back is the
// shortest, or, when no connection has had anything for a while, as goroutines do.
func (l *Loop) sleep() ([]unix.EpollEvent, error) {
	if l.quiet >= quietAfter {
		return l.poller.park()
	}
	l.quiet++
	l.letOthers()
	return l.poller.wait()
}

// yieldEvery is how long the loop keeps its processor at most without having been
// through the Go scheduler: less than what makes the runtime suspect a goroutine
// that does not let others in (forcePreemptNS in runtime/proc.go), and take the
// processor away at each sleep from then on.
const yieldEvery = 8 * time.Millisecond

// letOthers goes through the scheduler before a sleep in the kernel if somebody
// may wait for this processor: a goroutine that the loop has woken stands in its
// queue, from which a sleep would keep it for up to 10 ms. Not at every sleep, as
// each time wakes an idle processor, to look in vain for something to do.
func (l *Loop) letOthers() {
	if now := time.Now(); l.yield || now.Sub(l.yielded) > yieldEvery {
		l.yield, l.yielded = false, now
		runtime.Gosched()
	}
}

func (l *Loop) runTasks() {
	for t := l.poller.take(); t != nil; t = t.below {
		t.run()
	}
	l.yield = true // who has put it in often waits for it
}

// Yield lets other goroutines have the processor before the loop sleeps next. To
// be called when one was given something to do, such as on a channel.
func (l *Loop) Yield() { l.yield = true }

// Execute runs f on the loop, soon. Any goroutine may call it. It returns
// ErrStopped when the loop has ended, and f then never runs.
func (l *Loop) Execute(f func()) error {
	if !l.poller.put(f) {
		return ErrStopped
	}
	return nil
}

// Stop ends Run. Any goroutine may call it.
func (l *Loop) Stop() { _ = l.Execute(func() { l.stop = true }) }

// Open returns how many connections the loop has.
func (l *Loop) Open() int { return l.open }

// Add gives a non-blocking stream socket to the loop, which owns it from then
// on, and makes it c. On an error the socket is closed.
func (l *Loop) Add(c *Conn, fd int, h Handler) error {
	l.mark++
	if err := l.poller.watch(fd, l.mark, unix.EPOLLIN|unix.EPOLLOUT|unix.EPOLLRDHUP); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("watch socket: %w", err)
	}
	for fd >= len(l.conns) {
		l.conns = append(l.conns, nil)
	}
	*c = Conn{loop: l, handler: h, fd: fd, mark: l.mark, open: true, fresh: true}
	l.conns[fd] = c
	l.open++
	return nil
}

// ConnectError says that a peer could not be connected to.
type ConnectError struct {
	Address netip.AddrPort
	Err     error
}

func (e *ConnectError) Error() string { return fmt.Sprintf("connect to %v: %v", e.Address, e.Err) }

// Unwrap returns the system's error.
func (e *ConnectError) Unwrap() error { return e.Err }

// keepAliveSeconds is when a silent peer is asked whether it is still there, and
// how often then (Go's net has the same).
const keepAliveSeconds = 15

// Connect begins to connect c to a TCP address; Connected or Closed goes on. An
// error, an *ConnectError, means that it could not even begin. Before it begins,
// made is told of the socket, if it is not nil.
func (l *Loop) Connect(c *Conn, address netip.AddrPort, h Handler, made func(fd int)) error {
	family, to := sockaddr(address)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return &ConnectError{address, fmt.Errorf("socket: %w", err)}
	}
	if err := Tune(fd); err != nil {
		_ = unix.Close(fd)
		return &ConnectError{address, err}
	}
	if made != nil {
		made(fd)
	}
	if err := unix.Connect(fd, to); err != nil && err != unix.EINPROGRESS {
		_ = unix.Close(fd)
		return &ConnectError{address, err}
	}
	if err := l.Add(c, fd, h); err != nil {
		return &ConnectError{address, err}
	}
	c.connecting, c.address = true, address
	return nil
}

// Tune sets what every connection has: no delay of small writes, and a look
// whether a silent peer is still there. Of a listener its connections inherit it.
func Tune(fd int) error {
	for _, o := range []struct{ level, name, value int }{
		{unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, keepAliveSeconds},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, keepAliveSeconds},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("setsockopt: %w", err)
		}
	}
	return nil
}

// HostBoundsUnsent reports whether the host's administrator has set a bound on what
// the kernel takes beyond what it has sent, for all connections
// (net.ipv4.tcp_notsent_lowat, Documentation/networking/ip-sysctl.rst).
func HostBoundsUnsent() bool {
	b, err := os.ReadFile("/proc/sys/net/ipv4/tcp_notsent_lowat")
	if err != nil {
		return false
	}
	value := strings.TrimSpace(string(b))
	return value != "4294967295" && value != "-1" // as not set is written, the latter by old kernels
}

func sockaddr(a netip.AddrPort) (family int, to unix.Sockaddr) {
	if ip := a.Addr().Unmap(); ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16(), ZoneId: zone(a.Addr())}
}

// event handles what was reported of a connection. The events of one turn were
// collected together: meanwhile the descriptor may have been closed, and given
// out again, which the mark tells.
func (l *Loop) event(e *unix.EpollEvent) {
	c := l.conns[e.Fd]
	if c == nil || c.mark != e.Pad {
		return
	}
	const failed = unix.EPOLLERR | unix.EPOLLHUP
	switch {
	case c.connecting && e.Events&(unix.EPOLLOUT|failed) == 0:
		return
	case c.connecting:
		if !c.connected() { // and c may be another connection by now
			return
		}
	case e.Events&unix.EPOLLOUT != 0 && c.Pending() > 0:
		c.drain()
	}
	if c.open && c.mark == e.Pad && e.Events&(unix.EPOLLIN|unix.EPOLLRDHUP|failed) != 0 {
		c.arrived(e.Events)
	}
}

// What is kept of buffers for bytes that wait: so many, each of no more.
const (
	spareBuffers     = 64
	spareBufferBytes = 64 << 10
)

// buffer returns memory for at least n bytes.
func (l *Loop) buffer(n int) []byte {
	if last := len(l.spare) - 1; last >= 0 && n <= spareBufferBytes {
		b := l.spare[last]
		l.spare = l.spare[:last]
		if cap(b) >= n {
			return b
		}
	}
	return make([]byte, 0, n)
}

func (l *Loop) giveBack(b []byte) {
	if cap(b) > 0 && cap(b) <= spareBufferBytes && len(l.spare) < spareBuffers {
		l.spare = append(l.spare, b[:0])
	}
}
