package controlplane

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"warmpath/controlplane/config"
	"warmpath/controlplane/provide"
	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
	"warmpath/scaler"
)

// journalAgain is the pause before the journal is tried again that another process
// has: one that is taken over from keeps it until it has ended, with all that it has
// under way.
const journalAgain = time.Second

// scaling is the scaler in this process.
type scaling struct {
	c         *ControlPlane
	offers    map[string]*config.Offer
	actuators provide.Actuators
	journal   *scaler.Journal // nil without a state_dir
	meter     scaler.Meter
	expecting bool              // the State was told to hold requests; the loop's goroutine's
	keys      map[string]string // of the nodes that were published, by their canonical URLs; the loop's goroutine's
	loop      atomic.Pointer[scaler.Loop]
	halt      context.CancelFunc
	ended     chan struct{} // closed when run has ended
	closing   sync.Once
	waits     atomic.Pointer[string] // why it does not run yet
	refused   atomic.Pointer[string] // why nodes that providers named cannot be taken in
}

// newScaling prepares the scaler; run starts it.
func newScaling(c *ControlPlane) *scaling {
	cfg := &c.opt.Config.Scaler
	s := &scaling{c: c, ended: make(chan struct{}), offers: map[string]*config.Offer{}, actuators: provide.New(cfg, provide.Options{Environ: config.EnvironOfNodes(), Log: c.opt.Log})}
	for i := range cfg.Offers {
		s.offers[cfg.Offers[i].Name] = &cfg.Offers[i]
	}
	return s
}

// start runs the scaler until HaltScaler.
func (s *scaling) start(ctx context.Context) {
	ctx, s.halt = context.WithCancel(ctx)
	go func() {
		defer close(s.ended)
		s.run(ctx)
	}()
}

// HaltScaler has the scaler change nothing any more, and returns once it does not.
// What it owns stays this process's until Stop: requests may be under way there that
// a successor does not see.
func (c *ControlPlane) HaltScaler() {
	if c.scaling != nil {
		c.scaling.halt()
		<-c.scaling.ended
	}
}

// close gives the nodes up to whoever comes next. Only the first call does something.
func (s *scaling) close() {
	s.c.HaltScaler()
	s.closing.Do(func() {
		if err := s.actuators.Close(); err != nil {
			s.c.opt.Log.Warn("scaler: a provider's end", "err", err)
		}
		if s.journal != nil {
			if err := s.journal.Close(); err != nil {
				s.c.opt.Log.Error("scaler: close journal", "err", err)
			}
		}
	})
}

// run opens the journal and runs the loop until ctx ends.
func (s *scaling) run(ctx context.Context) {
	c := s.c
	cfg := &c.opt.Config.Scaler
	if !s.openJournal(ctx) {
		return
	}
	loop := scaler.NewLoop(scaler.LoopOptions{
		Config: provide.Config(cfg), Book: provide.Book(cfg, int64(c.opt.Config.Timeouts.DrainNode)), Model: cfg.Model,
		Actuators: s.actuators.ByOffer, Journal: s.journal, Routers: s, Log: c.opt.Log,
	})
	s.loop.Store(loop)
	loop.Run(ctx)
}

