package dataplane

import (
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
	"warmpath/dataplane/policy"
	"warmpath/dataplane/prompt"
)

// view is what follows from a snapshot and a Settings. It is immutable, and all loops
// share it: of a thousand nodes it takes longer to make than several decisions.
type view struct {
	snap     *fleet.Snapshot
	set      *Settings
	prepared policy.Prepared
	needs    policy.Needs
	live     index.SlotSet // slots whose entries count, of all ranks
	loads    []*fleet.Load // by slot; nil where no node is

	models *ExactModels
	exact  []*prompt.Model // by model of snap; nil = its tokens are not known
	proved []uint32        // by model of snap: classes that are exact at some node of it, as bits
	named  []bool          // by model of snap: some node of it has a reporter that names prompts by their ids
}

func newView(snap *fleet.Snapshot, set *Settings, models *ExactModels) *view {
	v := &view{
		snap: snap, set: set, prepared: set.Policy.Prepare(snap), needs: set.Policy.Needs(), loads: make([]*fleet.Load, len(snap.Nodes)),
		models: models, exact: make([]*prompt.Model, len(snap.Models)), proved: make([]uint32, len(snap.Models)), named: make([]bool, len(snap.Models)),
	}
	for slot, n := range snap.Nodes {
		if snap.Owner(slot) != nil {
			v.live.Add(slot)
		}
		if n != nil {
			v.loads[slot] = n.Load
		}
	}
	for i := range snap.Models {
		v.knowModel(i)
	}
	return v
}

// knowModel finds what a model's prompts need and where they are exact.
func (v *view) knowModel(i int) {
	m := &v.snap.Models[i]
	name := m.Name
	if m.Base != "" {
		name = m.Base
	}
	if v.exact[i] = v.models.of(name); v.exact[i] == nil {
		v.exact[i] = v.models.of(m.ChainName())
	}
	for _, slot := range m.Slots {
		v.proved[i] |= v.snap.Nodes[slot].Exact
		v.named[i] = v.named[i] || v.snap.Nodes[slot].HashScheme != ""
	}
	if v.exact[i] != nil && v.exact[i].UnitTokens != m.UnitTokens {
		v.exact[i] = nil // its units are being made anew
	}
}

// is reports whether it follows from these.
func (v *view) is(snap *fleet.Snapshot, set *Settings, models *ExactModels) bool {
	return v != nil && v.snap == snap && v.set == set && v.models == models
}

// Prepare makes what follows from a snapshot that is about to be published, so that no
// request waits for that. The control plane's goroutine calls it before it publishes, and
// Refresh behind it. Nothing is made while no requests come.
func (d *Dataplane) Prepare(snap *fleet.Snapshot) {
	for _, l := range d.loops {
		if l.routed.Load() {
			d.made.Store(newView(snap, d.settings.Load(), d.exact.Load()))
			return
		}
	}
}

// Refresh lets the loops that route requests take over what Prepare made for the snapshot
// in force, between two turns.
func (d *Dataplane) Refresh() {
	for _, l := range d.loops {
		if l.routed.Swap(false) {
			_ = l.el.Execute(func() { l.refresh() }) // fails only when the loops have ended
		}
	}
}

// refresh returns the view of the snapshot and the settings in force, and makes it if
// nobody has.
func (l *loop) refresh() *view {
	snap, set, models := l.d.opt.Fleet.Load(), l.d.settings.Load(), l.d.exact.Load()
	if l.view.is(snap, set, models) {
		return l.view
	}
	v := l.d.made.Load()
	if !v.is(snap, set, models) {
		v = newView(snap, set, models)
		l.d.made.Store(v)
	}
	l.view = v
	m := &l.match
	m.units = resize(m.units, len(snap.Nodes))
	m.walked = resize(m.walked, len(snap.Nodes))
	m.credits = resize(m.credits, len(snap.Nodes))
	m.rank = resize(m.rank, len(snap.Nodes))
	m.considered = resize(m.considered, len(snap.Nodes))
	m.match.Tokens = resize(m.match.Tokens, len(snap.Nodes))
	m.match.PrefixHolder = resize(m.match.PrefixHolder, len(snap.Nodes))
	m.loads.Requests = resize(m.loads.Requests, len(snap.Nodes))
	m.loads.PrefillTokens = resize(m.loads.PrefillTokens, len(snap.Nodes))
	m.loads.TotalTokens = resize(m.loads.TotalTokens, len(snap.Nodes))
	l.tally.refresh(snap)
	return v
}
