package dataplane

import (
	"cmp"
	"errors"
	"io"

	"warmpath/dataplane/backend"
	"warmpath/dataplane/eventloop"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/wire"
)

// nodeSide is the handler of one connection to a node.
type nodeSide struct {
	l    *loop
	c    *backend.Conn
	load *fleet.Load // of the incarnation that was connected to
	told error       // the end that Ended told of; nil = none
}

// Readable is the event loop's: the node sent something, or ended.
func (n *nodeSide) Readable(conn *eventloop.Conn) {
	l, c := n.l, n.c
	l.now = l.d.nowNs()
	for range readsPerTurn {
		got, err := l.readAnswer(c)
		if got > 0 {
			if conn.Fresh() {
				n.load.Heard(l.now)
			}
			l.nodeTraffic(c, l.in[:got])
		}
		if err != nil {
			l.measureLast(c)
			conn.Fail(err)
			return
		}
		if !conn.More() {
			return
		}
	}
}

// readAnswer reads once from a node into l.in. Where the loop keeps time itself it
// asks the kernel when what comes up to the first event came: that costs a third of
// a microsecond, which would be too much for each piece of a stream.
func (l *loop) readAnswer(c *backend.Conn) (got int, err error) {
	to := l.in[:l.answerReadBytes(c)]
	if c.Line.Timed() {
		if x, _ := c.Owner.(*exchange); x != nil && x.phase <= phHolding {
			return l.readStamped(c, to)
		}
	}
	if got, err = c.Read(to); got > 0 {
		if c.Fresh() {
			c.Line.Read(got, l.now+l.d.bootNs)
		} else {
			c.Line.Skip(got)
		}
	}
	return got, err
}

func (l *loop) readStamped(c *backend.Conn, to []byte) (got int, err error) {
	got, ago, err := c.ReadStamped(to)
	switch nowNs := l.d.kernelNs(); {
	case got == 0:
	case ago > 0:
		c.Line.Came(got, nowNs, nowNs-int64(ago))
	default:
		c.Line.Read(got, nowNs)
	}
	return got, err
}

// Drained is the event loop's: the node has taken the whole request.
func (n *nodeSide) Drained(*eventloop.Conn) {
	n.l.now = n.l.d.nowNs()
	if x, _ := n.c.Owner.(*exchange); x != nil {
		n.l.requestSent(x)
	}
}

// Connected is the event loop's.
func (n *nodeSide) Connected(*eventloop.Conn) {
	n.l.now = n.l.d.nowNs()
	n.load.Heard(n.l.now)
	n.l.measureConnect(n.c)
	n.l.nodeOpen(n.c)
}

// Waits is the event loop's.
func (n *nodeSide) Waits(*eventloop.Conn) {
	n.l.now = n.l.d.nowNs()
	n.load.Heard(n.l.now)
}

// Ended is the event loop's. What the node has sent before is read when the
// pause ends, which may take minutes: what the end says of the node is said now.
func (n *nodeSide) Ended(_ *eventloop.Conn, err error) {
	n.l.now = n.l.d.nowNs()
	if n.ends(cmp.Or(err, io.EOF)); n.c.Owner != nil {
		n.c.Owner.(*exchange).part(n.l.now)
	}
}

// ends notes why the connection ends, once each: a reset may follow a clean end.
func (n *nodeSide) ends(err error) {
	if err == nil || n.told != nil && (n.told != io.EOF || err == io.EOF) {
		return
	}
	n.told = err
	n.l.measureEnd(n.c, err)
	if backend.FromPeer(err) {
		n.load.Heard(n.l.now)
	}
}

// Closed is the event loop's.
func (n *nodeSide) Closed(_ *eventloop.Conn, err error) {
	l, c := n.l, n.c
	l.now = l.d.nowNs()
	n.ends(err)
	if failed := (*eventloop.ConnectError)(nil); errors.As(err, &failed) {
		if n.told = nil; !l.dialer.Next(c) {
			l.dialFailed(c, err)
		}
		return
	}
	l.nodeClosed(c, err)
}

