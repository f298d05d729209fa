package scenario

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"warmpath/bench/virtual"
	"warmpath/scaler"
)

// offerState is what became of an offer.
type offerState struct {
	*Offer
	untilNs   int64 // withheld until then
	why       string
	failures  int // in a row
	uncertain int // creations that were not answered yet
	startUp   scaler.Gauge
}

func newOfferState(o *Offer) *offerState { return &offerState{Offer: o} }

// How creations that fail are dealt with, as the scaler's own book does.
const (
	withheldNs     = int64(120e9) // after a failure, doubled with each in a row …
	withheldMostNs = int64(3600e9)
	hangsNs        = int64(60e9) // until an unanswered creation is given up
	forgetNs       = int64(30e9) // until a dead node is known to be gone at its provider
	startUpGain    = 0.3
)

// addNode makes a node that was asked for at a time; nil if there is no room.
func (w *world) addNode(o *offerState, askedNs int64) *node {
	slot := slices.Index(w.slots, nil)
	if slot < 0 {
		return nil
	}
	w.last++
	n := &node{
		name: fmt.Sprintf("n%05d", w.last), slot: slot, offer: o, weight: o.Weight,
		phase: scaler.Starting, sinceNs: w.nowNs, askedNs: askedNs,
	}
	if n.weight <= 0 {
		n.weight = 1
	}
	w.slots[slot] = n
	w.nodes = append(w.nodes, n)
	return n
}

// startUpNs is how long the latest node takes to come up. It depends on its number
// only, so that laws which ask for as many nodes have as much luck.
func (w *world) startUpNs(o *offerState) int64 {
	seconds := o.StartUpSeconds
	if o.StartUpSigma > 0 {
		r := rand.New(rand.NewPCG(w.cfg.Seed, uint64(w.last)))
		seconds *= math.Exp(o.StartUpSigma * min(3, max(-3, r.NormFloat64())))
	}
	return int64(seconds * 1e9)
}

// create asks an offer for a node. It reports whether the offer may be asked again
// at once.
func (w *world) create(o *offerState) bool {
	mine := 0
	for _, n := range w.nodes {
		if n.offer == o && n.phase != scaler.Down {
			mine++
		}
	}
	switch out := o.outage(w.nowNs); {
	case o.Quota > 0 && mine+o.uncertain >= o.Quota:
		o.fail(w.nowNs, "quota")
	case out != nil && out.Hangs:
		o.uncertain++
		w.timers.set(w.nowNs+hangsNs, func(int64) {
			o.uncertain--
			o.fail(w.nowNs, "no answer")
		})
		return true
	case out != nil:
		o.fail(w.nowNs, "refused")
	case o.CapacityShare > 0 && w.rng.Float64() < o.CapacityShare:
		o.fail(w.nowNs, "no capacity")
	default:
		n := w.addNode(o, w.nowNs)
		if n == nil {
			return false
		}
		o.failures = 0
		w.timers.set(w.nowNs+w.startUpNs(o), func(int64) {
			if n.phase == scaler.Starting && w.slots[n.slot] == n {
				w.came(n)
			}
		})
		return true
	}
	return false
}

func (o *offerState) outage(nowNs int64) *Outage {
	for i := range o.Outages {
		if out := &o.Outages[i]; nowNs >= out.FromNs && nowNs < out.ToNs {
			return out
		}
	}
	return nil
}

func (o *offerState) fail(nowNs int64, why string) {
	if nowNs < o.untilNs {
		return // asked against advice
	}
	o.untilNs = nowNs + min(withheldNs<<min(o.failures, 5), withheldMostNs)
	o.failures++
	o.why = why
}

// came lets a node that has started serve.
func (w *world) came(n *node) {
	took := float64(w.nowNs-n.askedNs) / 1e9
	if s := &n.offer.startUp; s.Known {
		s.Value += startUpGain * (took - s.Value)
	} else {
		*s = scaler.Known(took)
	}
	w.ready(n)
	w.publish()
	w.sendHeld()
}

