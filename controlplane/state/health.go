package state

import (
	"hash/fnv"
	"log/slog"
	"strconv"

	"warmpath/dataplane/fleet"
)

// unavailable is 503: the process is there, its model is not (RFC 9110 section
// 15.6.4).
const unavailable = 503

const (
	second        = int64(1e9)
	probeGraceNs  = second      // beyond its time-out a probe counts as lost
	askRetryNs    = 5 * second  // between attempts to ask for models
	maxAskFailed  = 3           // attempts after which a ready node counts as asked
	drainSettleNs = second / 5  // loops may still use the snapshot before the drain
	jitterShare   = 0.1         // of the probe interval, either way
	refusalsDown  = 3           // requests in a row without a listener
	errorHalfNs   = 30 * second // half-life of the error share
	rateWeight    = 0.2         // of a new reading in a learned rate
	pressureNs    = 30 * second // time constant of the pressure
	minWeight     = 0.1         // bounds of the measured weight: a bad
	maxWeight     = 10.0        // reading must not starve or flood a node
)

// probe asks for a probe and plans the next. The one of a half-open breaker has
// the breaker's time.
func (t *step) probe(n *Node) {
	n.life.probeOutNs, n.life.probeForNs = t.s.NowNs, t.s.Settings.ProbeTimeoutNs
	if n.Breaker == fleet.HalfOpen {
		n.life.probeForNs = t.s.Settings.BreakerProbeNs
	}
	n.life.probes++
	t.plan(n)
	t.do(Probe{Node: n.Spec.Name, Incarnation: n.Incarnation, URL: n.Endpoint.URL, Path: t.s.Settings.HealthPath, TimeoutNs: n.life.probeForNs})
}

// plan sets the time of the next probe: the long interval while all is well,
// the short one while the node is down, warming, or under suspicion. Jitter
// comes from the name, so that nodes spread and replays agree.
func (t *step) plan(n *Node) {
	interval := t.s.Settings.ProbeIntervalNs
	if n.Health != fleet.Ready || n.life.bad > 0 {
		interval = t.s.Settings.ProbeIntervalDownNs
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(n.Spec.Name))
	_, _ = h.Write([]byte{byte(n.life.probes), byte(n.life.probes >> 8)})
	unit := float64(h.Sum64()>>11)/(1<<52) - 1 // −1 … 1
	n.life.probeNextNs = t.s.NowNs + interval + int64(unit*jitterShare*float64(interval))
}

// probed judges one answer of the health route. An engine without such a route
// is alive if it says so.
func (t *step) probed(n *Node, e ProbeResult) {
	n.life.probeOutNs = 0
	if e.Status != 0 {
		t.heard(n, t.s.NowNs)
	}
	if e.Local {
		t.notAsked(e)
		t.plan(n)
		return
	}
	noRoute := e.Status == 404 || e.Status == 405 || e.Status == 501
	if e.Status != 0 {
		n.life.noRoute = noRoute
	}
	if noRoute && !n.life.noRouteSaid {
		n.life.noRouteSaid = true
		t.log(slog.LevelWarn, "node has no health route; any answer counts as healthy", slog.String("node", n.Spec.Name), slog.Int("status", e.Status))
	}
	if e.OK || noRoute {
		t.probedWell(n)
	} else {
		t.probedBadly(n, e)
	}
	t.plan(n)
}

// notAsked says, once until it is over, that nodes cannot be asked for want of
// something that this host has not got.
func (t *step) notAsked(e ProbeResult) {
	if t.s.shortNs == 0 {
		t.log(slog.LevelError, "nodes cannot be asked how they are: this host has no descriptors, ports or memory left", slog.String("err", e.Err), slog.String("remedy", "raise RLIMIT_NOFILE, or lower limits.connections"))
	}
	t.s.shortNs = t.s.NowNs
}

// askedAgain says that it is over, when for so long that every node was asked no
// probe has failed for it.
func (t *step) askedAgain() {
	if t.s.shortNs != 0 && t.s.NowNs-t.s.shortNs >= 2*max(t.s.Settings.ProbeIntervalNs, t.s.Settings.ProbeIntervalDownNs) {
		t.s.shortNs = 0
		t.log(slog.LevelInfo, "nodes can be asked again")
	}
}

func (t *step) probedWell(n *Node) {
	n.life.bad, n.life.refusals = 0, 0
	switch n.Health {
	case fleet.Joining, fleet.Warming:
		t.ready(n)
	case fleet.Down:
		if n.life.hung && !t.recovered(n) {
			return
		}
		if n.life.good++; n.life.good >= t.s.Settings.UpAfter {
			t.ready(n)
		}
	case fleet.Ready:
		switch {
		case n.Breaker == fleet.HalfOpen && n.life.noRoute:
			t.beginTrial(n)
		case n.Breaker == fleet.HalfOpen:
			t.closeBreaker(n, "the probe succeeded")
		}
	}
}

