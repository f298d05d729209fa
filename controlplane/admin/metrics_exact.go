package admin

import (
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prompt"
)

// Series of what is known exactly, and how.
var (
	descUnits       = desc("index_blocks", "Units the index holds for the node.", "node")
	descTrust       = desc("node_trust", "Ranks of the node whose stream of KV events is in the state.", "node", "state")
	descExact       = desc("node_exact", "1 if the tokens of this class of requests are known exactly at the node.", "node", "class")
	descKVEvents    = desc("kv_events_total", "KV-cache events, by what they were or why they did not count.", "node", "kind")
	descKVBatches   = desc("kv_event_batches_total", "Batches of KV-cache events that were applied.", "node")
	descKVGaps      = desc("kv_event_gaps_total", "Runs of batches that were missed, before any replay.", "node")
	descKVLost      = desc("kv_event_gaps_lost_total", "… of those, the ones that no replay could fill.", "node")
	descKVRestarts  = desc("kv_event_restarts_total", "Restarts of the engine, as its sequence numbers tell.", "node")
	descMemoBytes   = desc("memo_bytes", "Memory of remembered texts.", "memo")
	descMemoLooks   = desc("memo_lookups_total", "Look-ups of remembered texts.", "memo", "result")
	descMemoEvicted = desc("memo_evictions_total", "Remembered texts that gave way.", "memo")
	descUsage       = desc("prompt_length_checks_total", "Prompts whose tokens were counted by the engine as well.", "result")
	descHeld        = desc("identified_prompts", "Prompts whose tokens are held: their answers have not begun, or a worker counts the rest.")
	descWorkQueue   = desc("identify_queue", "Prompts that wait for a worker or are with one.")
	descEvidence    = desc("evidence_bytes", "Bodies held until their answer's end in case that the engine has counted otherwise.")
	descWorkFull    = desc("identify_overflows_total", "Prompts routed by their text because too many waited for a worker.")
)

var trusts = []fleet.Trust{fleet.TrustNone, fleet.TrustCold, fleet.TrustLive, fleet.TrustGapped, fleet.TrustStale}

// exactness is what is known of one node.
func (c *collector) exactness(m maker, n *fleet.Node) {
	units, ranks := int64(0), map[fleet.Trust]int{}
	for r := range n.Ranks {
		units += c.opt.Index.SlotUnits(n.Slot + r)
		ranks[n.Trust[r]]++
	}
	m.gauge(descUnits, float64(units), n.Name)
	for _, t := range trusts {
		m.gauge(descTrust, float64(ranks[t]), n.Name, t.String())
	}
	for class := range prompt.Classes {
		if n.Exact>>class&1 != 0 {
			m.gauge(descExact, 1, n.Name, class.String())
		}
	}
}

// events adds up the streams of each node's ranks.
func (c *collector) events(m maker) {
	type sum struct{ batches, gaps, lost, restarts uint64 }
	sums, kinds := map[string]sum{}, map[string]map[string]uint64{}
	for _, s := range c.opt.Control.Streams() {
		n := sums[s.Node]
		sums[s.Node] = sum{n.batches + s.Status.Batches, n.gaps + s.Status.Gaps, n.lost + s.Status.Lost, n.restarts + s.Status.Restarts}
		if kinds[s.Node] == nil {
			kinds[s.Node] = map[string]uint64{}
		}
		s.Counts.Each(func(kind string, events uint64) { kinds[s.Node][kind] += events })
	}
	for node, n := range sums {
		m.counter(descKVBatches, float64(n.batches), node)
		m.counter(descKVGaps, float64(n.gaps), node)
		m.counter(descKVLost, float64(n.lost), node)
		m.counter(descKVRestarts, float64(n.restarts), node)
		for kind, events := range kinds[node] {
			m.counter(descKVEvents, float64(events), node, kind)
		}
	}
}

// texts is what is remembered of texts, and how often their tokens were right.
func (c *collector) texts(m maker, t *dataplane.Totals) {
	for i, s := range c.opt.Control.MemoStats() {
		name := prompt.MemoNames[i]
		m.gauge(descMemoBytes, float64(s.Bytes), name)
		m.counter(descMemoLooks, float64(s.Hits), name, "hit")
		m.counter(descMemoLooks, float64(s.Misses), name, "miss")
		m.counter(descMemoEvicted, float64(s.Evicted), name)
	}
	m.counter(descUsage, float64(t.UsageChecked-t.UsageWrong), "equal")
	m.counter(descUsage, float64(t.UsageWrong), "different")
	m.counter(descWorkFull, float64(t.WorkFull))
	m.gauge(descHeld, float64(t.Identifying))
	m.gauge(descWorkQueue, float64(t.WithWorkers))
	m.gauge(descEvidence, float64(t.EvidenceBytes))
}
