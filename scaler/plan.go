package scaler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Action is what a decision does.
type Action string

const (
	ActionHold   Action = "hold"   // nothing
	ActionUp     Action = "up"     // nodes are asked for, or asked back
	ActionDown   Action = "down"   // nodes are drained, to be given back
	ActionSwap   Action = "swap"   // nodes that are down are given back, others asked for
	ActionFrozen Action = "frozen" // nothing, for want of signals
)

// Start asks for nodes of an offer.
type Start struct {
	Offer string `json:"offer"`
	Count int    `json:"count"`
}

// Prediction is what is expected of a fleet.
type Prediction struct {
	Nodes       float64 // in nodes of weight 1
	Utilisation float64 // of what they can do at most
	TTFTSeconds float64 // of the share Config.Attainment; +Inf = the queue grows
	Late        float64 // share of first tokens after the target
}

// Decision is what Plan wants done, and why.
type Decision struct {
	Action Action
	Reason string // one word: see Reasons
	Words  string // for people: a sentence with the figures behind it

	Target  int      // nodes, ready and starting
	Start   []Start  // nodes to ask for
	Undrain []string // nodes to ask back from draining
	Drain   []string // nodes to give back: ended once they are empty
	Unmet   string   // why fewer are asked for than wanted; "" = they are not

	LoadNow, LoadExpected float64    // in seconds of a node a second
	Now, Then             Prediction // the ready nodes under the load now, the target's under that expected
	Known                 bool       // the three above could be computed
}

// Reasons are all values of Decision.Reason.
var Reasons = []string{"steady", "forecast", "backlog", "queue", "hit_ratio", "ttft", "kv", "minimum", "maximum", "first", "idle", "surplus", "down", "signals"}

// plan is one call of Plan in progress.
type plan struct {
	s Signals
	h History
	c *Config
	d Decision

	ready, starting, draining, down []*Node
	strength                        float64 // of ready and starting nodes, in nodes of weight 1
	serving                         float64 // of ready nodes
}

// Plan says how many nodes there should be, which are asked for and which are given
// back. It is pure: the same arguments give the same answer, and neither is changed.
// The caller carries out the decision whole, and passes the returned History to the
// next call.
func Plan(s Signals, h History, c *Config) (Decision, History) {
	p := plan{s: s, h: h, c: c}
	p.sort()
	if s.Missing != "" {
		p.freeze()
		return p.d, p.h
	}
	p.h.blindNs = 0
	p.h.learn(&p.s, c)
	up, down, reason := p.wanted()
	p.h.remember(want{s.NowNs, up, down})
	p.decide(reason)
	p.tell()
	return p.d, p.h
}

// sort sorts the nodes by phase.
func (p *plan) sort() {
	for i := range p.s.Nodes {
		n := &p.s.Nodes[i]
		switch n.Phase {
		case Ready:
			p.ready = append(p.ready, n)
			p.serving += orOne(n.Weight)
		case Starting:
			p.starting = append(p.starting, n)
			p.strength += orOne(n.Weight)
		case Draining:
			p.draining = append(p.draining, n)
		case Down:
			p.down = append(p.down, n)
		}
	}
	p.strength += p.serving
}

// freeze leaves everything as it is.
func (p *plan) freeze() {
	if p.h.blindNs == 0 {
		p.h.blindNs = p.s.NowNs
	}
	p.d = Decision{
		Action: ActionFrozen, Reason: "signals", Target: len(p.ready) + len(p.starting),
		Words: fmt.Sprintf("nothing is changed: %s", p.s.Missing),
	}
}

// wanted says how many nodes it takes, and how many must stay when some are given
// back: with a margin, so that nodes do not come and go with each gust.
func (p *plan) wanted() (up, down int, reason string) {
	up, reason = p.c.Min, "minimum"
	here := len(p.ready)+len(p.starting) > 0
	if p.s.Held > 0 || p.h.idleNs == 0 || here && !p.idle() {
		up, reason = max(1, p.c.Min), "first"
	}
	down = up
	if forUp, forDown, ok := p.modelled(); ok {
		if forUp > up {
			up, reason = forUp, "forecast"
		}
		down = max(down, forDown)
		if n, ok := p.recovering(); ok && n > up {
			up, reason = n, "backlog"
		}
	} else if p.h.idleNs == 0 {
		down = max(down, p.apart())
	}
	if n, why := p.triggered(); n > up {
		up, reason = n, why
	}
	if p.c.Min == 0 && p.idle() {
		return 0, 0, "idle"
	}
	if up > p.c.Max {
		up, reason = p.c.Max, "maximum"
	}
	return up, min(max(up, down), p.c.Max), reason
}

