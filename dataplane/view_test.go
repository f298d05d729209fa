package dataplane

import (
	"testing"

	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
)

// TestViewIsShared: what follows from a snapshot is made once for all loops, before it is
// published if requests come, and else by the first that needs it.
func TestViewIsShared(t *testing.T) {
	rule, err := policy.New("cost", nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &Dataplane{opt: Options{Fleet: fleet.NewHolder()}}
	d.settings.Store(&Settings{Policy: rule})
	for range 2 {
		l := &loop{d: d}
		l.tally.init()
		d.loops = append(d.loops, l)
	}
	snapshot := func(nodes int) *fleet.Snapshot {
		s := &fleet.Snapshot{Default: -1}
		for slot := range nodes {
			s.Nodes = append(s.Nodes, &fleet.Node{Slot: slot, Name: string(rune('a' + slot)), Load: &fleet.Load{}})
		}
		return s.Seal()
	}
	first := snapshot(2)
	if d.Prepare(first); d.made.Load() != nil {
		t.Error("it was made though nothing is routed")
	}
	d.opt.Fleet.Store(first)
	one := d.loops[0].refresh()
	if d.loops[1].refresh() != one || one.snap != first {
		t.Error("each loop has made its own")
	}
	d.loops[1].routed.Store(true)
	next := snapshot(3)
	d.Prepare(next)
	made := d.made.Load()
	if made == one || d.loops[0].refresh() != one {
		t.Error("a snapshot counts that was not published")
	}
	d.opt.Fleet.Store(next)
	for _, l := range d.loops {
		if v := l.refresh(); v != made || v.loads[2] != next.Nodes[2].Load || len(l.match.loads.Requests) != 3 || l.tally.bySlot[2] == nil {
			t.Errorf("a loop has %+v", v)
		}
	}
	was := d.loops[0].tally.bySlot[1]
	d.opt.Fleet.Store(snapshot(2))
	if d.loops[0].refresh() == made || d.loops[0].tally.bySlot[1] != was {
		t.Error("a node's counts did not outlast a snapshot")
	}
}
