package eventloop

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"

	errorx "github.com/panjf2000/gnet/v2/pkg/errors"
	"github.com/panjf2000/gnet/v2/pkg/netpoll"
	"github.com/panjf2000/gnet/v2/pkg/queue"
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
	// Drained: the peer's socket has taken all that waited for it.
	Drained(c *Conn)
	// Connected: Connect has succeeded.
	Connected(c *Conn)
	// HalfClosed: the peer has ended its sending direction while c is paused. Of
	// one that is not, reading tells.
	HalfClosed(c *Conn)
	// Closed runs once, whoever closed c, possibly under a Write. err is nil when
	// Close or Abort did; a failed Connect ends here too, with an *ConnectError.
	Closed(c *Conn, err error)
}

// Loop is one event loop.
type Loop struct {
	poller *netpoll.Poller
	conns  []*Conn // by descriptor
	open   int
	spare  [][]byte               // buffers of bytes that waited
	attach netpoll.PollAttachment // scratch of one call
	ended  atomic.Bool            // no task will run any more
	poll   [1]unix.PollFd         // scratch of confirm
}

// New opens a loop. Run runs it.
func New() (*Loop, error) {
	poller, err := netpoll.OpenPoller()
	if err != nil {
		return nil, fmt.Errorf("open poller: %w", err)
	}
	return &Loop{poller: poller}, nil
}

// Run serves until Stop, and closes every connection then. It returns why it
// ended, nil after Stop.
func (l *Loop) Run() error {
	err := l.poller.Polling(l.event)
	l.ended.Store(true)
	for _, c := range l.conns {
		if c != nil {
			c.end(ErrStopped)
		}
	}
	_ = l.poller.Close()
	if errors.Is(err, errorx.ErrEngineShutdown) {
		return nil
	}
	return fmt.Errorf("wait for events: %w", err)
}

// Execute runs f on the loop, soon. Any goroutine may call it. It returns
// ErrStopped when the loop has ended; a task that was put in just before may
// then never run.
func (l *Loop) Execute(f func()) error {
	return l.trigger(func(any) error { f(); return nil })
}

func (l *Loop) trigger(task queue.Func) error {
	if l.ended.Load() {
		return ErrStopped
	}
	if err := l.poller.Trigger(queue.HighPriority, task, nil); err != nil {
		return fmt.Errorf("wake event loop: %w", err)
	}
	return nil
}

// Stop ends Run. Any goroutine may call it.
func (l *Loop) Stop() {
	_ = l.trigger(func(any) error { return errorx.ErrEngineShutdown })
}

// Open returns how many connections the loop has.
func (l *Loop) Open() int { return l.open }

// Add gives a non-blocking stream socket to the loop, which owns it from then
// on, and makes it c. On an error the socket is closed.
func (l *Loop) Add(c *Conn, fd int, h Handler) error {
	l.attach.FD = fd
	if err := l.poller.AddReadWrite(&l.attach, true); err != nil {
		_ = unix.Close(fd)
		return fmt.Errorf("watch socket: %w", err)
	}
	for fd >= len(l.conns) {
		l.conns = append(l.conns, nil)
	}
	*c = Conn{loop: l, handler: h, fd: fd, open: true}
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
// error, an *ConnectError, means that it could not even begin.
func (l *Loop) Connect(c *Conn, address netip.AddrPort, h Handler) error {
	family, to := sockaddr(address)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return &ConnectError{address, fmt.Errorf("socket: %w", err)}
	}
	if err := Tune(fd); err != nil {
		_ = unix.Close(fd)
		return &ConnectError{address, err}
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

func sockaddr(a netip.AddrPort) (family int, to unix.Sockaddr) {
	if ip := a.Addr().Unmap(); ip.Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16(), ZoneId: zone(a.Addr())}
}

// event is the poller's callback.
func (l *Loop) event(fd int, events netpoll.IOEvent, _ netpoll.IOFlags) error {
	if fd >= len(l.conns) || l.conns[fd] == nil {
		return nil
	}
	c := l.conns[fd]
	const plain = unix.EPOLLIN | unix.EPOLLOUT
	if c.connecting || events&^plain != 0 {
		events = l.confirm(fd)
	}
	const failed = unix.EPOLLERR | unix.EPOLLHUP
	switch {
	case c.connecting && events&(unix.EPOLLOUT|failed) == 0:
		return nil
	case c.connecting:
		if !c.connected() { // and c may be another connection by now
			return nil
		}
	case events&unix.EPOLLOUT != 0 && c.Pending() > 0:
		c.drain()
	}
	if c.open && events&(unix.EPOLLIN|unix.EPOLLRDHUP|failed) != 0 {
		c.arrived(events)
	}
	return nil
}

// confirm asks the kernel what is true of a descriptor now. The events of one
// turn were collected together: the descriptor may have been closed meanwhile,
// and given out again. For reading and writing that does no harm, as trying
// tells; that a connection was made or has ended must be true of this one.
func (l *Loop) confirm(fd int) uint32 {
	l.poll[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN | unix.POLLOUT | unix.POLLRDHUP}
	if _, err := unix.Poll(l.poll[:], 0); err != nil {
		return 0
	}
	return uint32(l.poll[0].Revents) // poll's bits are epoll's (include/uapi/linux/eventpoll.h)
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