// apart is how many nodes it takes while nothing can be computed: as many as there are
// requests, so that no two share one, however little a node can do.
func (p *plan) apart() int {
	flying := int64(math.Ceil(p.s.Held))
	for i := range p.s.Nodes {
		flying += p.s.Nodes[i].InFlight
	}
	p.d.Words = fmt.Sprintf("what a node can do is not known yet, requests under way: %d", flying)
	return min(int(flying), len(p.ready)+len(p.starting))
}

// modelled is what the load that is expected takes, by the model.
func (p *plan) modelled() (up, down int, ok bool) {
	v := p.h.speed(p.c)
	f := &p.h.forecast
	if !v.known() || !p.h.demand.known() || f.seenNs == 0 {
		return 0, 0, false
	}
	ahead := p.h.ahead(&p.s, p.c)
	load := f.expected(ahead)
	d := &p.d
	d.Known, d.LoadNow, d.LoadExpected = true, f.now(), load
	// Nodes asked for now serve only then; of those that are here the load until then
	// is asked as well.
	worst := load * f.over()
	up = p.need(&v, worst)
	// Where nodes start in seconds it costs little to ask for one again.
	margin := downMargin + p.h.regret*min(1, ahead/regretAhead)
	keep := max(f.most(ahead), math.Exp(f.usual(0))) // what falls for a while comes back
	down = p.need(&v, keep*f.over()*(1+margin))
	d.Words = fmt.Sprintf("%.1f nodes' work now, %.1f expected within %.0f s (%s), %.1f at worst", f.now(), load, ahead, predictorNames[f.best()], worst)
	if p.serving > 0 {
		d.Now = p.predict(&v, f.now(), p.serving)
	}
	return up, down, true
}

// downMargin is how much more load the nodes that stay must carry than is expected.
const downMargin = 0.06

// regretAhead is how many seconds nodes take to start where regret counts in full.
const regretAhead = 120.0

// need is how many nodes such a load takes.
func (p *plan) need(v *speed, load float64) int {
	perSecond := load * math.Exp(p.h.skew) / v.work(&p.h.demand)
	return v.need(&p.h.demand, perSecond, p.c.goal(), (1-p.c.Attainment)*lateAim, p.c.Max)
}

// predict says what so many nodes do under a load.
func (p *plan) predict(v *speed, load, nodes float64) Prediction {
	perSecond := load * math.Exp(p.h.skew) / v.work(&p.h.demand)
	f := v.under(&p.h.demand, perSecond, nodes)
	return Prediction{
		Nodes: nodes, Utilisation: f.utilisation,
		TTFTSeconds: v.ttft(&p.h.demand, f, p.c.Attainment), Late: v.late(&p.h.demand, f, p.c.goal()),
	}
}

// recovering is how many nodes it takes to get out of a backlog: either they work it
// off in time, or those that come carry what comes from then on, while the others
// work it off.
func (p *plan) recovering() (nodes int, ok bool) {
	backlog := 0.0
	for _, n := range p.ready {
		backlog += n.BacklogSeconds.Or(0) * orOne(n.Weight)
	}
	v := p.h.speed(p.c)
	backlog += p.s.Held * v.work(&p.h.demand)
	behind := backlog / max(1, p.serving)
	if behind < p.c.TargetTTFTSeconds {
		return 0, false
	}
	load := p.h.forecast.now() * math.Exp(p.h.skew)
	then := backlog + max(0, load-p.serving)*p.arrival()
	off := load + then/max(p.c.RecoverySeconds*recoveryShare, 1)
	// Their caches are empty, so that every prompt is computed whole there.
	cold := p.h.demand
	cold.uncached = max(cold.uncached, cold.prompt)
	fresh := p.serving + float64(p.need(&v, p.h.forecast.now()*v.work(&cold)/v.work(&p.h.demand)))
	return int(math.Ceil(min(off, fresh))), true
}

// recoveryShare of the time to recover is left once nodes are seen to serve.
const recoveryShare = 0.7

// arrival is in how many seconds the nodes that were asked for will serve, or those
// that are asked for now.
func (p *plan) arrival() float64 {
	longest := 0.0
	for _, n := range p.starting {
		left := p.h.startUp(&p.s, p.c, n.Offer) - float64(p.s.NowNs-n.SinceNs)/1e9
		longest = max(longest, left)
	}
	if len(p.starting) == 0 {
		longest = p.h.ahead(&p.s, p.c)
	}
	return longest
}

