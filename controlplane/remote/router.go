package remote

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"warmpath/controlplane/state"
	"warmpath/scaler"
)

const (
	lookEvery    = time.Second
	mostRefusals = 5      // that are shown of one router
	looking      = "look" // what went wrong when a router was asked
)

// router is one router and what is known of it.
type router struct {
	of    *Routers
	base  string
	woken chan struct{}     // holds at most one
	said  map[string]string // what the log has of it, by what went wrong; of run's goroutine

	// Guarded by Routers.mu.
	view     *view
	err      error                // why the last look failed; nil = it did not
	lacks    map[string]time.Time // nodes that have served and that it does not have, or not ready; since when
	back     map[string]bool      // nodes that are to be undrained
	refusals string               // what it refused of the last deeds
	watched  int                  // number of the view that Watch used …
	metered  int                  // … and that Signals did
}

// view is what a router said when it was asked last.
type view struct {
	number  int
	asked   time.Time
	nodes   map[string]node
	at      map[string]string // nodes' names by their URLs
	reading scaler.Reading
}

// find is a node of the scaler as the router has it: by its name, or else, as a source of
// others may have named it first, by its URL. A URL is that of one engine.
func (v *view) find(name string, w *wanted) (n node, there bool) {
	if n, there = v.nodes[name]; there && (n.Source == state.APISource || w != nil && n.URL == w.spec.URL) || w == nil {
		return n, there
	}
	n, there = v.nodes[v.at[w.spec.URL]]
	return n, there
}

// node is what matters here of a node as GET /api/nodes shows it.
type node struct {
	Name     string   `json:"name"`
	URL      string   `json:"url"`
	State    string   `json:"state"`
	Drain    bool     `json:"drain"`
	Breaker  string   `json:"breaker"`
	InFlight int64    `json:"in_flight"`
	Running  *float64 `json:"running_requests"`
	Source   string   `json:"source"`
}

// phase is where the node is in its life. One behind an open breaker does no work.
func (n *node) phase() scaler.Phase {
	switch n.State {
	case "ready":
		if n.Breaker == "open" {
			return scaler.Down
		}
		return scaler.Ready
	case "draining":
		return scaler.Draining
	case "down":
		return scaler.Down
	default:
		return scaler.Starting
	}
}

func newRouter(of *Routers, base string) *router {
	return &router{
		of: of, base: base, woken: make(chan struct{}, 1), said: map[string]string{}, lacks: map[string]time.Time{}, back: map[string]bool{},
	}
}

// run asks the router once a second, and when it is woken, until ctx ends.
func (r *router) run(ctx context.Context) {
	ticks := time.NewTicker(lookEvery)
	defer ticks.Stop()
	for ctx.Err() == nil {
		v, err := r.look(ctx)
		r.took(ctx, v, err)
		if err == nil {
			r.act(ctx, v)
		}
		select {
		case <-ctx.Done():
		case <-ticks.C:
		case <-r.woken:
		}
	}
}

// claim says that this process scales the router's nodes, or that it does no longer.
func (r *router) claim(ctx context.Context, ends bool) error {
	opt := &r.of.opt
	c := scaler.Claim{ID: opt.ID, Process: r.of.mark, Fleet: opt.Fleet, Model: opt.Model, Ends: ends}
	if s := opt.Status(); s != nil {
		c.May = s.MayCome()
	}
	return r.call(ctx, http.MethodPost, "/api/scaler/claim", c, nil)
}

// firstClaim is claim, with patience for a process that was killed: the router takes it
// to be there for a moment still.
func (r *router) firstClaim(ctx context.Context) error {
	began := time.Now()
	for {
		err := r.claim(ctx, false)
		if !refusedForNow(err) || time.Since(began) > twinWithin {
			return err
		}
		r.of.opt.Log.Info("scaler: waits for the claim of a process before to end", "router", r.base, "says", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(lookEvery):
		}
	}
}

