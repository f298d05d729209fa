package controlplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"warmpath/controlplane/kvevent"
	"warmpath/controlplane/state"
	"warmpath/controlplane/takeover"
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
)

const (
	meetWithin   = 3 * time.Second        // for the configured nodes to be known
	readyWithin  = 2 * time.Second        // for them to be ready, with the same models
	exactWithin  = 10 * time.Second       // for prompts to be proved exact where they were
	importWithin = 5 * time.Second        // for the index
	trustWithin  = time.Second            // for streams that went on to count
	hearWithin   = 200 * time.Millisecond // for a first batch of each stream
	inheritLook  = 5 * time.Millisecond
)

// Predecessor is a router that hands over: a *takeover.Heir.
type Predecessor interface {
	Fetch(f takeover.Fetch, take func(kind takeover.Kind, body []byte)) (takeover.Rank, error)
}

// Inherited is what was taken over.
type Inherited struct {
	Ranks, Units int // that came; units and blocks
	Left         int // ranks of which nothing came
}

// inherited is the rank that a Fetch was about.
type inherited struct {
	slot       int
	generation uint32
}

// Inherit takes over what the router of Options.Offer knows: first of the nodes,
// then, when they can be used here as they could there, what they hold. What
// does not fit, or does not come within five seconds, is not known: those ranks
// begin as ever. It is called once, after Start. An error is the Predecessor's.
func (c *ControlPlane) Inherit(ctx context.Context, from Predecessor) (got Inherited, err error) {
	defer c.streams.begin()
	c.meet(ctx)
	c.opt.Log.Debug("taking over: the nodes are known")
	c.settle(ctx)
	c.opt.Log.Debug("taking over: the nodes are as ready as they were")
	if c.opt.Config.Seed != c.opt.Offer.Seed {
		c.opt.Log.Warn("the index is not taken over: the seed is another one")
		return got, nil
	}
	box, cancel := context.WithTimeout(ctx, importWithin)
	defer cancel()
	var slots []int
	for i := range c.opt.Offer.Nodes {
		n := &c.opt.Offer.Nodes[i]
		is, why := c.same(n)
		for rank := range n.Spec.Ranks() {
			h := heirOf{c: c, why: why}
			switch {
			case why != "":
			case box.Err() != nil:
				h.why = errLate.Error()
			default:
				h.slot, h.generation, h.minimal = is.Slot+rank, is.Generation, is.Spec.HashScheme != ""
				if err := h.inherit(box, from, n.Spec.Name, rank); err != nil {
					return got, err
				}
			}
			if h.why != "" {
				got.Left++
				c.opt.Log.Warn("what the node holds is not taken over", "node", n.Spec.Name, "rank", rank, "why", h.why)
				continue
			}
			got.Ranks, got.Units = got.Ranks+1, got.Units+h.units
			if h.live {
				slots = append(slots, h.slot)
			}
		}
	}
	c.opt.Log.Debug("taking over: what the nodes hold is known")
	c.awaitTrust(ctx, slots)
	return got, nil
}

// meet tells the State what is known of nodes that are the same here.
func (c *ControlPlane) meet(ctx context.Context) {
	known := map[string]bool{}
	for _, n := range c.opt.Config.Nodes {
		known[n.Name] = true
	}
	for i := range c.opt.Offer.Nodes {
		n := &c.opt.Offer.Nodes[i]
		if (n.Added || n.Leased) && !known[n.Spec.Name] {
			if err := c.adopt(n); err != nil {
				c.opt.Log.Warn("a node that was added at run time is not taken over", "node", n.Spec.Name, "err", err)
				continue
			}
			known[n.Spec.Name] = true
		}
		if c.sources.looks(n.Source) {
			known[n.Spec.Name] = true
		}
	}
	c.until(ctx, meetWithin, func() bool {
		s := c.State()
		for i := range c.opt.Offer.Nodes {
			if name := c.opt.Offer.Nodes[i].Spec.Name; known[name] && s.Find(name) == nil {
				return false
			}
		}
		return true
	})
	for i := range c.opt.Offer.Nodes {
		n := &c.opt.Offer.Nodes[i]
		if is := c.State().Find(n.Spec.Name); is != nil && is.Spec.URL == n.Spec.URL {
			c.introduce(n, is.Incarnation)
		}
	}
}

// adopt takes over a node that was added at run time. A leased one has a whole lease
// to find this process.
func (c *ControlPlane) adopt(n *takeover.Node) error {
	if n.Leased {
		if !c.opt.Config.Discovery.Register.Enabled {
			return errors.New("nodes do not register themselves any more")
		}
		_, err := c.leases.Register(n.Spec)
		return err
	}
	_, err := c.api.Add(n.Spec)
	return err
}

