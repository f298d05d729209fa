package discover

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
)

// Leases is the source of nodes that register themselves: each is there for as long
// as it renews its lease. Any goroutine may call its methods.
type Leases struct {
	holder
	allowed Allowed              // guarded by mu
	ends    map[string]time.Time // of the leases, by name; guarded by mu
	length  time.Duration
}

// leaseLooks is how often, in the length of a lease, is looked for those that have
// ended: so much later than its end, at most, a node leaves.
const leaseLooks = 10

// NewLeases returns an empty source whose nodes' URLs must be allowed.
func NewLeases(length time.Duration, allowed Allowed) *Leases {
	return &Leases{holder: newHolder(), allowed: allowed, ends: map[string]time.Time{}, length: length}
}

// Name is state.LeaseSource.
func (l *Leases) Name() string { return state.LeaseSource }

// Length is how long a lease lasts that is not renewed.
func (l *Leases) Length() time.Duration { return l.length }

// Run implements Source.
func (l *Leases) Run(ctx context.Context, to Listener) error {
	every := l.length / leaseLooks
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	to.Emit(l.load())
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-l.changed:
			to.Emit(l.load())
		case <-ticks.C:
			now := time.Now()
			l.expire(now, now.Sub(last)-every)
			last = now
		}
	}
}

// expire takes away the nodes whose leases have ended. Time in which this process
// did not run, and so could not be told of renewals, does not count.
func (l *Leases) expire(now time.Time, stopped time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if stopped > l.length/leaseLooks {
		for name, end := range l.ends {
			l.ends[name] = end.Add(stopped)
		}
	}
	l.keep(func(s state.Spec) bool { return now.Before(l.ends[s.Name]) })
}

// keep takes all others away, and returns their names. The caller holds mu.
func (l *Leases) keep(stays func(state.Spec) bool) (gone []string) {
	var kept []state.Spec
	for _, s := range l.nodes {
		if stays(s) {
			kept = append(kept, s)
		} else {
			gone = append(gone, s.Name)
			delete(l.ends, s.Name)
		}
	}
	if len(gone) > 0 {
		l.store(kept)
	}
	return gone
}

// Register checks a node and begins its lease, or renews it; what else is said of
// the node may change. Another node of that name or URL whose lease runs is
// ErrExists; ErrFull at fleet.MaxSlots nodes. It never contacts the node.
func (l *Leases) Register(s state.Spec) (state.Spec, error) {
	s, err := validate(s)
	if err != nil {
		return state.Spec{}, fmt.Errorf("register node: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.allowed.Check(s.URL); err != nil {
		return state.Spec{}, fmt.Errorf("register node %q: %w", s.Name, err)
	}
	at := -1
	for i, old := range l.nodes {
		switch {
		case old.Name == s.Name && old.URL == s.URL:
			at = i
		case old.Name == s.Name:
			return state.Spec{}, fmt.Errorf("register node %q: a node of that name at %q %w: wait until its lease ends, or give this one another name", s.Name, old.URL, ErrExists)
		case old.URL == s.URL:
			return state.Spec{}, fmt.Errorf("register node %q: a node with url %q %w as %q: wait until its lease ends, or register it by that name", s.Name, s.URL, ErrExists, old.Name)
		}
	}
	nodes := slices.Clone(l.nodes)
	switch {
	case at < 0 && len(nodes) >= fleet.MaxSlots:
		return state.Spec{}, fmt.Errorf("register node %q: %w: at most %d nodes", s.Name, ErrFull, fleet.MaxSlots)
	case at < 0:
		l.store(append(nodes, s))
	case !nodes[at].Equal(s):
		nodes[at] = s
		l.store(nodes)
	}
	l.ends[s.Name] = time.Now().Add(l.length)
	return s, nil
}

// Release ends a lease; false if there is none of that name.
func (l *Leases) Release(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.keep(func(s state.Spec) bool { return s.Name != name })) > 0
}

// SetAllowed changes which URLs nodes may have. Those that no longer may leave, and
// are returned.
func (l *Leases) SetAllowed(allowed Allowed) (gone []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowed = allowed
	gone = l.keep(func(s state.Spec) bool { return allowed.Check(s.URL) == nil })
	slices.SortFunc(gone, strings.Compare)
	return gone
}
