package kernel

import (
	"context"
	"log/slog"
	"testing"

	"warmpath/bpf"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/flow"
)

func TestFill(t *testing.T) {
	kernel := bpf.Counters{Connects: 1, Retransmits: 2, Segments: 3, ResetsIn: 4, ZeroWindows: 5, Errors: 6, HeardNs: 50}
	m := flow.Meter{Connects: 10, Retransmits: 20, Segments: 30, ResetsIn: 40, ZeroWindows: 50, Errors: 60, HeardNs: 70}
	m.Times.FirstByte[3], m.Times.SynRTT[4] = 5, 6
	for name, c := range map[string]struct {
		from        Sources
		want        bpf.Counters
		first, syns uint64
	}{
		"full":    {Sources{ByKernel, ByKernel, ByKernel, ByKernel, ByKernel}, bpf.Counters{Connects: 1, Retransmits: 2, Segments: 3, ResetsIn: 4, ZeroWindows: 5, Errors: 6, HeardNs: 70}, 0, 0},
		"lite":    {Sources{ByKernel, ByUser, ByUser, ByUser, ByUser}, bpf.Counters{Connects: 1, Retransmits: 2, Segments: 30, ResetsIn: 40, ZeroWindows: 50, Errors: 60, HeardNs: 70}, 5, 0},
		"passive": {Sources{ByUser, ByUser, ByUser, ByUser, ByUser}, bpf.Counters{Connects: 10, Retransmits: 20, Segments: 30, ResetsIn: 40, ZeroWindows: 50, Errors: 60, HeardNs: 70}, 5, 6},
	} {
		r := reading{counters: kernel}
		r.fill(&m, c.from)
		if r.counters != c.want || r.times.FirstByte[3] != c.first || r.times.SynRtt[4] != c.syns {
			t.Errorf("%s: %+v", name, r.counters)
		}
		r = reading{counters: kernel}
		if r.fill(nil, c.from); r.counters != kernel {
			t.Errorf("%s: of a node that no loop knows: %+v", name, r.counters)
		}
	}
}

// told plays the loops: one answer after the other, then the last again and again.
type told []flow.Measurement

func (s *told) Measure(into *flow.Measurement) {
	into.Reset()
	first := (*s)[0]
	for slot := range first.Meters {
		into.Add(slot, &first.Meters[slot])
	}
	into.TimeOuts = append(into.TimeOuts, first.TimeOuts...)
	if len(*s) > 1 {
		*s = (*s)[1:]
	}
}

// TestSilenceInUserSpace: the tier passive tells of a node that does not answer any
// more, and not of one that did since, nor of one that has gone.
func TestSilenceInUserSpace(t *testing.T) {
	p, err := Open(Options{Mode: "passive", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if tier, why := p.Tier(); tier != Passive || len(why) != 1 || !p.NeedsLoops() || p.Table() != nil {
		t.Fatalf("tier %v, %v", tier, why)
	}
	holder := fleet.NewHolder()
	holder.Store(&fleet.Snapshot{Nodes: []*fleet.Node{{Name: "a", Generation: 2}, {Name: "b", Generation: 3}}})
	timeOut := flow.TimeOut{Generation: 2, Count: 2, SinceNs: 100, AtNs: 400}
	heard, gone, syn, other := timeOut, timeOut, timeOut, timeOut
	heard.SinceNs, gone.Generation, syn.SYN, other.Slot, other.Generation = 80, 1, true, 1, 3
	p.Attach(&told{
		{Meters: []flow.Meter{{HeardNs: 90}, {HeardNs: 150}}, TimeOuts: []flow.TimeOut{timeOut, heard, gone, syn, other}},
		{},
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	faults := make(chan Fault, 10)
	done := make(chan struct{})
	go func() { p.Run(ctx, holder, func(f Fault) { faults <- f }, func([]Load) {}); close(done) }()
	for _, want := range []Fault{
		{Kind: "rto", TimedOut: true, Slot: 0, Generation: 2, Count: 2, Silent: true, SilentNs: 300},
		{Kind: "rto", TimedOut: true, Slot: 0, Generation: 2, Count: 2},
		{Kind: "syn_rto", SYN: true, Slot: 0, Generation: 2, Count: 2, Silent: true, SilentNs: 300},
		{Kind: "rto", TimedOut: true, Slot: 1, Generation: 3, Count: 2},
	} {
		if got := <-faults; got != want {
			t.Errorf("fault %+v, want %+v", got, want)
		}
	}
	cancel()
	<-done
	if len(faults) > 0 {
		t.Errorf("a fault more: %+v", <-faults)
	}
}
