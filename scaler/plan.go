package scaler

import (
	"fmt"
	"math"
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

	ready, starting, draining, down []*Node // starting: the scaler's own
	strength                        float64 // of ready and starting nodes, in nodes of weight 1
	serving                         float64 // of ready nodes
	kept                            string  // why nodes that are too many stay; "" = none is, or they need not
}

// have is how many nodes serve, or will.
func (p *plan) have() int { return len(p.ready) + len(p.starting) }

// counted is the strength that the fleet has with so many nodes: those that are lacking
// are taken for nodes of weight 1.
func (p *plan) counted(nodes int) float64 { return p.strength + float64(nodes-p.have()) }

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
	p.h.up.add(s.NowNs, c.StabiliseUpSeconds, -up)
	p.h.down.add(s.NowNs, c.StabiliseDownSeconds, down)
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
			if n.Offer == "" {
				continue // somebody else's may never serve
			}
			p.starting = append(p.starting, n)
			p.strength += p.weight(n)
		case Draining:
			p.draining = append(p.draining, n)
		case Down:
			p.down = append(p.down, n)
		}
	}
	p.strength += p.serving
}

// weight is a node's, until it is known that of its offer.
func (p *plan) weight(n *Node) float64 {
	if o := p.c.offer(n.Offer); n.Weight == 0 && o != nil {
		return orOne(o.Weight)
	}
	return orOne(n.Weight)
}

// freeze leaves everything as it is.
func (p *plan) freeze() {
	if p.h.blindNs == 0 {
		p.h.blindNs = p.s.NowNs
	}
	p.d = Decision{
		Action: ActionFrozen, Reason: "signals", Target: p.have(),
		Words: fmt.Sprintf("nothing is changed: %s", p.s.Missing),
	}
}

// wanted says how strong the fleet must be, in nodes of weight 1, and how strong it must
// stay when some are given back: with a margin, so that nodes do not come and go with
// each gust.
func (p *plan) wanted() (up, down float64, reason string) {
	nodes, reason := p.c.Min, "minimum"
	busy := p.h.spanned && p.h.idleNs == 0
	if p.s.Held > 0 || busy || p.h.spanned && p.have() > 0 && !p.idle() {
		nodes, reason = max(1, p.c.Min), "first"
	}
	up = p.counted(nodes)
	down = up
	if !p.h.spanned { // nothing is known of what comes
		down = max(down, p.strength)
	}
	if forUp, forDown, ok := p.modelled(); ok {
		if forUp > up {
			up, reason = forUp, "forecast"
		}
		down = max(down, forDown)
		if n, ok := p.recovering(); ok && n > up {
			up, reason = n, "backlog"
		}
	} else if busy {
		down = max(down, p.counted(p.apart()))
	}
	if n, why := p.triggered(); why != "" && p.counted(n) > up {
		up, reason = p.counted(n), why
	}
	if p.c.Min == 0 && p.idle() {
		return 0, 0, "idle"
	}
	most := p.counted(p.c.Max)
	if up > most {
		up, reason = most, "maximum"
	}
	return up, min(max(up, down), most), reason
}

// apart is how many nodes it takes while nothing can be computed: as many as there are
// requests, so that no two share one, however little a node can do.
func (p *plan) apart() int {
	flying := int64(math.Ceil(p.s.Held))
	for i := range p.s.Nodes {
		flying += p.s.Nodes[i].InFlight
	}
	p.d.Words = fmt.Sprintf("%s is not known yet, requests under way: %d", p.unknown(), flying)
	return min(int(flying), p.have())
}

// unknown names what is lacking to compute anything.
func (p *plan) unknown() string {
	switch v := p.h.speed(p.c); {
	case v.prefill == 0:
		return "how fast a node computes prompts"
	case !v.known():
		return "how fast a node generates"
	case !p.h.demand.known():
		return "how long prompts and answers are"
	default:
		return "how much comes"
	}
}

// modelled is what the load that is expected takes, by the model.
func (p *plan) modelled() (up, down float64, ok bool) {
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
	up = float64(p.need(&v, worst))
	// Where nodes start in seconds it costs little to ask for one again. Else what falls for
	// a while may come back.
	dear := min(1, ahead/regretAhead)
	keep := f.most(ahead)
	keep += max(0, math.Exp(f.usual(0))-keep) * dear
	down = float64(p.need(&v, keep*f.over()*(1+downMargin+p.h.regret*dear)))
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

// recovering is how strong a fleet it takes to get out of a backlog: either they work it
// off in time, or those that come carry what comes from then on, while the others
// work it off.
func (p *plan) recovering() (strength float64, ok bool) {
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
	return math.Ceil(min(off, fresh)), true
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
	case t.HitRatio > 0 && p.s.Traffic.PromptTokens > 0 && p.h.hits >= 0 && p.h.hits < t.HitRatio:
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
