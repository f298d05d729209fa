package controlplane

import (
	"context"
	"fmt"
	"net"
	"sync"

	"warmpath/controlplane/indexer"
	"warmpath/controlplane/kvevent"
	"warmpath/controlplane/state"
	"warmpath/controlplane/takeover"
	"warmpath/dataplane/fleet"
)

// streams follow the KV-cache events of all ranks that have any: each rank's
// subscriber delivers to the indexer's goroutine, where its tracker turns
// events into entries.
type streams struct {
	indexer *indexer.Indexer
	send    func(state.Event)
	nowNs   func() int64
	logf    func(message string, args ...any)

	sockets *takeover.Sockets
	decoder kvevent.Decoder // the indexer's goroutine's

	mu      sync.Mutex
	running map[string]*nodeStreams // by node
	awaits  map[string]bool         // nodes whose streams go on from where another process was
	wait    sync.WaitGroup
}

func newStreams(c *ControlPlane) *streams {
	s := &streams{
		indexer: c.indexer, send: c.Send, nowNs: c.NowNs, sockets: c.opt.Sockets, running: map[string]*nodeStreams{}, awaits: map[string]bool{},
		logf: func(message string, args ...any) { c.opt.Log.Error(message, args...) },
	}
	if c.opt.Offer != nil {
		for i := range c.opt.Offer.Nodes {
			s.awaits[c.opt.Offer.Nodes[i].Spec.Name] = true
		}
	}
	return s
}

// nodeStreams are the streams of one incarnation of a node.
type nodeStreams struct {
	plan   streamPlan
	cancel context.CancelFunc
	ranks  []*rankStream
}

// streamPlan is all that a node's streams depend on: when it changes they begin
// anew.
type streamPlan struct {
	incarnation uint64
	slot        int
	generation  uint32
	ranks       int
	events      state.KVEvents
	seed        uint64
	model       string
	unit        int
}

// rankStream is one rank's.
type rankStream struct {
	rank    int
	sub     *kvevent.Subscriber
	tracker *kvevent.Tracker // the indexer's goroutine's, as begun
	begun   bool
	resyncs backoff // the indexer's goroutine's, too

	mu     sync.Mutex
	counts kvevent.Counts // a copy
	trust  kvevent.Trust  // as delivered last
	told   bool           // … and the State knows it
}

// StreamStatus is what is known of one rank's events.
type StreamStatus struct {
	Node   string
	Rank   int
	Status kvevent.Status
	Counts kvevent.Counts
}

// follow brings the streams in line with the State and its snapshot.
func (s *streams) follow(ctx context.Context, st *state.State, snap *fleet.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	want := map[string]streamPlan{}
	for _, n := range st.Nodes {
		if plan, ok := planOf(n, st.Settings.Models, snap); ok {
			want[n.Spec.Name] = plan
		}
	}
	for name, r := range s.running {
		next, goesOn := want[name]
		if next == r.plan {
			delete(want, name)
			continue
		}
		r.cancel()
		if !goesOn { // else the successor's first step does it
			s.forget(r.plan)
		}
		delete(s.running, name)
	}
	for name, plan := range want {
		s.start(ctx, name, plan)
	}
}

// planOf returns what a node's streams depend on; ok is false while there is
// nothing to follow, or its model is not known yet.
func planOf(n *state.Node, configured []state.ModelSpec, snap *fleet.Snapshot) (plan streamPlan, ok bool) {
	if !n.Spec.KVEvents.Configured() {
		return plan, false
	}
	at := snap.ModelIndex([]byte(n.BaseModel(configured)))
	if at < 0 {
		return plan, false
	}
	m := &snap.Models[at]
	return streamPlan{
		n.Incarnation, n.Slot, n.Generation, n.Ranks, n.Spec.KVEvents, snap.Seed, m.Name, m.UnitTokens,
	}, true
}

// forget clears what a node's streams have said.
func (s *streams) forget(plan streamPlan) {
	for r := range plan.ranks {
		s.indexer.Clear(plan.slot+r, plan.generation)
	}
}

