package scaler

import (
	"math"
	"slices"
)

const (
	demandFade   = 300.0 // seconds in which what was learned of requests fades by e
	regretFade   = 24 * 3600.0
	regretWithin = int64(3600e9) // nodes asked for so soon after others were given back are regretted
	regretMost   = 0.7
	regretFirst  = 0.12

	// How the prediction is held to what is seen: by how much more, or less, work
	// requests turn out to be than was computed.
	skewMost    = 0.5 // of the logarithm
	skewPace    = 2.5 // per hour, for each unit of the square of the error's logarithm
	skewFade    = 6 * 3600.0
	lateEnough  = 2000 // requests that say something of a share of one in a hundred
	lateFade    = 900.0
	lateAim     = 0.9 // of the share that may be late: the rest is for what nobody foresees
	lateClipped = 0.1 // in one interval no more than this share counts as late: an outage is no measure
)

// History is what Plan remembers from one call to the next. It is a value; begin
// with NewHistory.
type History struct {
	nowNs int64

	perSecond float64 // requests, smoothed a little, for people
	demand    demand
	shares    [64]float64 // backing of demand.shares, weighted counts
	spread    float64     // of work among requests: variance over the mean's square
	learned   float64     // requests that demand is learned of, faded

	fit     decodeFit
	prefill float64 // tokens a second of a node of weight 1; 0 = not known
	most    float64 // requests at once

	forecast forecast
	skew     float64 // logarithm of how much more work requests are than computed
	answered float64 // faded: first tokens …
	late     float64 // … those that came late
	expected float64 // … and those that the model said would
	hits     float64 // share of prompt tokens cached, smoothed; below 0 = not known
	p99      float64 // of the last interval; 0 = not known

	spanned   bool    // what comes has been seen for a while
	up, down  peaks   // how strong a fleet was wanted: to be asked for, less than nothing; to stay
	regret    float64 // margin, beyond the usual, that giving back takes
	upNs      int64   // when nodes were asked for last; 0 = never
	downNs    int64
	idleNs    int64 // since when nothing came; 0 = something does
	triggerNs int64 // since when a trigger fires; 0 = none does
	blindNs   int64 // since when signals are missing; 0 = they are not
}

// NewHistory is that of a scaler that has seen nothing.
func NewHistory() History {
	return History{hits: -1, forecast: newForecast()}
}

// learn takes one reading of traffic and nodes.
func (h *History) learn(s *Signals, c *Config) {
	elapsed := c.IntervalSeconds
	if h.nowNs != 0 {
		elapsed = max(0, float64(s.NowNs-h.nowNs)/1e9)
	}
	h.nowNs = s.NowNs
	h.regret *= math.Exp(-elapsed / regretFade)
	t := &s.Traffic
	h.learnNodes(s, elapsed)
	if t.SpanSeconds <= 0 {
		return
	}
	h.spanned = true
	h.p99 = quantile(TTFTBounds, t.ttft(), .99)
	h.learnDemand(t)
	h.perSecond += (t.Requests/t.SpanSeconds - h.perSecond) * min(1, t.SpanSeconds/30)
	if t.Requests > 0 || s.Held > 0 || flying(s) {
		h.idleNs = 0
	} else if h.idleNs == 0 {
		h.idleNs = s.NowNs
	}
	v := h.speed(c)
	if !v.known() || !h.demand.known() {
		return
	}
	// Answers lag behind their requests, so it is the mean answer that counts, and
	// not those that were given in this span.
	load := (h.uncachedOf(t)/v.prefill + t.Requests*(v.work(&h.demand)-h.demand.uncached/v.prefill))
	if steady(s) {
		h.learnLate(t, c, elapsed, serving(s), load/t.SpanSeconds)
	}
	h.forecast.see(s.NowNs, t.SpanSeconds, t.Requests, load, v.work(&h.demand), h.spread)
	h.forecast.promise(h.ahead(s, c))
}

