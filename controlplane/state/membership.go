package state

import (
	"log/slog"
	"slices"
	"strings"

	"warmpath/dataplane/fleet"
)

// APISource is the source of nodes that were added at run time. What it names
// was asked for by name, so it is not hidden by NodeRemoved.
const APISource = "api"

// ScalerSource is the source of the nodes that the scaler asked for.
const ScalerSource = "scaler"

// LeaseSource is the source of nodes that register themselves.
const LeaseSource = "register"

// nodesSeen takes a source's new full set.
func (t *step) nodesSeen(e NodesSeen) {
	specs := e.Specs
	if len(specs) > maxSpecs {
		t.log(slog.LevelError, "source names too many nodes; the rest is ignored", slog.String("source", e.Source), slog.Int("nodes", len(specs)), slog.Int("limit", maxSpecs))
		specs = specs[:maxSpecs]
	}
	i := slices.IndexFunc(t.s.sources, func(s source) bool { return s.name == e.Source })
	if i >= 0 && slices.EqualFunc(t.s.sources[i].specs, specs, Spec.Equal) {
		return // sources say so again and again
	}
	t.setSource(e.Source, slices.Clone(specs))
}

// setSource stores a source's set, which is the State's from then on, and
// brings the nodes in line.
func (t *step) setSource(name string, specs []Spec) {
	i := slices.IndexFunc(t.s.sources, func(s source) bool { return s.name == name })
	if i < 0 && len(t.s.sources) >= maxSources {
		t.log(slog.LevelError, "too many sources of nodes; this one is ignored", slog.String("source", name), slog.Int("limit", maxSources))
		return
	}
	t.s.sources = slices.Clone(t.s.sources)
	if i < 0 {
		t.s.sources = append(t.s.sources, source{name, specs})
	} else {
		t.s.sources[i].specs = specs
	}
	t.reconcile()
}

func (t *step) nodeRemoved(e NodeRemoved) {
	if t.s.Find(e.Node) == nil {
		return
	}
	t.mask(e.Node)
	if specs := t.specsOf(APISource); specs != nil {
		t.setSource(APISource, slices.DeleteFunc(slices.Clone(specs), named(e.Node)))
	} else {
		t.reconcile()
	}
	if e.Force {
		t.on(e.Node, 0, func(n *Node) { t.gone(n, "removed by force") })
	}
}

func named(name string) func(Spec) bool {
	return func(s Spec) bool { return s.Name == name }
}

func (t *step) specsOf(name string) []Spec {
	for i := range t.s.sources {
		if t.s.sources[i].name == name {
			return t.s.sources[i].specs
		}
	}
	return nil
}

// mask hides a name, whatever source but APISource has it.
func (t *step) mask(name string) {
	if i, found := slices.BinarySearch(t.s.masked, name); !found {
		t.s.masked = slices.Insert(slices.Clone(t.s.masked), i, name)
	}
}

// wanted is a node that a source names.
type wanted struct {
	spec   Spec
	source string
	end    Endpoint
}

// wants merges the sources: ascending by name; of two with one name or one URL
// the source heard first has it. Names that no source has are unmasked.
func (t *step) wants() []wanted {
	names, urls, hideable := map[string]string{}, map[string]string{}, map[string]bool{}
	var out []wanted
	for _, src := range t.s.sources {
		for _, spec := range src.specs {
			if src.name != APISource {
				hideable[spec.Name] = true
				if _, hidden := slices.BinarySearch(t.s.masked, spec.Name); hidden {
					continue
				}
			}
			ignored := func(level slog.Level, message, key, value string) {
				t.log(level, message, slog.String("node", spec.Name), slog.String("source", src.name), slog.String(key, value))
			}
			checked, err := spec.Validate()
			if err != nil {
				ignored(slog.LevelError, "node is not usable", "error", err.Error())
				continue
			}
			if other, twice := names[checked.Name]; twice {
				ignored(slog.LevelWarn, "node name is taken; this one is ignored", "taken_by", other)
				continue
			}
			if other, twice := urls[checked.URL]; twice {
				ignored(slog.LevelWarn, "node URL is taken; this one is ignored", "taken_by", other)
				continue
			}
			names[checked.Name], urls[checked.URL] = src.name, checked.Name
			end, _ := ParseEndpoint(checked.URL) // Validate made it
			out = append(out, wanted{checked, src.name, end})
		}
	}
	t.s.masked = slices.DeleteFunc(slices.Clone(t.s.masked), func(name string) bool { return !hideable[name] })
	slices.SortFunc(out, func(a, b wanted) int { return strings.Compare(a.spec.Name, b.spec.Name) })
	return out
}

