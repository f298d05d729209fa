package dataplane

import "warmpath/dataplane/backend"

// A client that reads slower than its node sends: what it does not take waits
// here, and the node's connection is not read until the client has taken it. So
// what waits for one client is at most what one read brought.

// pauseNode stops reading x's node.
func (l *loop) pauseNode(x *exchange) {
	l.countClient(x.client)
	if c := x.conn; !c.Paused() {
		c.Pause()
		l.pauses++
		l.slow++
		x.waiting = x.client.conn.Untaken()
		l.now = l.d.nowNs() // what it took, it took in this turn, at the latest now
		x.pausedNs, x.lookedNs, x.lastEventNs = l.now, l.now, l.now
		l.armExchange(x)
	}
}

// paused reports whether x's node is not read until its client takes more.
func (x *exchange) paused() bool { return x.conn != nil && x.conn.Paused() }

// resumeNode goes on reading x's node: its client has taken what waited.
func (l *loop) resumeNode(x *exchange) {
	if x.conn.Paused() {
		x.lastEventNs = l.now // it was held, not silent
		l.armExchange(x)
		l.unpause(x.conn)
	}
}

// unpause ends the pause of a node's connection, if there is one.
func (l *loop) unpause(c *backend.Conn) {
	if c.Paused() {
		l.slow--
		c.Resume()
	}
}

// clientLooks is how often, in the time that it may take nothing, a slow client is
// looked at: so much later than after that time, at most, it is let go.
const clientLooks = 16

// lookAtClient lets a slow client go that has taken nothing for as long as a node
// may be silent.
func (l *loop) lookAtClient(x *exchange) {
	if x.clientTakes() {
		l.now = l.d.nowNs() // not before that
		x.lastEventNs = l.now
	} else if l.now >= x.lastEventNs+x.set.IdleStreamNs {
		l.cut(x, backend.ClientGone)
		return
	}
	x.lookedNs = l.now
	l.armExchange(x)
}

// clientTakes reports whether x's client has taken anything since the last look:
// it is slow then, and its node held, not silent.
func (x *exchange) clientTakes() bool {
	waiting := x.client.conn.Untaken()
	took := waiting < x.waiting
	x.waiting = waiting
	return took
}