func (s *streams) start(ctx context.Context, name string, plan streamPlan) {
	ctx, cancel := context.WithCancel(ctx)
	n := &nodeStreams{plan: plan, cancel: cancel}
	for rank := range plan.ranks {
		r := &rankStream{rank: rank, tracker: kvevent.NewTracker(kvevent.TrackerOptions{
			Slot: plan.slot + rank, UnitTokens: plan.unit, Seed: plan.seed, Model: plan.model,
		}, s.indexer.Writer())}
		source := kvevent.Source{
			Node: name, Rank: rank,
			Endpoint: plan.events.Endpoint, Listen: plan.events.Listen, Replay: plan.events.Replay, Topic: plan.events.Topic,
			Awaits: s.awaits[name],
			Bind: func(ctx context.Context, network, address string) (net.Listener, error) {
				return s.sockets.Listen(ctx, fmt.Sprintf("kv_events.listen of node %s rank %d", name, rank), network, address)
			},
		}
		sub, err := kvevent.NewSubscriber(source, func(d kvevent.Delivery) bool { return s.deliver(ctx, r, plan, d) })
		if err != nil {
			s.logf("KV events of the node cannot be followed", "node", name, "rank", rank, "err", err)
			continue
		}
		r.sub = sub
		n.ranks = append(n.ranks, r)
		s.wait.Go(func() { sub.Run(ctx) })
	}
	s.running[name] = n
}

// deliver hands one step of a stream to the indexer. It does not block.
func (s *streams) deliver(ctx context.Context, r *rankStream, plan streamPlan, d kvevent.Delivery) bool {
	return s.indexer.Try(plan.slot+d.Rank, plan.generation, func(tenant bool) {
		defer d.Release()
		if !tenant || ctx.Err() != nil { // another stream may speak for the rank now
			return
		}
		if !r.begun { // a stream before this one may have said something
			r.begun = true
			r.tracker.Clear()
		}
		switch {
		case d.Clear:
			r.tracker.Clear()
		case d.Payload != nil:
			if b := d.Decode(&s.decoder); b != nil {
				r.tracker.Apply(b)
			}
		}
		r.mu.Lock()
		r.counts = r.tracker.Counts()
		if r.trust != d.Trust || !r.told {
			r.trust, r.told = d.Trust, false
		}
		r.mu.Unlock()
		if plan.events.Replay != "" && r.tracker.Orphans() > 0 && r.resyncs.due(s.nowNs()) {
			go r.sub.Resync() // it must not be called from within a delivery
		}
	})
}

// backoff says when something may be done again: at once, then after pauses that
// double.
type backoff struct{ nextNs, pauseNs int64 }

// A resync costs a whole replay and forgets what is older than that. It mends
// what was missed; blocks of before the engine's own memory of events stay
// unknown however often it is asked.
const (
	resyncPauseNs  = int64(60e9)
	resyncPauseMax = int64(3600e9)
)

func (b *backoff) due(nowNs int64) bool {
	if nowNs < b.nextNs {
		return false
	}
	b.pauseNs = min(max(2*b.pauseNs, resyncPauseNs), resyncPauseMax)
	b.nextNs = nowNs + b.pauseNs
	return true
}

// trustOf is a stream's trust in the words of the fleet.
func trustOf(t kvevent.Trust) fleet.Trust {
	switch t {
	case kvevent.Live:
		return fleet.TrustLive
	case kvevent.Gapped:
		return fleet.TrustGapped
	case kvevent.Stale:
		return fleet.TrustStale
	default:
		return fleet.TrustCold
	}
}

// report tells the State of trust that has changed. It is called with each
// tick: a change is known within 100 ms, and none is lost.
func (s *streams) report() {
	s.mu.Lock()
	var events []state.Event
	for name, n := range s.running {
		for _, r := range n.ranks {
			r.mu.Lock()
			if !r.told {
				r.told = true
				status := r.sub.Status()
				why := fmt.Sprintf("%d batches, %d gaps, %d restarts", status.Batches, status.Gaps, status.Restarts)
				if status.Err != "" {
					why += "; " + status.Err
				}
				events = append(events, state.TrustSeen{
					NowNs: s.nowNs(), Node: name, Incarnation: n.plan.incarnation, Rank: r.rank, Trust: trustOf(r.trust), Why: why,
				})
			}
			r.mu.Unlock()
		}
	}
	s.mu.Unlock()
	for _, e := range events {
		s.send(e)
	}
}

// whole reports whether all that a rank ever stored was heard: then it must
// report what it is not known to hold. It runs on the indexer's goroutine.
func (s *streams) whole(node string, rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.running[node]
	if n == nil || rank >= len(n.ranks) || n.ranks[rank] == nil || n.ranks[rank].sub == nil {
		return false
	}
	r := n.ranks[rank]
	status := r.sub.Status()
	return status.From == 0 && status.Lost == 0 && r.tracker.Orphans() == 0
}

// status returns what is known of all streams.
func (s *streams) status() []StreamStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []StreamStatus
	for name, n := range s.running {
		for _, r := range n.ranks {
			r.mu.Lock()
			all = append(all, StreamStatus{Node: name, Rank: r.rank, Status: r.sub.Status(), Counts: r.counts})
			r.mu.Unlock()
		}
	}
	return all
}
