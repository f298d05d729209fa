package state

import "warmpath/dataplane/fleet"

// saidStaleNs is how long what a node said in band may be used: it is as old as the
// last segment of an answer, and a node that answers nothing says nothing.
const saidStaleNs = second

// LoadsSaid is what nodes said of themselves in segments of their answers since the
// last such event. It is fresher than a reading of their metrics while they answer;
// what is older than the last reading, or than a second, changes nothing.
type LoadsSaid struct {
	NowNs int64
	Loads []LoadSaid
}

// LoadSaid is what one node said.
type LoadSaid struct {
	Node        string
	Incarnation uint64
	AtNs        int64 // when it came, by the clock of NowNs
	Queued      fleet.Gauge
	KVUse       fleet.Gauge // 0 … 1
}

func (e LoadsSaid) at() int64 { return e.NowNs }

// Said is the last of a node's LoadSaid.
type Said struct {
	AtNs   int64 // 0 = never
	Fresh  bool
	Queued fleet.Gauge
	KVUse  fleet.Gauge
}

// Queue is how many requests wait at the node, and the share of its KV cache that is
// in use, by whichever was heard last of its metrics and what it said in band. What
// neither says is unknown.
func (n *Node) Queue() (queued, kvUse fleet.Gauge) {
	if n.SampleFresh {
		queued, kvUse = n.Sample.Queued, n.Sample.KVUse
	}
	if said := &n.Said; said.Fresh && (!n.SampleFresh || said.AtNs >= n.SampleNs) {
		if said.Queued.Known {
			queued = said.Queued
		}
		if said.KVUse.Known {
			kvUse = said.KVUse
		}
	}
	return queued, kvUse
}

func (t *step) loadsSaid(e LoadsSaid) {
	for _, said := range e.Loads {
		if n := t.s.Find(said.Node); n != nil && t.news(n, said) {
			t.on(said.Node, said.Incarnation, func(n *Node) { t.loadSaid(n, said) })
		}
	}
}

// news says whether a LoadSaid is later than the last and not stale.
func (t *step) news(n *Node, e LoadSaid) bool {
	return e.AtNs > n.Said.AtNs && e.AtNs <= t.s.NowNs && t.s.NowNs-e.AtNs <= saidStaleNs
}

func (t *step) loadSaid(n *Node, e LoadSaid) {
	queued, kvUse := n.Queue()
	n.Said = Said{AtNs: e.AtNs, Fresh: true, Queued: plausible(e.Queued), KVUse: plausible(e.KVUse)}
	n.Said.KVUse.Value = min(n.Said.KVUse.Value, 1)
	if q, k := n.Queue(); q != queued || k != kvUse {
		t.s.dirty = true
	}
}

// saidOver says whether what a node said in band has become stale.
func (t *step) saidOver(n *Node) bool { return n.Said.Fresh && t.s.NowNs-n.Said.AtNs > saidStaleNs }
