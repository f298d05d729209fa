package kernel

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"warmpath/bpf"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/flow"
	"warmpath/netlab"
)

// TestSlotLayout: the data plane imports nothing of the kernel's side, and yet
// both must see the same slots.
func TestSlotLayout(t *testing.T) {
	if got, want := flow.SlotBytes, int(unsafe.Sizeof(bpf.Slot{})); got != want {
		t.Errorf("a slot has %d bytes for the data plane, %d for the kernel", got, want)
	}
	if flow.Segments != len(bpf.Slot{}.Segment) {
		t.Errorf("%d segments for the data plane, %d for the kernel", flow.Segments, len(bpf.Slot{}.Segment))
	}
	if fleet.MaxSlots > bpf.MaxNodes {
		t.Errorf("a fleet has %d slots, the kernel's tables %d", fleet.MaxSlots, bpf.MaxNodes)
	}
}

func TestReasons(t *testing.T) {
	for name, c := range map[string]struct {
		err         error
		why, remedy string
	}{
		"no cgroup":     {fmt.Errorf("find: %w", bpf.ErrNoCgroup2), "no cgroup v2", "systemd"},
		"no right":      {fmt.Errorf("load: %w", unix.EPERM), "may not", "CAP_BPF"},
		"no permission": {fmt.Errorf("attach: %w", unix.EACCES), "may not", "CAP_BPF"},
		"old kernel":    {fmt.Errorf("load: %w", ebpf.ErrNotSupported), "does not have", "5.15"},
		"verifier":      {fmt.Errorf("load: %w", &ebpf.VerifierError{Cause: unix.EACCES, Log: []string{"R1 invalid", "more"}}), "refuses it", "doctor"},
		"other":         {errors.New("one\ntwo"), "one", "without it"},
	} {
		r := Explain("flow", c.err)
		if !strings.Contains(r.Why, c.why) || !strings.Contains(r.Remedy, c.remedy) || strings.Contains(r.String(), "\n") {
			t.Errorf("%s: %v", name, r)
		}
	}
}

