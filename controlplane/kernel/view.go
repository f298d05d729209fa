package kernel

import (
	"cmp"
	"slices"

	"warmpath/bpf"
	"warmpath/dataplane/tally"
)

// View is what GET /api/kernel shows.
type View struct {
	Tier       Tier       `json:"tier"`
	Reasons    []Reason   `json:"reasons"`
	Precision  Precision  `json:"precision"` // of first bytes and gaps
	Sources    Sources    `json:"sources"`
	Kernel     string     `json:"kernel"`
	Slots      int        `json:"slots"`
	TicksPerS  int64      `json:"ticks_per_second,omitempty"`
	EventsLost uint64     `json:"events_lost"`
	NodeLoad   bool       `json:"node_load"`  // what nodes say of their load is read
	LeftAlone  []string   `json:"left_alone"` // keys that do nothing because the host is set so, and why
	Nodes      []NodeView `json:"nodes"`
}

// NodeView is what the kernel knows of a node. Times are upper bounds of powers of
// two; 0 or null is unknown.
type NodeView struct {
	Name             string      `json:"name"`
	RTTSeconds       *float64    `json:"rtt_seconds"`
	FirstByteSeconds *Percentile `json:"first_byte_seconds"`
	GapSeconds       *Percentile `json:"gap_seconds"`
	ConnectSeconds   *Percentile `json:"connect_seconds"`
	Connects         uint64      `json:"connects"`
	Failed           uint64      `json:"connects_failed"`
	ResetsIn         uint64      `json:"resets_received"`
	ResetsOut        uint64      `json:"resets_sent"`
	Retransmits      uint64      `json:"retransmits"`
	TimeOuts         uint64      `json:"retransmission_timeouts"`
	ClosedIdle       uint64      `json:"idle_connections_closed_by_node"`
	ZeroWindows      uint64      `json:"zero_windows"` // the node took nothing more; of one connection once a second
	Errors           uint64      `json:"socket_errors"`
	LastError        string      `json:"last_error,omitempty"`
	Segments         uint64      `json:"segments"`
	Bytes            uint64      `json:"bytes"`
	RTOMinUs         uint32      `json:"rto_min_us,omitempty"`
	SynRTOTicks      uint32      `json:"syn_rto_ticks,omitempty"`
	Load             *LoadView   `json:"load"` // as the node says in band; null if it says nothing
	UserTimeoutMs    uint32      `json:"user_timeout_ms,omitempty"`
	NotSentLowat     uint32      `json:"notsent_lowat_bytes,omitempty"`
	DSCP             *uint32     `json:"dscp,omitempty"`
	Priority         *uint32     `json:"priority,omitempty"`

	FirstByte tally.Histogram `json:"-"`
	RTT       tally.Histogram `json:"-"`
	Readings  uint64          `json:"-"` // of its load
}

// Percentile is two of them.
type Percentile struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

func percentilesOf(h *[bpf.Buckets]uint64) *Percentile {
	if leastNs(h) == 0 {
		return nil
	}
	return &Percentile{float64(percentileNs(h, .5)) / 1e9, float64(percentileNs(h, .99)) / 1e9}
}

// View returns a copy of all that is known. Any goroutine.
func (p *Plane) View() View {
	if p == nil {
		return View{Tier: Off, Reasons: []Reason{}, Precision: Unknown, Sources: unknown, Kernel: release(), LeftAlone: []string{}, Nodes: []NodeView{}}
	}
	v := View{
		Tier: p.tier, Reasons: p.reasons, Precision: p.from.Segments, Sources: p.from, Kernel: release(), TicksPerS: p.ticks.Load(), NodeLoad: p.hears,
		Nodes: []NodeView{},
	}
	if v.Reasons == nil {
		v.Reasons = []Reason{}
	}
	if p.table != nil {
		v.Slots = p.opt.Slots
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	v.EventsLost, v.LeftAlone = p.lost, []string{}
	if p.flow != nil {
		v.LeftAlone = p.opt.Tuning.leftAlone(p.host)
	}
	for slot, n := range p.nodes {
		v.Nodes = append(v.Nodes, n.view(p.tuned[slot]))
	}
	slices.SortFunc(v.Nodes, func(a, b NodeView) int { return cmp.Compare(a.Name, b.Name) })
	return v
}

func (n *node) view(rule bpf.Rule) NodeView {
	c := &n.counters
	v := NodeView{
		Name: n.name, FirstByteSeconds: percentilesOf(&n.times.FirstByte), GapSeconds: percentilesOf(&n.times.Gap),
		ConnectSeconds: percentilesOf(&n.times.Connect), Connects: c.Connects, Failed: c.Failed, ResetsIn: c.ResetsIn, ResetsOut: c.ResetsOut,
		Retransmits: c.Retransmits, TimeOuts: c.Rtos, ClosedIdle: c.ClosedIdle, ZeroWindows: c.ZeroWindows, Errors: c.Errors, LastError: n.lastError, Segments: c.Segments, Bytes: c.Bytes,
		SynRTOTicks: rule.SynRtoJiffies, UserTimeoutMs: rule.UserTimeoutMs, NotSentLowat: rule.NotsentLowatBytes, FirstByte: histogramOf(&n.times.FirstByte), RTT: histogramOf(&n.times.SynRtt),
		Load: n.load(), Readings: n.readings,
	}
	if rule.Tos > 0 {
		dscp := (rule.Tos - 1) >> 2
		v.DSCP = &dscp
	}
	if rule.Priority > 0 {
		priority := rule.Priority - 1
		v.Priority = &priority
	}
	if rule.Near != 0 {
		v.RTOMinUs = rule.RtoMinUs
	}
	least := leastNs(&n.times.SynRtt)
	if n.rttMinNs > 0 && (least == 0 || n.rttMinNs < least) {
		least = n.rttMinNs
	}
	if least > 0 {
		seconds := float64(least) / 1e9
		v.RTTSeconds = &seconds
	}
	return v
}

// histogramOf cuts a histogram to what can happen to a connection: 8 µs to 4.6
// minutes. The sum takes each value for the middle of its bucket.
func histogramOf(h *[bpf.Buckets]uint64) tally.Histogram {
	const least, most = 13, 38
	t := tally.Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
	for b, n := range h {
		t.Counts[min(max(b, least)-least, most-least+1)] += n
		t.Total += n
		t.Sum += float64(n) * .75 * float64(uint64(1)<<b) / 1e9
	}
	return t
}

var bounds = func() (seconds []float64) {
	for b := 13; b <= 38; b++ {
		seconds = append(seconds, float64(uint64(1)<<b)/1e9)
	}
	return seconds
}()
