package state

import (
	"log/slog"

	"warmpath/dataplane/fleet"
)

// Dead, hung and refused are told apart by who is silent. An engine that hangs
// leaves a kernel that answers for it: it acknowledges and completes handshakes,
// so that nothing here ever calls it dead. A port without a listener is refused
// by the kernel too. Only of a dead host, or one cut off, comes nothing at all.

// silenceSeen takes a node out from which nothing comes back, at once: each
// request that is sent there is lost. When another node was heard meanwhile
// that is certain, and mayEject has no say, as it has none in refusals: to keep
// the node would give no answers at all. When no other was heard the fault may
// be this host's own, and then it would look so of every node in turn: so no
// more than MaxEjected go out. The rest keep what waits there, to be answered
// when the network is back, and go the refused way if connecting fails.
func (t *step) silenceSeen(n *Node, e SilenceSeen) {
	judged := n.Health == fleet.Ready || n.Health == fleet.Down && n.Cause != fleet.CauseDead
	if !judged || n.life.heardNs > e.SinceNs {
		return
	}
	n.life.silentNs = e.SinceNs
	switch reason := "dead: " + e.Evidence; {
	case n.Health == fleet.Down: // what it was out for before matters less, and is remembered: see hung and refused
		n.Cause, n.Reason, n.life.good, t.publish = fleet.CauseDead, reason, 0, true
		t.log(slog.LevelWarn, "node that is down is dead", slog.String("node", n.Spec.Name), slog.String("why", reason))
	case e.OthersHeard || t.mayBeOut(n):
		t.down(n, fleet.CauseDead, reason)
	case !n.life.silenceSaid:
		n.life.silenceSaid = true
		t.log(slog.LevelWarn, "node stays in use: too many nodes of its model are out, and none was heard meanwhile", slog.String("node", n.Spec.Name), slog.String("why", reason), slog.Float64("max_ejected", t.s.Settings.MaxEjected))
	}
}

// lifeSeen has a dead node probed without waiting for the interval.
func (t *step) lifeSeen(n *Node, e LifeSeen) {
	if t.heard(n, min(e.AtNs, t.s.NowNs)) && n.life.probeOutNs == 0 {
		t.probe(n)
	}
}

// heard notes that something came from a node, and reports whether that ends its
// being dead. It stays down until its health route has answered as often as
// after any other fault: a host that answers may have just begun to boot.
func (t *step) heard(n *Node, atNs int64) (revived bool) {
	l := &n.life
	l.heardNs = max(l.heardNs, atNs)
	if l.silentNs == 0 || l.heardNs <= l.silentNs {
		return false
	}
	l.silentNs, l.silenceSaid = 0, false
	if n.Cause != fleet.CauseDead {
		return false
	}
	n.Cause, n.Reason = fleet.CauseUnhealthy, "it was dead and is heard again; its health route decides"
	if l.hung {
		n.Cause, n.Reason = fleet.CauseHung, "hung: it was dead since and is heard again"
	}
	t.publish = true
	t.log(slog.LevelInfo, "dead node is heard again", slog.String("node", n.Spec.Name))
	return true
}