// look asks the router. The reading comes last: it says whether the router has taken
// over from another process, which the nodes' counts would lack.
func (r *router) look(ctx context.Context) (*view, error) {
	if err := r.claim(ctx, false); err != nil {
		return nil, err
	}
	v := &view{asked: time.Now(), nodes: map[string]node{}, at: map[string]string{}}
	var list []node
	if err := r.call(ctx, http.MethodGet, "/api/nodes", nil, &list); err != nil {
		return nil, err
	}
	for _, n := range list {
		v.nodes[n.Name] = n
		v.at[n.URL] = n.Name
	}
	err := r.call(ctx, http.MethodGet, "/api/scaler/reading?model="+url.QueryEscape(r.of.opt.Model), nil, &v.reading)
	return v, err
}

// took takes what came of a look.
func (r *router) took(ctx context.Context, v *view, err error) {
	if ctx.Err() != nil {
		return
	}
	r.tell(looking, err)
	rs := r.of
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r.err = err; err != nil {
		return
	}
	if r.view != nil {
		v.number = r.view.number
	}
	v.number++
	r.view = v
	lacks := map[string]time.Time{}
	for name, w := range rs.wanted {
		n, there := v.find(name, w)
		if !w.served || there && n.phase() != scaler.Starting {
			continue
		}
		since, known := r.lacks[name]
		if !known {
			since = time.Now()
		}
		lacks[name] = since
	}
	r.lacks = lacks
	for name := range r.back {
		if n, there := v.find(name, rs.wanted[name]); !there || !n.Drain {
			delete(r.back, name)
		}
	}
}

// deed is one call that a router lacks.
type deed struct {
	of           string // the node, and what is done
	method, path string
	body         any
}

// act does what the router lacks, and leaves the rest to the next time if it does not
// answer.
func (r *router) act(ctx context.Context, v *view) {
	deeds := r.deeds(v)
	var refusals []string
	for _, d := range deeds {
		err := r.call(ctx, d.method, d.path, d.body, nil)
		if refused(err) == http.StatusNotFound {
			err = nil // it does not have the node, as it should not, or gets it next time
		}
		r.tell(d.of, err)
		switch {
		case err != nil && refused(err) == 0:
			return
		case err != nil && len(refusals) < mostRefusals:
			refusals = append(refusals, err.Error())
		}
	}
	for key := range r.said { // what is not to be done any more
		if key != looking && !slices.ContainsFunc(deeds, func(d deed) bool { return d.of == key }) {
			delete(r.said, key)
		}
	}
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	r.refusals = strings.Join(refusals, "; ")
}

// deeds compares what a router has with what it shall have. Nothing is done before
// the scaler has said what that is.
func (r *router) deeds(v *view) (deeds []deed) {
	rs := r.of
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !rs.told {
		return nil
	}
	do := func(name, method, route string, body any) {
		path := "/api/nodes"
		if method == http.MethodDelete || route != "" {
			path += "/" + url.PathEscape(name) + route
		}
		deeds = append(deeds, deed{method + " " + name + route, method, path, body})
	}
	for _, name := range slices.Sorted(maps.Keys(v.nodes)) {
		if n := v.nodes[name]; n.Source == state.APISource && rs.wanted[name] == nil && rs.ours(name) {
			do(name, http.MethodDelete, "", nil)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rs.wanted)) {
		w := rs.wanted[name]
		n, there := v.find(name, w)
		switch {
		case !there && w.drain: // a router that does not have it has sent it nothing, and shall not
		case !there: // the router says why not, if the name is another's
			do(name, http.MethodPost, "", w.spec)
		case n.URL != w.spec.URL:
			do(name, http.MethodDelete, "", nil)
			do(name, http.MethodPost, "", w.spec)
		case w.drain && !n.Drain:
			do(n.Name, http.MethodPost, "/drain", nil)
		case !w.drain && n.Drain && r.back[name]:
			do(n.Name, http.MethodPost, "/undrain", nil)
		}
	}
	return deeds
}

// tell logs what goes wrong, once, and that it goes well again.
func (r *router) tell(what string, err error) {
	was, bad := r.said[what]
	switch {
	case err != nil && was != err.Error():
		r.said[what] = err.Error()
		r.of.opt.Log.Warn("scaler: a router does not do what it is asked", "router", r.base, "err", err)
	case err == nil && bad:
		delete(r.said, what)
		if what == looking {
			r.of.opt.Log.Info("scaler: the router answers again", "router", r.base)
		}
	}
}
