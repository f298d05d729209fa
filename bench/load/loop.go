package load

import (
	"fmt"

	"golang.org/x/sys/unix"

	"warmpath/bench/load/stamp"
	"warmpath/bench/machine"
)

const (
	// readBytes is the loop's one read buffer.
	readBytes = 128 << 10
	// lateNs is how much later than due a request may be sent before it counts
	// as late.
	lateNs = int64(1e6)
	// pauseNs is how long a connection of a closed loop rests after a failure.
	pauseNs = int64(20e6)
	// wakeSlot marks the events of the descriptor that ends the run early.
	wakeSlot = -1
)

// loop is one run. All of it belongs to the goroutine of run.
type loop struct {
	o        Options
	target   target
	requests [][]byte // whole, head and body, one for each body
	turn     int      // the next of them
	poll     *poller
	buf      []byte
	now      int64 // ns, the last reading of the clock
	stopped  bool  // from outside

	// The measured window: from open (inclusive) to shut (exclusive), ns.
	open, shut         int64
	opened, closed     bool
	cpuBegin, cpuEnd   int64 // of this thread
	timeoutNs          int64
	arrivals           *arrivals // of an open loop
	starts             *starts   // of a closed one
	blocked            bool      // a request is due and no connection is free
	conns              []*conn   // by slot
	free               []*conn   // closed, to be used again
	idle, busy         list      // busy is in the order of due times
	nIdle, nBusy, most int       // open connections, their bound
	t                  *tally
}

// run sends and measures until the run is over, then closes all connections.
func (l *loop) run() error {
	defer l.closeAll()
	for {
		l.now = stamp.Now()
		l.turnPages()
		l.expire()
		l.blocked = false
		l.dispatch()
		if l.over() {
			return nil
		}
		events, err := l.poll.wait(l.wakeAt() - stamp.Now())
		if err != nil {
			return fmt.Errorf("wait for answers: %w", err)
		}
		l.now = stamp.Now()
		for i := range events {
			e := &events[i]
			if e.Fd == wakeSlot {
				l.stopped = true
				continue
			}
			c := l.conns[e.Fd]
			if c.state == connClosed || c.generation != e.Pad { // closed while this batch was handled
				continue
			}
			c.ready(e.Events)
			if !l.blocked && l.now >= l.nextDue() {
				l.dispatch()
			}
		}
	}
}

// turnPages opens and closes the measured window.
func (l *loop) turnPages() {
	if !l.opened && l.now >= l.open {
		l.opened = true
		l.t.busyMost = l.nBusy
		l.cpuBegin = int64(machine.CPUTime())
		l.tell(true)
	}
	if !l.closed && (l.now >= l.shut || l.stopped) {
		l.closed = true
		l.cpuEnd = int64(machine.CPUTime())
		if l.opened {
			l.tell(false)
		}
	}
}

func (l *loop) tell(open bool) {
	if l.o.Window != nil {
		l.o.Window(open)
	}
}

// over reports whether the run has ended.
func (l *loop) over() bool {
	if l.stopped || l.starts != nil {
		return l.closed
	}
	return l.closed && l.arrivals.next == never && l.nBusy == 0
}

// wakeAt is when the loop has something to do even if no socket is ready.
func (l *loop) wakeAt() int64 {
	at := never
	switch {
	case !l.opened:
		at = l.open
	case !l.closed:
		at = l.shut
	}
	if c := l.busy.first; c != nil {
		at = min(at, c.due+l.timeoutNs)
	}
	if !l.blocked {
		at = min(at, l.nextDue())
	}
	return at
}

func (l *loop) nextDue() int64 {
	if l.starts != nil {
		return l.starts.next()
	}
	return l.arrivals.next
}

// counts reports whether what happens now to a request that was due then is in
// the measured window.
func (l *loop) counts(due int64) bool {
	if l.starts != nil {
		return l.now >= l.open && l.now < l.shut
	}
	return due >= l.open
}

// dispatch sends every request that is due, as long as connections are free.
func (l *loop) dispatch() {
	for !l.stopped {
		due := l.nextDue()
		if due > l.now {
			return
		}
		if l.starts != nil {
			if l.closed {
				return
			}
			l.starts.pop()
			l.send(l.now)
			continue
		}
		if l.now-due >= l.timeoutNs {
			l.arrivals.advance()
			l.unsent(due)
			continue
		}
		if l.idle.first == nil && l.nIdle+l.nBusy >= l.most {
			l.blocked = true
			return
		}
		l.arrivals.advance()
		l.lag(due)
		l.send(due)
		l.now = stamp.Now() // writing takes time, and the next may be due
	}
}

// lag notes how much later than due a request is sent.
func (l *loop) lag(due int64) {
	if !l.counts(due) {
		return
	}
	lag := l.now - due
	l.t.dispatched++
	l.t.lagSum += lag
	l.t.lagMax = max(l.t.lagMax, lag)
	if lag > lateNs {
		l.t.late++
	}
}

func (l *loop) unsent(due int64) {
	l.lag(due)
	if l.counts(due) {
		l.t.failed[failUnsent]++
	}
}

// send sends the next request on the connection that was used last, or on a
// new one.
func (l *loop) send(due int64) {
	request := l.requests[l.turn]
	if l.turn++; l.turn == len(l.requests) {
		l.turn = 0
	}
	c := l.idle.first
	if c != nil {
		l.idle.remove(c)
		l.nIdle--
	} else {
		c = l.vacant()
	}
	c.begin(request, due, l.now)
	l.busy.append(c)
	l.nBusy++
	if l.now >= l.open {
		l.t.busyMost = max(l.t.busyMost, l.nBusy)
	}
	if c.state == connClosed {
		c.connect()
	} else {
		c.write()
	}
}

// vacant is a connection that is not open.
func (l *loop) vacant() *conn {
	if n := len(l.free); n > 0 {
		c := l.free[n-1]
		l.free = l.free[:n-1]
		return c
	}
	c := &conn{l: l, slot: int32(len(l.conns))}
	l.conns = append(l.conns, c)
	return c
}

// expire ends the requests whose time is up.
func (l *loop) expire() {
	for c := l.busy.first; c != nil && l.now-c.due >= l.timeoutNs; c = l.busy.first {
		c.fail(failTimeout, "no whole answer within the timeout")
	}
}

func (l *loop) closeAll() {
	for c := l.busy.first; c != nil; c = l.busy.first {
		if l.starts != nil || l.counts(c.due) {
			l.t.unfinished++
		}
		c.release(false)
	}
	for c := l.idle.first; c != nil; c = l.idle.first {
		c.drop()
	}
}

// list is a doubly linked list of connections.
type list struct{ first, last *conn }

func (s *list) append(c *conn) {
	c.prev, c.next = s.last, nil
	if s.last != nil {
		s.last.next = c
	} else {
		s.first = c
	}
	s.last = c
}

func (s *list) push(c *conn) {
	c.prev, c.next = nil, s.first
	if s.first != nil {
		s.first.prev = c
	} else {
		s.last = c
	}
	s.first = c
}

func (s *list) remove(c *conn) {
	if c.prev != nil {
		c.prev.next = c.next
	} else {
		s.first = c.next
	}
	if c.next != nil {
		c.next.prev = c.prev
	} else {
		s.last = c.prev
	}
	c.prev, c.next = nil, nil
}

// watched is what the loop wants to hear of a socket that only reads.
const watched = unix.EPOLLIN | unix.EPOLLRDHUP
