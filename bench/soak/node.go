package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// node is one scripted engine. It can be stopped and started again at its
// address.
type node struct {
	run     *run
	number  int
	name    string
	address string // host:port

	closed atomic.Int64 // since when it takes no new requests, in Unix nanoseconds; 0 = it does
	stops  timeline     // when it did not listen
	served atomic.Int64 // requests of clients, each try counted

	mu       sync.Mutex
	listener net.Listener // nil while it is stopped
	conns    map[*nodeConn]struct{}
	opened   int // connections ever
	wait     sync.WaitGroup
}

// drainSettle is how long after it was told the router may still send requests
// to a node that is to get none.
const drainSettle = time.Second

// closedFor reports whether a request that began then must not come here.
func (n *node) closedFor(began time.Time) bool {
	since := n.closed.Load()
	return since != 0 && began.UnixNano() > since+int64(drainSettle)
}

func (n *node) close() { n.closed.Store(time.Now().UnixNano()) }
func (n *node) open()  { n.closed.Store(0) }

// start listens at the node's address.
func (n *node) start() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listener != nil {
		return nil
	}
	ln, err := net.Listen("tcp", n.address)
	if err != nil {
		return fmt.Errorf("start node %d: %w", n.number, err)
	}
	n.listener = ln
	n.wait.Go(func() { n.accept(ln) })
	return nil
}

// refuse stops listening; what is connected goes on.
func (n *node) refuse() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listener != nil {
		_ = n.listener.Close()
		n.listener = nil
	}
}

// kill is refuse, and resets what is connected.
func (n *node) kill() {
	n.refuse()
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.kill()
	}
}

func (n *node) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // of this machine; the router sees refusals
			n.run.note("accept_failed")
			time.Sleep(10 * time.Millisecond)
			continue
		}
		n.mu.Lock()
		if n.listener != ln { // stopped meanwhile
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
			n.mu.Unlock()
			continue
		}
		n.opened++
		conn := &nodeConn{node: n, c: c.(*net.TCPConn), r: bufio.NewReaderSize(c, 16<<10), dice: roll(n.run.Seed, uint64(n.number), uint64(n.opened), 99)}
		n.conns[conn] = struct{}{}
		n.mu.Unlock()
		n.wait.Go(func() {
			conn.serve()
			n.mu.Lock()
			delete(n.conns, conn)
			n.mu.Unlock()
		})
	}
}

// connections is how many the router has to the node.
func (n *node) connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

// nodeConn is a connection of the router to a node.
type nodeConn struct {
	node *node
	c    *net.TCPConn
	r    *bufio.Reader
	dice dice

	mu     sync.Mutex
	req    *request // the latest; nil before the first
	try    *try
	busy   bool // it is under way; else its answer may still be on its way
	killed bool
}

// begin begins a try, unless the connection was reset since the request came:
// then the router may be trying elsewhere already.
func (c *nodeConn) begin(r *request) (t *try, number int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.killed {
		return nil, 0, net.ErrClosed
	}
	t, number, err = r.begin(c.node)
	c.req, c.try, c.busy = r, t, true
	return t, number, err
}

// end notes that nothing is under way.
func (c *nodeConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.req.change(c.try, func(t *try) { t.ended = time.Now() })
	c.busy = false
}

// kill resets the connection. What is under way is known to be broken before:
// with the reset the kernel drops what the router's host has not acknowledged.
func (c *nodeConn) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.killed = true
	if c.req != nil && (c.busy || c.unacknowledged()) {
		c.req.spoil(c.try, whyKilled)
	}
	c.reset()
}

