package flow

import (
	"fmt"
	"sync/atomic"
	"unsafe"
)

// SlotBytes is the size of a slot.
const SlotBytes = int(unsafe.Sizeof(slot{}))

// Segments is how many of an answer's first segments have a time of their own.
const Segments = 4

// established is TCP_ESTABLISHED of net/tcp_states.h; 0 is a connection of which
// nothing was told yet.
const established = 1

// slot is struct slot of bpf/abi.h. Times are CLOCK_MONOTONIC.
type slot struct {
	sendNs     atomic.Uint64 // loop-owned, as are the next two
	seq        atomic.Uint32
	generation atomic.Uint32

	cookie   uint64 // kernel-owned from here on
	use      uint32
	node     uint32
	lastNs   uint64 // whole once answer says so, as is what follows but for state and rttMinUs
	gapNs    uint64
	bytes    uint32
	segments uint32
	base     uint32
	answer   atomic.Uint32

	firstNs  uint64
	state    atomic.Uint32
	rttMinUs atomic.Uint32
	segment  [Segments]segment
	outNs    uint64 // whole once out says so
	out      atomic.Uint32
	_        uint32
	_        [4]uint64
}

type segment struct {
	atNs     uint64
	endBytes uint32
	_        uint32
}

// Follow has the kernel follow a socket that has not begun to connect, as one of
// a node, in a slot. generation is the slot's, tenant the node's.
type Follow func(fd int, node, slot, generation, tenant uint32) error

// Table is all slots. Immutable; its slots are handed out by Shares.
type Table struct {
	slots  []slot
	follow Follow
	noSlot uint32
}

// NewTable makes a table of memory that is shared with the kernel, zeroed, for as
// long as anybody uses the table. follow is called by loops; noSlot is what it
// takes for a connection without a slot.
func NewTable(memory []byte, noSlot uint32, follow Follow) (*Table, error) {
	n := len(memory) / SlotBytes
	if n == 0 || len(memory)%SlotBytes != 0 {
		return nil, fmt.Errorf("slots of connections: %d bytes are no multiple of %d", len(memory), SlotBytes)
	}
	return &Table{slots: unsafe.Slice((*slot)(unsafe.Pointer(unsafe.SliceData(memory))), n), follow: follow, noSlot: noSlot}, nil
}

// Share returns the i-th of n parts of the table, for one loop. A nil table has
// empty ones.
func (t *Table) Share(i, n int) *Share {
	s := &Share{table: t}
	if t == nil {
		return s
	}
	each := len(t.slots) / n
	for at := (i+1)*each - 1; at >= i*each; at-- {
		s.free = append(s.free, uint32(at))
	}
	return s
}

// Share is the slots of one loop. Loop-owned.
type Share struct {
	table  *Table
	free   []uint32
	timed  bool
	meters []*Meter // by slot of the node; nil = nothing was seen of it
	// Unslotted counts connections that found no free slot, Failed sockets that
	// the kernel would not follow.
	Unslotted, Failed uint64
}

// Time has the loop keep time itself of all lines that are opened from now on:
// nothing else times segments.
func (s *Share) Time() { s.timed = true }

// Timed reports whether the loop keeps time itself.
func (s *Share) Timed() bool { return s.timed }

// Meter returns the meter of a node, which the loop keeps if it keeps time itself;
// else nil.
func (s *Share) Meter(node int) *Meter {
	if !s.timed {
		return nil
	}
	for node >= len(s.meters) {
		s.meters = append(s.meters, nil)
	}
	if s.meters[node] == nil {
		s.meters[node] = &Meter{}
	}
	return s.meters[node]
}

// Meters returns all meters, by slot of the node; those of which nothing was seen
// are nil.
func (s *Share) Meters() []*Meter { return s.meters }

// Open has a socket followed that is about to connect to a node, given by its
// number and generation, and gives its line a slot if one is free. The line may
// have had a socket before.
func (s *Share) Open(line *Line, fd int, node, tenant uint32) {
	if line.meter = s.Meter(int(node)); line.meter != nil {
		line.meter.Connects++
		line.own = own{}
	}
	if s.table == nil {
		return
	}
	at := s.table.noSlot
	switch last := len(s.free) - 1; {
	case line.slot != nil:
		at = line.at
	case last >= 0:
		at = s.free[last]
		s.free = s.free[:last]
		line.at, line.slot = at, &s.table.slots[at]
	default:
		s.Unslotted++
	}
	generation := uint32(0)
	if line.slot != nil {
		// A new generation first: what the kernel still writes for the slot's last
		// socket is dropped from here on.
		generation = line.slot.generation.Add(1)
		line.seq, line.read = 0, 0
		line.slot.seq.Store(0)
		line.slot.answer.Store(0)
		line.slot.state.Store(0)
	}
	if err := s.table.follow(fd, node, at, generation, tenant); err != nil {
		s.Failed++
		s.release(line)
	}
}

