package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"warmpath/controlplane/config"
	"warmpath/controlplane/discover"
	"warmpath/controlplane/engine"
	"warmpath/controlplane/exact"
	"warmpath/controlplane/guard"
	"warmpath/controlplane/indexer"
	"warmpath/controlplane/kernel"
	"warmpath/controlplane/report"
	"warmpath/controlplane/sentinel"
	"warmpath/controlplane/state"
	"warmpath/controlplane/takeover"
	"warmpath/dataplane"
	"warmpath/dataplane/backend"
	"warmpath/dataplane/beat"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
	"warmpath/dataplane/prompt"
)

const (
	eventQueue = 4096 // beyond it whoever reports waits; nothing is lost
	tickEvery  = 100 * time.Millisecond
	learnEvery = time.Second
	readyPoll  = 10 * time.Millisecond // of WaitReady

	reportsStopWithin = 2 * time.Second
)

// Options are fixed for the life of a ControlPlane.
type Options struct {
	Config *config.Config
	Fleet  *fleet.Holder
	Index  *index.Index
	// Dataplane is running, or nil: then Attach follows. Started last, it begins
	// to serve with a fleet and an index that are known.
	Dataplane *dataplane.Dataplane
	Log       *slog.Logger
	// Reread loads the configuration again, for Reload.
	Reread func() (*config.Config, error)
	// Sockets opens what is listened on; nil opens it here.
	Sockets *takeover.Sockets
	// Kernel is what the kernel tells of connections; nil if nobody asked it.
	Kernel *kernel.Plane
	// Offer is what Inherit goes on from; nil if there is nothing.
	Offer *takeover.Offer
}

// ControlPlane is the running control plane.
type ControlPlane struct {
	opt     Options // Dataplane is the ticking goroutine's
	started time.Time
	events  chan state.Event
	config  atomic.Pointer[config.Config]
	view    atomic.Pointer[state.State] // what the reducer holds, for readers; never written in place
	static  *discover.Static
	api     *discover.API
	leases  *discover.Leases
	owned   *discover.Owned
	scaling *scaling // nil if there is no scaler
	claims  claims
	formers formers
	sources sources
	poller  *engine.Poller
	indexer *indexer.Indexer
	streams *streams
	prover  *exact.Prover
	memo    *prompt.Memo
	placer  *report.Placer // the indexer's goroutine's
	reports *reports       // nil without a listener
	learned learner

	readings   readings
	publishing publishing

	sentinels *sentinel.Keeper
	guard     *guard.Keeper
	guardPlan *guard.Plan // what the router was started with

	data          atomic.Pointer[dataplane.Dataplane] // nil before Attach
	disagreements chan dataplane.Disagreement
	exactly       sync.Mutex
	exact         *dataplane.ExactModels // guarded by exactly: the last ones

	reloads   sync.Mutex // one reload at a time
	reloadBad atomic.Bool
	ctx       context.Context // until Stop
	cancel    context.CancelFunc
	done      <-chan struct{} // closed by Stop
	fetches   []inherited     // in the order in which they were fetched; of the goroutine that calls Inherit
	wait      sync.WaitGroup
}

