package controlplane

import (
	"fmt"
	"log/slog"
	"time"

	"warmpath/controlplane/kernel"
	"warmpath/controlplane/state"
)

// silentTimeOuts is how many retransmission time-outs in a row, with nothing heard
// of the node on any connection, are proof. One is not: a lost packet does that.
const silentTimeOuts = 2

// A connection that is not there yet says so by time-outs of its SYN. They come
// soon (kernel.syn_rto), whatever the distance, and a node whose queue of connections
// is full drops SYNs though it lives. So they prove what five SYNs of a sentinel
// prove in as long: nothing was heard on any connection meanwhile, which takes
// longer than connecting ever did.
const (
	silentSYNs  = 3
	synSilentNs = int64(110e6) // since the first time-out
	synConnects = 4            // … and how many times the time that connecting takes
)

// kernelFault takes what the kernel saw go wrong with a node.
func (c *ControlPlane) kernelFault(f kernel.Fault) {
	n := c.tenant(f.Slot, f.Generation)
	if n == nil {
		return
	}
	c.opt.Log.Debug("the kernel tells of a node", slog.String("node", n.Spec.Name), slog.String("what", f.Kind), slog.Int("count", f.Count), slog.Bool("silent", f.Silent), slog.String("error", f.Error))
	if c.data.Load() == nil {
		return
	}
	if evidence := proofOf(f, n.Load.ConnectNs.Load()); evidence != "" {
		c.Silent(n, c.NowNs()-f.SilentNs, evidence)
	}
}

// proofOf says what proves that the host of a node to which connecting takes so long
// is dead, "" if a fault is no proof of it.
func proofOf(f kernel.Fault, connectNs int64) string {
	what := ""
	switch {
	case !f.Silent:
		return ""
	case f.TimedOut && f.Count >= silentTimeOuts:
		what = "retransmission time-outs"
	case f.SYN && f.Count >= silentSYNs && f.SilentNs >= max(synSilentNs, synConnects*connectNs):
		what = "time-outs of a SYN"
	default:
		return ""
	}
	return fmt.Sprintf("%d %s in a row, and nothing came for %v", f.Count, what, time.Duration(f.SilentNs).Round(time.Millisecond))
}

// kernelLoads takes what nodes said of their load in band.
func (c *ControlPlane) kernelLoads(loads []kernel.Load) {
	now := c.NowNs()
	e := state.LoadsSaid{NowNs: now, Loads: make([]state.LoadSaid, 0, len(loads))}
	for _, l := range loads {
		if n := c.tenant(l.Slot, l.Generation); n != nil {
			e.Loads = append(e.Loads, state.LoadSaid{Node: n.Spec.Name, Incarnation: n.Incarnation, AtNs: now - l.AgoNs, Queued: l.Queued, KVUse: l.KVUse})
		}
	}
	if len(e.Loads) > 0 {
		c.Send(e)
	}
}

// tenant returns the node that has a slot now, nil if it is another's or nobody's.
func (c *ControlPlane) tenant(slot int, generation uint32) *state.Node {
	snap := c.opt.Fleet.Load()
	if slot >= len(snap.Nodes) || snap.Nodes[slot] == nil || snap.Nodes[slot].Generation != generation {
		return nil
	}
	return c.State().Find(snap.Nodes[slot].Name)
}

// Kernel returns what the kernel tells of connections, nil if nobody asked it.
func (c *ControlPlane) Kernel() *kernel.Plane { return c.opt.Kernel }
