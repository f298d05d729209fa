package scaler

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// decide compares what is wanted with what is there.
func (p *plan) decide(reason string) {
	p.d.Action, p.d.Target, p.d.Reason = ActionHold, p.have(), "steady"
	now := p.s.NowNs
	up, _ := p.h.up.since(now - int64(p.c.StabiliseUpSeconds*1e9))
	up = -up // the least that was wanted all the time
	keep, full := p.h.down.since(now - int64(p.c.StabiliseDownSeconds*1e9))
	if p.c.Min == 0 && p.idle() {
		keep, full = 0, true
	}
	after := p.strength
	sick := p.replaced()
	// Weights are measured: half a node is within what they are off.
	switch lack, spare := math.Round(up-p.strength), math.Round(p.strength-keep); {
	case lack > 0:
		after += p.more(lack, reason)
	case full && spare > 0 && p.mayShrink():
		after -= p.fewer(keep, reason)
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
		p.d.Then = p.predict(&v, p.d.LoadExpected, after)
	}
}

// more asks for nodes, of so much strength together: those first that drain, for they
// are warm and here. It returns what it found.
func (p *plan) more(lack float64, reason string) (found float64) {
	most := p.c.Max - p.have()
	if p.c.StepUp > 0 {
		most = min(most, p.c.StepUp)
	}
	p.d.Reason = reason
	for _, node := range p.draining {
		if found < lack && len(p.d.Undrain) < most && node.Offer != "" && !node.ByHand {
			p.d.Undrain = append(p.d.Undrain, node.Name)
			found += p.weight(node)
		}
	}
	placed := len(p.d.Undrain)
	if found < lack && placed < most {
		p.d.Start, p.d.Unmet = place(lack-found, most-placed, &p.s, p.c)
	}
	for _, s := range p.d.Start {
		placed += s.Count
		found += float64(s.Count) * orOne(p.c.offer(s.Offer).Weight)
	}
	if placed == 0 {
		return 0
	}
	p.d.Action = ActionUp
	p.d.Target += placed
	p.h.moved(p.s.NowNs, true)
	return found
}

// mayShrink reports whether a node may be given back at all.
func (p *plan) mayShrink() bool {
	now := p.s.NowNs
	if p.h.upNs != 0 && float64(now-p.h.upNs)/1e9 < p.c.CoolDownSeconds {
		return false
	}
	for _, n := range p.down {
		// What it did falls on the others now. One that stays down is not waited for.
		if !p.idle() && float64(now-n.SinceNs)/1e9 < p.c.ReplaceDownSeconds+p.c.StabiliseDownSeconds {
			p.kept = n.Name + " is down"
			return false
		}
	}
	depth := p.mean(func(n *Node) Gauge { return n.Queued })
	if p.c.Triggers.LowQueueDepth == 0 || !depth.Known || depth.Value < p.c.Triggers.LowQueueDepth {
		return true
	}
	p.kept = fmt.Sprintf("%.1f requests wait in an engine", depth.Value)
	return false
}

// fewer gives nodes back until no more than keep is left: those that come yet, then the
// dearest, then those whose caches hold least. Nodes that are not the scaler's stay. It
// returns how strong they are.
func (p *plan) fewer(keep float64, reason string) (given float64) {
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
	for _, v := range victims {
		enough := p.c.StepDown > 0 && len(p.d.Drain) == p.c.StepDown || p.have()-len(p.d.Drain) <= p.c.Min
		if enough || math.Round(p.strength-given-p.weight(v)-keep) < 0 {
			break
		}
		p.d.Drain = append(p.d.Drain, v.Name)
		given += p.weight(v)
	}
	if len(p.d.Drain) == 0 {
		return 0
	}
	p.d.Action, p.d.Reason = ActionDown, "surplus"
	if reason == "idle" {
		p.d.Reason = reason
	}
	p.d.Target -= len(p.d.Drain)
	p.h.moved(p.s.NowNs, false)
	return given
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

// replaced names the scaler's own nodes that have been down for too long: a part of the
// fleet at a time, and none while nobody serves. If all are down it may be the way to
// them, and then new nodes look no better.
func (p *plan) replaced() (names []string) {
	if len(p.ready) == 0 {
		return nil
	}
	for _, n := range p.down {
		if n.Offer != "" && float64(p.s.NowNs-n.SinceNs)/1e9 >= p.c.ReplaceDownSeconds && len(names) < max(1, len(p.s.Nodes)/10) {
			names = append(names, n.Name)
		}
	}
	return names
}

// tell puts the decision into words.
func (p *plan) tell() {
	d := &p.d
	var text strings.Builder
	have := p.have()
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
	if p.kept != "" {
		fmt.Fprintf(&text, "; none is given back: %s", p.kept)
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
