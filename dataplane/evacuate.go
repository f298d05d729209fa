package dataplane

import (
	"warmpath/dataplane/backend"
	"warmpath/dataplane/fleet"
)

// Nothing comes back from a dead node, so the time-outs of what waits there are
// of no use: the longest are half an hour. The control plane says when a node is
// dead, and every loop then moves what it has there. Until somebody says so it
// costs nothing.

// Evacuate moves the requests that wait at dead nodes, and have not got a byte of
// an answer, to their next alternatives, and closes idle connections there. The
// snapshot in force must show the nodes as down. It may be called again, for
// requests that had nowhere to go before. It does not wait.
func (d *Dataplane) Evacuate(dead []*fleet.Node) {
	for _, l := range d.loops {
		_ = l.el.Execute(func() { // fails only when the loops have ended, and the requests with them
			l.now = d.nowNs()
			for _, n := range dead {
				l.evacuate(n)
			}
		})
	}
}

// evacuate moves what this loop has at a dead node. The clients are collected
// before anything is moved, since moving may close some and take them out of the
// list.
func (l *loop) evacuate(n *fleet.Node) {
	for c := l.pool.Take(n.Slot, n.Generation); c != nil; c = l.pool.Take(n.Slot, n.Generation) {
		l.closeNode(c)
	}
	var waiting []*client
	for c := l.open.first; c != nil; c = c.next {
		if c.waitsAt(n.Load) != nil {
			waiting = append(waiting, c)
		}
	}
	for _, c := range waiting {
		if x := c.waitsAt(n.Load); x != nil && l.mayMove(x) {
			l.failed(x, backend.Dead)
		}
	}
}

// waitsAt returns the try of c's request that waits for the start of an answer
// at the node with these counters, nil if there is none.
func (c *client) waitsAt(load *fleet.Load) *exchange {
	x := c.x
	switch {
	case x == nil || x.began:
		return nil
	case x.counts(load):
		return x
	case x.rival != nil && x.rival.counts(load):
		return x.rival
	}
	return nil
}

// mayMove reports whether x is better off when it leaves its dead node: another
// try is under way already, or another node would take it, or it may wait for one
// that is on its way. Otherwise it stays
// where it is, within its own time-outs: networks come back, and then it is
// answered.
func (l *loop) mayMove(x *exchange) bool {
	return x.rival != nil || x.lostNodes+1 < maxNodesLost && (l.nextSlot(x, ever) >= 0 || l.mayPark(x))
}