// triggered is what a threshold asks for: one step more than there is.
func (p *plan) triggered() (nodes int, why string) {
	t := &p.c.Triggers
	why = ""
	switch depth, use := p.mean(func(n *Node) Gauge { return n.Queued }), p.mean(func(n *Node) Gauge { return n.KVUse }); {
	case t.QueueDepth > 0 && depth.Known && depth.Value > t.QueueDepth:
		why = "queue"
	case t.TTFTSeconds > 0 && p.h.p99 > t.TTFTSeconds:
		why = "ttft"
	case t.HitRatio > 0 && p.h.hits >= 0 && p.h.hits < t.HitRatio:
		why = "hit_ratio"
	case t.KVUse > 0 && use.Known && use.Value > t.KVUse:
		why = "kv"
	}
	if why == "" {
		p.h.triggerNs = 0
		return 0, ""
	}
	if p.h.triggerNs == 0 {
		p.h.triggerNs = p.s.NowNs
	}
	// One reading is noise, and what is on its way has not helped yet.
	if float64(p.s.NowNs-p.h.triggerNs)/1e9 < 2*p.c.IntervalSeconds || len(p.starting) > 0 {
		return 0, ""
	}
	n := len(p.ready)
	return n + max(1, n/10), why
}

// mean is that of a gauge over the ready nodes that have it; unknown unless half of
// them do.
func (p *plan) mean(of func(*Node) Gauge) Gauge {
	sum, known := 0.0, 0
	for _, n := range p.ready {
		if g := of(n); g.Known {
			sum, known = sum+g.Value, known+1
		}
	}
	if known == 0 || known*2 < len(p.ready) {
		return Gauge{}
	}
	return Known(sum / float64(known))
}

// idle reports whether nothing has come for so long that the last node may go.
func (p *plan) idle() bool {
	return p.h.idleNs != 0 && float64(p.s.NowNs-p.h.idleNs)/1e9 >= p.c.IdleSeconds && p.s.Held == 0
}

// ahead is how far it must be looked ahead: until nodes asked for at the next call
// would serve.
func (h *History) ahead(s *Signals, c *Config) float64 {
	longest := 0.0
	for i := range c.Offers {
		longest = max(longest, h.startUp(s, c, c.Offers[i].Name))
	}
	if len(c.Offers) == 0 {
		longest = c.StartUpSeconds
	}
	return longest + c.IntervalSeconds
}

// startUp is how long nodes of an offer take until they serve.
func (h *History) startUp(s *Signals, c *Config, offer string) float64 {
	for i := range s.Offers {
		if s.Offers[i].Name == offer && s.Offers[i].StartUpSeconds.Known {
			return s.Offers[i].StartUpSeconds.Value
		}
	}
	if o := c.offer(offer); o != nil && o.StartUpSeconds > 0 {
		return o.StartUpSeconds
	}
	return c.StartUpSeconds
}

// decide compares what is wanted with what is there.
func (p *plan) decide(reason string) {
	have := len(p.ready) + len(p.starting)
	p.d.Action, p.d.Target, p.d.Reason = ActionHold, have, "steady"
	now := p.s.NowNs
	up, _, _ := p.h.since(now - int64(p.c.StabiliseUpSeconds*1e9))
	_, keep, full := p.h.since(now - int64(p.c.StabiliseDownSeconds*1e9))
	if p.c.Min == 0 && p.idle() {
		keep, full = 0, true
	}
	sick := p.replaced()
	switch {
	case up > have:
		p.more(up-have, reason)
	case full && keep < have && p.mayShrink():
		p.fewer(have-keep, reason)
	}
	if len(sick) > 0 {
		p.d.Drain = append(p.d.Drain, sick...)
		switch p.d.Action {
		case ActionHold:
			p.d.Action, p.d.Reason = ActionDown, "down"
		case ActionUp:
			p.d.Action = ActionSwap
		}
	}
	if p.d.Known && p.d.Target > 0 {
		v := p.h.speed(p.c)
		p.d.Then = p.predict(&v, p.d.LoadExpected, float64(p.d.Target))
	}
}

// more asks for nodes: those that drain first, for they are warm and here.
func (p *plan) more(n int, reason string) {
	if p.c.StepUp > 0 {
		n = min(n, p.c.StepUp)
	}
	p.d.Reason = reason
	for _, node := range p.draining {
		if n > 0 && node.Offer != "" {
			p.d.Undrain = append(p.d.Undrain, node.Name)
			n--
		}
	}
	if n > 0 {
		p.d.Start, p.d.Unmet = place(n, &p.s, p.c)
	}
	placed := len(p.d.Undrain)
	for _, s := range p.d.Start {
		placed += s.Count
	}
	if placed == 0 {
		return
	}
	p.d.Action = ActionUp
	p.d.Target += placed
	p.h.moved(p.s.NowNs, true)
}

