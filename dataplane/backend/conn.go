package backend

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// Conn is one connection to a node. Loop-owned.
type Conn struct {
	gnet.Conn  // nil until it is enrolled
	Slot       int
	Generation uint32
	Home       any    // what it belongs to for life: the caller's loop
	Owner      any    // who uses it; nil while idle
	In         []byte // start of an answer's head that has not ended
	Paused     bool   // reading is paused because the client is slow
	Closed     bool

	idleSinceNs int64
	newer       *Conn // towards the most recently used idle one
	older       *Conn
	idle        bool
	rested      bool // it was idle before
}

// Reused reports whether the connection lay idle before this request, so that
// its node may have closed it meanwhile.
func (c *Conn) Reused() bool { return c.rested }

// IdleSinceNs returns when the connection was last put into the pool.
func (c *Conn) IdleSinceNs() int64 { return c.idleSinceNs }

// Quiet reports whether nothing waits to be read on the connection: neither
// bytes that no request asked for nor its end. What comes later cannot be told
// from an answer.
func (c *Conn) Quiet() bool {
	var b [1]byte
	_, _, err := unix.Recvfrom(c.Fd(), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return err == unix.EAGAIN
}

// EnrollError says that a connection was made, but its loop could not take it.
type EnrollError struct {
	Address string
	Err     error
}

func (e *EnrollError) Error() string {
	return fmt.Sprintf("enroll connection to node at %s: %v", e.Address, e.Err)
}

// Unwrap returns what gnet said.
func (e *EnrollError) Unwrap() error { return e.Err }

// Dialer connects to nodes for one loop.
type Dialer struct {
	// Loop is where connections are enrolled and outcomes reported.
	Loop gnet.EventLoop
	// Failed is called on the loop when c could not be connected.
	Failed func(c *Conn, err error)
}

// Dial connects c to address ("host:port") in a goroutine of its own, because
// gnet's Register has no time-out. On success the loop sees OnOpen with c as
// the connection's context; on failure Failed runs on the loop.
func (d *Dialer) Dial(c *Conn, address string, timeout time.Duration) {
	go func() {
		err := d.connect(c, address, timeout)
		if err == nil {
			return
		}
		// The loop is gone only when the process ends; then nobody waits.
		_ = d.Loop.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
			d.Failed(c, err)
			return nil
		}))
	}()
}

func (d *Dialer) connect(c *Conn, address string, timeout time.Duration) error {
	dialer := net.Dialer{Timeout: timeout}
	dialer.SetMultipathTCP(false) // plain TCP: what the kernel plane measures
	nc, err := dialer.Dial("tcp", address)
	if err != nil {
		return fmt.Errorf("connect node at %s: %w", address, err)
	}
	result, err := d.Loop.Enroll(gnet.NewContext(context.Background(), c), nc)
	if err != nil {
		_ = nc.Close()
		return &EnrollError{address, err}
	}
	if r := <-result; r.Err != nil {
		return &EnrollError{address, r.Err}
	}
	return nil
}
