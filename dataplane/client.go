package dataplane

import (
	"net/netip"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"warmpath/dataplane/backend"
	"warmpath/dataplane/wire"
)

// clientState says what the next byte of a client means.
type clientState uint8

const (
	stHead      clientState = iota // the head of a request, or nothing yet
	stBody                         // a request's body
	stBusy                         // sent ahead: a request is being answered
	stDraining                     // nothing: the last answer is going out, then close
	stLingering                    // nothing: the last answer is out, read on so that it arrives
	stClosed
)

// client is one client connection. Loop-owned, except that accept.go makes it.
type client struct {
	loop    *loop
	conn    gnet.Conn
	source  netip.Addr // its peer's address
	refused bool       // beyond the cap of connections

	state    clientState
	x        *exchange // the request under way; nil between requests
	in       []byte    // bytes that came and were not used: part of a head, or requests sent ahead
	timer    timer
	feeding  bool  // clientTraffic is on the stack
	paused   bool  // reading is paused
	waiting  bool  // in loop.draining
	lingered int   // bytes dropped while lingering
	idleNs   int64 // since when it waits for nothing

	next, prev *client // in loop.open
}

// clientList is an intrusive list of the open clients of a loop.
type clientList struct{ first *client }

func (p *clientList) add(c *client) {
	c.next = p.first
	if p.first != nil {
		p.first.prev = c
	}
	p.first = c
}

func (p *clientList) remove(c *client) {
	if c.prev != nil {
		c.prev.next = c.next
	} else if p.first == c {
		p.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	}
	c.next, c.prev = nil, nil
}

func (l *loop) openClient(c *client, conn gnet.Conn) {
	c.conn = conn
	c.timer.fire = c.expired
	c.idleNs = l.now
	l.open.add(c)
	if c.refused {
		l.d.accept.refused.Add(1)
		l.refuse(c, &errTooManyConnections)
		return
	}
	// A client that connects and says nothing has the time of a head.
	l.armIn(c, l.d.settings.Load().HeadNs)
}

// clientTraffic takes what came from a client. All of it is used or kept
// here, because what gnet keeps has no bound.
func (l *loop) clientTraffic(c *client) {
	b, _ := c.conn.Next(-1)
	if c.state >= stDraining {
		l.linger(c, len(b))
		return
	}
	if len(c.in) > 0 {
		c.in = append(c.in, b...)
		b = c.in
	}
	used := l.feed(c, b)
	if c.state >= stDraining {
		c.in = nil
		return
	}
	c.in = append(c.in[:0], b[used:]...)
	if len(c.in) == 0 && cap(c.in) > joinBytes {
		c.in = nil // idle connections keep no large buffers
	}
	l.steer(c)
}

// owesTooMuch reports whether answers pile up that the client does not take. It
// is not served further until it has taken most of them (checkDraining looks),
// within the time of a silent stream.
func (l *loop) owesTooMuch(c *client) bool {
	if c.conn.OutboundBuffered() <= pauseAboveBytes {
		return false
	}
	c.paused = l.pause.pause(c.conn, true) == nil
	if !c.waiting {
		c.waiting = true
		l.draining = append(l.draining, c)
	}
	l.armIn(c, l.d.settings.Load().IdleStreamNs) // the request before may have set the time of an idle client
	return true
}

// steer stops reading a client that sends ahead of the request under way, again
// if it is stopped: gnet restarts reading whenever a write to the client drains,
// and one read buffer more comes each time. That has a bound too. Once little is
// left, reading goes on.
func (l *loop) steer(c *client) {
	switch ahead := c.state == stBusy && len(c.in) > pipelineBytes; {
	case ahead && len(c.in) > aheadBytesMax:
		l.cutClient(c)
	case ahead:
		c.paused = l.pause.pause(c.conn, true) == nil
	case c.paused && !c.waiting:
		c.paused = l.pause.resume(c.conn) != nil
	}
}

// feed serves requests from b as far as it goes and returns how much it used.
func (l *loop) feed(c *client, b []byte) (used int) {
	c.feeding = true
	defer func() { c.feeding = false }()
	for used < len(b) {
		n := 0
		switch c.state {
		case stHead:
			if l.owesTooMuch(c) {
				return used
			}
			n = l.feedHead(c, b[used:])
		case stBody:
			n = l.feedBody(c, b[used:])
		default:
			return used
		}
		used += n
		if n == 0 {
			return used
		}
	}
	return used
}