// introduce tells the State of a node as if it had been asked just now. It is
// asked all the same, as every node that joins.
func (c *ControlPlane) introduce(n *takeover.Node, incarnation uint64) {
	name, now := n.Spec.Name, c.NowNs()
	if len(n.Models) > 0 {
		c.Send(state.ModelsSeen{NowNs: now, Node: name, Incarnation: incarnation, Models: n.Models, Engine: n.Engine})
	}
	if n.Sample != (state.Sample{}) {
		c.Send(state.MetricsSeen{NowNs: now, Node: name, Incarnation: incarnation, Sample: n.Sample, Inherited: true})
	}
	c.Send(state.RateSeen{
		NowNs: now, Node: name, Incarnation: incarnation,
		PrefillTokensPerSecond: n.Speed.Prefill, PrefillSamples: n.Speed.PrefillSamples,
		DecodeTokensPerSecond: n.Speed.Decode, DecodeSamples: n.Speed.DecodeSamples,
		RoundTripSeconds: n.Speed.RoundTrip, EvictedTokensPerSecond: n.Speed.Evicted,
	})
	if n.Ready {
		c.Send(state.ProbeResult{NowNs: now, Node: name, Incarnation: incarnation, OK: true})
	}
	if n.Drained {
		c.Send(state.DrainAsked{NowNs: now, Node: name})
	}
}

// settle waits until nodes that took requests there do so here, with prompts as
// exact as they were, and their streams are connected. It gives up in time.
func (c *ControlPlane) settle(ctx context.Context) {
	for _, wait := range []struct {
		limit time.Duration
		ok    func(n *takeover.Node, is *state.Node) bool
	}{
		{readyWithin, func(n *takeover.Node, is *state.Node) bool {
			model, unit := chainsAt(is, c.State().Settings.Models, c.opt.Fleet.Load())
			return is.Health == fleet.Ready && model == n.Model && unit == n.UnitTokens
		}},
		{exactWithin, func(n *takeover.Node, is *state.Node) bool {
			at := c.opt.Fleet.Load().Owner(is.Slot)
			return !c.tokenized(n.Model) || is.Health != fleet.Ready || at != nil && at.Exact&n.Exact == n.Exact
		}},
	} {
		c.until(ctx, wait.limit, func() bool {
			for i := range c.opt.Offer.Nodes {
				n := &c.opt.Offer.Nodes[i]
				if is := c.State().Find(n.Spec.Name); n.Ready && is != nil && is.Spec.URL == n.Spec.URL && !wait.ok(n, is) {
					return false
				}
			}
			return true
		})
	}
	c.until(ctx, trustWithin, func() bool { return c.streams.all(func(s *kvevent.Status) bool { return s.Connected }) })
	c.until(ctx, hearWithin, func() bool { return c.streams.all(func(s *kvevent.Status) bool { return s.Heard }) })
}

// tokenized reports whether a model's prompts can be exact here.
func (c *ControlPlane) tokenized(model string) bool {
	for _, m := range c.opt.Config.Models {
		if m.Name == model {
			return m.Tokenizer != ""
		}
	}
	return false
}

// until waits until ok holds, for so long, or until ctx ends.
func (c *ControlPlane) until(ctx context.Context, limit time.Duration, ok func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	look := time.NewTicker(inheritLook)
	defer look.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			return ok()
		case <-look.C:
		}
	}
	return true
}

// same returns the node here that what a node there holds is about, or why there
// is none.
func (c *ControlPlane) same(n *takeover.Node) (is *state.Node, why string) {
	s := c.State()
	is = s.Find(n.Spec.Name)
	if is == nil {
		return nil, "the configuration does not name the node any more"
	}
	model, unit := chainsAt(is, s.Settings.Models, c.opt.Fleet.Load())
	switch {
	case is.Spec.URL != n.Spec.URL:
		return nil, "its url is another one"
	case is.Ranks != n.Spec.Ranks():
		return nil, "it has another number of ranks"
	case is.Spec.KVEvents != n.Spec.KVEvents:
		return nil, "its kv_events are others"
	case is.Spec.HashScheme != n.Spec.HashScheme || is.Spec.PrefixTokens != n.Spec.PrefixTokens:
		return nil, "its hash_scheme is another one"
	case model == "" || n.Model == "":
		return nil, "its models are not known"
	case model != n.Model:
		return nil, fmt.Sprintf("it serves %q here, %q there", model, n.Model)
	case unit != n.UnitTokens:
		return nil, fmt.Sprintf("a unit of %q has %d tokens here, %d there", model, unit, n.UnitTokens)
	}
	return is, ""
}

// heirOf takes over what is known of one rank.
type heirOf struct {
	c          *ControlPlane
	slot       int
	generation uint32
	minimal    bool        // its blocks are prompts that a minimal reporter names
	r          *rankStream // nil without events

	units int
	live  bool   // what is known counts as soon as the State has heard of it
	why   string // nothing came of it
}

