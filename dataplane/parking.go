package dataplane

import (
	"cmp"

	"warmpath/dataplane/fleet"
)

// The requests of a loop that wait for a node (hold.go) are in one list, in the order
// in which they came; loops do not know of each other's. A walk through it gives
// each that has a place somewhere to the policy, so many a turn, and leaves the
// others where they are. Walks begin
//
//	with a tick (tickNs)   if the snapshot is another than in the last one, or a
//	                       node was at its cap: loops are woken for ticks anyway,
//	                       and beside the start of a node a tick is no time
//	when an answer ends    if a node was at its cap
//	when a node is lost    for those that it had: another may be there

const (
	// What a walk does in one turn: so many decisions, each of which takes no more
	// than turnNs, and so many looks, which take some 50 ns.
	decisionsATurn = 16
	// … and so many prompts may be with workers, whose queue others need too. Of
	// those that come back some may find that there is no place.
	parkedWithWorkers = 16
	glancesATurn      = 256
)

// parking is what waits on a loop. Loop-owned.
type parking struct {
	first, last *exchange
	count       int
	arrivals    uint64 // requests that ever came to wait

	snap  *fleet.Snapshot // of the walk under way, else of the last
	next  *exchange       // what the walk looks at next; nil = none is under way
	marks []mark          // by model of snap, the first for "any": what the walk has found
	full  bool            // … and that somebody waits for a node that is at its cap
	again bool            // another walk is to follow
	woken bool            // a walk waits in the loop's queue
	asked int             // of those that wait, the ones whose prompts are with workers

	tallies map[string]*HoldTally // by model
}

// mark is what a walk knows of a model, for all who wait for it.
type mark uint8

const (
	markNone   mark = iota // nothing yet
	markClosed             // no node of it takes requests
	markFull               // all that do are at their caps
)

// place says whether a node would take a request now.
type place uint8

const (
	placeNone  place = iota // no node of its model takes requests
	placeUnfit              // those that do are not for it: it was lost there, or is too long for them
	placeFull               // those that are for it are at their caps
	placeOpen
)

// place looks for a node that might take x. crowded means that all nodes of the
// model which take requests are at their caps.
func (x *exchange) place() (at place, crowded bool) {
	if x.named() && x.model < 0 {
		return placeNone, false
	}
	slots, n := []int(nil), len(x.snap.Nodes)
	if x.model >= 0 {
		slots = x.snap.Models[x.model].Slots
		n = len(slots)
	}
	crowded = true
	for i := range n {
		slot := i
		if x.model >= 0 {
			slot = slots[i]
		}
		node := x.snap.Nodes[slot]
		if !node.Available() {
			continue
		}
		at = max(at, placeUnfit)
		room, suits := !full(node), x.suits(node)
		crowded = crowded && !room
		switch {
		case suits && room:
			return placeOpen, false
		case suits:
			at = placeFull
		}
	}
	return at, crowded && at != placeNone
}

// suits reports whether x was not lost at n, and is not too long for it as far as
// is known.
func (x *exchange) suits(n *fleet.Node) bool {
	for _, t := range x.tried[:x.tries] {
		if t.slot == n.Slot {
			return false
		}
	}
	prompt := cmp.Or(x.polReq.LeastTokens, x.polReq.PromptTokens)
	return n.MaxModelLen == 0 || prompt < n.MaxModelLen && x.polReq.OutputTokens <= n.MaxModelLen-prompt
}

// follow makes s the snapshot that x is decided by. Where a node was lost that has
// been away since, or is another now, x may go again.
func (x *exchange) follow(s *fleet.Snapshot) {
	for i := range x.tried[:x.tries] {
		t := &x.tried[i]
		if t.slot < 0 {
			continue
		}
		was, is := nodeAt(x.snap, t.slot), nodeAt(s, t.slot)
		if was == nil || !is.Available() || is.Generation != was.Generation {
			t.slot = -1
		}
	}
	x.snap = s
}

func nodeAt(s *fleet.Snapshot, slot int) *fleet.Node {
	if slot >= len(s.Nodes) {
		return nil
	}
	return s.Nodes[slot]
}

// tickParked begins a walk if there is reason to.
func (l *loop) tickParked() {
	p := &l.parking
	if p.count > 0 && (p.full || p.snap != l.d.opt.Fleet.Load()) {
		l.walkParked()
	}
}

// wakeParked lets the loop walk, or walk on, in its next turn.
func (l *loop) wakeParked() {
	if l.parking.woken {
		return
	}
	l.parking.woken = true
	_ = l.el.Execute(func() { // fails only when the loops have ended, and the requests with them
		l.parking.woken = false
		l.now = l.d.nowNs()
		l.walkParked()
	})
}

// walkParked goes through those that wait, from the first on, or from where the
// last turn ended if nothing has changed.
func (l *loop) walkParked() {
	p, snap := &l.parking, l.refresh().snap
	if p.snap != snap || p.next == nil {
		p.snap, p.next, p.full, p.again = snap, p.first, false, false
		p.marks = resize(p.marks, len(snap.Models)+1)
		clear(p.marks)
	}
	for looks, decisions := 0, 0; p.next != nil; looks++ {
		if looks == glancesATurn || decisions == decisionsATurn {
			l.wakeParked()
			return
		}
		if p.asked == parkedWithWorkers {
			return // answered walks on
		}
		x := p.next
		p.next = x.wait.next
		if l.reconsider(x) {
			decisions++
		}
		if l.view.snap != p.snap { // a newer one was decided by
			l.wakeParked()
			return
		}
	}
	if p.again {
		l.wakeParked()
	}
}

// walkAgain begins a walk, or lets another follow the one under way.
func (l *loop) walkAgain() {
	l.parking.again = true
	l.wakeParked()
}

// reconsider decides on x again if there may be a place for it, and reports whether it
// did. Where there is none for anybody, those behind x are not looked at for it.
func (l *loop) reconsider(x *exchange) (decided bool) {
	p := &l.parking
	if x.wait.asked {
		return false
	}
	if x.snap != p.snap {
		x.follow(p.snap)
		if a := x.chooseModel(); a != nil && !mayChange(a) {
			l.unpark(x, HoldRefused)
			l.fail(x, a)
			return true
		}
	}
	if x.named() && x.model < 0 {
		return false
	}
	at := &p.marks[x.model+1]
	if *at != markNone {
		return false
	}
	switch place, crowded := x.place(); {
	case place == placeOpen:
		l.now = l.d.nowNs()
		x.wait.lookedNs = l.now
		l.route(x)
		return true
	case place == placeNone:
		*at = markClosed
	case crowded:
		*at, p.full = markFull, true
	case place == placeFull:
		p.full = true
	}
	return false
}

func (p *parking) insert(x *exchange) {
	after := p.last
	if after != nil && after.wait.order > x.wait.order { // it comes back
		at := p.first
		for at.wait.order < x.wait.order {
			at = at.wait.next
		}
		after = at.wait.prev
	}
	w := &x.wait
	if w.prev = after; after == nil {
		w.next, p.first = p.first, x
	} else {
		w.next, after.wait.next = after.wait.next, x
	}
	if w.next == nil {
		p.last = x
	} else {
		w.next.wait.prev = x
	}
	p.count++
}

func (p *parking) remove(x *exchange) {
	w := &x.wait
	if p.next == x {
		p.next = w.next
	}
	if w.prev == nil {
		p.first = w.next
	} else {
		w.prev.wait.next = w.next
	}
	if w.next == nil {
		p.last = w.prev
	} else {
		w.next.wait.prev = w.prev
	}
	w.next, w.prev = nil, nil
	p.count--
}
