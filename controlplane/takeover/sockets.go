package takeover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	leaveWithin = time.Second
	leaveLook   = time.Millisecond
)

// Sockets are the listening sockets of a process: those that it was handed, and
// those that it has opened. A process that takes over accepts on none of them
// before Open.
type Sockets struct {
	mu        sync.Mutex
	inherited map[SocketName]net.Listener // not asked for yet
	listening []*socket
	open      chan struct{} // closed when connections are accepted
	opened    bool
}

// NewSockets returns the sockets of a process that takes over from nobody.
func NewSockets() *Sockets {
	s := newSockets()
	s.Open()
	return s
}

func newSockets() *Sockets {
	return &Sockets{inherited: map[SocketName]net.Listener{}, open: make(chan struct{})}
}

// Listen returns the socket that was handed over by that name, or opens one.
// purpose is the key of the configuration that wants it. The error names both,
// and the remedy.
func (s *Sockets) Listen(ctx context.Context, purpose, network, address string) (net.Listener, error) {
	l, err := s.listen(SocketName{purpose, network, address}, func() (net.Listener, error) {
		var lc net.ListenConfig
		lc.SetMultipathTCP(false) // it is not what the kernel plane measures
		return lc.Listen(ctx, network, address)
	})
	if err != nil {
		return nil, fmt.Errorf("listen on %s %q: %w; choose another address or end what holds it", purpose, address, err)
	}
	return l, nil
}

// ListenTCP is Listen for who accepts by other means than Accept, once it serves,
// and closes what it has copied.
func (s *Sockets) ListenTCP(ctx context.Context, purpose, address string) (*net.TCPListener, error) {
	l, err := s.Listen(ctx, purpose, "tcp", address)
	if err != nil {
		return nil, err
	}
	return l.(*socket).Listener.(*net.TCPListener), nil
}

// ListenPath is Listen for the socket on which successors are waited for.
func (s *Sockets) ListenPath(ctx context.Context, path string) (net.Listener, error) {
	l, err := s.listen(SocketName{"takeover", "unix", path}, func() (net.Listener, error) { return listenOver(ctx, path) })
	if err != nil {
		return nil, fmt.Errorf("listen for a successor on %q: %w", path, err)
	}
	return l, nil
}

func (s *Sockets) listen(name SocketName, open func() (net.Listener, error)) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inner := s.inherited[name]
	delete(s.inherited, name)
	if inner == nil {
		var err error
		if inner, err = open(); err != nil {
			return nil, err
		}
	}
	l := &socket{Listener: inner, of: s, name: name, closed: make(chan struct{}), left: make(chan struct{})}
	s.listening = append(s.listening, l)
	return l, nil
}

// listenOver puts a unix socket into the place of one on which nobody listens any
// more, in one step. It is for its owner alone.
func listenOver(ctx context.Context, path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
		return nil, errors.New("there is a file of that name, which is no socket")
	}
	fresh := filepath.Join(filepath.Dir(path), strconv.Itoa(os.Getpid())+".sock")
	_ = os.Remove(fresh) // of a process that had this number
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", fresh)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err = os.Chmod(fresh, 0o600); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		_ = l.Close()
		_ = os.Remove(fresh)
		return nil, err
	}
	return l, nil
}

// Open lets connections be accepted.
func (s *Sockets) Open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.opened {
		s.opened = true
		close(s.open)
	}
}

// CloseUnasked closes the sockets that were handed over and that nobody has
// asked for, and returns their purposes.
func (s *Sockets) CloseUnasked() (purposes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.inherited {
		_ = l.Close()
		purposes = append(purposes, name.For)
	}
	clear(s.inherited)
	slices.Sort(purposes)
	return purposes
}

// Leave ends accepting on all sockets, which another process has by now: what
// waits in their queues, and comes, is accepted there. Whoever waits in Accept
// goes on waiting, until Close. Leave returns when all who accept wait so: then
// they have done with the connections that they had got last, and who drains
// sees those.
func (s *Sockets) Leave() {
	all := s.all()
	for _, l := range all {
		l.leave()
	}
	limit := time.Now().Add(leaveWithin)
	for _, l := range all {
		for !l.parked() && time.Now().Before(limit) {
			time.Sleep(leaveLook)
		}
	}
}

// all are the sockets in use.
func (s *Sockets) all() []*socket {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.listening)
}

func (s *Sockets) forget(l *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listening = slices.DeleteFunc(s.listening, func(o *socket) bool { return o == l })
}

// socket is one of Sockets.
type socket struct {
	net.Listener
	of     *Sockets
	name   SocketName
	once   sync.Once
	closed chan struct{} // closed by Close
	left   chan struct{} // closed by leave

	accepting atomic.Int64 // calls of Accept
	most      atomic.Int64 // of them at a time: so many goroutines accept
	resting   atomic.Int64 // of them, since leave
}

// Accept waits for Sockets.Open first.
func (l *socket) Accept() (net.Conn, error) {
	defer l.accepting.Add(-1)
	if n := l.accepting.Add(1); n > l.most.Load() {
		l.most.Store(n)
	}
	select {
	case <-l.closed:
		return nil, l.gone()
	case <-l.of.open:
	}
	c, err := l.Listener.Accept()
	if err == nil {
		return c, nil
	}
	select {
	case <-l.left: // not an error that anybody need hear of
		l.resting.Add(1)
		<-l.closed
		return nil, l.gone()
	default:
		return nil, err
	}
}

func (l *socket) gone() error {
	return &net.OpError{Op: "accept", Net: l.name.Network, Addr: l.Addr(), Err: net.ErrClosed}
}

// Close closes this process's copy of the socket.
func (l *socket) Close() error {
	l.of.forget(l)
	err := error(net.ErrClosed)
	l.once.Do(func() {
		close(l.closed)
		select {
		case <-l.left:
			err = nil
		default:
			err = l.Listener.Close()
		}
	})
	return err
}

// leave closes this process's copy without a word. The file of a unix socket
// stays.
func (l *socket) leave() {
	select {
	case <-l.left:
		return
	default:
	}
	close(l.left)
	if u, ok := l.Listener.(*net.UnixListener); ok {
		u.SetUnlinkOnClose(false)
	}
	_ = l.Listener.Close()
}

// parked reports whether all who accept wait in Accept, or the owner has closed
// the socket.
func (l *socket) parked() bool {
	select {
	case <-l.closed:
		return true
	default:
		return l.resting.Load() >= l.most.Load()
	}
}

// SyscallConn is for handing the socket over.
func (l *socket) SyscallConn() (syscall.RawConn, error) {
	return l.Listener.(syscall.Conn).SyscallConn()
}
