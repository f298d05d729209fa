package state

import (
	"cmp"
	"log/slog"
	"slices"

	"warmpath/dataplane/fleet"
)

// mayEject keeps passive judgements from taking out more than MaxEjected of
// any model's nodes: when all of them fail, the cause is not the nodes, and
// some answers are better than none.
func (t *step) mayEject(n *Node, reason string) bool {
	ok := t.mayBeOut(n)
	if !ok && !n.life.panicSaid {
		n.life.panicSaid = true
		t.log(slog.LevelWarn, "node stays in use: too many nodes of its model are out", slog.String("node", n.Spec.Name), slog.String("why", reason), slog.Float64("max_ejected", t.s.Settings.MaxEjected))
	}
	return ok
}

// mayBeOut says whether no more than MaxEjected of any of the node's models are
// out when it is.
func (t *step) mayBeOut(n *Node) bool {
	if len(n.Models) == 0 {
		return t.mayBeOutOf("", n)
	}
	for i := range n.Models {
		if !t.mayBeOutOf(n.Models[i].ID, n) {
			return false
		}
	}
	return true
}

// mayBeOutOf counts the nodes of one model; "" counts all nodes. One that has
// never been ready takes nothing away by not being it yet.
func (t *step) mayBeOutOf(model string, n *Node) bool {
	total, out := 1, 1
	for _, other := range t.s.Nodes {
		if other.Slot == n.Slot || other.Drain || !other.life.everReady || model != "" && !other.serves(model) {
			continue
		}
		total++
		if other.Health != fleet.Ready || other.ejected() {
			out++
		}
	}
	return float64(out) <= t.s.Settings.MaxEjected*float64(total)
}

func (n *Node) serves(model string) bool {
	_, ok := slices.BinarySearchFunc(n.Models, model, byID)
	return ok
}

// ejected says whether its breaker keeps requests away from the node, all of
// them or all but one.
func (n *Node) ejected() bool { return n.Breaker != fleet.Closed || n.life.trial.on }

// readmit closes breakers where, for what happened to other nodes, too many of a
// model's nodes are out: those that have been open longest first, and no more
// than it takes.
func (t *step) readmit() {
	t.s.fewer = false
	var out []int
	for i, n := range t.s.Nodes {
		if n.Health == fleet.Ready && n.ejected() && !n.Drain {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int {
		return cmp.Compare(t.s.Nodes[a].life.breakerNs, t.s.Nodes[b].life.breakerNs)
	})
	for _, i := range out {
		if !t.mayBeOut(t.s.Nodes[i]) {
			t.closeBreaker(t.edit(i), "too many nodes of its model are out")
		}
	}
}