// reconcile brings the nodes in line with what the sources say.
func (t *step) reconcile() {
	want := t.wants()
	find := func(name string) (int, bool) {
		return slices.BinarySearchFunc(want, name, func(w wanted, name string) int { return strings.Compare(w.spec.Name, name) })
	}
	for i := len(t.s.Nodes) - 1; i >= 0; i-- { // backwards: nodes may go
		n := t.s.Nodes[i]
		at, ok := find(n.Spec.Name)
		switch {
		case !ok && !n.Removing:
			t.remove(t.edit(i))
		case ok && want[at].end != n.Endpoint:
			t.gone(t.edit(i), "its URL changed")
		case ok && want[at].spec.Ranks() != n.Ranks:
			t.gone(t.edit(i), "the number of its ranks changed")
		case ok && (n.Removing || n.Source != want[at].source || !n.Spec.Equal(want[at].spec)):
			t.update(t.edit(i), want[at])
		}
	}
	t.s.waiting = false
	for i := range want {
		if t.s.Find(want[i].spec.Name) == nil {
			t.add(want[i])
		}
	}
}

// update changes what a node is configured to be; its incarnation goes on.
func (t *step) update(n *Node, w wanted) {
	if !slices.Equal(n.Spec.Models, w.spec.Models) {
		n.Models, n.Asked, n.life.askNextNs = configured(w.spec), false, t.s.NowNs
		t.s.fewer, t.s.rates = true, true
	}
	if n.Spec.Engine != w.spec.Engine {
		n.Engine = w.spec.Engine
	}
	if n.Spec.KVEvents != w.spec.KVEvents {
		t.setTrust(n, w.spec.KVEvents.Configured())
	}
	if n.Spec.HashScheme != w.spec.HashScheme || n.Spec.PrefixTokens != w.spec.PrefixTokens {
		t.setScheme(n)
	}
	n.Spec, n.Source, n.Removing = w.spec, w.source, false
	t.setDrain(n)
	t.publish = true
}

// configured is the models of a spec before the engine was asked.
func configured(spec Spec) []Served {
	names := slices.Compact(slices.Sorted(slices.Values(spec.Models)))
	out := make([]Served, 0, len(names))
	for _, name := range names[:min(len(names), MaxModels)] {
		out = append(out, Served{ID: name})
	}
	return out
}

