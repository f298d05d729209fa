package engine

import (
	"fmt"
	"slices"
	"sync"
)

// FaultKind names a way in which an engine misbehaves on demand.
type FaultKind string

// The faults. Those of the first group are met by inference requests, one
// after the other, and may be limited to a number of them.
const (
	FaultReset             FaultKind = "reset"                  // the connection is reset once the request was read
	FaultHangBeforeHeaders FaultKind = "hang_before_headers"    // nothing is answered
	FaultHangAfterHeaders  FaultKind = "hang_after_headers"     // 200 and its head, then nothing
	FaultCutMidStream      FaultKind = "cut_mid_stream"         // the connection ends after AfterChunks events
	FaultErrorEvent        FaultKind = "error_event_mid_stream" // an error event and [DONE] after AfterChunks events
	Fault500               FaultKind = "500"                    // answered 500
	Fault503               FaultKind = "503"                    // answered 503
	FaultLoading           FaultKind = "loading"                // /health and requests are answered 503

	FaultDropEvents FaultKind = "drop_events" // event batches are numbered and kept, but not sent

	FaultRefuse      FaultKind = "refuse"       // the port is closed, its /sim paths too: clear it through AdminHandler
	FaultCoreStopped FaultKind = "core_stopped" // no tokens, while /health says 200
	FaultSlow        FaultKind = "slow"         // steps take Factor times as long
	FaultRestart     FaultKind = "restart"      // a fresh process at the same address, once
)

// countable are the faults that Count may limit.
var countable = []FaultKind{
	FaultReset, FaultHangBeforeHeaders, FaultHangAfterHeaders, FaultCutMidStream,
	FaultErrorEvent, Fault500, Fault503, FaultLoading, FaultDropEvents,
}

// Fault is one fault to be set. Kinds are independent: setting a kind again
// replaces it.
type Fault struct {
	Kind        FaultKind `json:"kind"`
	Count       int       `json:"count"`        // requests (or batches) that meet it; 0 = until cleared
	AfterChunks int       `json:"after_chunks"` // events sent before a stream is broken; 0 = none
	Factor      float64   `json:"factor"`       // of FaultSlow, above 0
}

// validate reports a fault that makes no sense.
func (f Fault) validate() error {
	limited := slices.Contains(countable, f.Kind)
	switch {
	case !limited && !slices.Contains([]FaultKind{FaultRefuse, FaultCoreStopped, FaultSlow, FaultRestart}, f.Kind):
		return fmt.Errorf("set fault %q: no such kind", f.Kind)
	case f.Count < 0 || f.AfterChunks < 0:
		return fmt.Errorf("set fault %q: count %d and after_chunks %d must be 0 or more", f.Kind, f.Count, f.AfterChunks)
	case f.Count > 0 && !limited:
		return fmt.Errorf("set fault %q: it cannot be counted, leave count 0 and clear it", f.Kind)
	case f.Kind == FaultSlow && !(f.Factor > 0):
		return fmt.Errorf("set fault %q: factor %v must be above 0", f.Kind, f.Factor)
	}
	return nil
}

// activeFault is a fault in force.
type activeFault struct {
	Fault
	left    int           // uses left; unlimited if Count is 0
	cleared chan struct{} // closed when it is cleared or replaced, not when used up
}

// faultSet holds the faults in force, at most one of each kind.
type faultSet struct {
	mu     sync.Mutex
	active map[FaultKind]*activeFault
}

// set puts a fault into force.
func (s *faultSet) set(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active == nil {
		s.active = make(map[FaultKind]*activeFault)
	}
	if old := s.active[f.Kind]; old != nil {
		close(old.cleared)
	}
	s.active[f.Kind] = &activeFault{Fault: f, left: f.Count, cleared: make(chan struct{})}
}

// clear ends all faults.
func (s *faultSet) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.active {
		close(f.cleared)
	}
	clear(s.active)
}

// on returns the fault of a kind without using it up, nil if there is none.
func (s *faultSet) on(kind FaultKind) *activeFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.active[kind]; f != nil && (f.Count == 0 || f.left > 0) {
		return f
	}
	return nil
}

// use returns the first fault in force of the kinds and uses it up once; nil
// if there is none.
func (s *faultSet) use(kinds ...FaultKind) *activeFault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range kinds {
		f := s.active[kind]
		if f == nil || (f.Count > 0 && f.left == 0) {
			continue
		}
		if f.Count > 0 {
			f.left--
		}
		return f
	}
	return nil
}

// list returns the faults in force in the order of their kinds; Count is what is left.
func (s *faultSet) list() []Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Fault{}
	for _, f := range s.active {
		if f.Count > 0 && f.left == 0 {
			continue
		}
		show := f.Fault
		show.Count = f.left
		out = append(out, show)
	}
	slices.SortFunc(out, func(a, b Fault) int {
		if a.Kind < b.Kind {
			return -1
		}
		return 1
	})
	return out
}
