package kernel

import (
	"errors"

	"warmpath/bpf"
	"warmpath/dataplane/fleet"
)

// NodeLoadPart is the part that a Reason names where loads are not read.
const NodeLoadPart = "node_load"

// Load is what a node said of itself in band, in an option of its segments.
type Load struct {
	Slot       int    // of the node in the fleet
	Generation uint32 // … and which tenant of it
	AgoNs      int64  // when it came
	Queued     fleet.Gauge
	KVUse      fleet.Gauge // 0 … 1
}

// LoadView is what GET /api/kernel shows of it. What is not known is null.
type LoadView struct {
	Queued     *float64 `json:"queued_requests"`
	KVUse      *float64 `json:"kv_use"`
	AgoSeconds float64  `json:"seconds_ago"`
	Readings   uint64   `json:"readings"`
}

// listen begins to read what nodes say of their load, if that is configured and allowed. Without
// it nothing else is missing: the tier stays.
func (p *Plane) listen() {
	if !p.opt.NodeLoad {
		return
	}
	err := errors.New("the kernel plane follows no connections")
	if p.flow != nil {
		if err = p.readLoads(); err == nil {
			p.hears = true
			return
		}
	}
	p.reasons = append(p.reasons, Explain(NodeLoadPart, err))
}

func (p *Plane) readLoads() error {
	cgroup, err := bpf.OwnCgroup()
	if err != nil {
		return err
	}
	return p.flow.ReadLoads(cgroup)
}

// hear takes what a node has said by now. It returns it, false if it was known.
func (n *node) hear(slot uint32, now *reading) (Load, bool) {
	n.readings = now.readings - n.began.readings
	if now.saidNs == n.saidNs || now.saidNs == n.began.saidNs {
		return Load{}, false
	}
	n.said, n.saidNs = now.said, now.saidNs
	l := Load{Slot: int(slot), Generation: n.generation, AgoNs: max(0, bpf.MonotonicNs()-int64(n.saidNs))}
	l.Queued, l.KVUse = gaugeOf(float64(n.said.Waiting)), gaugeOf(n.said.KVUse)
	return l, true
}

// gaugeOf is unknown below zero.
func gaugeOf(v float64) fleet.Gauge {
	if v < 0 {
		return fleet.Gauge{}
	}
	return fleet.Gauge{Value: v, Known: true}
}

// load is what is shown of a node, nil if it has said nothing.
func (n *node) load() *LoadView {
	if n.readings == 0 || n.saidNs == 0 {
		return nil
	}
	v := &LoadView{AgoSeconds: float64(max(0, bpf.MonotonicNs()-int64(n.saidNs))) / 1e9, Readings: n.readings}
	if n.said.Waiting >= 0 {
		queued := float64(n.said.Waiting)
		v.Queued = &queued
	}
	if n.said.KVUse >= 0 {
		use := n.said.KVUse
		v.KVUse = &use
	}
	return v
}
