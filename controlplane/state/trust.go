package state

import (
	"log/slog"
	"slices"

	"warmpath/dataplane/fleet"
)

// setTrust begins anew: a node's events are had from somewhere else, or no
// longer at all.
func (t *step) setTrust(n *Node, configured bool) {
	trust := fleet.TrustNone
	if configured {
		trust = fleet.TrustCold
	}
	n.Trust = slices.Repeat([]fleet.Trust{trust}, n.Ranks)
	t.publish = true
}

// trustSeen takes a change of one rank's trust.
func (t *step) trustSeen(n *Node, e TrustSeen) {
	if e.Rank < 0 || e.Rank >= n.Ranks || n.Trust[e.Rank] == e.Trust {
		return
	}
	was := n.Trust[e.Rank]
	n.Trust = slices.Clone(n.Trust)
	n.Trust[e.Rank] = e.Trust
	t.publish = true
	if e.Trust == fleet.TrustStale && !n.Spec.KVEvents.Configured() {
		// Its reporter tells all again when it is back; until then what is sent
		// there is learned, and what went there unheard must not count.
		t.do(ClearSlot{Slot: n.Slot + e.Rank, Generation: n.Generation})
	}
	level := slog.LevelInfo
	if e.Trust == fleet.TrustGapped || e.Trust == fleet.TrustStale {
		level = slog.LevelWarn
	}
	t.log(level, "trust in what the node reports changed", slog.String("node", n.Spec.Name), slog.Int("rank", e.Rank),
		slog.String("from", was.String()), slog.String("to", e.Trust.String()), slog.String("why", e.Why))
}

// setScheme forgets what a minimal reporter's node holds, since from now on it
// names prompts in another way, or nobody names them any more.
func (t *step) setScheme(n *Node) {
	for r := range n.Ranks {
		if n.Trust[r] == fleet.TrustNone {
			t.do(ClearSlot{Slot: n.Slot + r, Generation: n.Generation})
		}
	}
}

// exactSeen takes the outcome of a proof of exactness.
func (t *step) exactSeen(n *Node, e ExactSeen) {
	if n.Exact != e.Classes || n.Version != e.Version {
		n.Exact, n.Version, t.publish = e.Classes, e.Version, true
	}
}

// clear says that what is known of a node's caches is void: its engine has
// restarted. What was proved of its prompts is proved anew, since another
// version may have come up, and how fast it usually is is learned anew. Ranks
// with events say themselves what they hold.
func (t *step) clear(n *Node) {
	n.Exact, n.life.tails, t.publish = 0, [tails]tail{}, true
	n.Prefill.doubt()
	n.Decode.doubt()
	t.s.rates = true
	t.void(n)
	for r := range n.Ranks {
		if n.Trust[r] == fleet.TrustNone {
			t.do(ClearSlot{Slot: n.Slot + r, Generation: n.Generation})
		}
	}
}