// openJournal waits until the journal is this process's.
func (s *scaling) openJournal(ctx context.Context) bool {
	folder := s.c.opt.Config.StateDir
	if folder == "" {
		s.c.opt.Log.Warn("scaler: without state_dir its nodes are forgotten when this process ends", "remedy", "set state_dir")
		return true
	}
	again := time.NewTicker(journalAgain)
	defer again.Stop()
	for said := ""; ; {
		journal, err := scaler.OpenJournal(folder)
		if err == nil {
			s.journal = journal
			s.waits.Store(nil)
			return true
		}
		if why := err.Error(); why != said {
			said = why
			s.waits.Store(&why)
			if errors.Is(err, scaler.ErrLocked) {
				s.c.opt.Log.Info("scaler: waits until the process before has ended", "err", err)
			} else {
				s.c.opt.Log.Error("scaler: does not run", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-again.C:
		}
	}
}

// Signals implements scaler.Routers.
func (s *scaling) Signals(nowNs int64) scaler.Signals {
	r := s.c.Reading(s.c.opt.Config.Scaler.Model)
	// The loop's clock and the events' differ by when they began.
	shift := nowNs - s.c.NowNs()
	others := map[string]string{}
	for _, n := range s.c.State().Nodes {
		if key, ours := s.keyOf(n); ours && key != n.Spec.Name {
			others[n.Spec.Name] = key
		}
	}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		n.SinceNs += shift
		if key := others[n.Name]; key != "" {
			n.Name = key
		}
	}
	return s.meter.Signals(nowNs, map[string]*scaler.Reading{"this router": &r})
}

// keyOf is the scaler's name of a node, if it is the scaler's. A source of others may
// have named it first, by another name: a URL is that of one engine.
func (s *scaling) keyOf(n *state.Node) (key string, ours bool) {
	if n.Source == state.ScalerSource {
		return n.Spec.Name, true
	}
	key, ours = s.keys[n.Spec.URL]
	return key, ours
}

// expect has requests wait for nodes as long as there may be some.
func (s *scaling) expect() {
	loop := s.loop.Load()
	if loop == nil {
		return
	}
	if may := loop.Status().MayCome(); may != s.expecting {
		s.expecting = may
		s.c.claims.setOwn(may)
		s.c.expect()
	}
}

// Watch implements scaler.Routers.
func (s *scaling) Watch() (nodes []scaler.Watch, ok bool) {
	s.expect()
	for _, n := range s.c.State().Nodes {
		key, ours := s.keyOf(n)
		if !ours {
			continue
		}
		w := scaler.Watch{Key: key, Phase: phaseOf(n), Draining: n.Drain, InFlight: n.Load.Requests.Load()}
		if n.SampleFresh && n.Health != fleet.Down {
			w.Running = gauge(n.Sample.Running)
		}
		nodes = append(nodes, w)
	}
	return nodes, true
}

// Publish implements scaler.Routers.
func (s *scaling) Publish(nodes []scaler.Owned) {
	specs := make([]state.Spec, 0, len(nodes))
	s.keys = make(map[string]string, len(nodes))
	for i := range nodes {
		n := &nodes[i]
		if end, err := state.ParseEndpoint(n.URL); err == nil { // else Replace says why not
			s.keys[end.URL] = n.Key
		}
		specs = append(specs, s.offers[n.Offer].Spec(n.Key, n.URL))
	}
	err := s.c.owned.Replace(specs)
	if err == nil {
		s.refused.Store(nil)
		return
	}
	why := err.Error()
	if was := s.refused.Swap(&why); was == nil || *was != why {
		s.c.opt.Log.Error("scaler: nodes cannot be taken in", "err", err)
	}
}

// Drain implements scaler.Routers.
func (s *scaling) Drain(key string, back bool) {
	name := key
	for _, n := range s.c.State().Nodes {
		if found, ours := s.keyOf(n); ours && found == key {
			name = n.Spec.Name
		}
	}
	if back {
		s.c.Send(state.UndrainAsked{NowNs: s.c.NowNs(), Node: name})
		return
	}
	s.c.Send(state.DrainAsked{NowNs: s.c.NowNs(), Node: name})
}

// Scaler returns what the scaler has done last, nil if there is none or it does not
// run yet; waits says why it does not, "" if there is none.
func (c *ControlPlane) Scaler() (status *scaler.Status, waits string) {
	if c.scaling == nil {
		return nil, ""
	}
	if why := c.scaling.waits.Load(); why != nil {
		return nil, *why
	}
	if loop := c.scaling.loop.Load(); loop != nil {
		return loop.Status(), ""
	}
	return nil, "it begins"
}

// ScalerRefused says why nodes that providers named cannot be taken in, "" if all are.
func (c *ControlPlane) ScalerRefused() string {
	if c.scaling == nil {
		return ""
	}
	if why := c.scaling.refused.Load(); why != nil {
		return *why
	}
	return ""
}

// ScalerCallback returns who takes what the provider of an offer tells of its own
// accord, nil if nobody does.
func (c *ControlPlane) ScalerCallback(offer string) http.Handler {
	if c.scaling == nil {
		return nil
	}
	return c.scaling.actuators.Callback(offer, func() {
		if loop := c.scaling.loop.Load(); loop != nil {
			loop.Relist(offer)
		}
	})
}
