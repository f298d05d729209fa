package controlplane

import (
	"context"
	"slices"
	"time"

	"warmpath/controlplane/kvevent"
	"warmpath/controlplane/report"
	"warmpath/controlplane/state"
	"warmpath/controlplane/takeover"
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
)

// catchUpWithin is how long an export waits for batches that its asker has not
// heard.
const catchUpWithin = 250 * time.Millisecond

// answerWithin is for reports that are being read when a successor takes over:
// net/http drops those when it is told to end.
const answerWithin = 300 * time.Millisecond

// giver hands a control plane over, as often as somebody tries.
type giver struct {
	c       *ControlPlane
	journal *journal
	held    map[string]*report.Held // by worker
}

// Giver returns what another process takes over from.
func (c *ControlPlane) Giver() takeover.Giver { return &giver{c: c} }

// Begin implements takeover.Giver. From now on notes are kept of the ranks that
// are exported.
func (g *giver) Begin() takeover.Offer {
	g.journal, g.held = newJournal(g.c.sinceStart), map[string]*report.Held{}
	g.tap(g.journal)
	offer := takeover.Offer{Seed: g.c.opt.Config.Seed, Formers: g.c.formers.running()}
	s, snap := g.c.State(), g.c.opt.Fleet.Load()
	for _, n := range s.Nodes {
		if !n.Removing {
			offer.Nodes = append(offer.Nodes, offered(n, s, snap))
		}
	}
	return offer
}

func (g *giver) tap(j *journal) {
	var note func(dataplane.Note)
	if j != nil {
		note = j.note
	}
	_ = g.c.indexer.Tap(g.c.ctx, note) // nothing but the end prevents it
}

// offered is what a successor is told of a node.
func offered(n *state.Node, s *state.State, snap *fleet.Snapshot) takeover.Node {
	out := takeover.Node{
		Spec: n.Spec, Source: n.Source, Added: n.Source == state.APISource, Leased: n.Source == state.LeaseSource, Ready: n.Health == fleet.Ready && n.Breaker == fleet.Closed, Drained: n.Drain,
		Models: n.Models, Engine: n.Engine, Sample: n.Sample, Exact: n.Exact,
		Speed: takeover.Speed{
			Prefill: n.Prefill.Gauge, PrefillSamples: n.Prefill.Samples(s.NowNs), Decode: n.Decode.Gauge, DecodeSamples: n.Decode.Samples(s.NowNs),
			RoundTrip: n.RoundTripSeconds, Evicted: n.EvictedTokensPerSecond,
		},
	}
	if !n.SampleFresh { // facts alone do not go stale
		out.Sample = state.Sample{Engine: n.Sample.Engine, BlockTokens: n.Sample.BlockTokens, CacheTokens: n.Sample.CacheTokens}
	}
	out.Model, out.UnitTokens = chainsAt(n, s.Settings.Models, snap)
	return out
}

// chainsAt says what the entries of a node depend on, "" and 0 while that is not
// known.
func chainsAt(n *state.Node, configured []state.ModelSpec, snap *fleet.Snapshot) (model string, unitTokens int) {
	if at := snap.ModelIndex([]byte(n.BaseModel(configured))); at >= 0 {
		return snap.Models[at].Name, snap.Models[at].UnitTokens
	}
	return "", 0
}

// Export implements takeover.Giver. Events and reports of the rank wait for the
// moment that it takes to copy what is known.
func (g *giver) Export(ctx context.Context, f takeover.Fetch, emit func(kind takeover.Kind, body []byte) error) (takeover.Rank, error) {
	number := g.journal.next()
	n := g.c.State().Find(f.Node)
	if n == nil || f.Rank < 0 || f.Rank >= n.Ranks {
		return takeover.Rank{Why: "the node has gone"}, nil
	}
	got, why := g.export(ctx, n, f, number)
	if why != "" {
		return takeover.Rank{Why: why}, ctx.Err()
	}
	var body []byte
	for i, p := range got.pieces {
		if n.Spec.KVEvents.Configured() && got.stream == nil {
			p.Runs = nil // nobody could go on from them
		}
		body, got.pieces[i] = index.AppendPiece(body[:0], p), nil
		if err := emit(takeover.Piece, body); err != nil {
			return takeover.Rank{}, err
		}
	}
	for _, tails := range got.tails {
		body = kvevent.AppendTails(body[:0], tails)
		if err := emit(takeover.Tails, body); err != nil {
			return takeover.Rank{}, err
		}
	}
	return takeover.Rank{Stream: got.stream, Report: got.report}, nil
}