// Start runs the control plane until Stop.
func Start(opt Options) (*ControlPlane, error) {
	c := &ControlPlane{
		opt: opt, started: time.Now(), events: make(chan state.Event, eventQueue), memo: prompt.NewMemo(opt.Config.Index.MemoBytes),
		disagreements: make(chan dataplane.Disagreement, 1),
	}
	c.config.Store(opt.Config)
	allowed, err := discover.ParseAllowed(opt.Config.NodeURLsAllowed)
	if err != nil {
		return nil, fmt.Errorf("read node_urls_allowed: %w", err)
	}
	c.static, err = discover.NewStatic(specsOf(opt.Config))
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	if c.guardPlan, err = guard.Read(guardSettings(opt.Config)); err != nil {
		return nil, fmt.Errorf("read kernel.xdp: %w", err)
	}
	c.guard = guard.New(guard.Options{Log: opt.Log, Signals: c.guardSignals})
	if c.opt.Sockets == nil {
		c.opt.Sockets = takeover.NewSockets()
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.ctx, c.cancel, c.done = ctx, cancel, ctx.Done()
	c.api, c.leases = discover.NewAPI(allowed), discover.NewLeases(opt.Config.Discovery.Register.Lease, allowed)
	c.owned = discover.NewOwned()
	c.sources.all, c.sources.now = c.newSources(opt.Config), map[string]SourceStatus{}
	c.poller = engine.NewPoller(engine.NewProber(), engine.PollerConfig{Deliver: c.polled})
	c.indexer = indexer.New(indexer.Options{
		Index: opt.Index, Fleet: opt.Fleet, NowNs: c.sinceStart,
		LearnTTL: func() time.Duration { return c.Config().Index.ApproximateTTL },
		Swept: func(slot int, generation uint32) {
			c.Send(state.SlotSwept{NowNs: c.NowNs(), Slot: slot, Generation: generation})
		},
		Echo: c.echoed, Sent: c.promptSent, Forgot: func(slot int) { c.placer.Forget(slot) },
	})
	c.sentinels = c.newSentinels()
	c.placer = report.NewPlacer(c.indexer.Writer(), c.chains)
	c.streams = newStreams(c)
	if c.prover, err = c.newProver(); err != nil {
		cancel()
		return nil, err
	}
	if c.reports, err = listenReports(c); err != nil {
		cancel()
		return nil, err
	}
	first := state.New(settingsOf(opt.Config))
	c.view.Store(&first)
	c.wait.Go(func() { c.reduce(ctx, first) })
	c.wait.Go(func() { c.indexer.Run(ctx) })
	c.wait.Go(func() { c.prover.Run(ctx) })
	c.wait.Go(func() { c.tick(ctx) })
	if opt.Kernel != nil {
		c.wait.Go(func() { opt.Kernel.Run(ctx, opt.Fleet, c.kernelFault, c.kernelLoads) })
	}
	if c.reports != nil {
		c.reports.server.Serve(c.reports.ln)
	}
	c.introduceSources()
	for _, source := range c.sources.all {
		c.wait.Go(func() { c.follow(ctx, source) })
	}
	if opt.Config.Scaler.Enabled {
		c.scaling = newScaling(c)
		c.scaling.start(ctx)
	}
	if opt.Dataplane != nil {
		c.Attach(opt.Dataplane)
	}
	return c, nil
}

// Stop ends all goroutines.
func (c *ControlPlane) Stop() {
	c.stopReports() // first, while what it has taken can still be applied
	c.guard.Stop()
	c.cancel()
	c.poller.Stop()
	c.wait.Wait()
	c.streams.wait.Wait()
	if c.scaling != nil {
		c.scaling.close() // last: what was under way has ended
	}
	c.formers.forget()
}

func (c *ControlPlane) stopReports() {
	ctx, cancel := context.WithTimeout(context.Background(), reportsStopWithin)
	defer cancel()
	c.reports.stop(ctx)
}

// NowNs is the clock of events, never zero.
func (c *ControlPlane) NowNs() int64 { return c.sinceStart() + 1 }

// sinceStart is the clock of the index.
func (c *ControlPlane) sinceStart() int64 { return int64(time.Since(c.started)) }

// Send gives an event to the reducer. It waits when the queue is full, for
// events are not lost, but not beyond the control plane's end.
func (c *ControlPlane) Send(e state.Event) {
	select {
	case c.events <- e:
	case <-c.done:
	}
}

// State returns what the reducer holds. It must not be changed.
func (c *ControlPlane) State() *state.State { return c.view.Load() }

// Config returns the configuration in force.
func (c *ControlPlane) Config() *config.Config { return c.config.Load() }

// Nodes returns the source of nodes that were added at run time.
func (c *ControlPlane) Nodes() *discover.API { return c.api }

// Leases returns the source of nodes that register themselves.
func (c *ControlPlane) Leases() *discover.Leases { return c.leases }

// reduce is the one goroutine that owns the State.
func (c *ControlPlane) reduce(ctx context.Context, s state.State) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-c.events:
			var effects []state.Effect
			s, effects = c.steps(s, e)
			now := s
			c.view.Store(&now)
			c.opt.Fleet.SetPressure(s.Pressure)
			if slices.ContainsFunc(effects, isPublish) {
				c.publish(ctx, s)
			}
			for _, effect := range effects {
				c.carryOut(s, effect)
			}
		}
	}
}

// stepsAtOnce bounds the events that one snapshot covers.
const stepsAtOnce = 256

// steps takes an event and those that wait behind it. Many come at once when a large
// fleet begins: one snapshot then does for all, where one for each would take longer
// than they do to come.
func (c *ControlPlane) steps(s state.State, e state.Event) (state.State, []state.Effect) {
	s, effects := state.Step(s, e)
	for range stepsAtOnce - 1 {
		select {
		case e := <-c.events:
			var more []state.Effect
			s, more = state.Step(s, e)
			effects = append(effects, more...)
		default:
			return s, effects
		}
	}
	return s, effects
}

