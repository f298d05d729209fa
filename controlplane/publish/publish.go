package publish

import (
	"fmt"
	"slices"

	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
)

// MinUnitTokens is the smallest unit of an index entry; smaller pages are
// gathered.
const MinUnitTokens = 16

// Build is Publisher.Next of a first snapshot.
func Build(s state.State) (*fleet.Snapshot, error) { return new(Publisher).Next(&s) }

// Publisher makes one snapshot after the other. Of a large fleet a few nodes change
// between two of them: those that have not are taken from the last one. The zero
// Publisher is ready for use, by one goroutine.
type Publisher struct {
	last   *fleet.Snapshot // nil before the first
	state  state.State     // that it was made of
	bySlot []*state.Node   // its records
}

// Next makes the sealed snapshot of s, sharing with it only the counters behind Load.
// An error means that s breaks an invariant: the caller keeps the snapshot in force and
// reports it.
func (p *Publisher) Next(s *state.State) (*fleet.Snapshot, error) {
	snap := &fleet.Snapshot{Version: s.Version, Seed: s.Settings.Seed, Nodes: make([]*fleet.Node, len(s.Slots)), Asked: true, Expected: s.Expected.Any}
	goesOn := p.goesOn(s)
	bySlot := make([]*state.Node, len(s.Slots))
	var owner map[*fleet.Load]string
	if !goesOn { // else all have the counters that they had
		owner = make(map[*fleet.Load]string, len(s.Nodes))
	}
	for i, n := range s.Nodes {
		if err := p.check(s, i, snap.Nodes, owner); err != nil {
			return nil, fmt.Errorf("build snapshot %d: node %q: %w", s.Version, n.Spec.Name, err)
		}
		if bySlot[n.Slot] = n; goesOn && p.bySlot[n.Slot] == n {
			snap.Nodes[n.Slot] = p.last.Nodes[n.Slot]
		} else {
			snap.Nodes[n.Slot] = nodeOf(n)
		}
		if !n.Asked && len(n.Models) == 0 && n.Health != fleet.Down && !n.Drain {
			snap.Asked = false
		}
	}
	if goesOn {
		snap.Models, snap.Default = slices.Clone(p.last.Models), p.last.Default
	} else {
		snap.Models = modelsOf(s)
		snap.Default = defaultOf(s, snap.Models)
	}
	p.last, p.state, p.bySlot = snap.Seal(), *s, bySlot
	return snap, nil
}

// goesOn says whether s has the nodes of the last snapshot, in their slots, serving
// the same models in blocks of the same size: then the models are the same too, and
// with them all that one node has of the others.
func (p *Publisher) goesOn(s *state.State) bool {
	was := &p.state
	if p.last == nil || len(s.Nodes) != len(was.Nodes) || len(s.Slots) != len(was.Slots) || !same(s.Settings.Models, was.Settings.Models) ||
		!same(s.Outputs, was.Outputs) || s.Expected.Any != was.Expected.Any || !same(s.Expected.Models, was.Expected.Models) {
		return false
	}
	for i, n := range s.Nodes {
		if o := was.Nodes[i]; n != o && (n.Incarnation != o.Incarnation || n.Slot != o.Slot || n.Load != o.Load || !same(n.Models, o.Models) || n.Sample.BlockTokens != o.Sample.BlockTokens) {
			return false
		}
	}
	return true
}