// answerReadBytes is how much of an answer is read at once. Of a stream one event
// comes at a time; where many come it is as its client may take none of them.
func (l *loop) answerReadBytes(c *backend.Conn) int {
	if x, _ := c.Owner.(*exchange); x != nil && x.phase >= phHolding && !x.resp.EventStream && l.memory(x.set) < memoryTight {
		return readBufferBytes
	}
	return streamReadBytes
}

// nodeTraffic takes what came from a node.
func (l *loop) nodeTraffic(c *backend.Conn, b []byte) {
	x, _ := c.Owner.(*exchange)
	if x == nil {
		// Bytes on an idle connection belong to no request; the next one must
		// not get them.
		l.closeNode(c)
		return
	}
	switch x.phase {
	case phWaiting:
		l.answerTraffic(x, c, b)
	case phHolding:
		l.hold(x, b)
	default:
		l.relay(x, b)
	}
}

// answerTraffic takes bytes of the head of an answer, and what follows it.
func (l *loop) answerTraffic(x *exchange, c *backend.Conn, b []byte) {
	if len(c.In) > 0 {
		c.In = append(c.In, b...)
		b = c.In
	}
	for {
		n, err := x.resp.Parse(b, &x.set.Head, x.req.Method)
		if err != nil {
			l.failed(x, backend.Malformed)
			return
		}
		if n == 0 {
			c.In = append(c.In[:0], b...)
			return
		}
		if x.resp.Status >= 200 {
			x.respHead = append(x.respHead[:0], b[:n]...)
			b = b[n:]
			break
		}
		l.interim(x, b[:n])
		if c.Owner != x {
			return
		}
		x.resp.Reset()
		b = b[n:]
	}
	c.In = c.In[:0]
	l.answerBegins(x, b)
}

// interim passes a 1xx on (RFC 9110, section 15.2), except 100, which the
// router has answered itself. It is no part of the answer: another node may
// still be tried.
func (l *loop) interim(x *exchange, head []byte) {
	x.heard = true
	if x.resp.Status == 100 || x.req.Minor == 0 {
		return
	}
	l.out = wire.AppendResponseHead(l.out[:0], head, &x.resp, &wire.ResponseOptions{
		Minor: x.req.Minor, KeepAlive: true, DurationSeconds: -1, ContentLength: -1,
	})
	l.write(x.client, l.out)
}

// answerBegins decides on the head of an answer: try elsewhere, hold or relay.
func (l *loop) answerBegins(x *exchange, b []byte) {
	x.respBody.Start(x.resp.Body, x.resp.ContentLength)
	x.watch.Reset()
	x.firstBack = -1
	if failureStatus(x.resp.Status) && l.mayTryNext(x) {
		l.failed(x, backend.Status)
		return
	}
	if x.rival != nil && x.refusedRival() {
		l.failed(x, backend.Outrun)
		return
	}
	x.status = x.resp.Status
	x.lastEventNs = l.now
	if x.resp.EventStream && x.status == 200 && x.set.HoldHead {
		x.phase = phHolding
		x.held = x.held[:0]
		l.hold(x, b)
		return
	}
	l.begin(x, b)
}

// failureStatus reports whether a status says that the node failed.
func failureStatus(status int) bool {
	return status == 500 || status == 502 || status == 503 || status == 504
}

// mayTryNext reports whether a node's 5xx could be replaced by another's
// answer; else it is passed on as it is.
func (l *loop) mayTryNext(x *exchange) bool {
	return x.rival != nil || l.nextSlot(x, ever) >= 0 && l.d.retrying.Load() < l.budget(x)
}