// uncachedOf is what the span's requests, sent or held, have uncached.
func (h *History) uncachedOf(t *Traffic) float64 {
	sent := 0.0
	for _, n := range t.Uncached {
		sent += n
	}
	if t.Uncached == nil {
		sent = t.Requests
	}
	return t.UncachedTokens + max(0, t.Requests-sent)*h.demand.uncached
}

func flying(s *Signals) bool {
	return slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.InFlight > 0 })
}

// steady reports whether the fleet is as it shall be, so that what is late tells of
// its size: no node is away, and none is so far behind that it could not be.
func steady(s *Signals) bool {
	return !slices.ContainsFunc(s.Nodes, func(n Node) bool { return n.Phase == Down })
}

// serving is what the ready nodes can do, in nodes of weight 1.
func serving(s *Signals) (strength float64) {
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Phase == Ready {
			strength += orOne(n.Weight)
		}
	}
	return strength
}

// learnDemand learns what requests are like.
func (h *History) learnDemand(t *Traffic) {
	keep := math.Exp(-t.SpanSeconds / demandFade)
	d := &h.demand
	blend := func(mean *float64, sum, n float64) {
		if n > 0 && sum >= 0 {
			*mean += (sum/n - *mean) * n / (h.learned*keep + n)
		}
	}
	sent := 0.0
	for i := range h.shares {
		h.shares[i] *= keep
		if i < len(t.Uncached) && i <= len(TokenBounds) {
			h.shares[i] += t.Uncached[i]
			sent += t.Uncached[i]
		}
	}
	if sent == 0 {
		return
	}
	blend(&d.uncached, t.UncachedTokens, sent)
	blend(&d.prompt, t.PromptTokens, sent)
	if t.Answers > 0 && t.OutputTokens > 0 {
		blend(&d.output, t.OutputTokens*sent/t.Answers, sent)
	}
	h.learned = h.learned*keep + sent
	if t.PromptTokens > 0 {
		hits := 1 - t.UncachedTokens/t.PromptTokens
		if h.hits < 0 {
			h.hits = hits
		}
		h.hits += (hits - h.hits) * min(1, t.SpanSeconds/120)
	}
	d.shares = make([]float64, len(TokenBounds)+1)
	total, mean, square := 0.0, 0.0, 0.0
	for i := range d.shares {
		total += h.shares[i]
	}
	for i := range d.shares {
		d.shares[i] = h.shares[i] / total
		mean += d.shares[i] * tokensOf(i)
		square += d.shares[i] * tokensOf(i) * tokensOf(i)
	}
	h.spread = max(0, square/(mean*mean)-1)
}

// learnNodes learns what nodes can do.
func (h *History) learnNodes(s *Signals, elapsed float64) {
	h.fit.fade(elapsed)
	var rates []float64
	ready := 0.0
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Phase == Ready {
			ready += orOne(n.Weight)
			if n.PrefillTokensPerSecond.Known && n.PrefillTokensPerSecond.Value > 0 {
				rates = append(rates, n.PrefillTokensPerSecond.Value/orOne(n.Weight))
			}
		}
	}
	if len(rates) > 0 {
		slices.Sort(rates)
		h.prefill = rates[len(rates)/2]
	}
	// Part of the time nodes compute prompts; a step that also does that says nothing
	// of decoding.
	share := 0.0
	if t := &s.Traffic; t.SpanSeconds > 0 && h.prefill > 0 && ready > 0 {
		share = min(.9, t.UncachedTokens/t.SpanSeconds/h.prefill/ready)
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Phase != Ready || !n.Running.Known {
			continue
		}
		h.most = max(h.most, n.MostRunning.Or(n.Running.Value))
		// One that cannot keep up does little but prefill.
		behind := n.BacklogSeconds.Or(0) > fitBehind
		if rate := n.DecodeTokensPerSecond; !behind && rate.Known && rate.Value > 0 && n.Running.Value >= 1 {
			if step := (1 - share) / rate.Value * orOne(n.Weight); step >= fitStepLeast && step <= fitStepMost && n.Running.Value <= fitRunningMost {
				h.fit.add(n.Running.Value, step)
			}
		}
	}
}

