package flow

import (
	"errors"
	"testing"
)

// kernel plays the programs of package bpf on a table.
type kernel struct {
	t       *testing.T
	slots   []slot
	refuses error
	follows [][4]uint32 // node, slot, generation, tenant
}

const none = ^uint32(0)

func newKernel(t *testing.T, slots int) (*kernel, *Table) {
	t.Helper()
	k := &kernel{t: t}
	table, err := NewTable(make([]byte, slots*SlotBytes), none, func(_ int, node, slot, generation, tenant uint32) error {
		k.follows = append(k.follows, [4]uint32{node, slot, generation, tenant})
		return k.refuses
	})
	if err != nil {
		t.Fatal(err)
	}
	k.slots = table.slots
	return k, table
}

// segment writes what a segment of an answer makes of a slot.
func (k *kernel) segment(at uint32, nowNs uint64, bytes uint32) {
	s := &k.slots[at]
	if s.answer.Load() != s.seq.Load() {
		s.firstNs, s.segments, s.bytes, s.segment = nowNs, 0, 0, [Segments]segment{}
	}
	s.bytes += bytes
	if s.segments < Segments {
		s.segment[s.segments] = segment{atNs: nowNs, endBytes: s.bytes}
	}
	s.segments++
	s.lastNs = nowNs
	s.answer.Store(s.seq.Load())
}

// goesOut writes what the first segment after a request makes of a slot.
func (k *kernel) goesOut(at uint32, nowNs uint64) {
	s := &k.slots[at]
	s.outNs = nowNs
	s.out.Store(s.seq.Load())
}

func TestTheSegmentOfAByte(t *testing.T) {
	k, table := newKernel(t, 4)
	var line Line
	share := table.Share(0, 1)
	share.Open(&line, 9, 7, 1)
	at := line.at
	if k.follows[0] != [4]uint32{7, at, 1, 1} {
		t.Errorf("followed as %v", k.follows[0])
	}
	line.Send(100)
	if line.FirstNs() != 0 || line.ArrivedNs(0) != 0 {
		t.Error("a time is known before anything came")
	}
	k.segment(at, 150, 10) // the head
	k.segment(at, 400, 20) // the first event
	k.segment(at, 500, 20)
	line.Read(10, 0)
	line.Read(40, 0) // both events at once, read late
	if got := line.FirstNs(); got != 150 {
		t.Errorf("first segment at %d, want 150", got)
	}
	for before, want := range map[int]int64{0: 500, 19: 500, 20: 400, 39: 400, 40: 150} {
		if got := line.ArrivedNs(before); got != want {
			t.Errorf("%d bytes before the end: came at %d, want %d", before, got, want)
		}
	}
	k.segment(at, 600, 5)
	k.segment(at, 700, 5) // beyond those that have times of their own
	k.segment(at, 800, 5)
	line.Read(15, 0)
	if last, earlier := line.ArrivedNs(0), line.ArrivedNs(5); last != 800 || earlier != 0 {
		t.Errorf("the last byte came at %d, one of a forgotten segment at %d; want 800 and unknown", last, earlier)
	}

	if got := line.SendNs(); got != 100 {
		t.Errorf("sent at %d, want 100", got)
	}
	k.goesOut(at, 130)
	if got := line.SendNs(); got != 130 {
		t.Errorf("sent at %d, want 130, when it went out", got)
	}
	line.Sent(140) // of a body's end, later
	if got := line.SendNs(); got != 140 {
		t.Errorf("sent at %d, want 140, when its last byte did", got)
	}

	line.Rest()
	line.Send(1000) // nothing of the answer before is taken for the next one's
	if line.FirstNs() != 0 || line.ArrivedNs(0) != 0 || line.SendNs() != 1000 {
		t.Error("times of an earlier answer")
	}
}

func TestSlotsAreUsedAgain(t *testing.T) {
	k, table := newKernel(t, 2)
	share := table.Share(0, 1)
	var a, b, c Line
	share.Open(&a, 1, 0, 1)
	share.Open(&b, 2, 0, 1)
	share.Open(&c, 3, 0, 1) // none is left
	if share.Unslotted != 1 || c.Known() || k.follows[2][1] != none {
		t.Errorf("%d without a slot, third followed as %v", share.Unslotted, k.follows[2])
	}
	c.Send(1)
	c.Read(1, 0)
	c.Rest()
	if c.FirstNs() != 0 || c.ArrivedNs(0) != 0 || c.Left() || c.SendNs() != 0 || c.RTTMinNs() != 0 {
		t.Error("a line without a slot knows something")
	}

	a.Send(5)
	k.segment(a.at, 6, 1)
	k.slots[a.at].state.Store(8) // TCP_CLOSE_WAIT
	if !a.Left() {
		t.Error("the node has left, and the line does not know")
	}
	was := k.slots[a.at].generation.Load()
	at := a.at
	share.Close(&a)
	share.Close(&a)
	share.Open(&c, 4, 0, 1)
	if c.at != at || k.slots[at].generation.Load() <= was || c.Left() || c.FirstNs() != 0 {
		t.Errorf("slot %d used again: generation %d after %d, left %v, first %d", c.at, k.slots[at].generation.Load(), was, c.Left(), c.FirstNs())
	}
	share.Open(&c, 5, 0, 1) // the node's next address
	if c.at != at || len(share.free) != 0 {
		t.Error("a line that connects again takes another slot")
	}

	k.refuses = errors.New("no memory")
	share.Close(&b)
	share.Open(&b, 6, 0, 1)
	if share.Failed != 1 || b.Known() || len(share.free) != 1 {
		t.Error("a socket that is not followed keeps a slot")
	}
}

func TestSharesAreApart(t *testing.T) {
	_, table := newKernel(t, 10)
	seen := map[uint32]bool{}
	for i := range 3 {
		s := table.Share(i, 3)
		for _, at := range s.free {
			if seen[at] {
				t.Errorf("slot %d is in two shares", at)
			}
			seen[at] = true
		}
	}
	if len(seen) != 9 {
		t.Errorf("%d slots are shared out", len(seen))
	}
	var line Line
	(*Table)(nil).Share(0, 1).Open(&line, 1, 1, 1)
	if line.Known() {
		t.Error("no table, and yet a slot")
	}
}

func TestAlloc(t *testing.T) {
	k, table := newKernel(t, 2)
	var line Line
	table.Share(0, 1).Open(&line, 1, 1, 1)
	if n := testing.AllocsPerRun(100, func() {
		line.Send(1)
		k.segment(line.at, 2, 3)
		line.Read(3, 0)
		_ = line.FirstNs() + line.ArrivedNs(0)
		line.Rest()
	}); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}

func BenchmarkRequest(b *testing.B) {
	table, err := NewTable(make([]byte, SlotBytes), none, func(int, uint32, uint32, uint32, uint32) error { return nil })
	if err != nil {
		b.Fatal(err)
	}
	var line Line
	table.Share(0, 1).Open(&line, 1, 1, 1)
	for i := 0; b.Loop(); i++ {
		line.Send(int64(i))
		line.Read(10, 0)
		_ = line.ArrivedNs(0)
		line.Rest()
	}
}
