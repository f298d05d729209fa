package scaler

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"warmpath/scaler/actuate"
)

// provider is an Actuator that does what it is told to, and takes note.
type provider struct {
	t  *testing.T
	mu sync.Mutex

	nodes  map[string]actuate.Instance
	partly bool          // Partial
	err    error         // what all calls fail with
	hang   bool          // changes are never answered; of those that ended with it …
	lost   bool          // … Create has made its node all the same
	listed time.Duration // how long a list takes

	creates, deletes, lists int
	under                   map[string]bool // keys that a call is under way about
	most                    int             // at once
	listing                 bool
	keys                    []string // that were asked for, each once
}

func newProvider(t *testing.T) *provider {
	return &provider{t: t, nodes: map[string]actuate.Instance{}, under: map[string]bool{}}
}

// set changes what the provider does.
func (p *provider) set(change func(*provider)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(p)
}

// begin takes note of a call about a key, and waits as long as it shall.
func (p *provider) begin(ctx context.Context, key string) error {
	p.mu.Lock()
	if p.under[key] {
		p.t.Errorf("two calls at once about node %q", key)
	}
	p.under[key] = true
	p.most = max(p.most, len(p.under))
	hang := p.hang
	p.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

func (p *provider) Create(ctx context.Context, w actuate.Wanted) (actuate.Instance, error) {
	err := p.begin(ctx, w.Key)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.under, w.Key)
	p.creates++
	if !slices.Contains(p.keys, w.Key) {
		p.keys = append(p.keys, w.Key)
	}
	if p.err != nil {
		return actuate.Instance{}, p.err
	}
	i, ok := p.nodes[w.Key]
	if !ok && (err == nil || p.lost) {
		i = actuate.Instance{Key: w.Key, ID: "i-" + w.Key, URL: "http://" + w.Key, Phase: actuate.Running}
		p.nodes[w.Key] = i
	}
	return i, err
}

func (p *provider) Delete(ctx context.Context, i actuate.Instance) error {
	err := p.begin(ctx, i.Key+i.ID)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.under, i.Key+i.ID)
	p.deletes++
	if err = errors.Join(err, p.err); err == nil {
		delete(p.nodes, i.Key)
	}
	return err
}

func (p *provider) List(ctx context.Context) ([]actuate.Instance, error) {
	p.mu.Lock()
	if p.listing {
		p.t.Error("two lists at once")
	}
	p.listing = true
	p.lists++
	took := p.listed
	p.mu.Unlock()
	select {
	case <-time.After(took):
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.listing = false
	if p.partly {
		return nil, p.err
	}
	return slices.Collect(maps.Values(p.nodes)), errors.Join(p.err, ctx.Err())
}

func (p *provider) Partial() bool { return p.partly }
func (p *provider) Close() error  { return nil }

// count is how many nodes there are.
func (p *provider) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.nodes)
}

// calls are those that changed something, or might have.
func (p *provider) calls() (creates, deletes, lists int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.creates, p.deletes, p.lists
}

// routers are one router: what is published is ready at once.
type routers struct {
	mu       sync.Mutex
	nodes    map[string]*Watch
	missing  string
	deaf     bool // they cannot be asked
	refusing bool // they take no nodes
	held     float64
	metered  int64
	watched  int // how often they were asked
	drained  []string
}

func newRouters() *routers { return &routers{nodes: map[string]*Watch{}} }

func (r *routers) set(change func(*routers)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

func (r *routers) Signals(nowNs int64) Signals {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := Signals{Missing: r.missing, Held: r.held, Traffic: Traffic{
		SpanSeconds: float64(nowNs-r.metered) / 1e9, Uncached: make([]float64, len(TokenBounds)+1), TTFT: NewTTFT(),
	}}
	r.metered = nowNs
	for _, key := range slices.Sorted(maps.Keys(r.nodes)) {
		w := r.nodes[key]
		s.Nodes = append(s.Nodes, Node{Name: key, Phase: w.Phase, SinceNs: nowNs, InFlight: w.InFlight})
	}
	return s
}

func (r *routers) Watch() (nodes []Watch, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watched++
	for _, w := range r.nodes {
		nodes = append(nodes, *w)
	}
	return nodes, !r.deaf
}

func (r *routers) Publish(nodes []Owned) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.nodes
	r.nodes = map[string]*Watch{}
	for i := range nodes {
		key := nodes[i].Key
		if w := was[key]; w != nil {
			r.nodes[key] = w
		} else if !r.refusing {
			r.nodes[key] = &Watch{Key: key, Phase: Ready}
		}
	}
}

func (r *routers) Drain(key string, back bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !back {
		r.drained = append(r.drained, key)
	}
	if w := r.nodes[key]; w != nil {
		w.Draining, w.Phase = !back, Draining
		if back {
			w.Phase = Ready
		}
	}
}

// rig is a Loop at one provider, whose offer is "a".
type rig struct {
	t       *testing.T
	p       *provider
	r       *routers
	opt     LoopOptions
	loop    *Loop
	halt    context.CancelFunc
	stopped chan struct{}
	tune    func(*Loop) // before it runs; nil = nothing
}

// newRig is a Loop that wants so many nodes, and does not run yet.
func newRig(t *testing.T, least int) *rig {
	c := DefaultConfig()
	c.Min, c.Max, c.Offers = least, max(1, least), []Offer{{Name: "a"}}
	c.IdleSeconds = 1e6 // no request ever comes
	g := &rig{t: t, p: newProvider(t), r: newRouters()}
	g.opt = LoopOptions{
		Config: c, Book: BookSettings{Epoch: "x", Orphans: "report", StartUpSeconds: 60, Offers: c.Offers},
		Actuators: map[string]actuate.Actuator{"a": g.p}, Routers: g.r, Log: slog.New(slog.DiscardHandler),
	}
	return g
}

// run starts it.
func (g *rig) run() {
	g.loop = NewLoop(g.opt)
	if g.tune != nil {
		g.tune(g.loop)
	}
	ctx, halt := context.WithCancel(context.Background())
	g.halt, g.stopped = halt, make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		g.loop.Run(ctx)
	}(g.stopped)
}

// stop halts it and waits.
func (g *rig) stop() {
	g.halt()
	<-g.stopped
}

// pass lets time pass.
func pass(d time.Duration) { <-time.After(d) }

func (g *rig) stages() map[Stage]int {
	count := map[Stage]int{}
	for _, n := range g.loop.Status().Nodes {
		count[n.Stage]++
	}
	return count
}

// expect checks how many nodes there are and in which stage all are that are owned.
func (g *rig) expect(when string, there int, stage Stage, owned int) {
	g.t.Helper()
	if got := g.stages(); g.p.count() != there || got[stage] != owned || len(g.loop.Status().Nodes) != owned {
		g.t.Errorf("%s: %d nodes are there, owned %v; want %d there, %d %s", when, g.p.count(), got, there, owned, stage)
	}
}