// feedHead parses a head at the start of b. It returns its length, 0 if more
// is needed or if the client was answered with an error.
func (l *loop) feedHead(c *client, b []byte) int {
	x := c.x
	if x == nil {
		x = l.newExchange(c)
		l.armIn(c, x.set.HeadNs)
	}
	n, err := x.req.Parse(b, &x.set.Head)
	if err != nil {
		l.fail(x, wireAnswer(err))
		return 0
	}
	if n == 0 {
		return 0
	}
	x.head = append(x.head[:0], b[:n]...)
	if a := l.headRead(x); a != nil {
		l.fail(x, a)
		return 0
	}
	c.state = stBody
	x.body.Start(x.req.Body, x.req.ContentLength)
	if x.body.Done() {
		if x.scanning { // a body of no bytes is no JSON
			if err := x.scan(true); err != nil {
				c.state = stBusy // the request was read to its end
				l.fail(x, scanAnswer(err))
				return n
			}
		}
		l.requestRead(x)
		return n
	}
	if x.req.ExpectContinue && len(b) == n && !l.write(c, continueLine) {
		return n // the client is gone, and x with it
	}
	l.armBody(x)
	return n
}

var continueLine = []byte(wire.Continue)

// feedBody takes body bytes from the start of b and returns how many. It goes
// over them in stripes that stay in the nearest cache between being copied and
// being scanned.
func (l *loop) feedBody(c *client, b []byte) (used int) {
	x := c.x
	scanned := len(x.data)
	for used < len(b) && !x.body.Done() {
		data, n, err := x.body.Next(b[used:min(used+stripeBytes, len(b))])
		if err != nil {
			l.fail(x, wireAnswer(err))
			return 0
		}
		if int64(len(x.data))+int64(data.Len()) > x.set.BodyBytes {
			l.fail(x, errBodyTooLarge(x.set.BodyBytes))
			return 0
		}
		l.keepBody(x, data.Of(b[used:]))
		used += n
		if x.scanning && (len(x.data)-scanned >= stripeBytes || x.body.Done() || used == len(b)) {
			scanned = len(x.data)
			if err := x.scan(x.body.Done()); err != nil {
				l.fail(x, scanAnswer(err))
				return 0
			}
		}
	}
	if x.body.Done() {
		l.requestRead(x)
	} else {
		l.armBody(x)
	}
	return used
}

// armIn sets the client's timer; a time of zero turns it off.
func (l *loop) armIn(c *client, afterNs int64) {
	if afterNs > 0 {
		l.wheel.arm(&c.timer, l.now+afterNs)
	} else {
		c.timer.disarm()
	}
}

// armBody gives the body the time of a head and what its slowest allowed rate
// needs: a client that dribbles holds its buffers for no longer.
func (l *loop) armBody(x *exchange) {
	at := int64(0)
	if x.set.HeadNs > 0 {
		at = x.startNs + x.set.HeadNs + int64(len(x.data))*int64(1e9)/bodyBytesPerSecond
	}
	if end := x.startNs + x.requestNs; x.requestNs > 0 && (at == 0 || end < at) {
		at = end
	}
	if at > 0 {
		l.wheel.arm(&x.client.timer, at)
	}
}

// expired is the client's timer: what it means follows from the state.
func (c *client) expired(nowNs int64) {
	l := c.loop
	switch c.state {
	case stHead, stBody:
		if c.x == nil {
			l.endIdle(c)
			return
		}
		l.fail(c.x, &errSlowRequest)
	case stBusy:
		l.exchangeExpired(c.x)
	default:
		l.closeClient(c)
	}
}

// endIdle ends a client that waits for nothing but what it is still owed.
func (l *loop) endIdle(c *client) {
	if c.conn.OutboundBuffered() > 0 && !c.waiting {
		l.drainClient(c)
		return
	}
	l.closeClient(c)
}

// requestDone readies the client for its next request, or ends it.
func (l *loop) requestDone(c *client, keepAlive bool) {
	if !keepAlive {
		l.drainClient(c)
		return
	}
	c.state, c.idleNs = stHead, l.now
	l.armIn(c, l.d.settings.Load().IdleClientNs)
	if c.feeding {
		return // feed goes on by itself
	}
	used := l.feed(c, c.in)
	if c.state < stDraining {
		c.in = append(c.in[:0], c.in[used:]...)
		l.steer(c)
	}
}

