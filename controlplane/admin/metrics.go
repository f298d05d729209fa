package admin

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"warmpath/controlplane/sentinel"
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/tally"
)

// collector makes the series of design section 12 when it is asked, from
// copies that the loops hand out: nothing is counted twice, and no label is
// looked up on the path of a request.
type collector struct{ opt Options }

func newCollector(opt Options) *collector { return &collector{opt} }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("warmpath_"+name, help, labels, nil)
}

var (
	descRequests   = desc("requests_total", "Requests answered, by model, node and status; 499 is a client that left.", "model", "node", "code")
	descDuration   = desc("request_duration_seconds", "From a request's first byte to its answer's last.")
	descTTFT       = desc("ttft_seconds", "From sending to a node to its first event with content.", "node")
	descITL        = desc("inter_token_seconds", "Between events of a stream.", "node")
	descLag        = desc("router_lag_seconds", "From the kernel having a first event to a loop having read it: what the router adds. Only where the kernel follows connections.")
	descRouting    = desc("routing_seconds", "From the last byte needed for the decision to the first byte out.")
	descDecisions  = desc("decisions_total", "Decisions.", "policy", "reason", "exactness", "prefix")
	descPrompt     = desc("prompt_tokens_total", "Prompt tokens routed.")
	descMatched    = desc("matched_tokens_total", "Prompt tokens that the chosen node was known to hold.", "exactness")
	descCached     = desc("cached_tokens_total", "Prompt tokens that nodes say they took from their cache.", "node")
	descMatchErr   = desc("match_error_tokens", "Difference between matched and cached tokens of one request.")
	descRetries    = desc("retries_total", "Tries after the first, by what ended the one before.", "reason")
	descBudget     = desc("retry_budget_exhausted_total", "Retries that the budget refused.")
	descInFlight   = desc("in_flight", "Requests in flight at the node.", "node")
	descTokens     = desc("in_flight_tokens", "Prompt and expected output tokens in flight at the node.", "node")
	descHealed     = desc("in_flight_healed_total", "Times that counts of what is in flight at the node were wrong and were corrected; each is a mistake in the router.", "node")
	descFailures   = desc("node_failures_total", "Failures of the node, ever.", "node", "kind")
	descState      = desc("node_state", "1 for the state the node is in.", "node", "state")
	descDown       = desc("node_down", "1 for why the node is down.", "node", "cause")
	descSentinels  = desc("sentinels_total", "Exchanges with the hosts of nodes that were silent while requests waited there.", "node", "outcome")
	descBreaker    = desc("node_breaker", "1 for the state the node's breaker is in.", "node", "state")
	descWeight     = desc("node_weight", "Measured speed, 1.0 = median of the model's nodes.", "node")
	descWarmth     = desc("node_warmth", "What the node's cache holds against what its like hold, 0 to 1; absent while that is not known.", "node")
	descIndexBytes = desc("index_bytes", "Memory of the index.")
	descIndexGone  = desc("index_evictions_total", "Units that left the index, by why.", "reason")
	descConns      = desc("connections", "Connections.", "side")
	descAccept     = desc("accept_failures_total", "Accepts that failed.")
	descRefused    = desc("connections_refused_total", "Connections beyond limits.connections.")
	descPauses     = desc("backpressure_pauses_total", "Times a node was paused because its client was slow.")
	descPaused     = desc("backpressure_paused", "Node connections that are not read now because their clients are slow.")
	descMemory     = desc("memory_bytes", "Bodies and answers held that count against limits.memory.")
	descShed       = desc("memory_shed_total", "What was given up for want of memory.", "kind")
	descHedges     = desc("hedges_total", "Silent streams sent to a second node too.")
	descHedgesWon  = desc("hedges_won_total", "Hedges where the second node's try went on.")
	descNotes      = desc("notes_dropped_total", "Notes from loops to the indexer that found their ring full.")
	descReload     = desc("config_reload_success", "1 if the last reload succeeded, or there was none.")
	descPressure   = desc("pressure", "Moving average of the share of nodes with queued prefill.")
	descPublish    = desc("snapshot_publish_seconds", "From a changed state of the fleet to a snapshot of it that requests see.")
	descTakeover   = desc("takeover_seconds", "What it took to take over from the process before; absent if there was none.")
	descBuild      = desc("build_info", "1.", "version")
)

