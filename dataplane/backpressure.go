package dataplane

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/dataplane/backend"
)

// A client that reads slower than its node sends: gnet buffers without bound
// and tells nobody when a buffer drains. So the node's connection is paused
// above one mark and resumed below another, and a timer looks when that is,
// often at first and seldom for a client that stays slow.
const (
	resumeLookMin = 2 * time.Millisecond
	resumeLookMax = 50 * time.Millisecond
)

func (l *loop) pauseNode(x *exchange) {
	c := x.conn
	if l.pause.pause(c.Conn, false) != nil || c.Paused { // paused, and yet it was read: gnet restarted it
		return
	}
	c.Paused = true
	l.pauses++
	l.slow = append(l.slow, c)
	if len(l.slow) == 1 {
		l.lookAgain(resumeLookMin)
	}
}

// lookAgain asks for a look at the paused connections after wait.
func (l *loop) lookAgain(wait time.Duration) {
	time.AfterFunc(wait, func() {
		_ = l.el.Execute(context.Background(), runnable(func() {
			l.now = l.d.nowNs()
			l.resumeSlow(wait)
		}))
	})
}

func (l *loop) resumeSlow(wait time.Duration) {
	keep, resumed := l.slow[:0], false
	for _, c := range l.slow {
		x, _ := c.Owner.(*exchange)
		if c.Closed || x == nil || !c.Paused {
			continue
		}
		if x.client.conn.OutboundBuffered() > resumeBelowBytes {
			l.lookAtClient(x)
			keep = append(keep, c)
			continue
		}
		l.resumeNode(c)
		x.stalled, x.waiting = false, 0
		resumed = true
	}
	clear(l.slow[len(keep):])
	l.slow = keep
	if len(keep) == 0 {
		return
	}
	if resumed {
		wait = resumeLookMin
	}
	l.lookAgain(min(2*wait, resumeLookMax))
}

// unsent returns how many bytes the kernel holds for the peer of a socket that
// the peer has not acknowledged; 0 if it cannot say.
func unsent(fd int) int {
	n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
	if err != nil {
		return 0
	}
	return n
}

// lookAtClient lets the time-out of a silent node wait while the client takes
// what is there: the node is held, not silent. A client that takes nothing is
// as good as gone once that time is over.
func (l *loop) lookAtClient(x *exchange) {
	waiting := x.client.conn.OutboundBuffered() + unsent(x.client.conn.Fd())
	x.stalled = waiting >= x.waiting && x.waiting > 0
	x.waiting = waiting
	if !x.stalled {
		x.lastEventNs = l.now
	}
}

func (l *loop) resumeNode(c *backend.Conn) {
	if c.Paused && !c.Closed {
		c.Paused = l.pause.resume(c.Conn) != nil
	}
}
