package dataplane

import (
	"net/netip"

	"warmpath/dataplane/backend"
	"warmpath/dataplane/eventloop"
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
	conn    eventloop.Conn
	source  netip.Addr // its peer's address
	refused bool       // beyond the cap of connections

	state    clientState
	x        *exchange // the request under way; nil between requests
	in       []byte    // bytes that came and were not used: part of a head, or requests sent ahead
	timer    timer
	feeding  bool // feed is on the stack
	owing    bool // not served on before it has taken what it is owed
	leaving  leaving
	lingered int    // bytes dropped while lingering
	budgeted int    // bytes of its memory that count against the budget
	idleNs   int64  // since when it waits for nothing
	pass     uint32 // walk of the census that saw it last

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

func (l *loop) openClient(c *client) {
	c.timer.fire = c.expired
	c.idleNs = l.now
	l.open.add(c)
	l.census.opened(c)
	if c.refused {
		l.d.accept.refused.Add(1)
		l.refuse(c, &errTooManyConnections)
		return
	}
	// A client that connects and says nothing has the time of a head.
	l.armIn(c, l.d.settings.Load().HeadNs)
}

// Readable is the event loop's: the client sent something, or ended.
func (c *client) Readable(conn *eventloop.Conn) {
	l := c.loop
	l.now = l.d.nowNs()
	for range readsPerTurn {
		l.readClient(c)
		if !conn.More() {
			return
		}
	}
}

// Drained is the event loop's: the client has taken all that it was owed.
func (c *client) Drained(*eventloop.Conn) {
	l := c.loop
	l.now = l.d.nowNs()
	l.countClient(c)
	switch x := c.x; {
	case c.state == stDraining:
		l.lingerOn(c)
	case c.owing:
		c.owing = false
		l.serveOn(c)
	case x != nil && x.conn != nil:
		l.resumeNode(x)
	}
}

// Waits is the event loop's. It is read when the pause ends.
func (c *client) Waits(*eventloop.Conn) {}

// Ended is the event loop's. A client that ended only its sending direction
// counts as gone, as nginx treats it.
func (c *client) Ended(*eventloop.Conn, error) {
	c.loop.now = c.loop.d.nowNs()
	c.loop.clientLeft(c)
}

// Connected is the event loop's, and for connections to nodes.
func (c *client) Connected(*eventloop.Conn) {}

// Closed is the event loop's.
func (c *client) Closed(*eventloop.Conn, error) {
	c.loop.now = c.loop.d.nowNs()
	c.loop.clientClosed(c)
}

// readClient reads once, into the request's own memory where that is known to
// be meant.
func (l *loop) readClient(c *client) {
	room := []byte(nil)
	if c.state == stBody && len(c.in) == 0 {
		room = l.bodyRoom(c.x)
	}
	own := room != nil
	if !own {
		room = l.in[:clientReadBytes]
	}
	switch n, err := c.conn.Read(room); {
	case err != nil:
		l.clientLeft(c)
	case n == 0:
	case !own:
		l.clientTraffic(c, room[:n])
	default:
		if l.bodyRead(c, n); c.state < stDraining {
			l.steer(c)
		}
	}
}

// clientLeft closes the connection of a client that has ended its sending
// direction, or failed. It may still read: an answer that has begun is cut, so
// that its end cannot be taken for the whole's.
func (l *loop) clientLeft(c *client) {
	if c.x != nil && c.x.began {
		l.cutClient(c)
	} else {
		l.closeClient(c)
	}
}

// clientTraffic takes what came from a client.
func (l *loop) clientTraffic(c *client, b []byte) {
	if c.state >= stDraining {
		l.linger(c, len(b))
		return
	}
	if len(c.in) > 0 {
		c.in = append(c.in, b...)
		b = c.in
	}
	l.keepUnused(c, b, l.feed(c, b))
}

// keepUnused keeps what feed did not use of b.
func (l *loop) keepUnused(c *client, b []byte, used int) {
	if c.state >= stDraining {
		c.in = nil
		l.countClient(c)
		return
	}
	c.in = append(c.in[:0], b[used:]...)
	if len(c.in) == 0 && cap(c.in) > joinBytes {
		c.in = nil // idle connections keep no large buffers
	}
	l.countClient(c)
	l.steer(c)
}

// owes reports whether an answer waits that the client does not take. It is not
// served further until it has, within the time of a silent stream.
func (l *loop) owes(c *client) bool {
	if c.conn.Pending() == 0 {
		return false
	}
	c.owing = true
	l.armIn(c, l.d.settings.Load().IdleStreamNs) // the request before may have set the time of an idle client
	return true
}

// serveOn goes on with a client that has taken what it was owed.
func (l *loop) serveOn(c *client) {
	if x := c.x; x != nil { // part of a head has come
		l.armIn(c, x.set.HeadNs)
	} else {
		l.armIn(c, l.d.settings.Load().IdleClientNs)
	}
	l.feedKept(c)
}

// feedKept serves what was sent ahead, unless feed is at it.
func (l *loop) feedKept(c *client) {
	if !c.feeding {
		l.keepUnused(c, c.in, l.feed(c, c.in))
	}
}

// steer stops reading a client that sends ahead of the request under way, or
// does not take what it is owed, and reads on when that is over.
func (l *loop) steer(c *client) {
	switch {
	case c.owing, c.state == stBusy && len(c.in) > pipelineBytes, c.state == stBody && c.x.stuck:
		c.conn.Pause()
	default:
		c.conn.Resume()
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
			if l.owes(c) {
				return used
			}
			n = l.feedHead(c, b[used:])
		case stBody:
			if c.x.stuck {
				return used
			}
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

// feedBody takes body bytes from the start of b and returns how many.
func (l *loop) feedBody(c *client, b []byte) (used int) {
	x := c.x
	for used < len(b) && !x.body.Done() {
		data, n, err := x.body.Next(b[used:])
		if err != nil {
			l.refuseLate(x, wireAnswer(err))
			return 0
		}
		if x.come+int64(data.Len()) > x.set.BodyBytes {
			l.refuseLate(x, errBodyTooLarge(x.set.BodyBytes))
			return 0
		}
		l.keepBody(x, data.Of(b[used:]))
		used += n
	}
	if !l.bodyGrown(c) {
		return 0
	}
	return used
}

// bodyRoom returns where the rest of x's body, or some of it, is to be read, nil
// if what comes has to be looked at first.
func (l *loop) bodyRoom(x *exchange) []byte {
	if x.req.Body != wire.BodyLength {
		return nil
	}
	have := len(x.data)
	left := x.req.ContentLength - x.come
	if have == cap(x.data) {
		l.growBody(x, have+1)
	}
	return x.data[have:][:min(int64(cap(x.data)-have), left, bodyReadBytes)]
}

// bodyRead goes on after n bytes were read into bodyRoom.
func (l *loop) bodyRead(c *client, n int) {
	x := c.x
	have := len(x.data)
	x.data = x.data[:have+n]
	x.come += int64(n)
	if _, _, err := x.body.Next(x.data[have:]); err != nil {
		panic("BUG: dataplane: a body of known length is malformed: " + err.Error())
	}
	l.bodyGrown(c)
}

// bodyGrown goes on when more of the body has come. It reports whether the
// request was not refused for it.
func (l *loop) bodyGrown(c *client) bool {
	x := c.x
	if l.countBody(x); !x.body.Done() && l.shedBody(x) {
		return false
	}
	if x.scanning {
		if err := x.scan(x.body.Done()); err != nil {
			l.refuseLate(x, scanAnswer(err))
			return false
		}
		if x.repeated() {
			l.refuseLate(x, &errRepeatedKey)
			return false
		}
	}
	switch {
	case x.passing:
		if x.body.Done() {
			c.state = stBusy
		}
		l.passOn(x)
	case x.body.Done():
		l.requestRead(x)
	case l.mayDecide(x):
		l.decideEarly(x)
	default:
		l.armBody(x)
	}
	return true
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
	at := x.bodyDeadline()
	if x.requestNs > 0 {
		at = earliest(at, x.startNs+x.requestNs)
	}
	if at > 0 {
		l.wheel.arm(&x.client.timer, at)
	}
}

// bodyDeadline is when more of x's body must have come; 0 = never.
func (x *exchange) bodyDeadline() int64 {
	if x.set.HeadNs <= 0 {
		return 0
	}
	return x.startNs + x.heldNs + x.set.HeadNs + x.come*int64(1e9)/bodyBytesPerSecond
}

// expired is the client's timer: what it means follows from the state.
func (c *client) expired(nowNs int64) {
	l := c.loop
	switch c.state {
	case stHead, stBody:
		switch {
		case c.x == nil:
			l.endIdle(c)
		case c.x.passing:
			l.exchangeExpired(c.x)
		default:
			l.fail(c.x, &errSlowRequest)
		}
	case stBusy:
		l.exchangeExpired(c.x)
	case stDraining:
		l.lookAtLeaving(c)
	default:
		l.closeClient(c)
	}
}

// endIdle ends a client that waits for nothing but what it is still owed.
func (l *loop) endIdle(c *client) {
	if c.conn.Pending() > 0 && c.state != stDraining {
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
	l.feedKept(c)
}

// write sends b to the client and reports whether the connection still stands.
func (l *loop) write(c *client, b []byte) bool {
	if c.state == stClosed {
		return false
	}
	c.conn.Write(b, nil) // an error closes the connection: clientClosed has run then
	return c.state != stClosed
}

// closeClient closes the connection at once, with a reset if it is still owed
// something, which a clean end would make look whole.
func (l *loop) closeClient(c *client) {
	if c.conn.Pending() > 0 {
		c.conn.Abort()
		return
	}
	c.conn.Close()
}

// cutClient ends the connection with a reset, so that no client can take what
// it got for a whole answer.
func (l *loop) cutClient(c *client) {
	c.conn.Abort()
}

// clientClosed runs once a connection, whoever closed it.
func (l *loop) clientClosed(c *client) {
	c.state = stClosed
	c.timer.drop()
	l.census.leaves(c)
	l.open.remove(c)
	l.clients.Add(-1)
	l.d.clients.Add(-1)
	c.in = nil
	l.countClient(c)
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
		if c.state != stClosed && c.conn.Pending() > 0 { // it would end cleanly
			l.cutClient(c)
		}
		c = next
	}
}

// closeIdleClients closes the clients that have waited for nothing long enough, since
// their last answer and since draining began: the next request of one may be on its way,
// and one that comes is answered, with Connection: close.
func (l *loop) closeIdleClients(graceNs int64) {
	for c := l.open.first; c != nil; {
		next := c.next
		if c.state == stHead && c.x == nil && l.now-max(c.idleNs, l.d.drainNs.Load()) >= graceNs {
			l.endIdle(c)
		}
		c = next
	}
}
