package flow

import (
	"errors"
	"testing"
)

func TestBuckets(t *testing.T) {
	for ns, want := range map[int64]int{-5: 0, 0: 0, 1: 1, 2: 2, 3: 2, 4: 3, 1 << 20: 21, 1<<21 - 1: 21, 1 << 62: Buckets - 1} {
		if got := Bucket(ns); got != want {
			t.Errorf("%d ns are in bucket %d, want %d", ns, got, want)
		}
	}
}

// TestTheLoopKeepsTime: without a table, of two requests on one connection.
func TestTheLoopKeepsTime(t *testing.T) {
	share := (*Table)(nil).Share(0, 1)
	share.Time()
	var line Line
	share.Open(&line, 9, 2, 1)
	if !line.Known() || len(share.Meters()) != 3 || share.Meters()[0] != nil {
		t.Fatalf("line known: %v; meters %v", line.Known(), share.Meters())
	}
	m := share.Meter(2)
	line.Read(5, 50) // nothing was asked for
	line.Send(100)
	line.Sent(200) // the last of it was written later
	line.Read(10, 1224)
	line.Sent(1300) // the answer began before that
	line.Read(20, 1224+4096)
	line.Rest()
	line.Read(1, 9000) // belongs to no request
	line.Send(10_000)
	line.Read(10, 10_000+1023)
	if m.Segments != 5 || m.Bytes != 46 || m.HeardNs != 11_023 || m.Connects != 1 {
		t.Errorf("meter %+v", m)
	}
	if first, gap := m.Times.FirstByte, m.Times.Gap; first[11] != 1 || first[10] != 1 || gap[13] != 1 || sum(&first) != 2 || sum(&gap) != 1 {
		t.Errorf("first bytes %v, gaps %v", first, gap)
	}
	if line.SendNs() != 10_000 || line.ArrivedNs(0) != 0 {
		t.Errorf("sent at %d, came at %d: the loop knows only when it read", line.SendNs(), line.ArrivedNs(0))
	}
	share.Close(&line)
	share.Close(&line)
	if line.Known() {
		t.Error("a closed line has times")
	}
}

// TestTheKernelKeptATime of a head, and of the first event behind it.
func TestTheKernelKeptATime(t *testing.T) {
	share := (*Table)(nil).Share(0, 1)
	share.Time()
	var line Line
	share.Open(&line, 9, 0, 1)
	if line.Timed() {
		t.Error("times are wanted of nothing")
	}
	line.Send(1000)
	if !line.Timed() {
		t.Error("no times are wanted")
	}
	line.Came(30, 9000, 2000)
	if line.ArrivedNs(0) != 2000 || line.ArrivedNs(29) != 2000 || line.ArrivedNs(30) != 0 {
		t.Errorf("the last byte came at %d, the first at %d", line.ArrivedNs(0), line.ArrivedNs(29))
	}
	line.Came(10, 9500, 9400)
	if line.ArrivedNs(0) != 9400 || line.ArrivedNs(9) != 9400 || line.ArrivedNs(10) != 0 {
		t.Errorf("the last byte came at %d", line.ArrivedNs(0))
	}
	line.Read(10, 9600)
	if line.ArrivedNs(0) != 0 || line.ArrivedNs(10) != 9400 {
		t.Errorf("of what was only read: came at %d", line.ArrivedNs(0))
	}
	m := share.Meter(0)
	if m.Times.FirstByte[10] != 1 || m.Times.Gap[13] != 1 || m.Times.Gap[8] != 1 || m.HeardNs != 9600 {
		t.Errorf("meter %+v", m)
	}
	line.Rest()
	line.Send(10_000)
	line.Came(10, 12_000, 9900) // before it was asked for: the clock was set
	if line.ArrivedNs(0) != 0 || m.Times.FirstByte[11] != 1 {
		t.Errorf("came at %d, %v", line.ArrivedNs(0), m.Times.FirstByte)
	}
}

func sum(h *[Buckets]uint64) (n uint64) {
	for _, v := range h {
		n += v
	}
	return n
}

// TestTimeIsKeptWhereTheKernelWillNotFollow: the slot is given back, the meter stays.
func TestTimeIsKeptWhereTheKernelWillNotFollow(t *testing.T) {
	k, table := newKernel(t, 1)
	k.refuses = errors.New("no")
	share := table.Share(0, 1)
	share.Time()
	var line Line
	share.Open(&line, 9, 0, 1)
	line.Send(100)
	line.Read(1, 200)
	if share.Failed != 1 || len(share.free) != 1 || sum(&share.Meter(0).Times.FirstByte) != 1 {
		t.Errorf("%d failed, %d slots free, meter %+v", share.Failed, len(share.free), share.Meter(0))
	}
}

func TestNobodyKeepsTime(t *testing.T) {
	share := (*Table)(nil).Share(0, 1)
	var line Line
	share.Open(&line, 9, 0, 1)
	line.Send(100)
	line.Read(1, 200)
	if line.Known() || share.Meter(0) != nil || share.Meters() != nil || line.SendNs() != 0 {
		t.Errorf("something is known of nothing: %+v", line)
	}
}

func TestMeasurement(t *testing.T) {
	var m Measurement
	one := Meter{Segments: 1, HeardNs: 10}
	one.NoteRTT(2, 500)
	one.NoteRTT(2, 700)
	one.NoteRTT(1, 100) // of the tenant before
	one.NoteRTT(2, 0)
	two := Meter{Segments: 2, HeardNs: 5}
	two.NoteRTT(2, 400)
	m.Add(3, &one)
	m.Add(3, &two)
	if got := m.Of(3); got.Segments != 3 || got.HeardNs != 10 || got.RTTMinNs != 400 || m.Of(4) != nil || m.Of(0).Segments != 0 {
		t.Errorf("of slot 3: %+v", got)
	}
	two.NoteRTT(3, 900)
	if two.RTTMinNs != 900 {
		t.Errorf("the next tenant is said to be %d ns away, want 900", two.RTTMinNs)
	}
	m.TimeOuts = append(m.TimeOuts, TimeOut{})
	m.Reset()
	m.Add(3, &two)
	if m.Of(3).Segments != 2 || len(m.TimeOuts) != 0 {
		t.Errorf("after a reset: %+v", m)
	}
}

func TestKeepingTimeAllocatesNothing(t *testing.T) {
	share := (*Table)(nil).Share(0, 1)
	share.Time()
	var line Line
	share.Open(&line, 9, 0, 1)
	now := int64(0)
	if n := testing.AllocsPerRun(100, func() {
		now += 1000
		line.Send(now)
		line.Sent(now + 1)
		line.Read(10, now+100)
		line.Read(10, now+200)
		line.Rest()
	}); n != 0 {
		t.Errorf("a request costs %v allocations", n)
	}
}

func BenchmarkKeepTime(b *testing.B) {
	share := (*Table)(nil).Share(0, 1)
	share.Time()
	var line Line
	share.Open(&line, 9, 0, 1)
	line.Send(1)
	for i := range b.N {
		line.Read(100, int64(i)*1000)
	}
}
