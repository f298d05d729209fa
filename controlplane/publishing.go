package controlplane

import (
	"context"
	"strconv"
	"sync"
	"time"

	"warmpath/controlplane/engine"
	"warmpath/controlplane/publish"
	"warmpath/controlplane/state"
	"warmpath/dataplane/tally"
)

// publishing is what goes from one snapshot to the next. Of the reducer's goroutine,
// but for what mu guards.
type publishing struct {
	publisher publish.Publisher
	polled    []target // whom the poller asks
	path      string   // … and how
	timeoutNs int64

	mu   sync.Mutex
	took tally.Histogram // guarded by mu; seconds a snapshot
}

// target is what an engine.Target depends on: an incarnation keeps its name and URL.
type target struct {
	incarnation uint64
	engine      string
}

var publishBounds = []float64{5e-5, 1e-4, 2e-4, 3e-4, 5e-4, 7.5e-4, 1e-3, 1.5e-3, 2e-3, 3e-3, 5e-3, 1e-2, 2e-2, 5e-2, .1}

// publish points the poller at the fleet and stores its snapshot, before the
// other effects are carried out: the first probe of a node must find its
// target, and no slot may be swept while a snapshot shows its tenant.
func (c *ControlPlane) publish(ctx context.Context, s state.State) {
	began := time.Now()
	p := &c.publishing
	if p.moves(&s) {
		if err := c.poller.Set(targetsOf(s)); err != nil {
			c.opt.Log.Error("cannot poll the fleet", "err", err)
		}
	}
	before := c.opt.Fleet.Load()
	snap, err := p.publisher.Next(&s)
	if err != nil {
		c.opt.Log.Error("snapshot not published; the last one stays in force", "err", err)
		snap = before
	}
	data := c.data.Load()
	if data != nil {
		data.Prepare(snap)
	}
	c.opt.Fleet.Store(snap)
	if data != nil {
		data.Refresh()
	}
	c.evacuate(before, snap)
	c.streams.follow(ctx, &s, snap)
	if c.prover.Wanted() {
		c.prover.Set(provable(&s, snap))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.took.Counts == nil {
		p.took = tally.NewHistogram(publishBounds)
	}
	p.took.Observe(time.Since(began).Seconds())
}

// Publishes is how long each snapshot took, in seconds, from the State that it shows
// to requests seeing it.
func (c *ControlPlane) Publishes() tally.Histogram {
	p := &c.publishing
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.took.Counts == nil {
		return tally.NewHistogram(publishBounds)
	}
	return p.took.Clone()
}

// moves reports whether the poller has to ask others than it does, or otherwise.
func (p *publishing) moves(s *state.State) bool {
	moved := len(p.polled) != len(s.Nodes) || p.path != s.Settings.HealthPath || p.timeoutNs != s.Settings.ProbeTimeoutNs
	p.path, p.timeoutNs = s.Settings.HealthPath, s.Settings.ProbeTimeoutNs
	for i, n := range s.Nodes {
		is := target{n.Incarnation, n.Spec.Engine}
		if i == len(p.polled) {
			p.polled = append(p.polled, target{})
		}
		if p.polled[i] != is {
			p.polled[i], moved = is, true
		}
	}
	p.polled = p.polled[:len(s.Nodes)]
	return moved
}

func isPublish(e state.Effect) bool {
	_, ok := e.(state.Publish)
	return ok
}

func targetsOf(s state.State) []engine.Target {
	targets := make([]engine.Target, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		targets = append(targets, engine.Target{
			Name: n.Spec.Name, Key: strconv.FormatUint(n.Incarnation, 10), URL: n.Spec.URL,
			Engine: n.Spec.Engine, HealthPath: s.Settings.HealthPath, HealthTimeout: time.Duration(s.Settings.ProbeTimeoutNs),
		})
	}
	return targets
}

// readings are metrics that were read since the last tick. A snapshot shows them with
// the next tick at the soonest, so that nothing is lost if they wait for it, and one
// event does for all of them.
type readings struct {
	mu   sync.Mutex
	seen []state.MetricsSeen // guarded by mu
}

func (r *readings) add(seen state.MetricsSeen) {
	r.mu.Lock()
	r.seen = append(r.seen, seen)
	r.mu.Unlock()
}

// reportReadings sends what was read. It is called by the ticking goroutine.
func (c *ControlPlane) reportReadings() {
	r := &c.readings
	r.mu.Lock()
	seen := r.seen
	r.seen = nil
	if len(seen) > 0 {
		r.seen = make([]state.MetricsSeen, 0, len(seen))
	}
	r.mu.Unlock()
	if len(seen) > 0 {
		c.Send(state.MetricsRead{NowNs: c.NowNs(), Readings: seen})
	}
}
