package discover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
)

// Source says where nodes come from.
type Source interface {
	// Name is a short word for logs and the admin API.
	Name() string
	// Run tells to of the full set, soon after it began and again after every
	// change, until ctx ends; then it returns nil. An error means that the source
	// cannot go on by itself; whoever runs it may run it again, and the set it told
	// of last stands meanwhile. One source never calls to from two goroutines at
	// once.
	Run(ctx context.Context, to Listener) error
}

// Listener takes what a source sees.
type Listener interface {
	// Emit takes the full set and owns the slice. It may be the set of before, and
	// is after a failure that is over.
	Emit(nodes []state.Spec)
	// Failed says that the source could not look, or did not understand what it saw.
	// The set of before stands.
	Failed(err error)
}

// holder keeps a full set and tells one Run of its changes.
type holder struct {
	mu      sync.Mutex
	nodes   []state.Spec  // guarded by mu; replaced, never written in place
	changed chan struct{} // holds at most one: changes while the reader is busy are one change
}

func newHolder() holder { return holder{changed: make(chan struct{}, 1)} }

// store replaces the set. The caller holds h.mu.
func (h *holder) store(nodes []state.Spec) {
	h.nodes = nodes
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

func (h *holder) load() []state.Spec {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.nodes)
}

func (h *holder) run(ctx context.Context, to Listener) error {
	for {
		select { // the set about to be read is as new as any change told so far
		case <-h.changed:
		default:
		}
		to.Emit(h.load())
		select {
		case <-ctx.Done():
			return nil
		case <-h.changed:
		}
	}
}

// Static is the source of the configuration's nodes.
type Static struct{ holder }

// NewStatic checks nodes and returns a source of them. The error joins all
// faults found.
func NewStatic(nodes []state.Spec) (*Static, error) {
	s := &Static{newHolder()}
	if err := s.Replace(nodes); err != nil {
		return nil, err
	}
	return s, nil
}

// Name is "static".
func (s *Static) Name() string { return "static" }

// Run implements Source.
func (s *Static) Run(ctx context.Context, to Listener) error { return s.run(ctx, to) }

// Replace swaps the whole set, when the configuration was loaded again. On an
// error the old set stands. It may be called by any goroutine.
func (s *Static) Replace(nodes []state.Spec) error {
	checked, err := checkAll(nodes)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(checked)
	return nil
}

// checkAll validates a set as a whole: every spec by itself, no name and no
// URL twice, no more than there are slots.
func checkAll(nodes []state.Spec) ([]state.Spec, error) {
	var faults []error
	if len(nodes) > fleet.MaxSlots {
		faults = append(faults, fmt.Errorf("%d nodes: use at most %d", len(nodes), fleet.MaxSlots))
	}
	names, urls := map[string]bool{}, map[string]string{}
	checked := make([]state.Spec, 0, len(nodes))
	for _, n := range nodes {
		n, err := validate(n)
		switch {
		case err != nil:
			faults = append(faults, err)
		case names[n.Name]:
			faults = append(faults, fmt.Errorf("node %q stands twice: rename or remove one", n.Name))
		case urls[n.URL] != "":
			faults = append(faults, fmt.Errorf("nodes %q and %q have the same url %q: remove one", urls[n.URL], n.Name, n.URL))
		default:
			names[n.Name], urls[n.URL] = true, n.Name
			checked = append(checked, n)
		}
	}
	return checked, errors.Join(faults...)
}

// ErrExists says that Add met a node of the same name or URL.
var ErrExists = errors.New("exists already")

// ErrFull says that no slot is left.
var ErrFull = errors.New("no slot is left")

// API is the source of nodes added and removed at run time.
type API struct {
	holder
	allowed Allowed
}

// NewAPI returns an empty source whose nodes' URLs must be allowed.
func NewAPI(allowed Allowed) *API { return &API{holder: newHolder(), allowed: allowed} }

// Name is state.APISource.
func (a *API) Name() string { return state.APISource }

// Run implements Source.
func (a *API) Run(ctx context.Context, to Listener) error { return a.run(ctx, to) }

// Add checks a node and adds it. The very same node again is no error, so that
// whoever registers may repeat itself; another one of that name or URL is
// ErrExists: remove it first. ErrFull at fleet.MaxSlots nodes. It may be called
// by any goroutine; it never contacts the node.
func (a *API) Add(s state.Spec) (state.Spec, error) {
	s, err := validate(s)
	if err != nil {
		return state.Spec{}, fmt.Errorf("add node: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.allowed.Check(s.URL); err != nil {
		return state.Spec{}, fmt.Errorf("add node %q: %w", s.Name, err)
	}
	for _, old := range a.nodes {
		switch {
		case old.Equal(s):
			return s, nil
		case old.Name == s.Name:
			return state.Spec{}, fmt.Errorf("add node %q: a node of that name at %q %w: remove it first", s.Name, old.URL, ErrExists)
		case old.URL == s.URL:
			return state.Spec{}, fmt.Errorf("add node %q: a node with url %q %w as %q: remove it first", s.Name, s.URL, ErrExists, old.Name)
		}
	}
	if len(a.nodes) >= fleet.MaxSlots {
		return state.Spec{}, fmt.Errorf("add node %q: %w: at most %d nodes", s.Name, ErrFull, fleet.MaxSlots)
	}
	a.store(append(slices.Clone(a.nodes), s))
	return s, nil
}

// Remove takes a node away that Add added; false if there is none.
func (a *API) Remove(name string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.IndexFunc(a.nodes, func(s state.Spec) bool { return s.Name == name })
	if i < 0 {
		return false
	}
	a.store(slices.Concat(a.nodes[:i], a.nodes[i+1:]))
	return true
}

// SetAllowed changes which URLs Add takes, when the configuration was loaded
// again. Nodes that are no longer allowed leave the set; their names are
// returned.
func (a *API) SetAllowed(allowed Allowed) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.allowed = allowed
	var kept []state.Spec
	var gone []string
	for _, s := range a.nodes {
		if allowed.Check(s.URL) == nil {
			kept = append(kept, s)
		} else {
			gone = append(gone, s.Name)
		}
	}
	if len(gone) > 0 {
		a.store(kept)
	}
	return gone
}

// Nodes returns the set as it stands, by name.
func (a *API) Nodes() []state.Spec {
	nodes := a.load()
	slices.SortFunc(nodes, func(x, y state.Spec) int { return strings.Compare(x.Name, y.Name) })
	return nodes
}
