package state

import (
	"log/slog"
	"math"
	"slices"
	"strings"

	"warmpath/dataplane/fleet"
)

func byID(m Served, id string) int { return strings.Compare(m.ID, id) }

// modelsSeen takes an engine's list of models.
func (t *step) modelsSeen(n *Node, e ModelsSeen) {
	if e.Err != "" {
		n.life.askNextNs = t.s.NowNs + askRetryNs
		if n.life.askFailed++; n.life.askFailed == maxAskFailed && !n.Asked {
			n.Asked, t.publish = true, true
			t.proofDue(n)
			t.log(slog.LevelWarn, "node does not name its models", slog.String("node", n.Spec.Name), slog.String("error", e.Err))
		}
		return
	}
	t.heard(n, t.s.NowNs)
	n.life.askFailed = 0
	list := slices.DeleteFunc(slices.Clone(e.Models), func(m Served) bool { return m.ID == "" })
	slices.SortStableFunc(list, func(a, b Served) int { return strings.Compare(a.ID, b.ID) })
	list = slices.CompactFunc(list, func(a, b Served) bool { return a.ID == b.ID })
	if len(list) > MaxModels {
		t.log(slog.LevelError, "node names too many models; the rest is ignored", slog.String("node", n.Spec.Name), slog.Int("limit", MaxModels))
		list = list[:MaxModels]
	}
	if len(n.Spec.Models) > 0 { // the configuration says what it serves, the engine how long
		named := configured(n.Spec)
		for i := range named {
			if j, ok := slices.BinarySearchFunc(list, named[i].ID, byID); ok {
				named[i] = list[j]
			}
		}
		list = named
	}
	if !slices.Equal(list, n.Models) || !n.Asked {
		n.Models, n.Asked, t.publish, t.s.rates, t.s.fewer, t.s.fills = list, true, true, true, true, true
	}
	t.proofDue(n)
	t.recognise(n, e.Engine)
}

// recognise takes the engine's kind where the configuration leaves it open.
func (t *step) recognise(n *Node, engine string) {
	if engine != "" && n.Spec.Engine == "" && n.Engine != engine {
		n.Engine, t.publish = engine, true
	}
}

// metricsSeen takes a reading of the engine's metrics, and judges whether the
// engine stands still.
func (t *step) metricsSeen(n *Node, e MetricsSeen) {
	if e.Inherited && n.SampleNs != 0 {
		return // it is older, and counters do not go back
	}
	last, gap, shown := n.Sample, !n.SampleFresh, n.shown()
	readNs := min(max(e.NowNs, n.SampleNs), t.s.NowNs)
	n.Sample, n.SampleNs, n.SampleFresh = clean(e.Sample), readNs, true
	if n.Sample.BlockTokens == 0 { // facts that do not change are kept
		n.Sample.BlockTokens = last.BlockTokens
	}
	if n.Sample.CacheTokens == 0 {
		n.Sample.CacheTokens = last.CacheTokens
	}
	if n.shown() != shown { // most readings of a quiet node say what the last one said
		t.s.dirty = true
	}
	t.heard(n, readNs)
	t.recognise(n, e.Sample.Engine)
	if fell(last.GeneratedTokens, n.Sample.GeneratedTokens) || fell(last.PromptTokens, n.Sample.PromptTokens) {
		t.log(slog.LevelWarn, "engine has restarted: its counters went back", slog.String("node", n.Spec.Name))
		t.clear(n)
		if n.Health == fleet.Ready && n.Breaker == fleet.Closed && !n.life.trial.on {
			t.prove(n, "its engine has restarted; "+firstProof)
		}
	}
	t.progress(n, last, gap)
}

// shown is what a snapshot shows of a node's readings.
type shown struct {
	fresh                  bool
	running, queued, kvUse fleet.Gauge
	blockTokens            int
	cacheTokens            int64
}

func (n *Node) shown() shown {
	v := shown{fresh: n.SampleFresh, blockTokens: n.Sample.BlockTokens, cacheTokens: n.Sample.CacheTokens}
	if n.SampleFresh {
		v.running = n.Sample.Running
	}
	v.queued, v.kvUse = n.Queue()
	return v
}

// progress finds an engine whose tokens stand still while requests run.
func (t *step) progress(n *Node, last Sample, gap bool) {
	now := t.s.NowNs
	moved := changed(last.GeneratedTokens, n.Sample.GeneratedTokens) || changed(last.PromptTokens, n.Sample.PromptTokens)
	if moved {
		n.life.movedNs = now
	}
	running := n.Sample.Running
	if moved || gap && !n.life.hung || !n.Sample.GeneratedTokens.Known || !running.Known || running.Value <= 0 {
		n.life.progressNs = now
		return
	}
	limit := t.s.Settings.HungAfterNs
	if limit > 0 && n.Health == fleet.Ready && now-n.life.progressNs >= limit {
		t.hang(n, "its tokens stand still while requests run")
	}
}

func fell(a, b fleet.Gauge) bool    { return a.Known && b.Known && b.Value < a.Value }
func changed(a, b fleet.Gauge) bool { return a.Known && b.Known && b.Value != a.Value }

// clean turns what cannot be into unknown.
func clean(s Sample) Sample {
	for _, g := range []*fleet.Gauge{&s.Queued, &s.Running, &s.KVUse, &s.PromptTokens, &s.GeneratedTokens} {
		*g = plausible(*g)
	}
	if s.KVUse.Value > 1 {
		s.KVUse.Value = 1
	}
	s.BlockTokens, s.CacheTokens = max(0, s.BlockTokens), max(0, s.CacheTokens)
	return s
}

