package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"warmpath/dataplane/beat"
	"warmpath/dataplane/fleet"
)

// Kind says what an Event carries.
type Kind uint8

const (
	MetricsEvent Kind = iota // Sample, or Err
	ModelsEvent              // Models, or Err
	HealthEvent              // Err == nil: healthy
)

var kindNames = [...]string{"metrics", "models", "health"}

// String returns the word for logs.
func (k Kind) String() string { return kindNames[k] }

// Event is the result of one question to one node.
type Event struct {
	Kind        Kind
	Node        string // Target.Name
	Key         string // Target.Key when the question was asked
	AtNs        int64  // Unix time of the answer
	TookSeconds float64
	Sample      Sample    // MetricsEvent
	Models      ModelList // ModelsEvent
	Err         error     // names URL and cause; ErrNoMetrics in it is no fault of the node
}

// Target is one node to ask. Targets are compared as a whole: one with a
// changed field is asked anew, models first.
type Target struct {
	Name          string        // unique in the set
	Key           string        // handed back in events: names the incarnation, so that a late answer can be told apart
	URL           string        // base, without a trailing slash
	Engine        string        // dialect; Auto or "" = find out
	HealthPath    string        // "" = /health
	HealthTimeout time.Duration // 0 = the Prober's
}

// PollerConfig has the periods of a Poller. Deliver is needed; a zero value
// of the others means the default.
type PollerConfig struct {
	MetricsEvery time.Duration  // 1 s; every wait is jittered by a tenth
	ModelsEvery  time.Duration  // 60 s, and 2 s until the first answer
	Deliver      func(Event)    // called by several goroutines at once; must not block for long, nor call Stop
	Rand         func() float64 // in [0, 1), for jitter; safe for concurrent use
}

// modelsRetry is how soon a model list that could not be read is asked again:
// until then nothing can be routed to the node.
const modelsRetry = 2 * time.Second

// Poller asks every node of a desired set: its metrics all the time, its
// models now and then, its health when told to. One goroutine asks all those whose
// addresses are numbers, three each of the others; a slow answer to one question delays
// no other.
type Poller struct {
	prober *Prober
	config PollerConfig

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	wheel  *wheel

	mu    sync.Mutex
	nodes map[string]*polled // guarded by mu; nil after Stop
}

// polled is one node being asked.
type polled struct {
	poller *Poller
	target Target
	cancel context.CancelFunc

	models asker
	health asker

	healthFor atomic.Int64 // ns that the next question for its health may take; 0 = target.HealthTimeout

	learned atomic.Pointer[string] // the dialect that the model list named, if it keeps its metrics elsewhere
}

// asker passes one question on. busy is set from asking to delivery, so that
// a question under way is not doubled.
type asker struct {
	busy atomic.Bool
	now  chan struct{} // holds at most one
	pass func()        // to somebody else than who waits for now; nil = to that one
}

func newAsker() asker { return asker{now: make(chan struct{}, 1)} }

func (a *asker) ask() {
	if !a.busy.CompareAndSwap(false, true) {
		return
	}
	if a.pass != nil {
		a.pass()
		return
	}
	select {
	case a.now <- struct{}{}:
	default: // left over from an ask that a timer was faster than
	}
}

// begin takes the question up, whatever woke its goroutine; end admits the
// next.
func (a *asker) begin() {
	a.busy.Store(true)
	select {
	case <-a.now:
	default:
	}
}

func (a *asker) end() { a.busy.Store(false) }