// write sends b to the client and reports whether the connection still stands.
func (l *loop) write(c *client, b []byte) bool {
	if c.state == stClosed {
		return false
	}
	l.writeBoth(c.conn, b, nil) // an error closes the connection: clientClosed has run then
	if c.state == stClosed {
		return false
	}
	if c.paused && c.conn.OutboundBuffered() > 0 {
		_ = l.pause.pause(c.conn, true) // a write that is not whole restarts reading
	}
	return true
}

// drainClient closes the client when what it is owed has gone out.
func (l *loop) drainClient(c *client) {
	if c.state == stClosed {
		return
	}
	c.state = stDraining
	c.in = nil
	if c.conn.OutboundBuffered() > 0 {
		if !c.waiting {
			c.waiting = true
			l.draining = append(l.draining, c)
		}
		l.armIn(c, l.d.settings.Load().IdleStreamNs)
		return
	}
	l.lingerOn(c)
}

// lingerOn ends our direction and reads on for a while: closing with bytes
// unread would send a reset, which can destroy the answer on its way (RFC 9112,
// section 9.6).
func (l *loop) lingerOn(c *client) {
	c.state = stLingering
	if unix.Shutdown(c.conn.Fd(), unix.SHUT_WR) != nil {
		l.closeClient(c)
		return
	}
	if c.paused {
		c.paused = l.pause.resume(c.conn) != nil
	}
	l.wheel.arm(&c.timer, l.now+lingerNs)
}

func (l *loop) linger(c *client, n int) {
	c.lingered += n
	if c.lingered > lingerBytes {
		l.closeClient(c)
	}
}

// checkDraining looks which clients have got all of their last answer.
func (l *loop) checkDraining() {
	pending := l.draining
	l.draining = l.spare[:0] // serving a client may put it on the list again
	for _, c := range pending {
		c.waiting = false
		left := c.conn != nil && c.state != stClosed && c.conn.OutboundBuffered() > 0
		switch {
		case c.state == stDraining && left, c.state == stHead && left && c.conn.OutboundBuffered() > resumeBelowBytes:
			c.waiting = true
			l.draining = append(l.draining, c)
		case c.state == stDraining:
			l.lingerOn(c)
		case c.state == stHead && c.x == nil:
			l.requestDone(c, true)
		}
	}
	clear(pending)
	l.spare = pending
}

// closeClient closes the connection at once.
func (l *loop) closeClient(c *client) {
	if c.state != stClosed {
		_ = l.el.Close(c.conn)
	}
}

// cutClient ends the connection with a reset, so that no client can take what
// it got for a whole answer.
func (l *loop) cutClient(c *client) {
	if c.state == stClosed {
		return
	}
	_ = c.conn.SetLinger(0)
	_ = l.el.Close(c.conn)
}

// clientClosed runs once a connection, whoever closed it. A client that ended
// only its sending direction counts as gone, as nginx treats it.
func (l *loop) clientClosed(c *client) {
	if c.state == stClosed {
		return
	}
	c.state = stClosed
	c.timer.drop()
	l.open.remove(c)
	l.clients.Add(-1)
	l.d.clients.Add(-1)
	c.in = nil
	if x := c.x; x != nil {
		l.abandon(x)
	}
}

// endAll ends the requests that are left when the loops are stopped: with an
// answer where none has begun, else with a reset, so that no client takes what
// it has for the whole.
func (l *loop) endAll() {
	for c := l.open.first; c != nil; {
		next, x := c.next, c.x
		switch {
		case x == nil:
		case x.began:
			l.cut(x, backend.ClientGone)
		default:
			if x.tries > 0 {
				l.leave(x, backend.ClientGone)
			}
			l.fail(x, &errStopping)
		}
		c = next
	}
}

// drainGraceNs is how long a client must have been silent, since its last answer
// and since draining began, to be closed: its next request may be on its way.
// One that comes is answered, with Connection: close.
const drainGraceNs = int64(1e9)

// closeIdleClients closes the clients that have waited for nothing long enough.
func (l *loop) closeIdleClients() {
	for c := l.open.first; c != nil; {
		next := c.next
		if c.state == stHead && c.x == nil && l.now-max(c.idleNs, l.d.drainNs.Load()) >= drainGraceNs {
			c.waiting = false
			l.endIdle(c)
		}
		c = next
	}
}