// add begins an incarnation in the smallest free slots, one a rank.
func (t *step) add(w wanted) {
	ranks := w.spec.Ranks()
	slot := t.freeSlots(ranks)
	if slot < 0 {
		t.s.waiting = true
		t.log(slog.LevelError, "no slot is free for the node; it waits until one is", slog.String("node", w.spec.Name), slog.Int("ranks", ranks), slog.Int("limit", fleet.MaxSlots))
		return
	}
	t.unshareSlots()
	for len(t.s.Slots) < slot+ranks {
		t.s.Slots = append(t.s.Slots, Slot{})
	}
	generation := uint32(0) // one for all ranks, above all that were
	for _, s := range t.s.Slots[slot : slot+ranks] {
		generation = max(generation, s.Generation)
	}
	for r := range ranks {
		t.s.Slots[slot+r] = Slot{Generation: generation + 1, Tenant: w.spec.Name}
	}
	t.s.incarnation++
	t.s.rates = true // it is as fast as its like
	n := &Node{
		Spec: w.spec, Source: w.source, Endpoint: w.end,
		Slot: slot, Ranks: ranks, Generation: generation + 1, Incarnation: t.s.incarnation, Load: new(fleet.Load),
		Health: fleet.Joining, Reason: "new", Models: configured(w.spec), Engine: w.spec.Engine, Weight: 1,
		Trust: make([]fleet.Trust, ranks),
	}
	if w.spec.KVEvents.Configured() {
		for r := range n.Trust {
			n.Trust[r] = fleet.TrustCold
		}
	}
	t.exhume(n)
	t.happened(n, fleet.Joining.String(), "named by source "+w.source)
	t.unshareNodes()
	i, _ := slices.BinarySearchFunc(t.s.Nodes, w.spec.Name, byName)
	t.s.Nodes = slices.Insert(t.s.Nodes, i, n)
	t.log(slog.LevelInfo, "node joins", slog.String("node", w.spec.Name), slog.String("url", w.end.URL), slog.Int("slot", slot), slog.String("source", w.source))
	t.probe(n)
	t.publish = true
}

// freeSlots returns the first of so many slots in a row that are free, or
// beyond those that ever were; -1 if there are none.
func (t *step) freeSlots(count int) int {
	run := 0
	for i, s := range t.s.Slots {
		if s.Tenant != "" || s.Resting {
			run = 0
			continue
		}
		if run++; run == count {
			return i + 1 - count
		}
	}
	if first := len(t.s.Slots) - run; first+count <= fleet.MaxSlots {
		return first
	}
	return -1
}

// remove lets a node go: at once if it serves nothing, else when it is idle.
func (t *step) remove(n *Node) {
	if n.Health != fleet.Ready || n.Drain && n.life.drainedSaid {
		t.gone(n, "removed")
		return
	}
	n.Removing = true
	t.setDrain(n)
}

// gone ends an incarnation. Its slot rests until the index has swept it; its
// Load lives on for requests that have not ended.
func (t *step) gone(n *Node, why string) {
	t.unshareSlots()
	t.unshareNodes()
	t.bury(n, why)
	for r := range n.Ranks {
		t.s.Slots[n.Slot+r] = Slot{Generation: n.Generation, Resting: true}
	}
	if i, ok := slices.BinarySearchFunc(t.s.Nodes, n.Spec.Name, byName); ok {
		t.s.Nodes = slices.Delete(t.s.Nodes, i, i+1)
	}
	t.log(slog.LevelInfo, "node is gone", slog.String("node", n.Spec.Name), slog.Int("slot", n.Slot), slog.String("why", why))
	for r := range n.Ranks {
		t.do(DropSlot{Slot: n.Slot + r, Generation: n.Generation})
	}
	t.s.rates, t.s.fewer, t.publish = true, true, true
}

// slotSwept gives a slot free for its next tenant.
func (t *step) slotSwept(e SlotSwept) {
	if e.Slot < 0 || e.Slot >= len(t.s.Slots) || !t.s.Slots[e.Slot].Resting || t.s.Slots[e.Slot].Generation != e.Generation {
		return
	}
	t.unshareSlots()
	t.s.Slots[e.Slot].Resting = false
	if t.s.waiting {
		t.reconcile()
	}
}

// setDrain brings draining in line with who wants it.
func (t *step) setDrain(n *Node) {
	want := n.life.drainAsked || n.Removing
	if want == n.Drain {
		return
	}
	n.Drain, n.life.idle, n.life.drainedSaid, n.life.drainNs = want, false, false, t.s.NowNs
	t.s.fewer = true
	message, to, why := "node drains", fleet.Draining.String(), "it was asked for"
	switch {
	case !want:
		message, to, why = "node drains no longer", "draining no longer", "it was asked back"
	case n.Removing:
		why = "its source names it no more"
	}
	t.happened(n, to, why)
	t.log(slog.LevelInfo, message, slog.String("node", n.Spec.Name), slog.Bool("removing", n.Removing))
	t.publish = true
}