// ready gives a node its engine.
func (w *world) ready(n *node) {
	n.phase, n.sinceNs = scaler.Ready, w.nowNs
	cfg := engineOf(w.cfg.Engine, n.weight)
	n.engine = virtual.NewEngine(cfg, virtual.NewCache(cfg.Blocks(), w.index, n.slot))
	w.tally.peak = max(w.tally.peak, w.count(scaler.Ready))
}

func (w *world) count(p scaler.Phase) (nodes int) {
	for _, n := range w.nodes {
		if n.phase == p {
			nodes++
		}
	}
	return nodes
}

// drain has a node take nothing new. One that is still starting ends.
func (w *world) drain(n *node) {
	switch n.phase {
	case scaler.Down:
		w.forget(n)
	case scaler.Starting:
		w.end(n)
	case scaler.Ready:
		n.phase, n.sinceNs = scaler.Draining, w.nowNs
		w.tally.drains++
		if w.router.loads.Requests[n.slot] == 0 {
			w.end(n)
		}
	}
}

// end ends a node on which nothing is.
func (w *world) end(n *node) {
	if w.router.loads.Requests[n.slot] != 0 {
		panic("BUG: a node is ended with requests on it")
	}
	w.pay(n)
	w.vacate(n)
	w.forget(n)
}

func (w *world) forget(n *node) {
	w.nodes = slices.DeleteFunc(w.nodes, func(o *node) bool { return o == n })
}

// pay counts what a node has cost until now; once.
func (w *world) pay(n *node) {
	if n.phase == scaler.Down { // it was paid for when it died
		return
	}
	from, to := max(n.askedNs, w.load.MeasureNs), min(w.nowNs, w.load.SpanNs)
	if to > from {
		w.tally.gpuNs += to - from
		w.tally.cost += n.offer.cost(from, to)
	}
}

// vacate frees the slot of a node that is gone.
func (w *world) vacate(n *node) {
	if n.engine != nil {
		w.traffic.tokens += n.engine.Tokens(w.nowNs)
		w.tally.preemptions += n.engine.Preemptions
		n.engine.Cache.Forget()
		for _, l := range n.lapse {
			w.index.Expect(l.contents, n.slot, false)
		}
		n.engine, n.lapse = nil, nil
		w.wakes.set(n.slot, math.MaxInt64)
	}
	if w.slots[n.slot] == n {
		w.slots[n.slot] = nil
		w.router.loads.Requests[n.slot], w.router.loads.PrefillTokens[n.slot], w.router.loads.TotalTokens[n.slot] = 0, 0, 0
	}
}

// kill ends nodes with what is on them: streams that have begun are lost, the other
// requests are sent again.
func (w *world) kill(k *Kill) {
	var mortal []*node
	for _, n := range w.nodes {
		if (n.phase == scaler.Ready || n.phase == scaler.Draining) && (k.Offer == "" || n.offer.Name == k.Offer) {
			mortal = append(mortal, n)
		}
	}
	doomed := len(mortal)
	if k.Share > 0 {
		doomed = min(doomed, max(1, int(math.Round(k.Share*float64(doomed)))))
		w.rng.Shuffle(len(mortal), func(i, j int) { mortal[i], mortal[j] = mortal[j], mortal[i] })
	}
	var again []int32
	for _, n := range mortal[:doomed] {
		again = append(again, w.die(n)...)
	}
	w.publish()
	if w.cfg.Foreseen != nil {
		for _, n := range mortal[:doomed] {
			w.prophesied(n.offer)
		}
		w.publish()
	}
	slices.SortFunc(again, func(a, b int32) int { return cmp.Compare(a, b) })
	for _, request := range again {
		if !w.send(request) {
			w.held = append(w.held, request)
		}
	}
}

