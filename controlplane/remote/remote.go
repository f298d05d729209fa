package remote

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"warmpath/controlplane/state"
	"warmpath/scaler"
)

const (
	silentAfter  = 3 * time.Second                        // what a router said longer ago is not believed
	takeInWithin = 15 * time.Second                       // a router has nodes again that it had lost, or it does not want them
	twinWithin   = (scaler.TwinSeconds + 2) * time.Second // the claim of a process that was killed has ended
	mostPast     = 1024                                   // names of nodes that are gone
)

// Options are fixed for the life of Routers.
type Options struct {
	Routers []string // bases of their admin sides, such as http://10.0.0.1:8081
	Token   string   // that they ask for; "" = none
	// ID is the epoch of the scaler's journal: it tells this scaler from others, and its
	// nodes by their names.
	ID           string
	Fleet, Model string
	Spec         func(n *scaler.Owned) state.Spec // how a router is told of a node
	Status       func() *scaler.Status            // of the scaler; nil until it runs
	Transport    http.RoundTripper                // nil = http.DefaultTransport
	Log          *slog.Logger
}

// Routers are routers in other processes, asked over their admin sides. It implements
// scaler.Routers.
type Routers struct {
	opt    Options
	mark   string // of this process
	client http.Client
	all    []*router
	meter  scaler.Meter // of the loop's goroutine

	mu      sync.Mutex
	told    bool               // Publish was called; guarded by mu, as what follows
	wanted  map[string]*wanted // by name
	keys    map[string]string  // names of wanted by their URLs
	invalid string             // why nodes that providers named cannot be published
	past    map[string]bool    // names that were wanted and are not
	ordered time.Time          // when a node was drained or taken back last
}

// wanted is a node that every router shall have.
type wanted struct {
	spec   state.Spec
	served bool // it has, so that a router without it has lost it
	drain  bool
}

// Status is how one router is doing.
type Status struct {
	URL   string
	Error string // why it is not believed; "" = it is
	Nodes int    // of the scaler, that it has
}

// New returns Routers that ask nobody before Check or Run.
func New(opt Options) *Routers {
	rs := &Routers{opt: opt, mark: rand.Text(), client: http.Client{Transport: opt.Transport}, wanted: map[string]*wanted{}, past: map[string]bool{}}
	for _, base := range opt.Routers {
		rs.all = append(rs.all, newRouter(rs, base))
	}
	return rs
}

