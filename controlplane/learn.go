package controlplane

import (
	"sync"
	"time"

	"warmpath/controlplane/state"
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/tally"
	"warmpath/scaler"
)

// learner remembers what was reported last, since the data plane counts and
// the State wants differences.
type learner struct {
	nodes    map[string]nodeSeen
	loads    map[*fleet.Load]loadSeen
	outputs  map[string]dataplane.OutputTally
	latencyN int
	decoding recentDecode
}

// recentDecode is how fast the latest answers of each node came, for the scaler: it
// wants the rate of now, beside how many requests ran, and not the learned one.
type recentDecode struct {
	mu     sync.Mutex
	byNode map[string]decodeSeen // guarded by mu; of nodes that are there
}

type decodeSeen struct {
	perSecond fleet.Gauge
	at        time.Time
}

// decodeFresh is how long such a rate stands.
const decodeFresh = 5 * time.Second

// note replaces what is known.
func (r *recentDecode) note(next map[string]decodeSeen) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, seen := range r.byNode {
		if _, ok := next[name]; ok && !next[name].perSecond.Known {
			next[name] = seen
		}
	}
	r.byNode = next
}

// decode is the rate of a node's latest answers. Any goroutine may call it.
func (l *learner) decode(n *state.Node) scaler.Gauge {
	l.decoding.mu.Lock()
	defer l.decoding.mu.Unlock()
	seen := l.decoding.byNode[n.Spec.Name]
	if !seen.perSecond.Known || time.Since(seen.at) > decodeFresh {
		return scaler.Gauge{}
	}
	return gauge(seen.perSecond)
}

type nodeSeen struct {
	prefill, decode work
	first           [len(latencyWindows)]tally.Histogram // at the start of each latency window
}

// work is tokens that were made in so many answers, and the time that they took.
type work struct {
	tokens  uint64
	seconds float64
	answers uint64
}

// since returns the rate of what was done after was, unknown and no new mark
// while that is too little.
func (w work) since(was work, least uint64) (rate fleet.Gauge, answers int, mark work) {
	tokens, took := w.tokens-was.tokens, w.seconds-was.seconds
	if tokens < least || took <= 0 {
		return fleet.Gauge{}, 0, was
	}
	return fleet.Gauge{Value: float64(tokens) / took, Known: true}, int(w.answers - was.answers), w
}

type loadSeen struct{ refused, resets, serverFails, silent int64 }

const (
	prefillTokensMin = 512 // the least work that makes one measurement of a rate
	decodeTokensMin  = 64
	latencyEvery     = 10 // reports of learned values between two of latency
	failuresReported = 64 // failures of one kind that one tick reports one by one
)

// latencyWindows are the percentiles of first-event times that are reported.
// Each is taken anew when enough answers came since it was last.
var latencyWindows = [...]struct {
	quantile float64
	samples  uint64 // the fewest answers that it is taken of
}{{0.95, 20}, {0.99, 100}}

// reportLoads sends each new failure by its kind, and then the counters of the nodes
// whose counters the State does not know.
func (c *ControlPlane) reportLoads() {
	s, now := c.State(), c.NowNs()
	seen := make(map[*fleet.Load]loadSeen) // of nodes that ever failed
	var loads []state.LoadSeen
	for _, n := range s.Nodes {
		was, is := c.learned.loads[n.Load], readKinds(n.Load)
		if is != (loadSeen{}) {
			seen[n.Load] = is
		}
		if is != was {
			c.reportFailures(n, now, was, is)
		}
		load := state.LoadSeen{
			Node: n.Spec.Name, Incarnation: n.Incarnation,
			Requests: n.Load.Requests.Load(), PrefillTokens: n.Load.PrefillTokens.Load(),
			Failures: n.Load.Failures.Load(), Consecutive: n.Load.Consecutive.Load(), Successes: n.Load.Successes.Load(),
		}
		// What the State is just being told it may not know yet: then it is told
		// again with the next tick.
		if !n.Knows(load) {
			loads = append(loads, load)
		}
	}
	c.learned.loads = seen // only of nodes that are there
	if len(loads) > 0 {
		c.Send(state.LoadsSeen{NowNs: now, Loads: loads})
	}
}