var (
	errGone = errors.New("the node has gone")
	errLate = fmt.Errorf("the time for it (%v) is over", importWithin)
)

// inherit takes over the rank. The error is the Predecessor's.
func (h *heirOf) inherit(ctx context.Context, from Predecessor, node string, rank int) error {
	h.r = h.c.streams.find(node, rank, h.generation)
	h.c.fetches = append(h.c.fetches, inherited{h.slot, h.generation})
	fetch := takeover.Fetch{Node: node, Rank: rank}
	if h.r != nil {
		if status := h.r.sub.Status(); status.Heard {
			fetch.First = status.First
		}
	}
	end, err := from.Fetch(fetch, func(kind takeover.Kind, body []byte) {
		if h.why == "" {
			h.fail(h.take(ctx, kind, body))
		}
	})
	switch {
	case err != nil:
		h.fail(err)
	case h.why != "":
	case end.Why != "":
		h.why = end.Why
	default:
		h.fail(h.goOn(ctx, node, rank, &end))
	}
	if h.why != "" {
		h.forget()
	}
	return err
}

func (h *heirOf) fail(err error) {
	if err != nil {
		h.why = err.Error()
	}
}

// do runs f on the indexer's goroutine.
func (h *heirOf) do(ctx context.Context, f func() int) error {
	type outcome struct {
		units int
		gone  bool
	}
	got := new(outcome) // the function's own: it may run when nobody waits any more
	err := h.c.indexer.Do(ctx, h.slot, h.generation, func(tenant bool) {
		if got.gone = !tenant; tenant {
			got.units = f()
		}
	})
	switch {
	case err != nil:
		return errLate
	case got.gone:
		return errGone
	}
	h.units += got.units
	return nil
}

func (h *heirOf) take(ctx context.Context, kind takeover.Kind, body []byte) error {
	if kind == takeover.Tails {
		tails, err := kvevent.DecodeTails(body)
		if err != nil || h.r == nil {
			return err
		}
		return h.do(ctx, func() int { return h.r.tracker.ImportTails(tails) })
	}
	p, err := index.DecodePiece(body)
	if err != nil {
		return err
	}
	return h.do(ctx, func() (units int) {
		if h.minimal {
			for i := range p.Runs {
				units += h.c.placer.Adopt(h.slot, &p.Runs[i])
			}
			p.Runs = nil
		}
		return units + h.c.indexer.Writer().Import(h.slot, p, h.c.sinceStart())
	})
}

// goOn has the rank's stream, of events or reports, go on where it was.
func (h *heirOf) goOn(ctx context.Context, node string, rank int, end *takeover.Rank) error {
	switch {
	case h.r != nil && end.Stream != nil:
		if err := h.do(ctx, func() int {
			h.r.tracker.Resume(end.Stream)
			h.r.begun = true
			return 0
		}); err != nil {
			return err
		}
		if !h.r.sub.Resume(*end.Stream) {
			return errors.New("its engine may have restarted meanwhile")
		}
		h.live = h.r.sub.Status().Trust == kvevent.Live
	case h.r != nil:
		h.r.sub.Begin()
	case end.Report != nil && h.c.reports != nil:
		trust, err := h.c.reports.server.Restore(node, rank, *end.Report)
		h.live = trust.Reports()
		return err
	}
	return nil
}

// forget undoes what was taken up of a rank that cannot go on.
func (h *heirOf) forget() {
	_ = h.do(h.c.ctx, func() int { // else it has gone, and what it had with it
		h.c.placer.Forget(h.slot)
		h.c.indexer.Writer().Clear(h.slot)
		if h.r != nil {
			h.r.tracker.Clear()
		}
		return 0
	})
	if h.r != nil {
		h.r.sub.Begin()
	}
}

// awaitTrust waits until slots count for requests as what is reported of them
// does.
func (c *ControlPlane) awaitTrust(ctx context.Context, slots []int) {
	c.until(ctx, trustWithin, func() bool {
		snap := c.opt.Fleet.Load()
		for _, slot := range slots {
			if n := snap.Owner(slot); n != nil && !n.Trust[slot-n.Slot].Reports() {
				return false
			}
		}
		return true
	})
}

// TakeNote takes a note of what the predecessor has sent to a rank that was
// inherited. It is called after Inherit, by one goroutine.
func (c *ControlPlane) TakeNote(n takeover.Note) error {
	if n.Fetch >= len(c.fetches) {
		return fmt.Errorf("take a note of rank %d: only %d were fetched", n.Fetch, len(c.fetches))
	}
	at := c.fetches[n.Fetch]
	return c.indexer.Note(c.ctx, dataplane.Note{
		Kind: n.Kind, Slot: at.slot, Generation: at.generation, AtNs: c.sinceStart() + n.AheadNs, Chain: n.Chain, IDs: n.IDs,
	})
}