// Check claims the nodes at each router, and fails if one refuses: another scaler
// scales them, or the token is wrong. It waits for the end of the claim of a process
// before, if that was killed. A router that does not answer is no failure: nothing is
// changed until it does.
func (rs *Routers) Check(ctx context.Context) error {
	errs := make([]error, len(rs.all))
	var wait sync.WaitGroup
	for i, r := range rs.all {
		wait.Go(func() {
			if err := r.firstClaim(ctx); refused(err) != 0 {
				errs[i] = err
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// Run asks the routers until ctx ends, and tells them then that another process may.
// Nodes that they have stay.
func (rs *Routers) Run(ctx context.Context) {
	var wait sync.WaitGroup
	for _, r := range rs.all {
		wait.Go(func() {
			r.run(ctx)
			_ = r.claim(context.WithoutCancel(ctx), true) // who does not hear it waits for the claim's end
		})
	}
	wait.Wait()
	rs.client.CloseIdleConnections()
}

// Signals implements scaler.Routers.
func (rs *Routers) Signals(nowNs int64) scaler.Signals {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	missing, fresh := "", true
	readings := map[string]*scaler.Reading{}
	for _, r := range rs.all {
		if why := r.untrue(now); why != "" && missing == "" {
			missing = why
		}
		if r.view == nil {
			continue
		}
		fresh = fresh && r.view.number > r.metered
		reading := r.view.reading
		reading.Nodes = slices.Clone(reading.Nodes)
		// The router's clock and the loop's differ by when they began.
		shift := nowNs - int64(now.Sub(r.view.asked)) - reading.NowNs
		for i := range reading.Nodes {
			n := &reading.Nodes[i]
			n.SinceNs += shift
			n.Name = rs.nameOf(r.view, n.Name)
		}
		readings[r.base] = &reading
	}
	// A reading that was used already has no traffic, and would hide that of the others.
	meter := rs.meter
	s := meter.Signals(nowNs, readings)
	if missing != "" {
		s.Missing = missing
	}
	if s.Missing != "" || !fresh {
		s.Traffic = scaler.Traffic{}
		return s
	}
	rs.meter = meter
	for _, r := range rs.all {
		r.metered = r.view.number
	}
	return s
}

// Watch implements scaler.Routers. It is ok if every router was asked since the Watch
// before, and since the last order.
func (rs *Routers) Watch() (nodes []scaler.Watch, ok bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	for _, r := range rs.all {
		if r.distrust(now) != "" || r.view.number == r.watched || !r.view.asked.After(rs.ordered) {
			return nil, false
		}
	}
	for _, r := range rs.all {
		r.watched = r.view.number
	}
	for _, name := range slices.Sorted(maps.Keys(rs.wanted)) {
		if w, there := rs.joined(name); there {
			nodes = append(nodes, w)
		}
	}
	return nodes, true
}

// joined is a node as all routers see it together, under whatever name: it serves if it
// does at one of them, and drains if it does at all that have it. The caller holds mu.
func (rs *Routers) joined(name string) (w scaler.Watch, there bool) {
	w = scaler.Watch{Key: name, Phase: scaler.Down, Draining: true}
	for _, r := range rs.all {
		if r.view.reading.Former { // there may be requests: who knows of them does not answer any more
			w.InFlight, there = w.InFlight+1, true
		}
		n, ok := r.view.find(name, rs.wanted[name])
		if !ok {
			continue
		}
		there = true
		phase := n.phase()
		w.InFlight += n.InFlight
		w.Draining = w.Draining && n.Drain
		if phase == scaler.Ready || phase == scaler.Draining && w.Phase == scaler.Down || phase == scaler.Starting && w.Phase != scaler.Ready {
			w.Phase = phase
		}
		if n.Running != nil && phase != scaler.Down {
			w.Running = scaler.Known(max(w.Running.Or(0), *n.Running))
		}
	}
	if !w.Draining && w.Phase != scaler.Ready {
		w.Phase = scaler.Starting // where it is down now it may be ready, and be sent to, in a moment
	}
	return w, there
}

// nameOf is the scaler's name of a node that a router may have from another source,
// under another one. The caller holds mu.
func (rs *Routers) nameOf(v *view, name string) string {
	n := v.nodes[name]
	key := rs.keys[n.URL]
	if _, there := v.nodes[key]; key == "" || there || n.Source == state.APISource {
		return name
	}
	return key
}

// Publish implements scaler.Routers.
func (rs *Routers) Publish(nodes []scaler.Owned) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	before, first := rs.wanted, !rs.told
	rs.wanted, rs.keys, rs.told = map[string]*wanted{}, map[string]string{}, true
	var invalid []string
	for i := range nodes {
		n := &nodes[i]
		spec, err := rs.opt.Spec(n).Validate()
		if err != nil {
			invalid = append(invalid, err.Error())
			continue
		}
		rs.keys[spec.URL] = n.Key
		rs.wanted[n.Key] = &wanted{spec: spec, served: n.Stage == scaler.StageServing, drain: n.Stage == scaler.StageLeaving}
		delete(rs.past, n.Key)
		if first && n.TakenBack() {
			rs.takeBack(n.Key) // the order to do so may have been lost with the process before
		}
	}
	was := rs.invalid
	if rs.invalid = strings.Join(invalid, "; "); rs.invalid != "" && rs.invalid != was {
		rs.opt.Log.Error("scaler: nodes cannot be published", "err", rs.invalid)
	}
	for name := range before {
		if rs.wanted[name] == nil && len(rs.past) < mostPast {
			rs.past[name] = true
		}
	}
	rs.wake()
}

// Drain implements scaler.Routers.
func (rs *Routers) Drain(key string, back bool) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	rs.ordered = time.Now()
	if w := rs.wanted[key]; w != nil {
		w.drain = !back
	}
	if back {
		rs.takeBack(key)
	}
	rs.wake()
}

// takeBack has a node undrained wherever it drains. The caller holds mu.
func (rs *Routers) takeBack(key string) {
	for _, r := range rs.all {
		r.back[key] = true
	}
}

// wake has all routers asked at once. The caller holds mu.
func (rs *Routers) wake() {
	for _, r := range rs.all {
		select {
		case r.woken <- struct{}{}:
		default: // it is about to
		}
	}
}

// Status is how the routers are doing. Any goroutine may call it.
func (rs *Routers) Status() []Status {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	var list []Status
	for _, r := range rs.all {
		s := Status{URL: r.base, Error: r.untrue(now)}
		if r.view != nil {
			for name := range r.view.nodes {
				if rs.wanted[name] != nil {
					s.Nodes++
				}
			}
		}
		list = append(list, s)
	}
	return list
}

// Refused says which nodes cannot be published, or are not taken by a router, and why;
// "" = there are none. Any goroutine may call it.
func (rs *Routers) Refused() string {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	var all []string
	if rs.invalid != "" {
		all = append(all, rs.invalid)
	}
	for _, r := range rs.all {
		if r.refusals != "" {
			all = append(all, r.refusals)
		}
	}
	return strings.Join(all, "; ")
}

// ours reports whether a node that nobody wants is, or was, this scaler's: its journal
// gave it its name, or it was published. The caller holds mu.
func (rs *Routers) ours(name string) bool {
	number, found := strings.CutPrefix(name[strings.LastIndexByte(name, '-')+1:], rs.opt.ID)
	return rs.past[name] || found && number != "" && rs.opt.ID != ""
}

// untrue says why what a router says must not be acted upon, "" if it may. The caller
// holds mu.
func (r *router) untrue(now time.Time) string {
	if why := r.distrust(now); why != "" {
		return why
	}
	for name, since := range r.lacks {
		if now.Sub(since) < takeInWithin {
			return fmt.Sprintf("router %s takes %q in", r.base, name)
		}
	}
	return ""
}

// distrust says why what is known of a router is not how it is, "" if it is. The
// caller holds mu.
func (r *router) distrust(now time.Time) string {
	why := ""
	if r.err != nil {
		why = ": " + strings.TrimPrefix(r.err.Error(), "router "+r.base+": ")
	}
	switch {
	case r.view == nil:
		return fmt.Sprintf("router %s has not answered yet%s", r.base, why)
	case refused(r.err) != 0:
		return fmt.Sprintf("router %s refuses%s", r.base, why)
	case now.Sub(r.view.asked) > silentAfter:
		return fmt.Sprintf("router %s has not answered for %.0f s%s", r.base, now.Sub(r.view.asked).Seconds(), why)
	}
	return ""
}
