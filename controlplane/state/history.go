package state

import "slices"

// Change is one step of a node's life.
type Change struct {
	AtNs   int64  // by the clock of events
	To     string // joining, warming, ready, down, draining, "draining no longer", gone, ramping, ramped, or "breaker " and its state
	Reason string // for people
}

// Bounds of what is remembered.
const (
	maxChanges = 32 // of one node
	maxGone    = 64 // nodes that are gone
)

// Gone is a node that is gone, and what became of it.
type Gone struct {
	Name    string
	History []Change
}

// happened adds a change to a node's history, of which the oldest part is forgotten.
// Histories are shared with earlier records, so they are never written in place.
func (t *step) happened(n *Node, to, reason string) {
	n.History = slices.Concat(n.History[max(0, len(n.History)+1-maxChanges):], []Change{{t.s.NowNs, to, reason}})
}

// bury keeps the history of a node that goes.
func (t *step) bury(n *Node, reason string) {
	t.happened(n, "gone", reason)
	gone := slices.DeleteFunc(slices.Clone(t.s.Gone), func(g Gone) bool { return g.Name == n.Spec.Name })
	t.s.Gone = append(gone[max(0, len(gone)+1-maxGone):], Gone{n.Spec.Name, n.History})
}

// exhume gives a node that comes back its history.
func (t *step) exhume(n *Node) {
	i := slices.IndexFunc(t.s.Gone, func(g Gone) bool { return g.Name == n.Spec.Name })
	if i < 0 {
		return
	}
	n.History = t.s.Gone[i].History
	t.s.Gone = slices.Delete(slices.Clone(t.s.Gone), i, i+1)
}

// History returns what became of a node, oldest first, be it here or gone; nil if
// none of that name is known. The changes must not be changed.
func (s *State) History(name string) []Change {
	if n := s.Find(name); n != nil {
		return n.History
	}
	for _, g := range s.Gone {
		if g.Name == name {
			return g.History
		}
	}
	return nil
}
