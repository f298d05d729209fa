package controlplane

import (
	"net/netip"

	"warmpath/controlplane/sentinel"
	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
)

// newSentinels makes the Keeper that runs once there is a data plane, by whose
// clock nodes are heard.
func (c *ControlPlane) newSentinels() *sentinel.Keeper {
	return sentinel.New(sentinel.Options{
		Nodes: func() []*state.Node { return c.State().Nodes },
		NowNs: func() int64 { return c.data.Load().NowNs() },
		Silent: func(n *state.Node, sinceNs int64, evidence string) {
			c.Silent(n, sinceNs+c.aheadNs(), evidence)
		},
		Alive: func(n *state.Node, atNs int64) {
			c.Send(state.LifeSeen{NowNs: c.NowNs(), Node: n.Spec.Name, Incarnation: n.Incarnation, AtNs: atNs + c.aheadNs()})
		},
		Refused: func(n *state.Node) {
			c.Send(state.Failure{NowNs: c.NowNs(), Node: n.Spec.Name, Incarnation: n.Incarnation, Class: state.Refused})
		},
	})
}

// Silent takes proof that nothing came back from a node since sinceNs, in NowNs's
// terms; see state.SilenceSeen for what is proof. Any goroutine may call it.
func (c *ControlPlane) Silent(n *state.Node, sinceNs int64, evidence string) {
	if heardNs := c.heardNs(n); heardNs > sinceNs {
		c.Send(state.LifeSeen{NowNs: c.NowNs(), Node: n.Spec.Name, Incarnation: n.Incarnation, AtNs: heardNs})
		return
	}
	others := false
	for _, other := range c.State().Nodes {
		others = others || other.Incarnation != n.Incarnation && !onLoopback(other.Endpoint.Address) && c.heardNs(other) > sinceNs
	}
	c.Send(state.SilenceSeen{
		NowNs: c.NowNs(), Node: n.Spec.Name, Incarnation: n.Incarnation, SinceNs: sinceNs, OthersHeard: others, Evidence: evidence,
	})
}

// onLoopback reports whether a node is on this host: that it is heard says nothing
// of the way out.
func onLoopback(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// aheadNs is how far NowNs is ahead of the data plane's time.
func (c *ControlPlane) aheadNs() int64 { return c.NowNs() - c.data.Load().NowNs() }

// heardNs is when something came from a node last, in NowNs's terms; 0 = never.
func (c *ControlPlane) heardNs(n *state.Node) int64 {
	heardNs := n.Load.HeardNs.Load()
	if heardNs == 0 || c.data.Load() == nil {
		return 0
	}
	return heardNs + c.aheadNs()
}

// Sentinels returns what became of the sentinels to a node.
func (c *ControlPlane) Sentinels(node string) sentinel.Counts { return c.sentinels.Counts(node) }

// evacuate has the data plane leave dead nodes: those that were not dead before,
// and those where something waits still, which may have somewhere to go by now.
func (c *ControlPlane) evacuate(before, now *fleet.Snapshot) {
	data := c.data.Load()
	if data == nil {
		return
	}
	var dead []*fleet.Node
	for slot, n := range now.Nodes {
		if n == nil || n.Cause != fleet.CauseDead {
			continue
		}
		known := slot < len(before.Nodes) && before.Nodes[slot] != nil && before.Nodes[slot].Generation == n.Generation && before.Nodes[slot].Cause == n.Cause
		if !known || n.Load.Requests.Load() > 0 {
			dead = append(dead, n)
		}
	}
	if len(dead) > 0 {
		data.Evacuate(dead)
	}
}
