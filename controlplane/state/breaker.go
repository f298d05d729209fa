package state

import (
	"log/slog"
	"math"

	"warmpath/dataplane/fleet"
)

// loadsSeen reads a copy of all counters. Nodes about which it says nothing new
// are not copied: of a large fleet that is most of them.
func (t *step) loadsSeen(e LoadsSeen) {
	for _, load := range e.Loads {
		if n := t.s.Find(load.Node); n != nil && !n.Knows(load) {
			t.on(load.Node, load.Incarnation, func(n *Node) { t.loadSeen(n, load) })
		}
	}
}

// Knows says whether a LoadSeen would change nothing.
func (n *Node) Knows(e LoadSeen) bool {
	l := &n.life
	return e.Requests == n.Requests && e.PrefillTokens == n.PrefillTokens && e.Failures == l.failures && e.Successes == l.successes &&
		e.Consecutive == 0 && n.slow() == 0 && !l.panicSaid && !n.ErrorShare.Known && !n.Drain
}

// loadSeen reads a copy of the node's counters.
func (t *step) loadSeen(n *Node, e LoadSeen) {
	failed, ended := max(0, e.Failures-n.life.failures), max(0, e.Successes-n.life.successes)
	n.Requests, n.PrefillTokens = e.Requests, e.PrefillTokens
	n.life.failures, n.life.successes = e.Failures, e.Successes
	n.life.failuresAtClose = min(n.life.failuresAtClose, e.Failures)
	t.countErrors(n, failed, ended)
	t.count(n, failed > 0)
	if ended > 0 {
		n.life.refusals, n.life.firstEvents = 0, 0
	}
	consecutive := min(e.Consecutive, e.Failures-n.life.failuresAtClose)
	if consecutive == 0 && n.slow() == 0 {
		n.life.panicSaid = false
	}
	if n.life.trial.on {
		t.judgeTrial(n, failed > 0, ended > 0)
	} else {
		t.trip(n, consecutive)
	}
	if n.Drain && e.Requests <= 0 && t.s.NowNs >= n.life.drainNs+drainSettleNs {
		n.life.idle = true
		t.drained(n, false)
	}
}

// trip opens the breaker when failures in a row, hard and soft, are enough.
func (t *step) trip(n *Node, consecutive int64) {
	if n.Health != fleet.Ready || n.Breaker != fleet.Closed || consecutive+int64(n.slow()) < int64(t.s.Settings.BreakerFailures) {
		return
	}
	reason := "failures in a row"
	switch n.slow() {
	case 0:
	case n.life.tails[tail95].slow:
		reason = "slow against its own baseline"
	default:
		reason = "its slowest hundredth is slow against its own baseline"
	}
	if t.mayEject(n, reason) {
		t.setBreaker(n, fleet.Open, reason)
	}
}

func (t *step) closeBreaker(n *Node, reason string) {
	t.setBreaker(n, fleet.Closed, reason)
	t.forgive(n)
	t.prove(n, againProof)
}

func (t *step) setBreaker(n *Node, to fleet.Breaker, reason string) {
	t.tellBreaker(n, to, reason)
	n.Breaker, n.life.breakerNs, n.life.trial = to, t.s.NowNs, trial{}
	n.noProof()
	t.publish = true
}

// tellBreaker says in the log and in the node's record what its breaker does.
func (t *step) tellBreaker(n *Node, to fleet.Breaker, reason string) {
	n.BreakerReason = reason
	t.happened(n, "breaker "+to.String(), reason)
	t.log(slog.LevelWarn, "breaker is "+to.String(), slog.String("node", n.Spec.Name), slog.String("why", reason))
}

// forgive lets only failures from now on count.
func (t *step) forgive(n *Node) {
	n.Breaker, n.life.trial = fleet.Closed, trial{}
	n.life.failuresAtClose, n.life.panicSaid = n.life.failures, false
	for i := range n.life.tails {
		n.life.tails[i].slow = 0
	}
}

// tickBreaker moves the breaker on by time alone.
func (t *step) tickBreaker(n *Node) {
	waited := t.s.NowNs - n.life.breakerNs
	switch {
	case n.Breaker == fleet.Open && waited >= t.s.Settings.BreakerOpenNs:
		t.halfOpen(n)
	case n.Breaker == fleet.HalfOpen && waited >= t.s.Settings.BreakerProbeNs:
		t.setBreaker(n, fleet.Open, "the probe was not answered")
	}
}

// breakerDue says whether tickBreaker has something to do.
func (t *step) breakerDue(n *Node) bool {
	waited := t.s.NowNs - n.life.breakerNs
	return n.Breaker == fleet.Open && waited >= t.s.Settings.BreakerOpenNs ||
		n.Breaker == fleet.HalfOpen && waited >= t.s.Settings.BreakerProbeNs
}

// halfOpen begins the one probe that decides: an exchange with the health route,
// never a user's request. Only of a node that has no such route, whose every
// answer there would be a good one, a request decides.
func (t *step) halfOpen(n *Node) {
	if n.life.noRoute {
		t.beginTrial(n)
		return
	}
	t.setBreaker(n, fleet.HalfOpen, "its open time has passed")
	t.probe(n)
}

// trial is the probe of a half-open breaker by a user's request. Requests see
// the breaker closed meanwhile.
type trial struct {
	on     bool
	before int64 // requests that were in flight when it began
	sent   bool  // prefill was seen since: a request is at the node
}

func (t *step) beginTrial(n *Node) {
	t.tellBreaker(n, fleet.HalfOpen, "its open time has passed; for want of a health route the next request decides")
	t.forgive(n)
	n.life.trial = trial{on: true, before: n.Requests}
	n.life.breakerNs, t.publish = t.s.NowNs, true
}

// judgeTrial ends the trial with the first thing that the node does with a
// request. How long that may take is the request's own affair: an answer that
// is generated for a minute is no failure.
func (t *step) judgeTrial(n *Node, failed, ended bool) {
	tr := &n.life.trial
	switch {
	case failed:
		t.setBreaker(n, fleet.Open, "the request failed")
	case ended:
		t.closeBreaker(n, "the request succeeded")
	case n.PrefillTokens > 0:
		tr.sent = true
	case tr.sent && n.Requests > tr.before:
		t.closeBreaker(n, "the request is being answered")
	default: // none came, or its client left before
		tr.sent = false
		if n.Requests < tr.before {
			tr.before, t.publish = n.Requests, true
		}
	}
}

// Cap is how many requests the node may have at once; 0 = no cap. While a
// request is the probe of its breaker that is one more than it had before.
func (n *Node) Cap() int {
	if !n.life.trial.on {
		return n.Spec.MaxInFlight
	}
	one := int(max(n.life.trial.before, 0)) + 1
	if n.Spec.MaxInFlight > 0 {
		return min(one, n.Spec.MaxInFlight)
	}
	return one
}

// countErrors keeps the share of failures among recent answers.
func (t *step) countErrors(n *Node, failed, ended int64) {
	keep := math.Exp2(-float64(t.s.NowNs-n.life.countedNs) / float64(errorHalfNs))
	n.life.countedNs = t.s.NowNs
	n.life.errors = n.life.errors*keep + float64(failed)
	n.life.answers = n.life.answers*keep + float64(failed+ended)
	share := fleet.Gauge{}
	if n.life.answers >= 1 {
		share = fleet.Gauge{Value: n.life.errors / n.life.answers, Known: true}
	}
	if share.Known != n.ErrorShare.Known || math.Abs(share.Value-n.ErrorShare.Value) > 0.01 {
		n.ErrorShare, t.s.dirty = share, true
	}
}