// unacknowledged reports whether the kernel still holds bytes for the router.
func (c *nodeConn) unacknowledged() bool {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return false
	}
	queued, failed := 0, error(nil)
	err = raw.Control(func(fd uintptr) { queued, failed = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return err == nil && failed == nil && queued > 0
}

const whyKilled = "the node was killed"

// reset ends the connection at once, with a reset.
func (c *nodeConn) reset() {
	_ = c.c.SetLinger(0)
	_ = c.c.Close()
}

// idleLong is when engines close an idle connection (uvicorn's default). A share
// of connections is closed sooner after an answer, so that requests meet the
// close.
const (
	idleLong       = 5 * time.Second
	idleShortShare = 0.1
)

// serve answers requests until the connection ends.
func (c *nodeConn) serve() {
	defer c.c.Close()
	idle, after := idleLong, idleLong
	if c.dice.chance(idleShortShare) {
		after = c.dice.pause(time.Millisecond, 200*time.Millisecond)
	}
	for {
		_ = c.c.SetReadDeadline(time.Now().Add(idle))
		if _, err := c.r.Peek(1); err != nil {
			return // closed by the router, or idle for too long
		}
		idle = after
		_ = c.c.SetReadDeadline(time.Now().Add(requestLimit))
		h, err := readHead(c.r)
		if err != nil {
			c.broken("read a request's head", err)
			return
		}
		if id := h.all(fieldRequest); len(id) > 0 {
			if !c.serveRequest(h, id[0]) {
				return
			}
			continue
		}
		if !c.serveControl(h) {
			return
		}
	}
}

// broken reports what is wrong with the router's bytes; connections that end are
// not.
func (c *nodeConn) broken(doing string, err error) {
	if errors.Is(err, errFraming) {
		c.node.run.violate(nil, "node %d: %s: %v", c.node.number, doing, err)
	}
}

// serveRequest serves a client's request. It reports whether the connection may
// be used again.
func (c *nodeConn) serveRequest(h *head, id string) bool {
	n := c.node
	n.served.Add(1)
	r, err := n.run.ledger.find(id)
	if err != nil {
		n.run.violate(nil, "node %d got %q: %v", n.number, h.line, err)
		return false
	}
	t, number, err := c.begin(r)
	if err == net.ErrClosed {
		return false
	}
	defer c.end()
	if err != nil {
		n.run.violate(r, "%v", err)
		return false
	}
	n.run.countFault(t.fault.kind)
	if err := checkHead(h, r, n.address); err != nil {
		n.run.violate(r, "node %d got another request than was sent: %v", n.number, err)
		return false
	}
	return (&answering{conn: c, req: r, try: t, fault: t.fault, number: number, named: h.all("x-request-id")[0]}).run(h)
}

// readBody reads the request's body, or so much of it, and compares it with what
// was sent.
func (c *nodeConn) readBody(h *head, r *request, most int) error {
	kind, length, err := bodyOf(h, bodyNone)
	if err != nil {
		return err
	}
	want := r.body()
	if kind == bodyLength && length != int64(len(want)) {
		return framing("Content-Length %d of a body of %d bytes", length, len(want))
	}
	b := body{r: c.r, kind: kind, left: length}
	buf := make([]byte, min(64<<10, len(want)+1))
	for got := 0; ; {
		if got >= most {
			return nil
		}
		n, err := b.Read(buf)
		if d := difference(buf[:n], want[min(got, len(want)):], got); d != "" {
			return framing("the body differs: %s", d)
		}
		got += n
		if r.answer.slowRead {
			time.Sleep(time.Millisecond)
		}
		switch {
		case err == io.EOF && got < len(want):
			return framing("a body of %d bytes ends after %d as if it were whole", len(want), got)
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// errEnded says that the router ended the connection.
var errEnded = errors.New("the router ended the connection")

// pause waits, and ends early with errEnded when the router ends the connection.
// Nothing may come meanwhile: the router does not pipeline.
func (c *nodeConn) pause(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	_ = c.c.SetReadDeadline(time.Now().Add(d))
	defer func() { _ = c.c.SetReadDeadline(time.Now().Add(requestLimit)) }()
	b, err := c.r.Peek(1)
	if err == nil {
		return framing("%q came behind a request that is being answered", b)
	}
	if timedOut(err) {
		return nil
	}
	return errEnded
}

// stopAll ends the node for good.
func (n *node) stopAll(ctx context.Context) {
	n.kill()
	done := make(chan struct{})
	go func() { n.wait.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
