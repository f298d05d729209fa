package dataplane

// A client that is to be closed is first given what it is owed.

// drainClient closes the client when what it is owed has gone out.
func (l *loop) drainClient(c *client) {
	if c.state == stClosed {
		return
	}
	c.state = stDraining
	c.in = nil
	c.conn.Resume() // what it still sends is dropped
	if c.conn.Pending() > 0 {
		l.countClient(c)
		c.leaving = leaving{c.conn.Untaken(), l.now, l.now}
		l.armLeaving(c, l.d.settings.Load())
		return
	}
	l.lingerOn(c)
}

// lingerOn ends our direction and reads on for a while: closing with bytes
// unread would send a reset, which can destroy the answer on its way (RFC 9112,
// section 9.6).
func (l *loop) lingerOn(c *client) {
	c.state = stLingering
	if c.conn.ShutdownWrite() != nil {
		l.closeClient(c)
		return
	}
	l.wheel.arm(&c.timer, l.now+lingerNs)
}

func (l *loop) linger(c *client, n int) {
	c.lingered += n
	if c.lingered > lingerBytes {
		l.closeClient(c)
	}
}

// leaving is what a client still takes that is to be closed, as last looked at.
type leaving struct {
	waiting int   // bytes that it has not taken
	sinceNs int64 // when the last answer was all written
	tookNs  int64 // when it took something
}

// lookAtLeaving lets a client that is to be closed, and is still owed something,
// have more time while it takes any, for as long as a request may take. Then it is
// cut: a clean end would make what it has look whole.
func (l *loop) lookAtLeaving(c *client) {
	set := l.d.settings.Load()
	if took := c.takes(l.now); set.IdleStreamNs > 0 && l.now >= took+set.IdleStreamNs || set.RequestNs > 0 && l.now >= c.leaving.sinceNs+set.RequestNs {
		l.cutClient(c)
		return
	}
	l.armLeaving(c, set)
}

// takes looks whether a leaving client has taken something, and returns when it did
// last, as far as was looked.
func (c *client) takes(nowNs int64) int64 {
	v := &c.leaving
	if waiting := c.conn.Untaken(); waiting < v.waiting {
		v.waiting, v.tookNs = waiting, nowNs
	}
	return v.tookNs
}

func (l *loop) armLeaving(c *client, set *Settings) {
	at := int64(0)
	if set.IdleStreamNs > 0 {
		at = l.now + set.IdleStreamNs/clientLooks
	}
	if set.RequestNs > 0 {
		at = earliest(at, c.leaving.sinceNs+set.RequestNs)
	}
	l.armIn(c, max(at-l.now, 0))
}
