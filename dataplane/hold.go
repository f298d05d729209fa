package dataplane

import (
	"cmp"
	"slices"

	"warmpath/dataplane/backend"
	"warmpath/dataplane/fleet"
)

// A request for a model that no node takes now is answered 503 at once, unless the
// control plane expects nodes of it (fleet.Model.Expected, fleet.Snapshot.Expected).
// Then it is held: it stays with its loop, with its connection and what has come of
// its body, and is decided on anew when a snapshot shows a node that might take it.
// So is a request that has lost its node and finds no other.
//
// Once held, a request waits for its time even if nothing is expected any more:
// what the control plane expects of a node that has come, but is not ready yet,
// must not matter. What ends the wait is a node, an answer that no node would
// change (its model is known not to exist, its prompt is too long), a time-out, the
// client, or the end of this process, which nobody can be made to wait for.

const (
	holdRequests = 1000         // default of Settings.HoldRequests
	holdBytes    = 256 << 20    // … of HoldBytes, where memory has no bound
	holdNs       = int64(600e9) // … of HoldNs
)

// wait is what an exchange knows of its waiting.
type wait struct {
	how      HoldOutcome
	sinceNs  int64  // when it began; 0 = it does not wait
	lookedNs int64  // when it was decided on last since
	spentNs  int64  // that it has taken before
	order    uint64 // among all that ever waited here; 0 = it never has
	bytes    int64  // of its body, as counted
	asked    bool   // its prompt is with a worker
	slot     int    // where it goes, as was decided when its wait ended
	tally    *HoldTally
	arrived  bool // it is counted in ModelTally.Requests …
	placed   bool // … and in what is counted of those that were sent
	size     int  // by uncached tokens, a bucket of ModelTally.Uncached

	next, prev *exchange // in loop.parking
}

func (x *exchange) parked() bool { return x.wait.sinceNs != 0 }

// waits decides whether x waits, rather than that it is sent or answered a. It
// reports whether x is seen to.
func (l *loop) waits(x *exchange, a *answer) bool {
	switch {
	case x.parked():
		return l.waitsOn(x, a)
	case a == nil:
		if !l.othersFirst(x) || l.d.draining.Load() || !l.reserve(x) {
			return false
		}
		l.park(x)
		l.wakeParked()
		return true
	case a != &errNoNode || !x.awaits():
		return false
	}
	if place, _ := x.place(); place != placeNone {
		return false
	}
	switch {
	case l.d.draining.Load():
		l.fail(x, &errStopping)
	case !l.reserve(x):
		l.refuseToPark(x)
	default:
		l.park(x)
	}
	return true
}

// waitsOn decides whether x goes on waiting after it was decided on.
func (l *loop) waitsOn(x *exchange, a *answer) bool {
	l.answered(x)
	if a == nil {
		if x.wait.slot = x.decision.Slot; x.tries > 0 {
			x.wait.slot = l.alternative(x, ever)
		}
	}
	switch {
	case a == nil && x.wait.slot >= 0:
		l.unpark(x, HoldSent)
		return false
	case a == nil, mayChange(a):
		l.rest(x)
		return true
	default:
		l.unpark(x, HoldRefused)
		return false
	}
}

// asks notes that a worker has the prompt of x.
func (l *loop) asks(x *exchange) {
	if x.parked() && !x.wait.asked {
		x.wait.asked = true
		l.parking.asked++
	}
}

// answered notes that it has not any more, or in vain. The walk may wait for that.
func (l *loop) answered(x *exchange) {
	p := &l.parking
	if !x.wait.asked {
		return
	}
	x.wait.asked = false
	if p.asked--; p.next != nil {
		l.wakeParked()
	}
}

// mayChange reports whether what an answer says may be otherwise when a node comes.
func mayChange(a *answer) bool { return a == &errNoNode || a == &errModelsNotAsked }

// bears reports whether x asks for a model's work. What does not is never held: it
// may be somebody's look whether there are nodes.
func (x *exchange) bears() bool { return x.class.prompt || x.named() }

func (x *exchange) named() bool { return x.found != nil && x.found.HasModel }

// awaits reports whether nodes are expected that may take x.
func (x *exchange) awaits() bool {
	if x.named() && x.model < 0 { // a name that nobody has said yet
		return x.snap.Expected
	}
	return x.bears() && x.snap.Expects(x.model)
}

// othersFirst reports whether others wait for the model of x that have come before
// it, and have not had their turn since there was a place.
func (l *loop) othersFirst(x *exchange) bool {
	p := &l.parking
	if p.count == 0 || p.next == nil && !p.full && !p.again && p.snap == x.snap {
		return false
	}
	t := p.tallies[string(x.modelName())]
	return t != nil && t.Now > 0
}