// Describe sends nothing: the label values are not known beforehand, which
// makes this an unchecked collector in Prometheus's words.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect makes all series.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	t := c.opt.Dataplane.Totals()
	m := maker{out}
	for k, n := range t.Requests {
		m.counter(descRequests, float64(n), k.Model, k.Node, strconv.Itoa(k.Code))
	}
	for k, n := range t.Decisions {
		m.counter(descDecisions, float64(n), k.Policy, k.Reason.String(), k.Exact.String(), k.Prefix)
	}
	m.histogram(descDuration, &t.Duration)
	m.histogram(descRouting, &t.Routing)
	m.histogram(descLag, &t.Lag)
	m.histogram(descMatchErr, &t.MatchErr)
	m.counter(descPrompt, float64(t.PromptTokens))
	for i, n := range t.MatchedTokens {
		m.counter(descMatched, float64(n), dataplane.Exactness(i).String())
	}
	for class, n := range t.Retries {
		m.counter(descRetries, float64(n), class.String())
	}
	m.counter(descBudget, float64(t.BudgetEmpty))
	m.gauge(descConns, float64(t.Clients), "client")
	m.gauge(descConns, float64(t.NodeIdle), "node_idle")
	m.counter(descAccept, float64(t.AcceptFailures))
	m.counter(descRefused, float64(t.Refused))
	m.counter(descPauses, float64(t.Pauses))
	m.gauge(descPaused, float64(t.Paused))
	m.counter(descHedges, float64(t.Hedges))
	m.counter(descHedgesWon, float64(t.HedgesWon))
	m.gauge(descMemory, float64(t.MemoryBytes))
	for kind, n := range t.Shed {
		m.counter(descShed, float64(n), dataplane.ShedNames[kind])
	}
	m.counter(descNotes, float64(t.NotesDropped))
	m.gauge(descReload, flag(c.opt.Control.ReloadOK()))
	m.gauge(descPressure, c.opt.Fleet.Pressure())
	if c.opt.TakeoverSeconds > 0 {
		m.gauge(descTakeover, c.opt.TakeoverSeconds)
	}
	published := c.opt.Control.Publishes()
	m.histogram(descPublish, &published)
	m.gauge(descBuild, 1, c.opt.Version)
	c.index(m)
	c.events(m)
	c.guard(m)
	c.discovery(m)
	c.scaler(m)
	c.holds(m, &t)
	c.texts(m, &t)
	c.kernel(m, &t)
	for _, n := range c.opt.Fleet.Load().Nodes {
		if n != nil {
			c.node(m, n, t.Nodes[n.Name])
		}
	}
}

func (c *collector) index(m maker) {
	st := c.opt.Index.Stats()
	m.gauge(descIndexBytes, float64(st.Bytes))
	m.counter(descIndexGone, float64(st.Evictions), "node_full")
	m.counter(descIndexGone, float64(st.MemoryEvictions), "index_full")
	m.counter(descIndexGone, float64(st.Expired), "age")
	m.counter(descIndexGone, float64(st.Swept), "node_gone")
}

var (
	nodeStates    = []fleet.State{fleet.Joining, fleet.Warming, fleet.Ready, fleet.Draining, fleet.Down}
	downCauses    = []fleet.Cause{fleet.CauseDead, fleet.CauseHung, fleet.CauseRefused, fleet.CauseUnhealthy}
	breakerStates = []fleet.Breaker{fleet.Closed, fleet.Open, fleet.HalfOpen}
)

func (c *collector) node(m maker, n *fleet.Node, t *dataplane.NodeTally) {
	m.gauge(descInFlight, float64(n.Load.Requests.Load()), n.Name)
	m.gauge(descTokens, float64(n.Load.TotalTokens.Load()), n.Name)
	m.counter(descHealed, float64(n.Load.Healed.Load()), n.Name)
	m.counter(descFailures, float64(n.Load.Refused.Load()), n.Name, "refused")
	m.counter(descFailures, float64(n.Load.Resets.Load()), n.Name, "reset")
	m.counter(descFailures, float64(n.Load.ServerFails.Load()), n.Name, "server_error")
	m.counter(descFailures, float64(n.Load.Silent.Load()), n.Name, "silent")
	m.counter(descFailures, float64(n.Load.Dead.Load()), n.Name, "dead")
	for _, s := range nodeStates {
		m.gauge(descState, flag(n.State == s), n.Name, s.String())
	}
	for _, cause := range downCauses {
		m.gauge(descDown, flag(n.Cause == cause), n.Name, cause.String())
	}
	for outcome, count := range c.opt.Control.Sentinels(n.Name) {
		m.counter(descSentinels, float64(count), n.Name, sentinel.Outcome(outcome).String())
	}
	for _, b := range breakerStates {
		m.gauge(descBreaker, flag(n.Breaker == b), n.Name, b.String())
	}
	m.gauge(descWeight, n.Weight, n.Name)
	if n.Warmth.Known {
		m.gauge(descWarmth, n.Warmth.Value, n.Name)
	}
	c.exactness(m, n)
	if t != nil {
		m.histogram(descTTFT, &t.FirstEvent, n.Name)
		m.histogram(descITL, &t.InterToken, n.Name)
		m.counter(descCached, float64(t.CachedTokens), n.Name)
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// maker sends metrics.
type maker struct{ out chan<- prometheus.Metric }

func (m maker) counter(d *prometheus.Desc, v float64, labels ...string) {
	m.out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
}

func (m maker) gauge(d *prometheus.Desc, v float64, labels ...string) {
	m.out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (m maker) histogram(d *prometheus.Desc, h *tally.Histogram, labels ...string) {
	buckets, below := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, bound := range h.Bounds {
		below += h.Counts[i]
		buckets[bound] = below
	}
	m.out <- prometheus.MustNewConstHistogram(d, h.Total, h.Sum, buckets, labels...)
}
