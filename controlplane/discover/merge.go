package discover

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"warmpath/dataplane/fleet"
)

// Dropped says why a node of a source is not in the merged set.
type Dropped struct {
	Spec   Spec
	Reason string
}

// Union makes one set of several, in the order of precedence: where two specs
// have the same name or the same URL, the one of the earlier set stands and
// the other is dropped, because one endpoint is one node and a name is one
// node's. Beyond fleet.MaxSlots the last ones are dropped. Pure.
func Union(sets ...[]Spec) (union []Spec, dropped []Dropped) {
	names, urls := map[string]Spec{}, map[string]Spec{}
	drop := func(s Spec, format string, args ...any) {
		dropped = append(dropped, Dropped{Spec: s, Reason: fmt.Sprintf(format, args...)})
	}
	for _, set := range sets {
		for _, s := range set {
			byName, nameTaken := names[s.Name]
			byURL, urlTaken := urls[s.URL]
			switch {
			case nameTaken:
				drop(s, "source %q has a node of that name at %q", byName.Source, byName.URL)
			case urlTaken:
				drop(s, "source %q has a node with that url, named %q", byURL.Source, byURL.Name)
			case len(union) >= fleet.MaxSlots:
				drop(s, "there are %d nodes already", fleet.MaxSlots)
			default:
				names[s.Name], urls[s.URL] = s, s
				union = append(union, s)
			}
		}
	}
	return union, dropped
}

// How long a source that failed rests before it is run again.
const (
	restFirst = time.Second
	restMost  = 30 * time.Second
)

// Merged is one source made of several.
type Merged struct {
	sources []Source
	report  func(source string, err error)

	turn    sync.Mutex // held while a set is made and emitted, so that sets come in order
	sets    [][]Spec   // guarded by turn: by source, as emitted last; nil = nothing yet
	last    []Spec     // guarded by turn
	emitted bool       // guarded by turn

	mu      sync.Mutex
	dropped []Dropped // guarded by mu
}

// Merge makes one source of several; earlier ones win (see Union). report is
// told when a source fails; it may be nil. The nodes a failed source emitted
// last stay: that their source cannot be asked is no reason to lose them.
func Merge(report func(source string, err error), sources ...Source) *Merged {
	if report == nil {
		report = func(string, error) {}
	}
	return &Merged{sources: slices.Clone(sources), report: report, sets: make([][]Spec, len(sources))}
}

// Name is "merged".
func (m *Merged) Name() string { return "merged" }

// Run implements Source. The first set holds what the sources said that were
// first: a slow one adds its nodes when it knows them. A set like the one
// before is not emitted again.
func (m *Merged) Run(ctx context.Context, emit func([]Spec)) error {
	m.turn.Lock()
	m.emitted = false
	m.turn.Unlock()
	var running sync.WaitGroup
	for i, source := range m.sources {
		running.Go(func() { m.keepRunning(ctx, i, source, emit) })
	}
	running.Wait()
	<-ctx.Done()
	return nil
}

// keepRunning runs one source, again after a rest when it fails.
func (m *Merged) keepRunning(ctx context.Context, i int, source Source, emit func([]Spec)) {
	for rest := restFirst; ; rest = min(2*rest, restMost) {
		began := time.Now()
		err := source.Run(ctx, func(set []Spec) { m.update(i, set, emit) })
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = fmt.Errorf("run source %q: it ended by itself", source.Name())
		}
		m.report(source.Name(), err)
		if time.Since(began) > restMost {
			rest = restFirst
		}
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// update takes one source's set and emits the union if it changed.
func (m *Merged) update(i int, set []Spec, emit func([]Spec)) {
	m.turn.Lock()
	defer m.turn.Unlock()
	m.sets[i] = set
	union, dropped := Union(m.sets...)
	m.mu.Lock()
	m.dropped = dropped
	m.mu.Unlock()
	if m.emitted && slices.EqualFunc(union, m.last, Spec.Equal) {
		return
	}
	m.last, m.emitted = union, true
	emit(slices.Clone(union))
}

// Dropped returns the nodes left out of the set in force, and why. It may be
// called by any goroutine, from within emit too.
func (m *Merged) Dropped() []Dropped {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.dropped)
}