// carryOut does what an effect asks for. None of it blocks.
func (c *ControlPlane) carryOut(s state.State, effect state.Effect) {
	switch e := effect.(type) {
	case state.Publish: // done before all others
	case state.Probe:
		c.poller.AskHealth(e.Node, time.Duration(e.TimeoutNs))
	case state.AskModels:
		c.poller.AskModels(e.Node)
	case state.DropSlot:
		c.indexer.Drop(e.Slot, e.Generation)
	case state.ClearSlot:
		c.indexer.Clear(e.Slot, e.Generation)
	case state.Drained: // nobody waits for it, and the State has logged it
	case state.Log:
		c.opt.Log.LogAttrs(context.Background(), e.Level, e.Message, e.Attrs...)
	default:
		panic(fmt.Sprintf("BUG: controlplane: unknown effect %T", effect))
	}
}

// polled turns a poller's answer into an event. Metrics that could not be read
// judge no node: the last ones go stale, which the State sees by itself.
func (c *ControlPlane) polled(e engine.Event) {
	if e.Kind == engine.MetricsEvent && e.Err != nil {
		if !errors.Is(e.Err, engine.ErrNoMetrics) { // an engine that has none says so each time
			c.opt.Log.Debug("metrics not read", "node", e.Node, "err", e.Err)
		}
		return
	}
	incarnation, err := strconv.ParseUint(e.Key, 10, 64)
	if err != nil {
		panic("BUG: controlplane: poll target without an incarnation: " + e.Key)
	}
	if e.Kind == engine.MetricsEvent {
		c.readings.add(state.MetricsSeen{NowNs: c.NowNs(), Node: e.Node, Incarnation: incarnation, Sample: sampleOf(e.Sample)})
		return
	}
	c.Send(c.eventOf(e, incarnation))
}

func (c *ControlPlane) eventOf(e engine.Event, incarnation uint64) state.Event {
	now := c.NowNs()
	failure := ""
	if e.Err != nil {
		failure = e.Err.Error()
	}
	switch e.Kind {
	case engine.ModelsEvent:
		served := make([]state.Served, len(e.Models.Models))
		for i, m := range e.Models.Models {
			served[i] = state.Served{ID: m.ID, MaxModelLen: m.MaxModelLen, Root: m.Root, Parent: m.Parent}
		}
		return state.ModelsSeen{NowNs: now, Node: e.Node, Incarnation: incarnation, Models: served, Engine: e.Models.Engine, Err: failure}
	default:
		return state.ProbeResult{
			NowNs: now, Node: e.Node, Incarnation: incarnation, OK: e.Err == nil, Status: statusOf(e.Err),
			Local: backend.DialClass(e.Err) == backend.Local, DurationNs: int64(e.TookSeconds * 1e9), Err: failure,
		}
	}
}

func sampleOf(s engine.Sample) state.Sample {
	return state.Sample{
		Engine: s.Engine, Queued: s.Queued, Running: s.Running, KVUse: s.KVUse,
		PromptTokens: s.PromptTokens, GeneratedTokens: s.GeneratedTokens, BlockTokens: s.BlockTokens, CacheTokens: s.CacheTokens,
	}
}

// tick moves the State's clock and reports the data plane's counters.
func (c *ControlPlane) tick(ctx context.Context) {
	next := time.NewTimer(beat.Wait(tickEvery))
	defer next.Stop()
	lastLearned := time.Now()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			next.Reset(beat.Wait(tickEvery))
		}
		c.reportLoads()
		c.reportReadings()
		c.streams.report()
		if c.claims.expire(time.Now()) {
			c.expect()
		}
		if n%cachesEvery == 0 {
			c.reportCaches()
		}
		if data := c.data.Load(); data != nil && time.Since(lastLearned) >= learnEvery {
			lastLearned, c.opt.Dataplane = time.Now(), data
			c.reportLearned()
		}
		c.Send(state.Tick{NowNs: c.NowNs()})
	}
}

// Ready reports whether a usable node is published.
func (c *ControlPlane) Ready() bool {
	for _, n := range c.opt.Fleet.Load().Nodes {
		if n.Available() {
			return true
		}
	}
	return false
}

// WaitReady waits until a usable node is published, or ctx ends.
func (c *ControlPlane) WaitReady(ctx context.Context) error {
	look := time.NewTicker(readyPoll)
	defer look.Stop()
	for !c.Ready() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for a usable node: %w", ctx.Err())
		case <-look.C:
		}
	}
	return nil
}