// speed is what a node of weight 1 can do, as far as is known.
func (h *History) speed(c *Config) speed {
	v := speed{burst: h.forecast.burst, prefill: h.prefill, most: max(h.most, leastMostRunning), each: -1}
	if v.prefill == 0 {
		v.prefill = c.PrefillTokensPerSecond
	}
	if base, each, ok := h.fit.line(); ok {
		v.base, v.each = base, each
	}
	return v
}

// learnLate holds the prediction to what is seen: if more, or fewer, first tokens are
// late than the model says of these nodes under this load, requests are more, or less,
// work than was computed.
func (h *History) learnLate(t *Traffic, c *Config, elapsed float64, ready float64, load float64) {
	total := 0.0
	for _, n := range t.ttft() {
		total += n
	}
	if total == 0 {
		return
	}
	v := h.speed(c)
	if ready <= 0 || load <= 0 || !v.known() || !h.demand.known() {
		return
	}
	perSecond := load * math.Exp(h.skew) / v.work(&h.demand)
	expected := v.late(&h.demand, v.under(&h.demand, perSecond, ready), c.goal())
	keep := math.Exp(-elapsed / lateFade)
	h.answered = h.answered*keep + total
	h.late = h.late*keep + min(lateOf(t, &v, c.goal()), lateClipped*total)
	h.expected = h.expected*keep + min(expected, lateClipped)*total
	if h.answered < lateEnough {
		return
	}
	least := (1 - c.Attainment) * lateAim // a share that is far below it says nothing
	h.skew *= math.Exp(-elapsed / skewFade)
	// More late than may be is too many, also where the model expects it; and what is far off
	// is mended sooner than what may be chance.
	off := math.Log((h.late/h.answered + least) / (min(h.expected/h.answered, least) + least))
	h.skew = min(skewMost, max(-skewMost, h.skew+off*math.Abs(off)*skewPace*elapsed/3600))
}

// lateOf is how many first tokens did not come in time.
func lateOf(t *Traffic, v *speed, g goal) (late float64) {
	for size := range len(TokenBounds) + 1 {
		late += beyond(TTFTBounds, t.ttftOf(size), g.of(v, tokensOf(size)))
	}
	return late
}

// moved notes a decision, and whether the one before is regretted: then giving back
// takes more from now on.
func (h *History) moved(nowNs int64, up bool) {
	if !up {
		h.downNs = nowNs
		return
	}
	if h.downNs != 0 && h.downNs > h.upNs && nowNs-h.downNs < regretWithin {
		h.regret = min(regretMost, max(regretFirst, h.regret*2))
	}
	h.upNs = nowNs
}

// quantile estimates the value below which the share q lies, within buckets; 0 if
// there is nothing.
func quantile(bounds, counts []float64, q float64) float64 {
	total := 0.0
	for _, n := range counts {
		total += n
	}
	rank, low := q*total, 0.0
	for i, n := range counts {
		if i == len(bounds) || total == 0 {
			break
		}
		if n > 0 && n >= rank {
			return low + (bounds[i]-low)*rank/n
		}
		rank -= n
		low = bounds[i]
	}
	return low
}

// beyond is how many values lie above a bound, within buckets.
func beyond(bounds, counts []float64, bound float64) float64 {
	over, low := 0.0, 0.0
	for i, n := range counts {
		switch {
		case i == len(bounds) || low >= bound:
			over += n
		case bounds[i] > bound:
			over += n * (bounds[i] - bound) / (bounds[i] - low)
		}
		if i < len(bounds) {
			low = bounds[i]
		}
	}
	return over
}