// consume moves the state of the answer's body over b. It returns how much of b
// belongs to it, and what of that goes on, at the start of b: all but trailer
// fields, which no node is asked for (RFC 9110, section 6.5.1).
func (x *exchange) consume(b []byte) (kept []byte, used int, err *wire.Error) {
	end := 0
	for used < len(b) && !x.respBody.Done() {
		data, n, err := x.respBody.Next(b[used:])
		if d := data.Of(b[used:]); len(d) > 0 {
			x.watchData(d)
			if x.firstBack < 0 && x.watch.Events > 0 {
				x.firstBack = len(b) - used - int(data.End)
			}
		}
		switch {
		case x.respBody.TrailerFields():
		case end == used:
			end += n
		default: // the last line end, behind trailer fields
			end += copy(b[end:], b[used:used+n])
		}
		used += n
		if err != nil {
			return b[:end], used, err
		}
	}
	return b[:end], used, nil
}

// watchData lets the watcher see bytes of the answer's body.
func (x *exchange) watchData(d []byte) {
	if x.resp.EventStream {
		x.watch.Feed(d)
	} else {
		x.watch.Usage(d)
	}
}

// hold keeps the start of a stream until its first event: engines send 200
// within milliseconds, and until the event another node can still be tried.
func (l *loop) hold(x *exchange, b []byte) {
	kept, used, err := x.consume(b)
	x.held = append(x.held, kept...)
	switch {
	case err != nil:
		l.failed(x, backend.Malformed)
	case x.watch.FailedFirst && l.mayTryNext(x):
		l.failed(x, backend.ErrorEvent)
	case x.watch.Events > 0 || x.watch.Failed || x.respBody.Done() || len(x.held) > heldStreamBytes:
		l.release(l.taken(x), used < len(b))
	default:
		l.armExchange(x)
	}
}

// release lets a held answer go to the client.
func (l *loop) release(x *exchange, more bool) {
	c := x.conn
	l.events(x)
	if !l.sendHead(x, x.held) || c.Owner != x {
		return
	}
	l.goOn(x, more)
}

// begin starts the answer with the body bytes that came with its head.
func (l *loop) begin(x *exchange, b []byte) {
	c := x.conn
	kept, used, err := x.consume(b)
	if err != nil && used == 0 {
		l.failed(x, backend.Malformed)
		return
	}
	x = l.taken(x)
	l.events(x)
	if !l.sendHead(x, kept) || c.Owner != x {
		return
	}
	if err != nil {
		l.cut(x, backend.MidStream)
		return
	}
	l.goOn(x, used < len(b))
}

// sendHead writes the answer's head and the first bytes of its body, in wire
// form. It reports whether the client is still there.
func (l *loop) sendHead(x *exchange, body []byte) bool {
	o := wire.ResponseOptions{
		Minor:           x.req.Minor,
		KeepAlive:       x.clientKeep && !x.uploading() && !l.d.draining.Load(),
		RequestID:       x.requestID(),
		RoutedTo:        x.node.NameBytes,
		DurationSeconds: -1,
		Chunked:         x.resp.Body == wire.BodyChunked && !x.dechunk,
		ContentLength:   -1,
	}
	if !x.resp.EventStream {
		o.DurationSeconds = float64(l.now-x.startNs) * 1e-9
	}
	x.clientKeep = o.KeepAlive && !o.MustClose(&x.resp)
	o.KeepAlive = x.clientKeep
	x.began, x.phase = true, phRelaying
	l.settleBegun(x)
	l.out = wire.AppendResponseHead(l.out[:0], x.respHead, &x.resp, &o)
	if x.unchunks() {
		l.out = appendUnchunked(l.out, body)
		return l.write(x.client, l.out)
	}
	c := x.client
	if len(body) <= joinBytes {
		l.out = append(l.out, body...)
		body = nil
	}
	c.conn.Write(l.out, body)
	return c.state != stClosed
}

// unchunks reports whether a chunked answer goes to a client that knows no
// chunks.
func (x *exchange) unchunks() bool { return x.dechunk && x.resp.Body == wire.BodyChunked }