// same says whether two slices, of which neither is ever written, are one.
func same[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// check refuses record i if a request could trip over it. owner has whose the
// counters are, of those before it; nil if that was seen already.
func (p *Publisher) check(s *state.State, i int, taken []*fleet.Node, owner map[*fleet.Load]string) error {
	n := s.Nodes[i]
	if err := check(s, n, taken); err != nil {
		return err
	}
	if owner != nil {
		if other, shared := owner[n.Load]; shared {
			return fmt.Errorf("counters are also those of node %q", other)
		}
		owner[n.Load] = n.Spec.Name
	}
	if i > 0 && s.Nodes[i-1].Spec.Name >= n.Spec.Name {
		return fmt.Errorf("name is not above that of node %q", s.Nodes[i-1].Spec.Name)
	}
	return nil
}

// check refuses a record that a request could trip over.
func check(s *state.State, n *state.Node, taken []*fleet.Node) error {
	switch {
	case n.Slot < 0 || n.Ranks < 1 || n.Slot+n.Ranks > len(taken) || n.Slot+n.Ranks > fleet.MaxSlots:
		return fmt.Errorf("slot %d with %d ranks is out of range", n.Slot, n.Ranks)
	case len(n.Trust) != n.Ranks:
		return fmt.Errorf("trust is known for %d of %d ranks", len(n.Trust), n.Ranks)
	case taken[n.Slot] != nil:
		return fmt.Errorf("slot %d is also that of node %q", n.Slot, taken[n.Slot].Name)
	case !ownsSlots(s, n):
		return fmt.Errorf("slot %d, with those of its ranks, is not its own", n.Slot)
	case n.Generation == 0:
		return fmt.Errorf("generation is 0")
	case n.Load == nil:
		return fmt.Errorf("counters are missing")
	case n.Endpoint.Address == "" || n.Endpoint.Host == "":
		return fmt.Errorf("address is missing")
	case !(n.Weight > 0) || !(n.Spec.Weight > 0):
		return fmt.Errorf("weight is not above zero")
	case n.Health > fleet.Down:
		return fmt.Errorf("health %d is none", n.Health)
	}
	return nil
}

func ownsSlots(s *state.State, n *state.Node) bool {
	for _, slot := range s.Slots[n.Slot : n.Slot+n.Ranks] {
		if slot.Tenant != n.Spec.Name || slot.Generation != n.Generation || slot.Resting {
			return false
		}
	}
	return true
}

// nodeOf is what a request may see of a node. Stale readings are unknown.
func nodeOf(n *state.Node) *fleet.Node {
	out := &fleet.Node{
		Slot: n.Slot, Ranks: n.Ranks, Generation: n.Generation, Trust: n.Trust, Exact: n.Exact, Name: n.Spec.Name,
		URL: n.Endpoint.URL, Address: n.Endpoint.Address, Host: n.Endpoint.Host, PathPrefix: n.Endpoint.PathPrefix,
		Engine: n.Engine, State: n.State(), Cause: n.Cause, Breaker: n.Breaker, Island: n.Spec.Island, Region: n.Spec.Region,
		CapacityClass: n.Spec.Weight, Weight: n.Weight, MaxInFlight: n.Cap(),
		BlockTokens: n.Sample.BlockTokens, CacheTokens: n.Sample.CacheTokens,
		PrefillTokensPerSecond: n.PrefillTokensPerSecond, DecodeTokensPerSecond: n.DecodeTokensPerSecond, OwnPrefillTokensPerSecond: n.Prefill.Gauge,
		RoundTripSeconds: n.RoundTripSeconds, EvictedTokensPerSecond: n.EvictedTokensPerSecond,
		ErrorShare: n.ErrorShare, Warmth: n.Warmth, Filling: n.Filling, Proof: n.Proof, Load: n.Load, HashScheme: n.Spec.HashScheme,
	}
	if n.Spec.HashScheme == state.SchemePrefix {
		out.PrefixTokens = n.Spec.PrefixTokens
	}
	if n.SampleFresh {
		out.RunningRequests = n.Sample.Running
	}
	out.QueuedRequests, out.KVUse = n.Queue()
	// Of several models the longest counts: an engine refuses what is too long
	// for one of them, the router could not allow what it had refused.
	for i := range n.Models {
		out.MaxModelLen = max(out.MaxModelLen, n.Models[i].MaxModelLen)
	}
	return out
}

// modelsOf lists the configured models in their order, then the others that
// nodes serve, or that are expected to be served, ascending.
func modelsOf(s *state.State) []fleet.Model {
	slots := map[string][]int{}
	blocks := map[string][]int{}
	bases := map[string]string{}
	chains := map[string]string{}
	for _, n := range s.Nodes {
		base := n.BaseModel(s.Settings.Models)
		for i := range n.Models {
			id, chain := n.Models[i].ID, base
			if other, ok := chains[id]; ok && other != chain {
				chain = "" // nodes disagree: it counts where it is filed under its own name
			}
			chains[id] = chain
			slots[id] = append(slots[id], n.Slot)
			blocks[id] = append(blocks[id], n.Sample.BlockTokens)
			if parent := n.Models[i].Parent; parent != "" && parent != id {
				bases[id] = parent
			}
		}
	}
	var models []fleet.Model
	expected := func(name string) bool {
		_, ok := slices.BinarySearch(s.Expected.Models, name)
		return ok
	}
	add := func(name string, aliases []string) {
		slices.Sort(slots[name])
		models = append(models, fleet.Model{
			Name: name, Aliases: slices.Clone(aliases), Slots: slots[name],
			UnitTokens: unitOf(blocks[name]), MeanOutput: s.MeanOutput(name), Base: bases[name], Chain: chains[name],
			Expected: expected(name) || slices.ContainsFunc(aliases, expected),
		})
	}
	configured := map[string]bool{}
	for _, m := range s.Settings.Models {
		configured[m.Name] = true
		add(m.Name, m.Aliases)
	}
	others := make([]string, 0, len(slots))
	for name := range slots {
		if !configured[name] {
			others = append(others, name)
		}
	}
	for _, name := range s.Expected.Models {
		if slots[name] == nil && !called(s.Settings.Models, name) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for _, name := range others {
		add(name, nil)
	}
	return models
}

// called reports whether a configured model has that name, or that alias.
func called(configured []state.ModelSpec, name string) bool {
	return slices.ContainsFunc(configured, func(m state.ModelSpec) bool {
		return m.Name == name || slices.Contains(m.Aliases, name)
	})
}

// unitOf is the greatest common divisor of the block sizes, each gathered to
// at least MinUnitTokens; unknown sizes (0) do not count.
func unitOf(blockTokens []int) int {
	unit := 0
	for _, b := range blockTokens {
		if b <= 0 {
			continue
		}
		gathered := (MinUnitTokens + b - 1) / b * b
		for unit, b = gathered, unit; b != 0; {
			unit, b = b, unit%b
		}
	}
	if unit < MinUnitTokens {
		return MinUnitTokens
	}
	return unit
}

// defaultOf is the configured default, else the only model that is not an
// adapter, else -1.
func defaultOf(s *state.State, models []fleet.Model) int {
	for i := range s.Settings.Models {
		if s.Settings.Models[i].Default {
			return i
		}
	}
	adapter := map[string]bool{}
	for _, n := range s.Nodes {
		for i := range n.Models {
			if n.Models[i].Parent != "" {
				adapter[n.Models[i].ID] = true
			}
		}
	}
	only := -1
	for i := range models {
		if adapter[models[i].Name] {
			continue
		}
		if only >= 0 {
			return -1
		}
		only = i
	}
	return only
}