func (c *ControlPlane) reportFailures(n *state.Node, now int64, was, is loadSeen) {
	for _, kind := range []struct {
		class state.Class
		count int64
	}{
		{state.Refused, is.refused - was.refused},
		{state.Reset, is.resets - was.resets},
		{state.ServerFail, is.serverFails - was.serverFails},
		{state.FirstEvent, is.silent - was.silent},
	} {
		for range min(kind.count, failuresReported) {
			c.Send(state.Failure{NowNs: now, Node: n.Spec.Name, Incarnation: n.Incarnation, Class: kind.class})
		}
	}
}

func readKinds(l *fleet.Load) loadSeen {
	return loadSeen{l.Refused.Load(), l.Resets.Load(), l.ServerFails.Load(), l.Silent.Load()}
}

// reportLearned sends what the data plane's tallies say of speed.
func (c *ControlPlane) reportLearned() {
	totals := c.opt.Dataplane.Totals()
	l := &c.learned
	l.latencyN++
	latency := l.latencyN%latencyEvery == 0
	seen, decoding := make(map[string]nodeSeen, len(totals.Nodes)), map[string]decodeSeen{}
	for _, n := range c.State().Nodes {
		t := totals.Nodes[n.Spec.Name]
		if t == nil {
			continue
		}
		was := l.nodes[n.Spec.Name].before(t)
		decoding[n.Spec.Name] = decodeSeen{c.reportRate(n, t, &was), time.Now()}
		if latency {
			c.reportLatency(n, t, &was)
		}
		seen[n.Spec.Name] = was
	}
	l.nodes = seen
	l.decoding.note(decoding)
	for model, t := range totals.Output {
		was := l.outputs[model]
		if answers := t.Answers - was.Answers; answers > 0 {
			mean := float64(t.Tokens-was.Tokens) / float64(answers)
			c.Send(state.OutputSeen{NowNs: c.NowNs(), Model: model, MeanTokens: mean})
		}
	}
	l.outputs = totals.Output
}

// before is s, or nothing if t counts less: the loops have forgotten what they
// had counted, and count from zero again.
func (s nodeSeen) before(t *dataplane.NodeTally) nodeSeen {
	if t.PrefillTokens < s.prefill.tokens || t.DecodeTokens < s.decode.tokens || t.FirstEvent.Total < s.first[0].Total {
		return nodeSeen{}
	}
	return s
}

// reportRate sends what the node's latest answers say of its speed, and returns its
// decode rate.
func (c *ControlPlane) reportRate(n *state.Node, t *dataplane.NodeTally, was *nodeSeen) fleet.Gauge {
	e := state.RateSeen{NowNs: c.NowNs(), Node: n.Spec.Name, Incarnation: n.Incarnation}
	e.PrefillTokensPerSecond, e.PrefillSamples, was.prefill = work{t.PrefillTokens, t.PrefillSeconds, t.Prefills}.since(was.prefill, prefillTokensMin)
	e.DecodeTokensPerSecond, e.DecodeSamples, was.decode = work{t.DecodeTokens, t.DecodeSeconds, t.Decodes}.since(was.decode, decodeTokensMin)
	if e.PrefillTokensPerSecond.Known || e.DecodeTokensPerSecond.Known {
		c.Send(e)
	}
	return e.DecodeTokensPerSecond
}

func (c *ControlPlane) reportLatency(n *state.Node, t *dataplane.NodeTally, was *nodeSeen) {
	var seconds [len(latencyWindows)]float64
	var samples [len(latencyWindows)]int
	enough := false
	for i, w := range latencyWindows {
		from := &was.first[i]
		if from.Counts == nil {
			*from = t.FirstEvent.Clone()
			continue
		}
		fresh := t.FirstEvent.Since(from)
		if fresh.Total < w.samples {
			continue
		}
		*from = t.FirstEvent.Clone()
		seconds[i], samples[i], enough = fresh.Quantile(w.quantile), int(fresh.Total), true
	}
	if enough {
		c.Send(state.LatencySeen{
			NowNs: c.NowNs(), Node: n.Spec.Name, Incarnation: n.Incarnation,
			P95Seconds: seconds[0], Samples: samples[0], P99Seconds: seconds[1], P99Samples: samples[1],
		})
	}
}
