package dataplane

import (
	"math"
	"slices"

	"warmpath/dataplane/backend"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
)

// failed runs when the try under way ended without an answer that may be
// passed on: the next alternative, or an answer of our own.
func (l *loop) failed(x *exchange, class backend.Class) {
	if x.began {
		l.cut(x, backend.MidStream)
		return
	}
	l.leave(x, class)
	if x.rival != nil && l.otherGoesOn(x, class) || l.tryNext(x, class) {
		return
	}
	l.fail(x, nodeAnswer(class, x))
}

// leave ends the try under way: counters settled, the node blamed or not, its
// connection closed. The exchange has no node then.
func (l *loop) leave(x *exchange, class backend.Class) {
	if x.outcome = class; x.tries > 0 && !x.parked() {
		x.tried[x.at].class = class
	}
	if class.Blames() && (x.stake != nil || x.partedNs != 0) {
		blame(x.node.Load, class, l.old(x))
	}
	x.settle()
	if x.paidTry {
		x.paidTry = false
		l.d.retrying.Add(-1)
	}
	if c := x.conn; c != nil {
		x.conn = nil
		l.closeNode(c)
	}
}

// oldNs is how long after a node has ended the connection of a try, whose client was
// slow, what becomes of the try says nothing of the node as it is: it may be another
// process by then. What its end said of it was noted when it came.
const oldNs = int64(1e9)

func (l *loop) old(x *exchange) bool { return x.partedNs != 0 && l.now-x.partedNs > oldNs }

// praise counts an answer that ended well.
func (l *loop) praise(x *exchange) {
	if l.old(x) {
		return
	}
	load := x.node.Load
	load.Successes.Add(1)
	if load.Consecutive.Load() != 0 {
		load.Consecutive.Store(0)
	}
}

// blame counts a failure of a node. An old one is counted by its kind alone: the
// breaker judges by the others.
func blame(load *fleet.Load, class backend.Class, old bool) {
	if !old {
		load.Failures.Add(1)
		load.Consecutive.Add(1)
	}
	switch class {
	case backend.Refused:
		load.Refused.Add(1)
	case backend.Reset, backend.MidStream:
		load.Resets.Add(1)
	case backend.Silent:
		load.Silent.Add(1)
	case backend.Dead:
		load.Dead.Add(1)
	default:
		load.ServerFails.Add(1)
	}
}

// tryNext sends the request to its next alternative, if its failure allows it.
func (l *loop) tryNext(x *exchange, class backend.Class) bool {
	if class.Lost() && class != backend.Stale {
		x.lostNodes++
	}
	if !class.Retryable() || x.client.state == stClosed {
		return false
	}
	if class == backend.Stale && !x.bodyGone && l.tryAgain(x) {
		return true
	}
	slot := l.nextSlot(x, ever)
	if slot < 0 {
		return l.parkLost(x, class)
	}
	if free := class == backend.Stale || class.Lost() && x.lostNodes == 1; !free && !l.payTry(x) {
		return false
	}
	l.tally.retries[class]++
	l.dispatch(x, slot, policy.ReasonRetry)
	return true
}

// ever is a time that no prediction exceeds.
var ever = math.Inf(1)

// nextSlot returns where the request could be tried next and its first event is
// predicted to come within that time; -1 if nowhere.
func (l *loop) nextSlot(x *exchange, withinSeconds float64) int {
	if x.spent() {
		return -1
	}
	return l.alternative(x, withinSeconds)
}

// spent reports whether there is no other try for the request, wherever it might
// go: its body is not held any more, or it has used up its tries, or has seen too
// many nodes die.
func (x *exchange) spent() bool {
	return x.bodyGone || x.tries > x.set.Retries || x.tries == maxTries || x.lostNodes >= maxNodesLost
}

// tryAgain repeats the try on a fresh connection to the same node: it had
// closed an idle one just as the request went out on it.
func (l *loop) tryAgain(x *exchange) bool {
	n := l.d.opt.Fleet.Load().Nodes
	slot := x.node.Slot
	if slot >= len(n) || n[slot] == nil || n[slot].Generation != x.node.Generation {
		return false
	}
	l.tally.retries[backend.Stale]++
	x.raise()
	l.connect(x)
	return true
}

