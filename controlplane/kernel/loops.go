package kernel

import (
	"warmpath/bpf"
	"warmpath/dataplane/flow"
)

// Source is the loops, as far as they measure what the kernel does not tell.
type Source interface {
	// Measure is called by one goroutine.
	Measure(into *flow.Measurement)
}

// Precision says whose clock a figure is by.
type Precision string

// Precisions: a figure of user space has in it what a loop waited for a processor.
const (
	ByKernel Precision = "kernel"
	ByUser   Precision = "user"
	Unknown  Precision = "none"
)

// Sources say by whom each group of figures is.
type Sources struct {
	Connections Precision `json:"connections"` // connects, round trips, retransmissions, time-outs, idle connections closed
	Segments    Precision `json:"segments"`    // first bytes, gaps, segments, bytes
	Resets      Precision `json:"resets"`
	Windows     Precision `json:"windows"` // closed by nodes
	Errors      Precision `json:"errors"`  // that sockets were told of
}

var unknown = Sources{Unknown, Unknown, Unknown, Unknown, Unknown}

// NeedsLoops reports whether the loops have to keep time themselves.
func (p *Plane) NeedsLoops() bool { return p != nil && (p.tier == Lite || p.tier == Passive) }

// Attach gives the plane the loops, once they run. Those that keep no time are left
// alone.
func (p *Plane) Attach(s Source) {
	if p.NeedsLoops() {
		p.source.Store(&s)
	}
}

// measure asks the loops, if there are any yet. The goroutine of samples only.
func (p *Plane) measure() {
	s := p.source.Load()
	if s == nil {
		return
	}
	(*s).Measure(&p.asked)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen, p.asked = p.asked, p.seen
}

// fill puts what the loops saw in the place of what no program counts.
func (r *reading) fill(m *flow.Meter, from Sources) {
	if m == nil {
		return
	}
	c, t := &r.counters, &r.times
	c.HeardNs = max(c.HeardNs, uint64(max(m.HeardNs, 0)))
	if from.Connections == ByUser {
		c.Connects, c.Established, c.Failed, c.ClosedIdle = m.Connects, m.Established, m.Failed, m.ClosedIdle
		c.Retransmits, c.Rtos = m.Retransmits, m.RTOs
		t.Connect, t.SynRtt = m.Times.Connect, m.Times.SynRTT
	}
	if from.Segments == ByUser {
		c.Segments, c.Bytes = m.Segments, m.Bytes
		t.FirstByte, t.Gap = m.Times.FirstByte, m.Times.Gap
	}
	if from.Resets == ByUser {
		c.ResetsIn = m.ResetsIn
	}
	if from.Windows == ByUser {
		c.ZeroWindows = m.ZeroWindows
	}
	if from.Errors == ByUser {
		c.Errors = m.Errors
	}
}

// timedOut completes what a loop found out. It reports false for nodes that are
// gone.
func (p *Plane) timedOut(t flow.TimeOut) (Fault, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.nodes[uint32(t.Slot)]
	if n == nil || n.generation != t.Generation {
		return Fault{}, false
	}
	f := Fault{Kind: bpf.EventRTO.String(), TimedOut: !t.SYN, SYN: t.SYN, Slot: t.Slot, Generation: t.Generation, Count: t.Count}
	if t.SYN {
		f.Kind = bpf.EventSynRTO.String()
	}
	if n.counters.HeardNs < uint64(max(t.SinceNs, 0)) {
		f.Silent, f.SilentNs = true, t.AtNs-t.SinceNs
	}
	return f, true
}
