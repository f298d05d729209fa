package state

import (
	"log/slog"
	"math"

	"warmpath/dataplane/fleet"
)

// tick does what time alone brings about. Most nodes need nothing most of the
// time: only those that do are copied.
func (t *step) tick() {
	for i := len(t.s.Nodes) - 1; i >= 0; i-- { // backwards: nodes may go
		if t.due(t.s.Nodes[i]) {
			t.tickNode(t.edit(i))
		}
	}
	if t.s.fewer {
		t.readmit()
	}
	if t.s.rates {
		t.weigh()
	}
	if t.s.fills {
		t.warm()
	}
	t.askedAgain()
	t.press()
	if t.s.dirty {
		t.publish = true
	}
}

// due says whether tickNode has something to do.
func (t *step) due(n *Node) bool {
	l, now, stale := &n.life, t.s.NowNs, t.s.Settings.StaleNs
	return now >= l.probeNextNs || t.askDue(n) || n.Removing && n.Health != fleet.Ready || t.drainOver(n) || t.breakerDue(n) ||
		n.SampleFresh && now-n.SampleNs > stale || t.saidOver(n) ||
		n.RoundTripSeconds.Known && now-l.roundTripNs > stale ||
		n.EvictedTokensPerSecond.Known && now-l.evictedNs > stale
}

func (t *step) tickNode(n *Node) {
	l, now, stale := &n.life, t.s.NowNs, t.s.Settings.StaleNs
	if n.SampleFresh && now-n.SampleNs > stale {
		n.SampleFresh, t.s.dirty = false, true
	}
	if t.saidOver(n) {
		n.Said.Fresh, t.s.dirty = false, true
	}
	if n.RoundTripSeconds.Known && now-l.roundTripNs > stale {
		n.RoundTripSeconds, t.s.dirty = fleet.Gauge{}, true
	}
	if n.EvictedTokensPerSecond.Known && now-l.evictedNs > stale {
		n.EvictedTokensPerSecond, t.s.dirty = fleet.Gauge{}, true
	}
	if l.probeOutNs != 0 && now-l.probeOutNs > l.probeForNs+probeGraceNs {
		l.probeOutNs = 0 // its answer was lost; that says nothing of the node
	}
	t.tickBreaker(n)
	if now >= l.probeNextNs {
		if l.probeOutNs == 0 && n.Breaker != fleet.HalfOpen { // which has one probe
			t.probe(n)
		} else {
			t.plan(n)
		}
	}
	if t.askDue(n) {
		t.ask(n)
	}
	switch {
	case n.Removing && n.Health != fleet.Ready: // nothing that it has will end well
		t.gone(n, "removed")
	case t.drainOver(n):
		t.drained(n, true)
	}
}

func (t *step) askDue(n *Node) bool {
	return n.Health == fleet.Ready && (!n.Asked || n.life.askFailed > 0) && t.s.NowNs >= n.life.askNextNs
}

func (t *step) drainOver(n *Node) bool {
	limit := t.s.Settings.DrainNodeNs
	return n.Drain && !n.life.drainedSaid && limit > 0 && t.s.NowNs-n.life.drainNs >= limit
}

// drained ends a drain: the node is idle, or it took too long.
func (t *step) drained(n *Node, timedOut bool) {
	if n.life.drainedSaid {
		return
	}
	n.life.drainedSaid = true
	level, message := slog.LevelInfo, "node is drained"
	if timedOut {
		level, message = slog.LevelWarn, "node did not drain in time"
	}
	t.log(level, message, slog.String("node", n.Spec.Name), slog.Int64("requests", n.Requests))
	t.do(Drained{Node: n.Spec.Name, TimedOut: timedOut})
	if n.Removing {
		t.gone(n, "removed")
	}
}

// press moves the pressure towards the share of usable nodes with queued
// prefill.
func (t *step) press() {
	usable, queued := 0, 0
	for _, n := range t.s.Nodes {
		if n.State() != fleet.Ready {
			continue
		}
		usable++
		if n.PrefillTokens > 0 {
			queued++
		}
	}
	share := float64(queued) / float64(max(1, usable))
	elapsed := float64(t.s.NowNs - t.s.pressedNs)
	t.s.pressedNs = t.s.NowNs
	t.s.Pressure += (share - t.s.Pressure) * -math.Expm1(-elapsed/float64(pressureNs))
}