// contents is what is known of a rank at one moment.
type contents struct {
	pieces []*index.Piece
	tails  []kvevent.Tails
	stream *kvevent.Saved // nil without events to go on from
	report *report.Saved  // nil without reports
	gone   bool
}

func (g *giver) export(ctx context.Context, n *state.Node, f takeover.Fetch, number int) (got *contents, why string) {
	got = &contents{} // the function's own: it may run when nobody waits any more
	slot := n.Slot + f.Rank
	r := g.c.streams.find(f.Node, f.Rank, n.Generation)
	if r != nil {
		wait, cancel := context.WithTimeout(ctx, catchUpWithin)
		defer cancel()
		r.sub.Pause(wait, f.First)
		defer r.sub.Unpause()
		if saved, ok := r.sub.Save(); ok {
			got.stream = &saved
		}
	} else if h := g.hold(f.Node); h != nil {
		if saved, ok := h.Save(f.Rank); ok {
			got.report = &saved
		}
	}
	err := g.c.indexer.Do(ctx, slot, n.Generation, func(tenant bool) {
		if got.gone = !tenant; got.gone {
			return
		}
		got.pieces = g.c.indexer.Writer().Export(slot, g.c.sinceStart())
		if got.stream != nil {
			got.tails = r.tracker.Save(got.stream)
		}
		if got.report != nil {
			got.report.Unplaced = g.c.placer.Unplaced(slot)
		}
		g.journal.keep(slot, n.Generation, number)
	})
	switch {
	case err != nil:
		return nil, "the indexer is busy"
	case got.gone:
		return nil, "the node has gone"
	}
	return got, ""
}

// hold makes a worker's reports wait, if there may be any.
func (g *giver) hold(worker string) *report.Held {
	if g.c.reports == nil {
		return nil
	}
	if g.held[worker] == nil {
		g.held[worker] = g.c.reports.server.Hold(worker)
	}
	return g.held[worker]
}

// Keep implements takeover.Giver.
func (g *giver) Keep() {
	g.tap(nil)
	g.release(false)
	g.journal = nil
}

// Leave implements takeover.Giver. Engines and reporters that connect to the
// router are let go, so that they come to the successor.
func (g *giver) Leave() {
	g.release(true)
	g.c.streams.leave()
	g.c.wait.Go(func() {
		select {
		case <-g.c.done:
		case <-time.After(answerWithin):
		}
		g.c.stopReports()
	})
}

func (g *giver) release(moved bool) {
	for _, h := range g.held {
		h.Release(moved)
	}
	g.held = nil
}

// Notes implements takeover.Giver.
func (g *giver) Notes(ctx context.Context, emit func(frames []byte) error) error {
	if lost := g.journal.dropped(); lost > 0 {
		g.c.opt.Log.Warn("the successor does not hear of some requests", "requests", lost)
	}
	return g.journal.send(ctx, emit)
}

// find returns a rank's stream, nil if there is none.
func (s *streams) find(node string, rank int, generation uint32) *rankStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.running[node]
	if n == nil || n.plan.generation != generation {
		return nil
	}
	if i := slices.IndexFunc(n.ranks, func(r *rankStream) bool { return r.rank == rank }); i >= 0 {
		return n.ranks[i]
	}
	return nil
}

// leave ends the streams of engines that connect to us.
func (s *streams) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.running {
		if n.plan.events.Listen != "" {
			n.cancel()
		}
	}
}

// all reports whether ok holds of all streams that dial their engines.
func (s *streams) all(ok func(*kvevent.Status) bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.running {
		for _, r := range n.ranks {
			if status := r.sub.Status(); n.plan.events.Listen == "" && !ok(&status) {
				return false
			}
		}
	}
	return true
}

// begin ends the wait for what streams go on from, of those that still wait.
func (s *streams) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awaits = nil
	for _, n := range s.running {
		for _, r := range n.ranks {
			r.sub.Begin()
		}
	}
}