func TestRule(t *testing.T) {
	const near, far = int64(time.Millisecond), int64(20 * time.Millisecond)
	tuning := Tuning{RTOMin: 50 * time.Millisecond, SynRTO: 20 * time.Millisecond}
	more := Tuning{UserTimeout: 5 * time.Second, NotSentLowatBytes: 65536, Mark: Mark{DSCP: 46 + 1, Priority: 6 + 1}, Marks: map[string]Mark{"low": {DSCP: 8 + 1}, "plain": {DSCP: 1, Priority: 1}}}
	for name, c := range map[string]struct {
		tuning Tuning
		node   string
		ticks  int64
		host   hostSets
		rtt    int64
		want   bpf.Rule
	}{
		"near":             {tuning, "a", 250, hostSets{}, near, bpf.Rule{SynRtoJiffies: 5, RtoMinUs: 50_000, Near: 1}},
		"far":              {tuning, "a", 250, hostSets{}, far, bpf.Rule{SynRtoJiffies: 5, RtoMinUs: 50_000}},
		"not known":        {tuning, "a", 250, hostSets{}, 0, bpf.Rule{SynRtoJiffies: 5, RtoMinUs: 50_000}},
		"ticks not known":  {tuning, "a", 0, hostSets{}, near, bpf.Rule{RtoMinUs: 50_000, Near: 1}},
		"the host's word":  {tuning, "a", 250, hostSets{rtoMin: true}, near, bpf.Rule{SynRtoJiffies: 5}},
		"too low":          {Tuning{RTOMin: time.Millisecond}, "a", 250, hostSets{}, near, bpf.Rule{RtoMinUs: 50_000, Near: 1}},
		"less than a tick": {Tuning{SynRTO: time.Millisecond}, "a", 100, hostSets{}, near, bpf.Rule{SynRtoJiffies: 1}},
		"nothing":          {Tuning{}, "a", 250, hostSets{}, near, bpf.Rule{}},
		"all the rest":     {more, "a", 250, hostSets{}, near, bpf.Rule{UserTimeoutMs: 5000, NotsentLowatBytes: 65536, Priority: 7, Tos: 46<<2 + 1}},
		"half its own":     {more, "low", 250, hostSets{}, near, bpf.Rule{UserTimeoutMs: 5000, NotsentLowatBytes: 65536, Priority: 7, Tos: 8<<2 + 1}},
		"its own, zero":    {more, "plain", 250, hostSets{}, near, bpf.Rule{UserTimeoutMs: 5000, NotsentLowatBytes: 65536, Priority: 1, Tos: 1}},
		"the host's too":   {more, "a", 250, hostSets{userTimeout: true, notSentLowat: true}, near, bpf.Rule{Priority: 7, Tos: 46<<2 + 1}},
	} {
		if got := c.tuning.ruleOf(c.node, c.ticks, c.host, c.rtt); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := more.leftAlone(hostSets{rtoMin: true, notSentLowat: true}); len(got) != 1 || !strings.Contains(got[0], "kernel.notsent_lowat: net.ipv4.tcp_notsent_lowat") {
		t.Errorf("left alone: %q", got)
	}
	if got := more.leftAlone(hostSets{}); got == nil || len(got) != 0 {
		t.Errorf("left alone: %q", got)
	}
}

func TestPercentiles(t *testing.T) {
	var h [bpf.Buckets]uint64
	if percentileNs(&h, .5) != 0 || leastNs(&h) != 0 || percentilesOf(&h) != nil {
		t.Error("something is known of nothing")
	}
	h[10], h[20] = 99, 1
	if p50, p99, p100, least := percentileNs(&h, .5), percentileNs(&h, .99), percentileNs(&h, 1), leastNs(&h); p50 != 1<<10 || p99 != 1<<10 || p100 != 1<<20 || least != 1<<10 {
		t.Errorf("p50 %d, p99 %d, p100 %d, least %d", p50, p99, p100, least)
	}
	m := histogramOf(&h)
	if m.Total != 100 || m.Counts[0] != 99 || m.Counts[20-13] != 1 || len(m.Counts) != len(m.Bounds)+1 {
		t.Errorf("histogram %+v", m)
	}
}

// TestANodesCountsBeginWithIt: a slot's next tenant inherits nothing.
func TestANodesCountsBeginWithIt(t *testing.T) {
	then := bpf.Counters{Connects: 5, Rtos: 2, HeardNs: 100}
	now := bpf.Counters{Connects: 7, Rtos: 2, HeardNs: 200}
	if got := since(now, then); got.Connects != 2 || got.Rtos != 0 || got.HeardNs != 200 {
		t.Errorf("since then: %+v", got)
	}
}

func TestOffAndNothing(t *testing.T) {
	p, err := Open(Options{Mode: "off"})
	if err != nil {
		t.Fatal(err)
	}
	if tier, why := p.Tier(); tier != Off || len(why) != 0 || p.Table() != nil || p.String() != "off" {
		t.Errorf("tier %v, %v", tier, why)
	}
	p.Close()
	var none *Plane
	if v := none.View(); v.Tier != Off || v.Nodes == nil || v.Reasons == nil {
		t.Errorf("of no plane: %+v", v)
	}
	none.Close()
}

// TestLacking says what is missing the way it is found out.
func TestLacking(t *testing.T) {
	p := &Plane{tier: Full}
	p.lack(Lite, "segments", ebpf.ErrNotSupported)
	p.lack(Lite, "resets", ebpf.ErrNotSupported)
	if p.tier != Lite || len(p.reasons) != 2 || !strings.HasPrefix(p.String(), "lite (segments: ") {
		t.Errorf("%v", p)
	}
	p = &Plane{tier: Full}
	p.lack(Passive, "flow", unix.EPERM)
	if p.tier != Passive || !strings.HasPrefix(p.String(), "passive (flow: ") {
		t.Errorf("%v", p)
	}
}

// openAs opens a plane as root.
func openAs(t *testing.T, mode string) (*Plane, error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: eBPF programs are loaded")
	}
	p, err := Open(Options{Mode: mode, Slots: 64, NodeLoad: true, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(p.Close)
	return p, err
}

// TestHears: a host that cannot hear nodes misses nothing else, unless that is
// required.
func TestHears(t *testing.T) {
	p := &Plane{tier: Full, opt: Options{NodeLoad: true}}
	p.listen()
	if p.tier != Full || p.hears || len(p.reasons) != 1 || p.reasons[0].Part != NodeLoadPart {
		t.Errorf("%v, %v", p, p.reasons)
	}
	p = &Plane{tier: Full}
	p.listen()
	if p.hears || len(p.reasons) != 0 {
		t.Errorf("not asked to, it hears %v, %v", p.hears, p.reasons)
	}
}

// TestOpenLoadsAll, or all that an older kernel has, which says what it lacks.
func TestOpenLoadsAll(t *testing.T) {
	p, err := openAs(t, "auto")
	if err != nil {
		t.Fatal(err)
	}
	tier, why := p.Tier()
	t.Logf("tier %v", p)
	if v := p.View(); p.Table() == nil || v.Slots != 64 || !v.NodeLoad {
		t.Error("no slots, or nodes are not heard")
	}
	if tier != Full && (netlab.KernelHasAll() || tier != Lite) {
		t.Errorf("tier %v: %v", tier, why)
	}
	for _, r := range why {
		if !strings.Contains(r.Why, "does not have what it needs") || !strings.Contains(r.Remedy, "Linux 5.15 or later") {
			t.Errorf("%v", r)
		}
	}
	if _, err := openAs(t, "require"); errors.Is(err, ErrRequired) != (tier != Full) {
		t.Errorf("required: %v", err)
	}
}

// TestSilenceIsHeard: of time-outs in a row, only who notes each segment can say
// that nothing came meanwhile.
func TestSilenceIsHeard(t *testing.T) {
	p, err := openAs(t, "auto")
	if err != nil {
		t.Fatal(err)
	}
	p.nodes[1] = &node{generation: 7}
	e := bpf.Event{Kind: uint32(bpf.EventRTO), Node: 1, Tenant: 7, Count: 2, SinceNs: 100, AtNs: 250}
	want := Fault{Kind: "rto", TimedOut: true, Slot: 1, Generation: 7, Count: 2}
	p.from.Segments = ByUser
	if got, ok := p.judge(&e); !ok || got != want {
		t.Errorf("lite: %+v, want %+v", got, want)
	}
	p.from.Segments = ByKernel
	want.Silent, want.SilentNs = true, 150
	if got, ok := p.judge(&e); !ok || got != want {
		t.Errorf("full: %+v, want %+v", got, want)
	}
}

// TestEventsOfFormerTenants: what the connections of a slot's former node still
// do is not charged to the one that has the slot now.
func TestEventsOfFormerTenants(t *testing.T) {
	p := &Plane{nodes: map[uint32]*node{3: {name: "new", generation: 8}}}
	if f, ok := p.judge(&bpf.Event{Kind: uint32(bpf.EventReset), Node: 3, Tenant: 7}); ok {
		t.Errorf("charged to the new node: %+v", f)
	}
	if f, ok := p.judge(&bpf.Event{Kind: uint32(bpf.EventReset), Node: 3, Tenant: 8}); !ok || f.Generation != 8 || f.Slot != 3 {
		t.Errorf("not charged to its own: %+v, %v", f, ok)
	}
	if _, ok := p.judge(&bpf.Event{Kind: uint32(bpf.EventReset), Node: 4, Tenant: 8}); ok {
		t.Error("charged to nobody")
	}
}