// NewPoller returns a Poller with an empty set.
func NewPoller(prober *Prober, config PollerConfig) *Poller {
	if config.Deliver == nil {
		panic("BUG: engine.NewPoller: Deliver is nil")
	}
	if config.MetricsEvery <= 0 {
		config.MetricsEvery = time.Second
	}
	if config.ModelsEvery <= 0 {
		config.ModelsEvery = time.Minute
	}
	if config.Rand == nil {
		config.Rand = rand.Float64
	}
	p := &Poller{prober: prober, config: config, nodes: map[string]*polled{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wheel = &wheel{poller: p, news: make(chan struct{}, 1)}
	return p
}

// Set makes targets the desired set: new nodes are asked from now on, missing
// ones no more. A wrong set (two of one name, more than fleet.MaxSlots)
// changes nothing. An answer that is just being delivered may still come
// after a node left the set; its Key tells. After Stop it does nothing.
func (p *Poller) Set(targets []Target) error {
	if len(targets) > fleet.MaxSlots {
		return fmt.Errorf("set poll targets: %d nodes, at most %d", len(targets), fleet.MaxSlots)
	}
	desired := make(map[string]Target, len(targets))
	for _, t := range targets {
		if _, twice := desired[t.Name]; twice {
			return fmt.Errorf("set poll targets: two nodes named %q", t.Name)
		}
		desired[t.Name] = t
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes == nil {
		return nil
	}
	for name, n := range p.nodes {
		if t, keep := desired[name]; !keep || t != n.target {
			n.cancel()
			delete(p.nodes, name)
		}
	}
	for name, t := range desired {
		if p.nodes[name] == nil {
			p.nodes[name] = p.start(t)
		}
	}
	return nil
}

// AskHealth asks a node's health route now and waits for timeout (0 means
// Target.HealthTimeout). It reports whether the node is in the set; a question
// under way is not doubled.
func (p *Poller) AskHealth(name string, timeout time.Duration) bool {
	return p.ask(name, func(n *polled) {
		n.healthFor.Store(int64(timeout))
		n.health.ask()
	})
}

// AskModels asks a node's model list now, as AskHealth its health.
func (p *Poller) AskModels(name string) bool {
	return p.ask(name, func(n *polled) { n.models.ask() })
}

func (p *Poller) ask(name string, question func(*polled)) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[name]
	if n == nil {
		return false
	}
	question(n)
	return true
}

// Stop ends all questions and waits for their goroutines: no Deliver runs
// after it returned. It may be called twice.
func (p *Poller) Stop() {
	p.mu.Lock()
	p.nodes = nil
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
	p.prober.HTTP.CloseIdleConnections()
}

// start begins asking a node. The caller holds p.mu.
func (p *Poller) start(t Target) *polled {
	ctx, cancel := context.WithCancel(p.ctx)
	n := &polled{poller: p, target: t, cancel: cancel, models: newAsker(), health: newAsker()}
	if !p.wheel.take(ctx, n) {
		p.wg.Go(func() { n.pollMetrics(ctx) })
		p.wg.Go(func() { n.pollModels(ctx) })
		p.wg.Go(func() { n.pollHealth(ctx) })
	}
	return n
}

// pollMetrics asks again and again, where the wheel cannot. The first wait is anywhere
// in the period, so that nodes that came together are not asked together.
func (n *polled) pollMetrics(ctx context.Context) {
	var seen metricsSeen
	wait := n.firstWait()
	s := newScraper(n.poller.prober, n.target.URL)
	defer s.close()
	for pause(ctx, beat.Until(time.Now().Add(wait), n.poller.moment()), nil) {
		e := n.event(MetricsEvent, func() (e Event) {
			e.Sample, e.Err = s.metrics(ctx, n.dialect())
			return e
		})
		wait = n.conclude(ctx, &seen, e)
		if wait > idleTimeout {
			s.close()
		}
	}
}

func (n *polled) firstWait() time.Duration {
	return time.Duration(n.poller.config.Rand() * float64(n.poller.config.MetricsEvery))
}

// metricsSeen is what is remembered of a node's metrics.
type metricsSeen struct {
	lost         bool
	startSeconds float64
}

// conclude delivers what came of a question for metrics and returns how long to wait
// until the next. An engine that has no metrics is asked as rarely as for its models.
func (n *polled) conclude(ctx context.Context, seen *metricsSeen, e Event) time.Duration {
	every := n.poller.config.MetricsEvery
	// Another process may serve other models.
	if started := e.Sample.StartSeconds.Or(seen.startSeconds); e.Err == nil {
		if seen.lost || seen.startSeconds != 0 && started != seen.startSeconds {
			n.models.ask()
		}
		seen.startSeconds = started
	}
	seen.lost = e.Err != nil && !errors.Is(e.Err, ErrNoMetrics)
	n.deliver(ctx, e)
	switch {
	case !errors.Is(e.Err, ErrNoMetrics):
		return n.jitter(every)
	case n.target.Engine == OpenAI || errors.As(e.Err, new(*StatusError)):
		return n.jitter(max(every, n.poller.config.ModelsEvery))
	default: // some engines name their metrics only after the first request
		return n.jitter(5 * every)
	}
}

// togethers is in how many moments of a period nodes are asked: one that wakes for
// several nodes costs a processor that sleeps in between less than one for each.
const (
	togethers   = 40
	leastMoment = time.Millisecond
	mostMoment  = 25 * time.Millisecond
)

// moment is the distance of these moments.
func (p *Poller) moment() time.Duration {
	return min(max(leastMoment, p.config.MetricsEvery/togethers), mostMoment)
}

// dialect is the one configured. Else the text says for itself what it is, and
// the model list has said where it lies.
func (n *polled) dialect() string {
	if n.target.Engine != "" && n.target.Engine != Auto {
		return n.target.Engine
	}
	if name := n.learned.Load(); name != nil {
		return *name
	}
	return Auto
}

func (n *polled) pollModels(ctx context.Context) {
	s := newScraper(n.poller.prober, n.target.URL)
	wait, first := time.Duration(0), true
	for pause(ctx, wait, n.models.now) {
		n.models.begin()
		e := n.event(ModelsEvent, func() (e Event) {
			e.Models, e.Err = s.models(ctx)
			return e
		})
		wait, first = n.concludeModels(ctx, e, first), false
	}
}

// concludeModels delivers what came of a question for the models and returns how long to
// wait until the next. Nodes that came together are not asked together again.
func (n *polled) concludeModels(ctx context.Context, e Event, first bool) time.Duration {
	wait := n.jitter(n.poller.config.ModelsEvery)
	if first {
		wait = time.Duration((1 + n.poller.config.Rand()) / 2 * float64(wait))
	}
	if e.Err != nil {
		wait = min(wait, n.jitter(modelsRetry))
	} else if d := byName(e.Models.Engine); d != nil && d.metricsPath != defaultMetricsPath {
		n.learned.Store(&d.name)
	} else {
		n.learned.Store(nil)
	}
	n.deliver(ctx, e)
	n.models.end()
	return wait
}

// pollHealth asks for the health of a node that the wheel cannot ask.
func (n *polled) pollHealth(ctx context.Context) {
	s := newScraper(n.poller.prober, n.target.URL)
	for pause(ctx, -1, n.health.now) {
		n.health.begin()
		n.deliver(ctx, n.event(HealthEvent, func() (e Event) {
			e.Err = s.health(ctx, n.target.HealthPath, n.healthTimeout())
			return e
		}))
		n.health.end()
	}
}

// healthTimeout is for the next question; 0 = the Prober's.
func (n *polled) healthTimeout() time.Duration {
	return cmp.Or(time.Duration(n.healthFor.Load()), n.target.HealthTimeout)
}

// event runs a question and stamps its answer.
func (n *polled) event(kind Kind, question func() Event) Event {
	began := time.Now()
	e := question()
	ended := time.Now()
	e.Kind, e.Node, e.Key = kind, n.target.Name, n.target.Key
	e.AtNs, e.TookSeconds = ended.UnixNano(), ended.Sub(began).Seconds()
	return e
}

// deliver hands an answer over, unless the node left the set meanwhile: then
// the error would be ours.
func (n *polled) deliver(ctx context.Context, e Event) {
	if ctx.Err() == nil {
		n.poller.config.Deliver(e)
	}
}

// jitter spreads d by a tenth to either side.
func (n *polled) jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*n.poller.config.Rand()))
}

// pause waits for d (for ever if it is negative) or until now is asked. It
// reports false when ctx ended.
func pause(ctx context.Context, d time.Duration, now <-chan struct{}) bool {
	var after <-chan time.Time
	switch {
	case d == 0: // no timer, which Go 1.26's race detector can trip over in a test's bubble if it is due when it is waited for
		return ctx.Err() == nil
	case d > 0:
		timer := time.NewTimer(d)
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-now:
	case <-after:
	}
	return ctx.Err() == nil
}
