package dataplane

import (
	"warmpath/dataplane/backend"
	"warmpath/dataplane/policy"
	"warmpath/dataplane/scan"
)

// A stream whose node is silent may wait there behind long prefills, or the node
// hangs. Under retry.hedge it is then sent to a second node too, once, if that
// one is predicted to be done in no more time than was waited already: so a hedge
// never does a long prefill twice in vain.
//
// The second try is held by another exchange, the rival, which borrows the
// request and has nothing but the try to itself. Clients, records and tallies
// know the first alone. Whichever try goes on, the first has it in the end: the
// two swap their tries if need be, and the rival leaves the other one.
//
//	answer begins at either node   the other is left, and not blamed
//	either fails                   the other goes on
//	the request ends               so do both

// hedgeAfter is how long the node of the try may be silent before the request is
// sent to another one as well; 0 = for ever.
func (x *exchange) hedgeAfter() int64 {
	switch {
	case x.hedged || !x.class.prompt || x.found == nil || x.found.Stream != scan.True:
		return 0
	case x.set.HedgeAuto:
		return max(x.set.HedgeNs, int64(2e9*predictedSeconds(x.node)))
	}
	return x.set.HedgeNs
}

// hedgeDue reports whether x has waited for as long as hedgeAfter said, since its
// node has the whole request.
func (x *exchange) hedgeDue(nowNs int64) bool {
	return x.hedgeNs > 0 && x.phase >= phWaiting && !x.stuck && nowNs >= x.sentNs+x.hedgeNs
}

// hedge sends x to a second node, if there is one that is worth it. Else it is
// looked at again later, when more time is lost already or less is queued.
func (l *loop) hedge(x *exchange) {
	silentNs := l.now - x.sentNs
	if slot := l.nextSlot(x, seconds(silentNs)); slot >= 0 {
		if y := x.double(); l.payTry(y) {
			l.tally.hedges++
			x.rival, y.rival = y, x
			x.hedged, x.hedgeNs = true, 0
			x.tried[x.tries] = triedNode{x.snap.Nodes[slot].Name, slot, backend.OK}
			x.tries++
			l.dispatch(y, slot, policy.ReasonRetry) // y may have failed on return
			return
		}
	}
	x.hedgeNs = silentNs + x.set.HedgeNs
	l.armExchange(x)
}

// double makes an exchange that can send x's request to another node. It is not
// in any free list, as what it holds is x's.
func (x *exchange) double() *exchange {
	return &exchange{
		head: x.head, req: x.req, decision: x.decision,
		passage: passage{
			client: x.client, set: x.set, data: x.data, id: x.id, idLen: x.idLen,
			snap: x.snap, found: x.found, model: x.model, polReq: x.polReq, exact: x.exact, considered: x.considered,
			tries: x.tries, hedged: true,
		},
	}
}

// endRace ends the race of the client's exchange x: it goes on with the try of
// keep, which is x or its rival, and the other try is left.
func (l *loop) endRace(keep *exchange, class backend.Class) (x *exchange) {
	x = keep.client.x
	y := x.rival
	if keep == y {
		x.swapTry(y)
		l.tally.hedgesWon++
		l.sentTo(x, policy.ReasonRetry)
		l.note(x)
	}
	x.rival, y.rival = nil, nil
	l.leave(y, class)
	x.tried[y.at].class = class
	return x
}

// swapTry gives x the try of y, and y that of x.
func (x *exchange) swapTry(y *exchange) {
	x.try, y.try = y.try, x.try
	x.respHead, y.respHead = y.respHead, x.respHead
	x.resp, y.resp = y.resp, x.resp
	x.held, y.held = y.held, x.held
	x.watch, y.watch = y.watch, x.watch
	x.firstBack, y.firstBack = y.firstBack, x.firstBack
	x.stuck, y.stuck = y.stuck, x.stuck
	x.stuckNs, y.stuckNs = y.stuckNs, x.stuckNs
	x.left, y.left = y.left, x.left
	for _, e := range [...]*exchange{x, y} {
		if e.conn != nil {
			e.conn.Owner = e
		}
	}
}

// taken returns the exchange with which an answer goes to the client that begins
// at the node of x.
func (l *loop) taken(x *exchange) *exchange {
	if x.rival == nil {
		return x
	}
	return l.endRace(x, backend.Outrun)
}

// otherGoesOn lets the other try go on after that of x has failed and was left.
func (l *loop) otherGoesOn(x *exchange, class backend.Class) bool {
	first := x.client.x
	if x != first && class == backend.Stale && l.tryAgain(x) {
		return true // the rival's node had closed an idle connection
	}
	if class.Lost() && class != backend.Stale {
		first.lostNodes++
	}
	l.armExchange(l.endRace(x.rival, class))
	return true
}

// refusedRival reports whether x is a rival whose node refuses it, which is no
// reason to break off the first try.
func (x *exchange) refusedRival() bool { return x != x.client.x && x.resp.Status >= 300 }

// rivalExpired drops the rival of x if its deadline has come.
func (l *loop) rivalExpired(x *exchange) bool {
	y := x.rival
	if at := y.deadline(); at == 0 || at > l.now {
		return false
	}
	l.failed(y, y.lateClass())
	return true
}
