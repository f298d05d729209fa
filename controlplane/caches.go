package controlplane

import (
	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prefix"
)

const cachesEvery = 10 // ticks between two counts of what nodes hold

// reportCaches tells the State how much the index holds for each node that is
// published.
func (c *ControlPlane) reportCaches() {
	e := state.CachesSeen{NowNs: c.NowNs()} // before it is counted: what is emptied meanwhile is in doubt
	snap := c.opt.Fleet.Load()
	for _, n := range c.State().Nodes {
		if at := snap.Owner(n.Slot); at != nil && at.Generation == n.Generation {
			e.Caches = append(e.Caches, state.CacheSeen{Node: n.Spec.Name, Incarnation: n.Incarnation, Tokens: c.tokensHeld(at)})
		}
	}
	if len(e.Caches) > 0 {
		c.Send(e)
	}
}

// tokensHeld is what the index holds for all ranks of a node. Its entries are units of
// tokens where the rank reports them or prompts are known by them, else of text.
func (c *ControlPlane) tokensHeld(n *fleet.Node) (tokens int64) {
	for r := range n.Ranks {
		unit := int64(prefix.TextUnitTokens)
		if n.Exact != 0 || n.Trust[r] != fleet.TrustNone {
			unit = int64(max(n.UnitTokens, 1))
		}
		tokens += c.opt.Index.SlotUnits(n.Slot+r) * unit
	}
	return tokens
}
