package state

import (
	"log/slog"
	"math"
	"slices"

	"warmpath/dataplane/fleet"
)

// loadsSeen reads a copy of all counters. Nodes about which it says nothing new
// are not copied: of a large fleet that is most of them.
func (t *step) loadsSeen(e LoadsSeen) {
	for _, load := range e.Loads {
		if n := t.s.Find(load.Node); n != nil && !n.knows(load) {
			t.on(load.Node, load.Incarnation, func(n *Node) { t.loadSeen(n, load) })
		}
	}
}

// knows says whether loadSeen would change nothing.
func (n *Node) knows(e LoadSeen) bool {
	l := &n.life
	return e.Requests == n.Requests && e.PrefillTokens == n.PrefillTokens && e.Failures == l.failures && e.Successes == l.successes &&
		e.Consecutive == 0 && l.soft == 0 && !l.panicSaid && !n.ErrorShare.Known && !n.Drain
}

// loadSeen reads a copy of the node's counters.
func (t *step) loadSeen(n *Node, e LoadSeen) {
	failed, ended := max(0, e.Failures-n.life.failures), max(0, e.Successes-n.life.successes)
	n.Requests, n.PrefillTokens = e.Requests, e.PrefillTokens
	n.life.failures, n.life.successes = e.Failures, e.Successes
	n.life.failuresAtClose = min(n.life.failuresAtClose, e.Failures)
	t.countErrors(n, failed, ended)
	if ended > 0 {
		n.life.refusals, n.life.firstEvents = 0, 0
	}
	consecutive := min(e.Consecutive, e.Failures-n.life.failuresAtClose)
	if consecutive == 0 && n.life.soft == 0 {
		n.life.panicSaid = false
	}
	t.trip(n, consecutive)
	if n.Drain && e.Requests <= 0 && t.s.NowNs >= n.life.drainNs+drainSettleNs {
		n.life.idle = true
		t.drained(n, false)
	}
}

// latencySeen counts a node that is much slower than itself as failing.
func (t *step) latencySeen(n *Node, e LatencySeen) {
	factor := t.s.Settings.SlowOverBaseline
	if e.Samples < percentileMin || !(e.P95Seconds > 0) || math.IsInf(e.P95Seconds, 0) || factor <= 0 {
		return
	}
	if n.life.baselineSeconds == 0 {
		n.life.baselineSeconds = e.P95Seconds
		return
	}
	weight := baselineFast
	if e.P95Seconds > factor*n.life.baselineSeconds {
		weight = baselineSlow
		n.life.soft++
	} else {
		n.life.soft = 0
	}
	n.life.baselineSeconds += weight * (e.P95Seconds - n.life.baselineSeconds)
	t.trip(n, 0)
}

// trip opens the breaker when failures in a row, hard and soft, are enough.
func (t *step) trip(n *Node, consecutive int64) {
	if n.Health != fleet.Ready || n.Breaker != fleet.Closed || consecutive+int64(n.life.soft) < int64(t.s.Settings.BreakerFailures) {
		return
	}
	reason := "failures in a row"
	if n.life.soft > 0 {
		reason = "slow against its own baseline"
	}
	if t.mayEject(n, reason) {
		t.openBreaker(n, reason)
	}
}

// mayEject keeps passive judgements from taking out more than MaxEjected of
// any model's nodes: when all of them fail, the cause is not the nodes, and
// some answers are better than none.
func (t *step) mayEject(n *Node, reason string) bool {
	ok := t.mayEjectOf("", n)
	if len(n.Models) > 0 {
		ok = true
		for i := range n.Models {
			ok = ok && t.mayEjectOf(n.Models[i].ID, n)
		}
	}
	if !ok && !n.life.panicSaid {
		n.life.panicSaid = true
		t.log(slog.LevelWarn, "node stays in use: too many nodes of its model are out", slog.String("node", n.Spec.Name), slog.String("why", reason), slog.Float64("max_ejected", t.s.Settings.MaxEjected))
	}
	return ok
}

// mayEjectOf counts the nodes of one model; "" counts all nodes.
func (t *step) mayEjectOf(model string, n *Node) bool {
	total, out := 0, 1
	for _, other := range t.s.Nodes {
		if other.Drain && other.Slot != n.Slot || model != "" && !other.serves(model) {
			continue
		}
		total++
		if other.Slot != n.Slot && !(other.Health == fleet.Ready && other.Breaker == fleet.Closed) {
			out++
		}
	}
	return float64(out) <= t.s.Settings.MaxEjected*float64(total)
}

func (n *Node) serves(model string) bool {
	_, ok := slices.BinarySearchFunc(n.Models, model, byID)
	return ok
}

func (t *step) openBreaker(n *Node, reason string) {
	t.setBreaker(n, fleet.Open, reason)
}

func (t *step) closeBreaker(n *Node) {
	t.setBreaker(n, fleet.Closed, "the probe succeeded")
	t.forgive(n)
}

func (t *step) setBreaker(n *Node, to fleet.Breaker, reason string) {
	t.log(slog.LevelWarn, "breaker is "+to.String(), slog.String("node", n.Spec.Name), slog.String("why", reason))
	n.Breaker, n.life.breakerNs = to, t.s.NowNs
	t.publish = true
}

// forgive lets only failures from now on count.
func (t *step) forgive(n *Node) {
	n.Breaker = fleet.Closed
	n.life.failuresAtClose, n.life.soft, n.life.panicSaid = n.life.failures, 0, false
}

// tickBreaker moves the breaker on by time alone. The probe of half-open is an
// exchange with the health route, never a user's request.
func (t *step) tickBreaker(n *Node) {
	waited := t.s.NowNs - n.life.breakerNs
	switch {
	case n.Breaker == fleet.Open && waited >= t.s.Settings.BreakerOpenNs:
		t.setBreaker(n, fleet.HalfOpen, "its open time has passed")
		t.probe(n)
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
