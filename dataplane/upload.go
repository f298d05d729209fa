package dataplane

import (
	"strconv"

	"warmpath/dataplane/backend"
	"warmpath/dataplane/scan"
	"warmpath/dataplane/wire"
)

// A body that is longer than the routing window is decided on before it is in,
// if what has come says all that a rule needs, and passed on as it comes. It is
// still held for another try while that is allowed (limits.retry_body_bytes);
// beyond, what its node has taken is forgotten. Its client is read no faster than
// its node takes.

// upload is how far a body has come that is passed on before it is in.
type upload struct {
	passing bool      // decided on before it was in
	keys    scan.Keys // on which of its keys
	taken   int       // bytes of exchange.data that the connection has, sent or waiting
	stuck   bool      // its node does not take what came: the client is not read
	stuckNs int64     // … since when, or since when it has taken nothing
	left    int       // bytes that waited for it, when it was last looked at
	heldNs  int64     // for how long that was so before
}

// mayDecide reports whether x can be decided on what has come of its body.
func (l *loop) mayDecide(x *exchange) bool {
	if x.set.RoutingWindowBytes <= 0 || x.come < x.set.RoutingWindowBytes || x.phase != phRequest || x.class.local != localNone {
		return false
	}
	if !x.scanning {
		return true
	}
	seen, found := x.scanner.Seen(), x.scanner.Result()
	if !seen.Has(scan.KeyModel) || !found.HasModel {
		return false
	}
	v := l.refresh()
	if _, given := x.req.Find(wire.FieldXSessionID); v.needs.SessionKey && !given && !seen.Has(scan.KeySessionID) {
		return false
	}
	// Tokens are known of whole prompts only: what follows may be tools, options
	// or a salt, any of which makes others of it.
	at := v.snap.ModelIndex(found.Model.Of(x.data))
	return at < 0 || !x.class.prompt || v.exact[at] == nil || x.class.form.Unprovable() != "" || x.req.ContentLength > maxExactBytes
}

// decideEarly decides on x and begins to pass its body on.
func (l *loop) decideEarly(x *exchange) {
	x.passing = true
	x.keys = x.scanner.Seen()
	x.readNs = l.now
	l.holdUpload(x)
	l.route(x)
}

// holdUpload stops reading x's client until its node has taken what came.
func (l *loop) holdUpload(x *exchange) {
	if !x.stuck {
		l.stick(x)
	}
	x.client.conn.Pause()
}

// stick notes that x's node does not take what came.
func (l *loop) stick(x *exchange) {
	x.stuck, x.stuckNs, x.left = true, l.now, 0
	if x.conn != nil && x.phase >= phWaiting {
		x.left = x.conn.Untaken()
	}
}

// nodeTakes reports whether x's node has taken something since the last look: it
// is slow then, not stuck.
func (l *loop) nodeTakes(x *exchange) bool {
	left := x.conn.Untaken()
	took := left < x.left
	if x.left = left; took {
		x.heldNs += l.now - x.stuckNs
		x.stuckNs = l.now
	}
	return took
}

// uploading reports whether part of a body that is passed on has yet to come.
func (x *exchange) uploading() bool { return x.passing && !x.body.Done() }

// passOn gives the connection what of the body it does not have yet.
func (l *loop) passOn(x *exchange) {
	c := x.conn
	if c == nil || x.phase < phWaiting {
		return // it goes with the head, once there is a connection
	}
	piece := x.data[x.taken:]
	x.taken = len(x.data)
	l.out = l.out[:0]
	chunked := x.req.Body == wire.BodyChunked
	if chunked && len(piece) > 0 { // an empty one would end the body
		l.out = appendChunkLine(append(l.out, "\r\n"...), len(piece))
	}
	c.WriteLent(l.out, piece) // nothing is written of nothing
	if chunked && x.body.Done() {
		c.Write(lastChunk, nil)
	}
	switch {
	case c.Pending() > 0:
		l.holdUpload(x)
		l.armExchange(x)
	case !x.unheard():
		l.pieceSent(x)
	}
}

// lastChunk ends the data of the chunk before, and the body.
var lastChunk = []byte("\r\n0\r\n\r\n")

// appendChunkLine appends the line before the data of a chunk of n bytes.
func appendChunkLine(dst []byte, n int) []byte {
	return append(strconv.AppendInt(dst, int64(n), 16), "\r\n"...)
}

// pieceSent runs when the node has taken all that came so far.
func (l *loop) pieceSent(x *exchange) {
	if x.stuck {
		x.stuck = false
		x.heldNs += l.now - x.stuckNs
	}
	if x.tooLong() {
		l.forget(x)
	}
	if x.body.Done() {
		x.sentNs = l.now // from here on the node may be late
		x.conn.Line.Sent(l.d.kernelNs())
		l.armExchange(x)
		l.settleBegun(x) // if its answer came before
		return
	}
	if x.phase == phRelaying { // it has answered early, and goes on taking
		x.lastEventNs = l.now
	}
	l.armExchange(x)
	l.feedKept(x.client)
}

// forget drops what the node has taken of a body that is too long to be held for
// another try. What the scanner is in the middle of stays.
func (l *loop) forget(x *exchange) {
	x.bodyGone = true
	if x.data == nil { // an answer has begun, and it was let go
		return
	}
	n := len(x.data)
	if x.scanning {
		n = x.scanner.Forget()
	}
	x.data = x.data[:copy(x.data, x.data[n:])]
	x.taken = len(x.data)
	l.countBody(x)
}

// repeated reports a key that came again after the request was decided on it.
func (x *exchange) repeated() bool { return x.passing && x.scanner.Repeated()&x.keys != 0 }

var errRepeatedKey = answer{
	status: 400, kind: kindRequest, code: "repeated_key",
	message: "a key of the body comes again after the request was sent on by its first value (limits.routing_window)",
}

// refuseLate ends a request whose node has part of its body already: the node's
// connection is closed, so that it never becomes a whole request there.
func (l *loop) refuseLate(x *exchange, a *answer) {
	if x.began {
		l.cut(x, backend.ClientGone)
		return
	}
	if x.tries > 0 {
		l.leave(x, backend.ClientGone)
	}
	l.fail(x, a)
}

// uploadDeadline is when the rest of the body must have come, or the node must
// have taken some of it.
func (x *exchange) uploadDeadline() int64 {
	if x.stuck {
		if x.set.IdleStreamNs > 0 && x.phase >= phWaiting {
			return x.stuckNs + x.set.IdleStreamNs
		}
		return 0
	}
	return x.bodyDeadline()
}
