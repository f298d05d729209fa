package backend

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"warmpath/dataplane/eventloop"
	"warmpath/dataplane/flow"
)

// Conn is one connection to a node. Loop-owned.
type Conn struct {
	eventloop.Conn
	Slot       int
	Generation uint32
	Owner      any       // who uses it; nil while idle
	In         []byte    // start of an answer's head that has not ended
	Line       flow.Line // what the kernel says of it

	handler     eventloop.Handler
	rest        []netip.AddrPort // where else the node may be
	idleSinceNs int64
	newer       *Conn // towards the most recently used idle one
	older       *Conn
	idle        bool
	rested      bool // it was idle before
	live        int  // its place in Live, plus 1; 0 = it is in none

	// As last read of its socket, see dataplane's measure.go.
	MadeNs      int64 // when it was made, 0 = it is gone
	Established bool
	TimeOuts    int    // retransmission time-outs in a row
	Retransmits uint32 // segments sent again
	NoWindow    bool   // the node takes nothing more for now
}

// Reused reports whether the connection lay idle before this request, so that
// its node may have closed it meanwhile.
func (c *Conn) Reused() bool { return c.rested }

// IdleSinceNs returns when the connection was last put into the pool.
func (c *Conn) IdleSinceNs() int64 { return c.idleSinceNs }

// Dialer connects to nodes for one loop.
type Dialer struct {
	Loop *eventloop.Loop
	// Made is told of each socket of c before it connects.
	Made func(c *Conn, fd int)
	// Failed is called on the loop when c could not be connected, never from
	// within Dial.
	Failed func(c *Conn, err error)
}

// Dial connects c to address ("host:port"); h is told the rest. Who gives it up
// before sets c.Owner to nil and closes it. A name is looked up within timeout, in
// a goroutine of its own.
func (d *Dialer) Dial(c *Conn, address string, timeout time.Duration, h eventloop.Handler) {
	c.handler = h
	if at, err := netip.ParseAddrPort(address); err == nil {
		d.begin(c, at)
		return
	}
	go func() {
		found, err := lookUp(address, timeout)
		// The loop is gone only when the process ends; then nobody waits.
		_ = d.Loop.Execute(func() {
			switch {
			case c.Owner == nil: // given up
			case err != nil:
				d.Failed(c, err)
			default:
				c.rest = found[1:]
				d.begin(c, found[0])
			}
		})
	}()
}

func (d *Dialer) begin(c *Conn, at netip.AddrPort) {
	err := d.Loop.Connect(&c.Conn, at, c.handler, func(fd int) { d.Made(c, fd) })
	if err == nil {
		return
	}
	_ = d.Loop.Execute(func() {
		if !d.Next(c) {
			d.Failed(c, err)
		}
	})
}

// Next tries the node's next address, false if there is none. The handler calls
// it when connecting to one has failed.
func (d *Dialer) Next(c *Conn) bool {
	if len(c.rest) == 0 || c.Owner == nil {
		return false
	}
	at := c.rest[0]
	c.rest = c.rest[1:]
	d.begin(c, at)
	return true
}

func lookUp(address string, timeout time.Duration) ([]netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("connect to node: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil {
		return nil, fmt.Errorf("connect to node at %s: %w", address, err)
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("connect to node at %s: %w", address, err)
	}
	var found []netip.AddrPort
	for _, ip := range ips {
		found = append(found, netip.AddrPortFrom(ip.Unmap(), uint16(port)))
	}
	return found, nil
}
