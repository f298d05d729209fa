package fleet

import (
	"math"
	"sync/atomic"
)

// Model is one model name and the nodes that serve it. Immutable after
// publish.
type Model struct {
	Name       string
	Aliases    []string
	NameBytes  []byte  // Name again, made by Seal, for hashing without a copy
	ChainBytes []byte  // ChainName, likewise
	Slots      []int   // of nodes that serve it, ascending; whatever their state
	UnitTokens int     // tokens of one index entry (see the word "unit" in the design)
	MeanOutput float64 // running mean of output tokens; 0 = none seen yet
	// Base is the model that this one is an adapter of; "" if it is none. The
	// chains of an adapter are the base's, with the adapter's name folded in.
	Base string
	// Chain is the name that the chains of its prompts start with: its own, or
	// Base, or the name under which all its nodes report what they hold if they
	// serve one model under several. "" stands for Base, or Name if that is "".
	Chain string
	// Expected: nodes that serve it are on their way, so that requests for it may
	// wait for the first.
	Expected bool
}

// ChainName is the name that the chains of the model's prompts start with.
func (m *Model) ChainName() string {
	switch {
	case m.Chain != "":
		return m.Chain
	case m.Base != "":
		return m.Base
	}
	return m.Name
}

// Snapshot is the fleet at one instant. Immutable after publish.
type Snapshot struct {
	Version uint64
	Seed    uint64  // of chain hashes
	Nodes   []*Node // by slot; nil where no node is
	Models  []Model
	Default int  // index of the model for requests that name none; -1 = none
	Asked   bool // every node was asked for its models at least once
	// Expected: nodes are on their way of which nobody knows yet what they will
	// serve: it may be any model.
	Expected bool

	byName map[string]int
	owners []*Node // by slot, of all ranks
}

// Owner returns the node that has a slot, be it of its first rank or another;
// nil if none has.
func (s *Snapshot) Owner(slot int) *Node {
	if slot < 0 || slot >= len(s.owners) {
		return nil
	}
	return s.owners[slot]
}

// Expects reports whether nodes are on their way that may serve the model with that
// index; of -1 any will do.
func (s *Snapshot) Expects(model int) bool {
	if model >= 0 {
		return s.Expected || s.Models[model].Expected
	}
	for i := range s.Models {
		if s.Models[i].Expected {
			return true
		}
	}
	return s.Expected
}

// Named reports whether any node has said which models it serves.
func (s *Snapshot) Named() bool {
	for i := range s.Models {
		if len(s.Models[i].Slots) > 0 {
			return true
		}
	}
	return false
}

// Seal builds the look-up tables of a snapshot that is otherwise complete.
// It is called once, before publishing, by whoever built it. A node that an earlier
// snapshot has too, and that is the same in this one, is read and not written.
func (s *Snapshot) Seal() *Snapshot {
	s.byName = make(map[string]int, len(s.Models))
	for i := range s.Models {
		for _, alias := range s.Models[i].Aliases {
			s.byName[alias] = i
		}
	}
	s.owners = make([]*Node, len(s.Nodes))
	for slot, n := range s.Nodes {
		if n == nil {
			continue
		}
		if n.NameBytes == nil {
			n.NameBytes = []byte(n.Name)
		}
		if n.Ranks < 1 {
			n.Ranks = 1
		}
		if n.Trust == nil {
			n.Trust = make([]Trust, n.Ranks)
		}
		for r := range n.Ranks {
			if slot+r < len(s.owners) {
				s.owners[slot+r] = n
			}
		}
	}
	units := make([]int, len(s.Nodes)) // 0 = of no model
	for i := range s.Models {
		m := &s.Models[i]
		m.NameBytes, m.ChainBytes = []byte(m.Name), []byte(m.ChainName())
		for _, slot := range m.Slots {
			if s.Nodes[slot] != nil && m.Base == "" {
				units[slot] = m.UnitTokens
			}
		}
	}
	for slot, unit := range units {
		if n := s.Nodes[slot]; unit != 0 && n.UnitTokens != unit {
			n.UnitTokens = unit
		}
	}
	for i := range s.Models { // a real name wins over another model's alias
		s.byName[s.Models[i].Name] = i
	}
	return s
}

// ModelIndex finds a model by name or alias, -1 if there is none. It does not
// allocate and does not keep name.
func (s *Snapshot) ModelIndex(name []byte) int {
	if i, ok := s.byName[string(name)]; ok {
		return i
	}
	return -1
}

// Holder publishes snapshots. Store may be called by one goroutine, the
// control plane's; Load by any, at any time. Load never returns nil.
type Holder struct {
	current  atomic.Pointer[Snapshot]
	pressure atomic.Uint64 // float64 bits
}

// NewHolder returns a Holder with an empty snapshot.
func NewHolder() *Holder {
	h := &Holder{}
	h.current.Store((&Snapshot{Default: -1}).Seal())
	return h
}

// Load returns the snapshot in force.
func (h *Holder) Load() *Snapshot { return h.current.Load() }

// Store publishes s. Everything that built it must have happened before.
func (h *Holder) Store(s *Snapshot) { h.current.Store(s) }

// Pressure is the moving average (30 s) of the share of nodes with queued
// prefill, 0 … 1: the ρ of policy cost.
func (h *Holder) Pressure() float64 { return math.Float64frombits(h.pressure.Load()) }

// SetPressure is called by the control plane.
func (h *Holder) SetPressure(p float64) { h.pressure.Store(math.Float64bits(p)) }
