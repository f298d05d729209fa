package backend

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// Conn is one connection to a node. Loop-owned.
type Conn struct {
	gnet.Conn  // nil until it is enrolled
	Slot       int
	Generation uint32
	Home       any    // what it belongs to for life: the caller's loop
	Owner      any    // who uses it; nil while idle
	Served     uint32 // answers that ended on it
	In         []byte // start of an answer's head that has not ended
	Paused     bool   // reading is paused because the client is slow
	Closed     bool

	idleSinceNs int64
	newer       *Conn // towards the most recently used idle one
	older       *Conn
	idle        bool
}

// Reused reports whether the connection served a request before this one.
func (c *Conn) Reused() bool { return c.Served > 0 }

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
		return fmt.Errorf("enroll connection to node at %s: %w", address, err)
	}
	if r := <-result; r.Err != nil {
		return fmt.Errorf("enroll connection to node at %s: %w", address, r.Err)
	}
	return nil
}