// plausible is g if it is a finite number, not negative.
func plausible(g fleet.Gauge) fleet.Gauge {
	if !g.Known || !(g.Value >= 0) || math.IsInf(g.Value, 0) {
		return fleet.Gauge{}
	}
	return g
}

// rateSeen learns a node's speed.
func (t *step) rateSeen(n *Node, e RateSeen) {
	t.rateSeenOf(&n.Prefill, &n.PrefillTokensPerSecond, e.PrefillTokensPerSecond, e.PrefillSamples)
	t.rateSeenOf(&n.Decode, &n.DecodeTokensPerSecond, e.DecodeTokensPerSecond, e.DecodeSamples)
	if learn(&n.RoundTripSeconds, e.RoundTripSeconds) {
		n.life.roundTripNs = t.s.NowNs
	}
	if g := plausible(e.EvictedTokensPerSecond); g.Known {
		n.EvictedTokensPerSecond, n.life.evictedNs = g, t.s.NowNs
	}
	t.s.dirty = true
}

// rateSeenOf learns a rate. A first one stands for itself until the next tick has
// weighed it.
func (t *step) rateSeenOf(r *Rate, speed *fleet.Gauge, reading fleet.Gauge, samples int) {
	if !r.learn(t.s.NowNs, reading, samples) {
		return
	}
	t.s.rates = true
	if !speed.Known {
		*speed = r.Gauge
	}
}

// learn folds a reading above zero into a moving average.
func learn(to *fleet.Gauge, g fleet.Gauge) bool {
	if g = plausible(g); !g.Known || g.Value == 0 {
		return false
	}
	if !to.Known {
		*to = g
	} else {
		to.Value += rateWeight * (g.Value - to.Value)
	}
	return true
}

// outputSeen folds a reading into the running mean output of a model.
func (t *step) outputSeen(e OutputSeen) {
	if !(e.MeanTokens > 0) || math.IsInf(e.MeanTokens, 0) {
		return
	}
	i, ok := slices.BinarySearchFunc(t.s.Outputs, e.Model, func(m Model, name string) int { return strings.Compare(m.Name, name) })
	switch {
	case ok:
		t.s.Outputs = slices.Clone(t.s.Outputs)
		t.s.Outputs[i].MeanOutput += rateWeight * (e.MeanTokens - t.s.Outputs[i].MeanOutput)
	case len(t.s.Outputs) < MaxModels:
		t.s.Outputs = slices.Insert(slices.Clone(t.s.Outputs), i, Model{e.Model, e.MeanTokens})
	default:
		return
	}
	t.s.dirty = true
}

// MeanOutput is the running mean of a model's output tokens, 0 if none was
// seen.
func (s *State) MeanOutput(model string) float64 {
	if i, ok := slices.BinarySearchFunc(s.Outputs, model, func(m Model, name string) int { return strings.Compare(m.Name, name) }); ok {
		return s.Outputs[i].MeanOutput
	}
	return 0
}

// weigh sets what decisions take for every node's speed: its learned rate where it
// is told apart from the median of the nodes that serve its base model, else that.
// A node that has shown nothing yet is as fast as its like. Of prefill the share of
// the median is the node's weight: 1.0 while nothing is known.
func (t *step) weigh() {
	t.s.rates = false
	prefills, decodes := map[string][]float64{}, map[string][]float64{}
	groups := make([]string, len(t.s.Nodes))
	for i, n := range t.s.Nodes {
		groups[i] = t.group(n)
		gather(prefills, groups[i], &n.Prefill)
		gather(decodes, groups[i], &n.Decode)
	}
	prefillOf, decodeOf := usual(prefills), usual(decodes)
	for i, n := range t.s.Nodes {
		ofPrefill, ofDecode := prefillOf[groups[i]], decodeOf[groups[i]]
		weight, prefillApart := n.Prefill.against(ofPrefill, t.s.NowNs)
		share, decodeApart := n.Decode.against(ofDecode, t.s.NowNs)
		prefill, decode := speed(weight, ofPrefill), speed(share, ofDecode)
		if weight != n.Weight || prefill != n.PrefillTokensPerSecond || decode != n.DecodeTokensPerSecond ||
			prefillApart != n.Prefill.apart || decodeApart != n.Decode.apart {
			n = t.edit(i)
			n.Weight, n.PrefillTokensPerSecond, n.DecodeTokensPerSecond = weight, prefill, decode
			n.Prefill.apart, n.Decode.apart = prefillApart, decodeApart
			t.s.dirty = true
		}
	}
}

// speed is a share of a median, unknown while that is 0.
func speed(share, median float64) fleet.Gauge {
	return fleet.Gauge{Value: share * median, Known: median > 0}
}

func gather(groups map[string][]float64, group string, r *Rate) {
	if r.Known {
		groups[group] = append(groups[group], r.Value)
	}
}

// usual returns the median of each group. Of an even number it is the upper one of
// the two in the middle: between two generations of cards lies a speed that nobody
// has, and of two caches the empty one is not what is usual.
func usual[K comparable](groups map[K][]float64) map[K]float64 {
	out := make(map[K]float64, len(groups))
	for name, rates := range groups {
		slices.Sort(rates)
		out[name] = rates[len(rates)/2]
	}
	return out
}

// group is what nodes are compared within: those of one base model. Which adapters
// they have beside it makes no difference.
func (t *step) group(n *Node) string { return n.BaseModel(t.s.Settings.Models) }