// alternative returns the slot of the next candidate that was not tried, still
// takes requests and is predicted to answer in time; -1 if there is none.
func (l *loop) alternative(x *exchange, withinSeconds float64) int {
	now := l.d.opt.Fleet.Load()
	for i := range x.decision.Candidates {
		if slot := x.decision.Candidates[i].Slot; x.mayTry(now, slot, withinSeconds) {
			return slot
		}
	}
	if x.considered <= len(x.decision.Candidates) {
		return -1
	}
	// The best are all gone, such as with the rack that they stood in: of the others, the
	// one with the least under way.
	best := -1
	for slot, n := range x.snap.Nodes {
		if n == nil || !x.serves(slot) || !x.mayTry(now, slot, withinSeconds) {
			continue
		}
		if best < 0 || n.Load.Requests.Load() < x.snap.Nodes[best].Load.Requests.Load() {
			best = slot
		}
	}
	return best
}

// mayTry reports whether a node was not tried, still takes requests and is predicted to
// answer in time.
func (x *exchange) mayTry(now *fleet.Snapshot, slot int, withinSeconds float64) bool {
	for _, t := range x.tried[:x.tries] {
		if t.slot == slot {
			return false
		}
	}
	if slot >= len(now.Nodes) || !now.Nodes[slot].Available() || now.Nodes[slot].Generation != x.snap.Nodes[slot].Generation || full(now.Nodes[slot]) {
		return false
	}
	return firstEventSeconds(now.Nodes[slot], x.uncached(slot)) <= withinSeconds
}

// serves reports whether a node of x's snapshot has the model, and room for the prompt.
func (x *exchange) serves(slot int) bool {
	if x.model >= 0 {
		if _, there := slices.BinarySearch(x.snap.Models[x.model].Slots, slot); !there {
			return false
		}
	}
	least := x.polReq.LeastTokens
	if least <= 0 {
		least = x.polReq.PromptTokens
	}
	return policy.Fits(least, x.polReq.OutputTokens, x.snap.Nodes[slot].MaxModelLen)
}

// full reports whether a node is at its cap.
func full(n *fleet.Node) bool {
	return n.MaxInFlight > 0 && n.Load.Requests.Load() >= int64(n.MaxInFlight)
}

// payTry asks the retry budget: a share of the requests under way, and a few
// whatever that is. Without it retries multiply the load of a fleet that fails
// because of its load.
func (l *loop) payTry(x *exchange) bool {
	if l.d.retrying.Add(1) > l.budget(x) {
		l.d.retrying.Add(-1)
		l.tally.budgetEmpty++
		return false
	}
	x.paidTry = true
	return true
}

// budget is how many tries may be under way that the budget pays for.
func (l *loop) budget(x *exchange) int64 {
	underWay := l.d.active.Load() - l.d.parked.Load() // those that wait for a node are no load
	return max(int64(x.set.RetryBudget*float64(underWay)), minRetryConcurrency)
}

// cut ends an answer that has begun and cannot be finished: the client sees a
// reset, never a clean end.
func (l *loop) cut(x *exchange, class backend.Class) {
	c := x.client
	x.outcome = class
	l.leave(x, class)
	l.over(x)
	l.cutClient(c)
}

// abandon ends the exchange of a client that left. The node's connection is
// closed at once, so that the engine stops generating.
func (l *loop) abandon(x *exchange) {
	x.outcome = backend.ClientGone
	if !x.began {
		x.status = statusClientGone
	}
	l.leave(x, backend.ClientGone)
	l.over(x)
}

// statusClientGone is what records and metrics show for a client that left
// before an answer began (nginx's number for it).
const statusClientGone = 499

// over ends an exchange for good, whatever became of it.
func (l *loop) over(x *exchange) {
	if x.phase == phOver {
		panic("BUG: dataplane: exchange ended twice")
	}
	if x.rival != nil {
		l.endRace(x, x.outcome)
	}
	if x.parked() {
		l.endWait(x)
	}
	l.count(x)
	x.phase = phOver
	x.client.x = nil
	l.freeExchange(x)
	if l.parking.full { // there may be a place now
		l.walkAgain()
	}
}
