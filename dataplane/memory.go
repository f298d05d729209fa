package dataplane

import "warmpath/dataplane/backend"

// The memory budget (limits.memory) is over all loops, and over what grows with
// what peers send or do not take: bodies, answers that wait for slow clients, and
// requests sent ahead. Requests of up to joinBytes are not counted; limits.connections
// bounds them. As it fills, what is dearest to keep and cheapest to lose goes first:
//
//	from a half          bodies that were sent are not held for another try, nor as
//	                     evidence; answers are read in small pieces
//	from three quarters  new requests with a long body are answered 503
//	when it is full      bodies under way that need more are answered 503; streams
//	                     whose clients have taken nothing for a second are cut

// shortage says how much of the budget is left.
type shortage uint8

const (
	memoryPlenty shortage = iota
	memoryTight           // half of it is used
	memoryShort           // three quarters
	memoryFull
)

// shed counts what was given up for want of memory, by what it was.
type shed uint8

const (
	shedRetry   shed = iota // a body that was held for another try
	shedRequest             // a new request with a long body
	shedBody                // a request whose body was under way
	shedReader              // a stream whose client was slow
	shedKinds
)

// ShedNames are the values of the label `kind` of warmpath_memory_shed_total.
var ShedNames = [shedKinds]string{"retry", "request", "body", "reader"}

var errNoMemory = answer{
	status: 503, kind: kindServer, code: "overloaded", retryAfterSeconds: 1,
	message: "the router has no memory for another long body now (limits.memory)",
}

// memory says how much of the budget is left.
func (l *loop) memory(set *Settings) shortage {
	used, all := l.d.memory.Load(), set.MemoryBytes
	switch {
	case all <= 0 || used < all/2:
		return memoryPlenty
	case used < all-all/4:
		return memoryTight
	case used < all:
		return memoryShort
	default:
		return memoryFull
	}
}

// countBody brings what is counted of x's body up to date.
func (l *loop) countBody(x *exchange) {
	now := 0
	if cap(x.data) > joinBytes {
		now = cap(x.data)
	}
	if now != x.budgeted {
		l.d.memory.Add(int64(now - x.budgeted))
		x.budgeted = now
	}
}

// countClient does so for what waits at c, in either direction.
func (l *loop) countClient(c *client) {
	now := c.conn.Pending()
	if cap(c.in) > joinBytes {
		now += cap(c.in)
	}
	if now != c.budgeted {
		l.d.memory.Add(int64(now - c.budgeted))
		c.budgeted = now
	}
}

// shedHeld gives up a body that was sent, if memory is tight: there will be no
// other try.
func (l *loop) shedHeld(x *exchange) {
	least := memoryTight
	if x.conn != nil && x.conn.Reused() { // its node may have closed it: then this is what goes there again
		least = memoryShort
	}
	if x.budgeted != 0 && l.memory(x.set) >= least {
		l.tally.shed[shedRetry]++
		l.dropBody(x)
	}
}

// dropBody lets go of x's body; it cannot be tried again.
func (l *loop) dropBody(x *exchange) {
	if !x.lent && x.ident == nil { // else a worker reads it, or may be given it
		l.buffers.give(x.data)
	}
	x.data, x.bodyGone = nil, true
	l.countBody(x)
}

// shedNew refuses a request with a long body if memory is short.
func (l *loop) shedNew(x *exchange) *answer {
	long := x.req.ContentLength > joinBytes || x.req.ContentLength < 0 // in chunks, of unknown length
	if !long || l.memory(x.set) < memoryShort {
		return nil
	}
	l.tally.shed[shedRequest]++
	return &errNoMemory
}

// shedBody refuses a request whose body is under way if memory is full.
func (l *loop) shedBody(x *exchange) bool {
	if x.budgeted == 0 || l.memory(x.set) < memoryFull {
		return false
	}
	l.tally.shed[shedBody]++
	l.refuseLate(x, &errNoMemory)
	return true
}

// slowReaderNs is how long a client must have taken nothing of what waits for it to
// be cut when memory is full.
const slowReaderNs = int64(1e9)

// shedReaders cuts streams whose clients do not take them, while memory is full.
func (l *loop) shedReaders(set *Settings) {
	for c := l.open.first; c != nil && l.memory(set) == memoryFull; {
		next, x := c.next, c.x
		switch {
		case x != nil && x.began && x.paused() && l.now-x.pausedNs >= slowReaderNs:
			l.tally.shed[shedReader]++
			l.cut(x, backend.ClientGone)
		case c.state == stDraining && l.now-max(c.takes(l.now), c.leaving.sinceNs) >= slowReaderNs:
			l.tally.shed[shedReader]++
			l.cutClient(c)
		}
		c = next
	}
}