// die kills one node. It returns the requests that had not begun.
func (w *world) die(n *node) (again []int32) {
	w.pay(n)
	for _, job := range n.engine.Kill(w.nowNs) {
		f := w.flying[job.ID]
		if job.Began() {
			w.tally.lose(w.load.Requests[f.request].AtNs, f.attained)
			w.tally.cut++
		} else {
			again = append(again, f.request)
		}
		w.release(f)
	}
	w.tally.deaths++
	n.phase, n.sinceNs = scaler.Down, w.nowNs
	w.vacate(n)
	w.timers.set(w.nowNs+forgetNs, func(int64) { w.forget(n) })
	return again
}

// carryOut does what a law orders.
func (w *world) carryOut(orders Orders) {
	was := w.count(scaler.Ready) + w.count(scaler.Starting)
	for _, name := range orders.Undrain {
		if n := w.named(name); n != nil && n.phase == scaler.Draining {
			n.phase, n.sinceNs = scaler.Ready, w.nowNs
		}
	}
	for _, name := range orders.Drain {
		if n := w.named(name); n != nil {
			w.drain(n)
		}
	}
	for range orders.Fewer {
		w.drainOne()
	}
	for _, s := range orders.Start {
		for range s.Count {
			if w.count(scaler.Ready)+w.count(scaler.Starting) >= w.cfg.MaxNodes || !w.start(s.Offer) {
				break
			}
		}
	}
	w.tally.ordered(w.nowNs, w.count(scaler.Ready)+w.count(scaler.Starting)-was)
	w.publish()
}

// start asks an offer, or the cheapest that gives, for a node.
func (w *world) start(name string) bool {
	if name != "" {
		i := slices.IndexFunc(w.offers, func(o *offerState) bool { return o.Name == name })
		return i >= 0 && w.create(w.offers[i])
	}
	byPrice := slices.Clone(w.offers)
	slices.SortStableFunc(byPrice, func(a, b *offerState) int { return cmp.Compare(a.price(w.nowNs), b.price(w.nowNs)) })
	for _, o := range byPrice {
		if w.nowNs >= o.untilNs && w.create(o) {
			return true
		}
	}
	return false
}

func (w *world) named(name string) *node {
	i, ok := slices.BinarySearchFunc(w.nodes, name, func(n *node, name string) int { return cmp.Compare(n.name, name) })
	if !ok {
		return nil
	}
	return w.nodes[i]
}

// drainOne drains a node of the world's choice: see Orders.Fewer.
func (w *world) drainOne() {
	var victim *node
	better := func(a, b *node) bool {
		if a.phase != b.phase || a.phase == scaler.Starting {
			return cmp.Or(cmp.Compare(a.phase, b.phase), -cmp.Compare(a.askedNs, b.askedNs)) < 0
		}
		return w.router.loads.Requests[a.slot] < w.router.loads.Requests[b.slot]
	}
	for _, n := range w.nodes {
		if (n.phase == scaler.Starting || n.phase == scaler.Ready) && (victim == nil || better(n, victim)) {
			victim = n
		}
	}
	if victim != nil {
		w.drain(victim)
	}
}

// foresee brings the fleet to a number of ready nodes at this moment.
func (w *world) foresee(nodes int) {
	have := w.count(scaler.Ready)
	for _, n := range w.nodes { // those that still drain are the first to come back
		if have < nodes && n.phase == scaler.Draining {
			n.phase, n.sinceNs = scaler.Ready, w.nowNs
			have++
		}
	}
	for ; have < nodes; have++ {
		w.prophesied(w.cheapest())
	}
	for ; have > nodes; have-- {
		w.drainOne()
	}
	w.publish()
	w.sendHeld()
}

// cheapest is the offer that costs least now.
func (w *world) cheapest() *offerState {
	return slices.MinFunc(w.offers, func(a, b *offerState) int { return cmp.Compare(a.price(w.nowNs), b.price(w.nowNs)) })
}

// prophesied makes a node that serves now, since it was asked for its start-up time
// ago.
func (w *world) prophesied(o *offerState) {
	if n := w.addNode(o, 0); n != nil {
		n.askedNs = w.nowNs - w.startUpNs(o)
		w.ready(n)
	}
}