// relay passes on bytes of an answer that has begun.
func (l *loop) relay(x *exchange, b []byte) {
	c := x.conn
	used, err := 0, (*wire.Error)(nil)
	if x.unchunks() {
		used, err = l.relayUnchunked(x, b)
	} else {
		var kept []byte
		if kept, used, err = x.consume(b); len(kept) > 0 {
			l.write(x.client, kept)
		}
	}
	if c.Owner != x { // the client left under the write
		return
	}
	if err != nil {
		l.cut(x, backend.MidStream)
		return
	}
	l.events(x)
	l.goOn(x, used < len(b))
}

// goOn looks whether the answer is whole, and whether the client keeps up.
func (l *loop) goOn(x *exchange, more bool) {
	if x.respBody.Done() {
		l.finish(x, !more)
		return
	}
	x.lastEventNs = l.now
	l.armExchange(x)
	if x.client.conn.Pending() > 0 {
		l.pauseNode(x)
	}
}

// events notes the times of events that just came.
func (l *loop) events(x *exchange) {
	if !x.resp.EventStream {
		x.prefillDone()
		return
	}
	if x.watch.Events == x.eventsSeen {
		return
	}
	x.eventsSeen = x.watch.Events
	if x.firstEventNs == 0 {
		x.firstEventNs = l.now
		x.prefillDone()
		l.firstEvent(x)
		l.countTTFT(x)
		l.noteFirst(x)
		l.settleBegun(x)
	} else {
		l.nextEvent(x)
	}
	x.lastTokenNs = l.now
}

// finish ends an exchange whose answer is whole. The node's connection is kept
// if both sides may use it again.
func (l *loop) finish(x *exchange, clean bool) {
	c, client, keep := x.conn, x.client, x.clientKeep
	x.outcome = backend.OK
	switch {
	case x.watch.Failed:
		x.outcome = backend.ErrorEvent // an error inside a 200 stream is a failure of the node; leave blames it
	case failureStatus(x.status):
		x.outcome = backend.Status // passed on, as nobody else could be asked
	default:
		l.praise(x)
	}
	if c != nil {
		x.conn, c.Owner = nil, nil
		l.unpause(c)
		// A request whose end the node has not read yet (an early answer)
		// would run into the next one. One that carried a body which no other request
		// may share it with would only lie there.
		if clean && !x.tooLong() && x.resp.KeepAlive && c.Pending() == 0 && !c.Over() && x.body.Done() && l.pool.Put(c, l.now) {
			c.In = c.In[:0]
			c.Line.Rest()
		} else {
			l.closeNode(c)
		}
	}
	l.leave(x, x.outcome)
	l.over(x)
	l.requestDone(client, keep)
}

// nodeClosed runs once for every connection to a node that ended.
func (l *loop) nodeClosed(c *backend.Conn, err error) {
	broken := !errors.Is(err, io.EOF)
	if c.Paused() {
		l.slow--
	}
	l.pool.Remove(c)
	l.lineEnded(c)
	x, _ := c.Owner.(*exchange)
	if x == nil {
		return
	}
	c.Owner, x.conn = nil, nil
	switch x.phase {
	case phConnecting:
		l.failed(x, backend.Refused)
	case phWaiting:
		class := backend.Reset
		if c.Reused() && len(c.In) == 0 && !x.heard {
			class = backend.Stale
		}
		l.failed(x, class)
	case phHolding:
		if broken || x.respBody.End() != nil {
			l.failed(x, backend.Reset)
			return
		}
		x = l.taken(x)
		l.events(x)
		if client := x.client; l.sendHead(x, x.held) && client.x == x {
			l.finish(x, false)
		}
	default:
		if broken || x.respBody.End() != nil {
			l.cut(x, backend.MidStream)
			return
		}
		l.finish(x, false)
	}
}
