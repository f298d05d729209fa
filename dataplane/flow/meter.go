package flow

import "math/bits"

// Buckets of Times: bucket i counts values from 2^(i-1) to 2^i ns, as the kernel's
// programs do.
const Buckets = 40

// Times are histograms of connections to one node.
type Times struct {
	FirstByte [Buckets]uint64 // request sent → start of its answer
	Gap       [Buckets]uint64 // between two reads of an answer
	Connect   [Buckets]uint64
	SynRTT    [Buckets]uint64
}

// Meter is what user space itself saw of connections to one node: what the kernel's
// programs would count, where they are not there to do it. Counts never fall. A read
// stands for a segment. Loop-owned.
type Meter struct {
	Segments, Bytes                uint64
	Connects, Established, Failed  uint64
	ResetsIn, ClosedIdle           uint64
	Retransmits, RTOs, ZeroWindows uint64
	Errors                         uint64 // that sockets were told of
	HeardNs                        int64  // when anything came from the node last, CLOCK_MONOTONIC
	RTTMinNs                       int64  // the shortest round trip that any connection knows of, 0 = none does …
	Generation                     uint32 // … to this tenant of the slot
	Times                          Times
}

// Merge adds what another loop saw of the same node.
func (m *Meter) Merge(o *Meter) {
	m.Segments += o.Segments
	m.Bytes += o.Bytes
	m.Connects += o.Connects
	m.Established += o.Established
	m.Failed += o.Failed
	m.ResetsIn += o.ResetsIn
	m.ClosedIdle += o.ClosedIdle
	m.Retransmits += o.Retransmits
	m.RTOs += o.RTOs
	m.ZeroWindows += o.ZeroWindows
	m.Errors += o.Errors
	m.HeardNs = max(m.HeardNs, o.HeardNs)
	m.NoteRTT(o.Generation, o.RTTMinNs)
	for b := range Buckets {
		m.Times.FirstByte[b] += o.Times.FirstByte[b]
		m.Times.Gap[b] += o.Times.Gap[b]
		m.Times.Connect[b] += o.Times.Connect[b]
		m.Times.SynRTT[b] += o.Times.SynRTT[b]
	}
}

// NoteRTT takes a round trip to a tenant of the slot, 0 if none is known. What is
// known of a tenant before is forgotten.
func (m *Meter) NoteRTT(generation uint32, ns int64) {
	switch {
	case ns <= 0 || generation < m.Generation:
	case generation > m.Generation || m.RTTMinNs == 0 || ns < m.RTTMinNs:
		m.Generation, m.RTTMinNs = generation, ns
	}
}

// Bucket is the bucket of a time; what is not positive has the first.
func Bucket(ns int64) int { return min(bits.Len64(uint64(max(ns, 0))), Buckets-1) }

// TimeOut says that a connection's retransmission time-outs in a row, or those of
// its SYN, have become more.
type TimeOut struct {
	Slot       int // of the node …
	Generation uint32
	Count      int // … in a row
	SYN        bool
	SinceNs    int64 // when the first in the row was, CLOCK_MONOTONIC
	AtNs       int64 // when it was found out
}

// Measurement is what all loops saw. It is filled again and again.
type Measurement struct {
	Meters   []Meter // by slot of the node
	TimeOuts []TimeOut
}

// Reset forgets all but the memory.
func (m *Measurement) Reset() {
	clear(m.Meters)
	*m = Measurement{Meters: m.Meters[:0], TimeOuts: m.TimeOuts[:0]}
}

// Add adds what one loop saw of a node.
func (m *Measurement) Add(slot int, o *Meter) {
	for slot >= len(m.Meters) {
		m.Meters = append(m.Meters, Meter{})
	}
	m.Meters[slot].Merge(o)
}

// Of returns what was seen of a node, nil if that is nothing.
func (m *Measurement) Of(slot int) *Meter {
	if slot >= len(m.Meters) {
		return nil
	}
	return &m.Meters[slot]
}

// own is what the loop knows of the request on a line by its own clock. Zero =
// none is on it.
type own struct {
	sentNs, firstNs, lastNs int64

	// Of the latest read of which the kernel kept when it came: that, and where
	// its bytes lie in the answer.
	cameNs   int64
	from, to uint64
}

// Timed reports whether the loop keeps time of the line, and a request is on it:
// then Came is better than Read for what the time is wanted of.
func (l *Line) Timed() bool { return l.meter != nil && l.sentNs != 0 }

// Came is Read of bytes of which the kernel kept when the last of them came.
func (l *Line) Came(n int, nowNs, cameNs int64) {
	if l.meter == nil || cameNs < max(l.sentNs, l.lastNs) {
		l.Read(n, nowNs)
		return
	}
	l.cameNs, l.from = cameNs, l.read
	l.Read(n, cameNs)
	l.to = l.read
	l.meter.HeardNs = max(l.meter.HeardNs, nowNs)
}

func (m *Meter) count(n int) {
	m.Segments++
	m.Bytes += uint64(n)
}

// keepTime notes that so many bytes were read at a time.
func (l *Line) keepTime(n int, nowNs int64) {
	m := l.meter
	m.count(n)
	m.HeardNs = max(m.HeardNs, nowNs)
	switch {
	case l.sentNs == 0:
		return
	case l.firstNs == 0:
		l.firstNs = nowNs
		m.Times.FirstByte[Bucket(nowNs-l.sentNs)]++
	case l.lastNs == 0: // what came before has waited, nobody knows for how long
	default:
		m.Times.Gap[Bucket(nowNs-l.lastNs)]++
	}
	l.lastNs = nowNs
}