// reserve takes a place for x, if the bounds of this process leave one.
func (l *loop) reserve(x *exchange) bool {
	bytes := int64(cap(x.data))
	now, all := l.d.parked.Add(1), l.d.parkedBytes.Add(bytes)
	if now > x.set.mostHeld() || all > x.set.mostHeldBytes() {
		l.d.parked.Add(-1)
		l.d.parkedBytes.Add(-bytes)
		return false
	}
	return true
}

func (s *Settings) mostHeld() int64 { return int64(cmp.Or(s.HoldRequests, holdRequests)) }

func (s *Settings) mostHeldBytes() int64 { return cmp.Or(s.HoldBytes, s.MemoryBytes/4, holdBytes) }

// park lets x wait, for which a place was reserved. One that comes back gets its
// place before those that came after it.
func (l *loop) park(x *exchange) {
	p, w := &l.parking, &x.wait
	l.recorded(x)
	if w.order == 0 {
		p.arrivals++
		w.order = p.arrivals
	}
	w.how, w.sinceNs, w.lookedNs, w.bytes = HoldWaiting, l.now, 0, int64(cap(x.data))
	w.tally = l.holdTally(x)
	w.tally.Now++
	w.tally.Ever++
	p.insert(x)
	if x.uploading() {
		l.holdUpload(x)
	}
	l.noteWait(x)
	l.rest(x)
}

// rest lets x wait until it is looked at again. What is known of its prompt is let
// go: it may be much, and is found again.
func (l *loop) rest(x *exchange) {
	l.dropIdentity(x)
	x.units = nil
	x.phase = phParked
	l.armExchange(x)
}

// unpark ends the waiting of x. From the decision that sends it on, time is routing.
func (l *loop) unpark(x *exchange, how HoldOutcome) {
	l.answered(x)
	w := &x.wait
	untilNs := l.now
	if how == HoldSent && w.lookedNs != 0 {
		untilNs = w.lookedNs
	}
	l.tally.queue.Observe(seconds(untilNs - w.sinceNs))
	w.spentNs += untilNs - w.sinceNs
	w.how, w.sinceNs = how, 0
	w.tally.Now--
	w.tally.Ended[how]++
	l.d.parked.Add(-1)
	l.d.parkedBytes.Add(-w.bytes)
	l.parking.remove(x)
	l.noteWait(x)
}

// refuseToPark answers a request for which there is no room.
func (l *loop) refuseToPark(x *exchange) {
	l.recorded(x)
	x.wait.how = HoldFull
	l.holdTally(x).Ended[HoldFull]++
	l.noteWait(x)
	l.fail(x, &errHoldFull)
}

// parkLost lets a request wait that its node has lost and no other can take now.
func (l *loop) parkLost(x *exchange, class backend.Class) bool {
	if !class.Lost() || !l.mayPark(x) || !l.reserve(x) {
		return false
	}
	s := l.d.opt.Fleet.Load()
	model := s.ModelIndex(x.modelName())
	x.follow(s)
	x.model = model
	l.park(x)
	l.walkAgain() // a node may be there that was not known when it was decided on
	return true
}

// mayPark reports whether a request that is at a node could wait, if it were not.
func (l *loop) mayPark(x *exchange) bool {
	if x.spent() || !x.bears() || l.d.draining.Load() || l.d.parked.Load() >= x.set.mostHeld() {
		return false
	}
	s, model := l.d.opt.Fleet.Load(), -1
	if x.model >= 0 {
		if model = s.ModelIndex(x.modelName()); model < 0 {
			return false
		}
	}
	return s.Expects(model) || x.placeIn(s, model)
}

// placeIn reports whether a node of s could take x that was not there, or could not,
// when x was decided on: a fleet grows while requests wait in its engines.
func (x *exchange) placeIn(s *fleet.Snapshot, model int) bool {
	for slot, n := range s.Nodes {
		if model >= 0 && !slices.Contains(s.Models[model].Slots, slot) {
			continue
		}
		was := nodeAt(x.snap, slot)
		another := n.Available() && (was == nil || was.Generation != n.Generation)
		if n.Available() && !full(n) && (another || x.suits(n)) {
			return true
		}
	}
	return false
}

// heldTooLong runs when no node has come in time.
func (l *loop) heldTooLong(x *exchange) {
	l.unpark(x, HoldLate)
	l.fail(x, &errHoldLate)
}

// endWait ends the waiting of x with its exchange.
func (l *loop) endWait(x *exchange) {
	switch x.status {
	case statusClientGone:
		l.unpark(x, HoldLeft)
	case errRequestTimeout.status:
		l.unpark(x, HoldTimeout)
	default:
		l.unpark(x, HoldStopping)
	}
}

// refuseParked answers all that wait: the process ends, and whoever comes after it
// may have nodes sooner.
func (l *loop) refuseParked() {
	for x := l.parking.first; x != nil; {
		next := x.wait.next
		if !x.wait.asked { // else it is sent in a moment
			l.unpark(x, HoldStopping)
			l.fail(x, &errStopping)
		}
		x = next
	}
}