// Close gives the line's slot back. It may be called again.
func (s *Share) Close(line *Line) {
	s.release(line)
	*line = Line{}
}

// release gives a slot back; the loop goes on keeping time of the line.
func (s *Share) release(line *Line) {
	if line.slot == nil {
		return
	}
	line.slot.generation.Add(1)
	s.free = append(s.free, line.at)
	line.slot, line.at, line.seq = nil, 0, 0
}

// Line is the slot of one connection, or none, and the times that the loop keeps
// itself where nothing else does. Loop-owned.
type Line struct {
	slot *slot
	at   uint32
	seq  uint32 // of the latest request; 0 is none's
	read uint64 // bytes read since it was sent

	meter *Meter // of its node; nil = the loop keeps no time
	own
}

// Send says that a request is about to be written. All that is read from now on
// is its answer.
func (l *Line) Send(nowNs int64) {
	l.read = 0
	if l.meter != nil {
		l.own = own{sentNs: nowNs}
	}
	if l.slot == nil {
		return
	}
	if l.seq++; l.seq == 0 {
		l.seq = 1
	}
	l.slot.sendNs.Store(uint64(nowNs))
	l.slot.seq.Store(l.seq) // shows the time to the kernel
}

// Sent says that the last byte of the request was written later than Send.
func (l *Line) Sent(nowNs int64) {
	if l.firstNs == 0 && l.sentNs != 0 {
		l.sentNs = nowNs
	}
	if l.slot != nil {
		l.slot.sendNs.Store(uint64(nowNs))
	}
}

// Rest says that the answer has been read to its end.
func (l *Line) Rest() {
	l.own = own{}
	if l.slot != nil {
		l.slot.seq.Store(0)
	}
}

// Read says that so many bytes were read.
func (l *Line) Read(n int, nowNs int64) {
	l.read += uint64(n)
	if l.meter != nil {
		l.keepTime(n, nowNs)
	}
}

// Skip is Read of bytes that came nobody knows when.
func (l *Line) Skip(n int) {
	l.read += uint64(n)
	if l.meter != nil {
		l.meter.count(n)
		l.lastNs = 0 // what comes next is no gap of the node's
	}
}

// Left reports whether the node has ended the connection, as far as the kernel
// told. Unknown is false.
func (l *Line) Left() bool {
	if l.slot == nil {
		return false
	}
	state := l.slot.state.Load()
	return state != 0 && state != established
}

// Known reports whether times of the line are kept: by the kernel, or by the loop.
func (l *Line) Known() bool { return l.slot != nil || l.meter != nil }

// mine reports whether what the kernel wrote is of the latest request.
func (l *Line) mine() bool {
	return l.slot != nil && l.seq != 0 && l.slot.answer.Load() == l.seq
}

// FirstNs returns when the first segment of the answer came, 0 if that is not
// known.
func (l *Line) FirstNs() int64 {
	if !l.mine() {
		return 0
	}
	return int64(l.slot.firstNs)
}

// ArrivedNs returns when the byte came that lies so many before the end of what
// was read, 0 if that is not known: it was in none of the first segments.
func (l *Line) ArrivedNs(before int) int64 {
	end := l.read - uint64(before)
	if !l.mine() {
		if end > l.from && end <= l.to {
			return l.cameNs
		}
		return 0
	}
	for i := range l.slot.segment {
		s := &l.slot.segment[i]
		if uint64(s.endBytes) >= end {
			return int64(s.atNs)
		}
		if s.endBytes == 0 {
			break
		}
	}
	if l.slot.bytes == uint32(end) { // the last byte that came
		return int64(l.slot.lastNs)
	}
	return 0
}

// SendNs returns when the latest request was sent, 0 if nobody keeps time: by the
// kernel, once a segment has come after it, so that a loop that was kept waiting
// before it could write does not charge that to the node; else by the loop.
func (l *Line) SendNs() int64 {
	if l.slot == nil {
		return l.sentNs
	}
	sentNs := int64(l.slot.sendNs.Load())
	if l.seq != 0 && l.slot.out.Load() == l.seq {
		sentNs = max(sentNs, int64(l.slot.outNs))
	}
	return sentNs
}

// RTTMinNs returns the shortest round trip of the connection, 0 if none is known.
func (l *Line) RTTMinNs() int64 {
	if l.slot == nil {
		return 0
	}
	return int64(l.slot.rttMinUs.Load()) * 1000
}