// probedBadly never judges a node that has not answered yet: an engine that
// loads weights answers 503, or nothing, for minutes.
func (t *step) probedBadly(n *Node, e ProbeResult) {
	n.life.good = 0
	switch n.Health {
	case fleet.Joining:
		t.setHealth(n, fleet.Warming, why(e))
	case fleet.Ready:
		if n.Breaker == fleet.HalfOpen {
			t.setBreaker(n, fleet.Open, "the probe failed: "+why(e))
		}
		if n.life.bad++; n.life.bad >= t.s.Settings.DownAfter {
			t.down(n, fleet.CauseUnhealthy, "probes failed: "+why(e))
		}
	case fleet.Down:
		switch {
		case e.Status == 0:
			n.life.refused = true
		case e.Status == unavailable && n.life.refused: // its process is back and loads
			t.setHealth(n, fleet.Warming, why(e))
		}
	}
}

func why(e ProbeResult) string {
	switch {
	case e.Err != "":
		return e.Err
	case e.Status != 0:
		return "status " + strconv.Itoa(e.Status)
	}
	return "no answer"
}

// recovered says whether a hung node's good probes count: its tokens moved
// since, or it is not seen to stand still with requests running and has been out
// for the breaker's open time, or is missed. The health route of a stopped engine
// core answers 200.
func (t *step) recovered(n *Node) bool {
	if n.life.movedNs > n.life.hungNs {
		return true
	}
	stuck := n.SampleFresh && n.Sample.Running.Or(0) > 0 && n.life.progressNs <= n.life.hungNs
	return !stuck && (t.s.NowNs-n.life.hungNs >= t.s.Settings.BreakerOpenNs || !t.mayBeOut(n))
}

// ready lets a node take requests. An engine that was away has lost its cache.
func (t *step) ready(n *Node) {
	reason := firstProof
	if n.life.everReady {
		reason = againProof
		if n.Health == fleet.Warming || n.life.refused {
			t.clear(n)
		}
	}
	t.setHealth(n, fleet.Ready, "its health route answers")
	n.life.everReady, n.life.refused, n.life.hung = true, false, false
	n.life.bad, n.life.good, n.life.refusals, n.life.firstEvents = 0, 0, 0, 0
	n.life.silentNs, n.life.silenceSaid = 0, false
	n.life.progressNs = t.s.NowNs
	n.life.readyGood, n.life.fill.judge, t.s.fills = n.life.successes, true, true
	t.forgive(n)
	t.prove(n, reason)
	t.ask(n)
}

func (t *step) down(n *Node, cause fleet.Cause, reason string) {
	n.life.good, n.life.refused = 0, false
	t.setHealth(n, fleet.Down, reason)
	n.Cause = cause
	n.Breaker, n.life.trial, t.s.fewer, t.s.fills = fleet.Closed, trial{}, true, true // the state says it all
	n.stopRamp()
}

// setHealth changes what the node is beneath draining.
func (t *step) setHealth(n *Node, to fleet.State, reason string) {
	n.Reason = reason
	if n.Health == to {
		return
	}
	level := slog.LevelInfo
	if to == fleet.Down {
		level = slog.LevelWarn
	}
	t.log(level, "node is "+to.String(), slog.String("node", n.Spec.Name), slog.String("was", n.Health.String()), slog.String("why", reason))
	n.Health, n.Cause = to, fleet.CauseNone
	t.happened(n, to.String(), reason)
	t.plan(n)
	t.publish = true
}

// failed counts one failure towards dead and hung. Resets and 5xx are the
// breaker's alone.
func (t *step) failed(n *Node, e Failure) {
	if n.Health != fleet.Ready {
		return
	}
	switch e.Class {
	case Refused:
		if n.life.refusals++; n.life.refusals >= refusalsDown {
			t.down(n, fleet.CauseRefused, "connections are refused")
			n.life.refused = true
			return
		}
		if n.life.probeOutNs == 0 { // do not wait for the next interval
			t.probe(n)
		}
	case FirstEvent:
		n.life.firstEvents++
		if n.life.firstEvents >= t.s.Settings.FirstEventFailures {
			t.hang(n, "requests get no first event")
		}
	case Reset, ServerFail:
	}
}

// hang takes a node out that answers its health route and nothing else.
func (t *step) hang(n *Node, reason string) {
	if !t.mayEject(n, reason) {
		return
	}
	t.down(n, fleet.CauseHung, "hung: "+reason)
	n.life.hung, n.life.hungNs = true, t.s.NowNs
}

// ask asks for the node's models.
func (t *step) ask(n *Node) {
	n.life.askNextNs = t.s.NowNs + askRetryNs
	t.do(AskModels{Node: n.Spec.Name, Incarnation: n.Incarnation, URL: n.Endpoint.URL})
}
