package scenario

import (
	"math"

	"warmpath/bench/virtual"
	"warmpath/bench/workload"
	"warmpath/dataplane/fleet"
	"warmpath/scaler"
)

// node is one node from when it is asked for until it is forgotten.
type node struct {
	name    string
	slot    int
	offer   *offerState
	weight  float64
	phase   scaler.Phase
	sinceNs int64 // it is in that phase
	askedNs int64
	engine  *virtual.Engine // nil while it starts, and once it is dead
	load    fleet.Load      // the snapshot wants one; the router counts by slot
	lapse   []lapse         // expectations that end, by time

	prefill prefillRate
	decode  scaler.Gauge

	// As its engine said when it was asked last.
	queued, running, kvUse, evictRate scaler.Gauge
	evicted                           int64 // blocks, then
	staleNs                           int64 // they stay as they are until then

	// Since the law was asked last.
	busyNs        int64 // until then
	answers       int64
	decodeTokens  float64
	decodeSeconds float64
}

// lapse is when an expectation ends.
type lapse struct {
	atNs     int64
	contents []uint32
}

// prefillRate is learned from first tokens: each answer tells it with an error of
// its own.
type prefillRate struct {
	log   float64
	known bool
}

const (
	prefillSpread = 0.15 // sigma of what one answer says, by the logarithm
	prefillPace   = 0.05 // weight of one
)

func (p *prefillRate) learn(log float64) {
	if !p.known {
		p.log, p.known = log, true
	}
	p.log += prefillPace * (log - p.log)
}

func (p *prefillRate) gauge() scaler.Gauge {
	if !p.known {
		return scaler.Gauge{}
	}
	return scaler.Known(math.Exp(p.log))
}

// engineOf is the physics of a node of that weight: twice as fast in all for 2.
func engineOf(cfg virtual.Config, weight float64) virtual.Config {
	cfg.PrefillTokensPerSecond *= weight
	cfg.DecodeBaseMs /= weight
	cfg.DecodePerRequestMs /= weight
	return cfg
}

// began notes a first token. Short prompts tell nothing of the rate.
func (n *node) began(w *world, f *flight) {
	if f.uncached >= 256 {
		n.prefill.learn(math.Log(w.cfg.Engine.PrefillTokensPerSecond*n.weight) + prefillSpread*w.rng.NormFloat64())
	}
	f.node.load.HeardNs.Store(w.nowNs)
	f.beganNs = w.nowNs
}

// answered notes the end of an answer.
func (n *node) answered(nowNs int64, f *flight, r *workload.Request) {
	n.answers++
	if r.Output > 1 {
		n.decodeTokens += float64(r.Output - 1)
		n.decodeSeconds += float64(nowNs-f.beganNs) / 1e9
	}
}

// staleSeconds is how long gauges that are stale stay so.
const staleSeconds = 60

// scrape reads the engine's gauges.
func (n *node) scrape(w *world) {
	s := &w.cfg.Signs
	if w.nowNs < n.staleNs {
		return
	}
	if s.Stale > 0 && w.rng.Float64() < s.MetricsSeconds/staleSeconds*s.Stale/(1-s.Stale) {
		n.staleNs = w.nowNs + staleSeconds*1e9
		return
	}
	evicted := n.engine.Cache.Evicted()
	n.queued = w.sign(float64(n.engine.Waiting()))
	n.running = w.sign(float64(n.engine.Running()))
	n.kvUse = w.sign(n.engine.KVUse())
	n.evictRate = w.sign(float64(evicted-n.evicted) * float64(w.cfg.Engine.BlockTokens) / s.MetricsSeconds)
	n.evicted = evicted
}

// sign is a gauge as it is read: off, or not known.
func (w *world) sign(v float64) scaler.Gauge {
	s := &w.cfg.Signs
	if s.Unknown > 0 && w.rng.Float64() < s.Unknown {
		return scaler.Gauge{}
	}
	if s.Noise > 0 {
		v *= math.Exp(s.Noise*w.rng.NormFloat64() - s.Noise*s.Noise/2)
	}
	return scaler.Known(v)
}

// expire ends the expectations that are over.
func (n *node) expire(w *world) {
	done := 0
	for done < len(n.lapse) && n.lapse[done].atNs <= w.nowNs {
		w.index.Expect(n.lapse[done].contents, n.slot, false)
		done++
	}
	n.lapse = append(n.lapse[:0], n.lapse[done:]...)
}