// mayShrink reports whether a node may be given back at all.
func (p *plan) mayShrink() bool {
	now := p.s.NowNs
	if p.h.upNs != 0 && float64(now-p.h.upNs)/1e9 < p.c.CoolDownSeconds {
		return false
	}
	if len(p.down) > 0 && !p.idle() { // what they did falls on the others now
		return false
	}
	depth := p.mean(func(n *Node) Gauge { return n.Queued })
	return p.c.Triggers.LowQueueDepth == 0 || !depth.Known || depth.Value < p.c.Triggers.LowQueueDepth
}

// fewer gives nodes back: those that come yet, then the dearest, then those whose
// caches hold least. Nodes that are not the scaler's stay.
func (p *plan) fewer(n int, reason string) {
	if p.c.StepDown > 0 {
		n = min(n, p.c.StepDown)
	}
	victims := slices.Concat(p.starting, p.ready)
	victims = slices.DeleteFunc(victims, func(n *Node) bool { return n.Offer == "" })
	price := func(n *Node) float64 { return p.price(n.Offer) / orOne(n.Weight) }
	slices.SortStableFunc(victims, func(a, b *Node) int {
		return cmp.Or(
			cmp.Compare(a.Phase, b.Phase), // Starting is before Ready
			cmp.Compare(price(b), price(a)),
			cmp.Compare(warmTokens(a), warmTokens(b)),
			cmp.Compare(a.InFlight, b.InFlight),
			cmp.Compare(a.Name, b.Name),
		)
	})
	victims = victims[:min(n, len(victims))]
	if len(victims) == 0 {
		return
	}
	for _, v := range victims {
		p.d.Drain = append(p.d.Drain, v.Name)
	}
	p.d.Action, p.d.Reason = ActionDown, "surplus"
	if reason == "idle" {
		p.d.Reason = reason
	}
	p.d.Target -= len(victims)
	p.h.moved(p.s.NowNs, false)
}

// warmTokens is what a node's cache holds, which others would have to compute again.
func warmTokens(n *Node) float64 { return n.Fill.Or(0) * n.CacheTokens.Or(1) }

func (p *plan) price(offer string) float64 {
	for i := range p.s.Offers {
		if p.s.Offers[i].Name == offer && p.s.Offers[i].PricePerHour.Known {
			return p.s.Offers[i].PricePerHour.Value
		}
	}
	if o := p.c.offer(offer); o != nil {
		return o.PricePerHour
	}
	return 0
}

// replaced names the scaler's own nodes that have been down for too long.
func (p *plan) replaced() (names []string) {
	for _, n := range p.down {
		if n.Offer != "" && float64(p.s.NowNs-n.SinceNs)/1e9 >= p.c.ReplaceDownSeconds {
			names = append(names, n.Name)
		}
	}
	return names
}

// tell puts the decision into words.
func (p *plan) tell() {
	d := &p.d
	var text strings.Builder
	have := len(p.ready) + len(p.starting)
	switch d.Action {
	case ActionUp, ActionSwap:
		fmt.Fprintf(&text, "from %d to %d nodes", have, d.Target)
	case ActionDown:
		fmt.Fprintf(&text, "from %d to %d nodes", have+len(p.down), d.Target)
	default:
		fmt.Fprintf(&text, "%d nodes stay", have)
	}
	if len(p.starting) > 0 {
		fmt.Fprintf(&text, " (%d of them on their way)", len(p.starting))
	}
	fmt.Fprintf(&text, ": %s", reasonWords[d.Reason])
	if d.Words != "" {
		fmt.Fprintf(&text, "; %s", d.Words)
	}
	if d.Known && d.Target > 0 && !math.IsInf(d.Then.TTFTSeconds, 0) {
		fmt.Fprintf(&text, "; with %d nodes %.0f %% busy and %.1f %% of first tokens within %.2g s", d.Target, 100*d.Then.Utilisation, 100*(1-d.Then.Late), p.c.TargetTTFTSeconds)
	}
	if d.Unmet != "" {
		fmt.Fprintf(&text, "; not all: %s", d.Unmet)
	}
	d.Words = text.String()
}

var reasonWords = map[string]string{
	"steady":    "they are enough and none is too many",
	"forecast":  "the load that is expected takes them",
	"backlog":   "what waits could not be worked off in time",
	"queue":     "too many requests wait in the engines",
	"hit_ratio": "too few prompt tokens are found in caches",
	"ttft":      "first tokens come too late",
	"kv":        "the KV caches are full of running requests",
	"minimum":   "no fewer are allowed",
	"maximum":   "more would be needed and are not allowed",
	"first":     "there is work and nobody to do it",
	"idle":      "nothing has come for long",
	"surplus":   "fewer carry the load that is expected",
	"down":      "nodes that have been down for long are given back",
}
