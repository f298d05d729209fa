package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"warmpath/bpf"
	"warmpath/dataplane/beat"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/flow"
)

// Options are fixed for the life of a Plane.
type Options struct {
	Mode   string // auto, require, lite, passive or off (kernel.mode)
	Slots  int    // connections to nodes that are followed segment by segment
	Tuning Tuning
	// NodeLoad reads what nodes say of their load in band (kernel.node_load).
	NodeLoad bool
	Log      *slog.Logger
}

// Plane is the kernel's side of the router, as much of it as there is. All its
// methods may be called on a Plane that could load nothing.
type Plane struct {
	opt     Options
	flow    *bpf.Flow // nil: passive or off
	table   *flow.Table
	tier    Tier
	reasons []Reason
	hears   bool         // what nodes say of their load
	from    Sources      // by whom figures are
	ticks   atomic.Int64 // jiffies a second, 0 = not known
	source  atomic.Pointer[Source]
	asked   flow.Measurement // of the goroutine of samples

	mu      sync.Mutex
	nodes   map[uint32]*node   // by slot
	left    map[uint32]reading // by slot: what its tenants before counted
	tuned   map[uint32]bpf.Rule
	lost    uint64 // events
	host    hostSets
	samples int
	turn    int // the slot from which on quiet nodes are read next
	seen    flow.Measurement
}

// ErrRequired is what Open returns, wrapped, when kernel.mode is require and
// anything is missing.
var ErrRequired = errors.New("kernel.mode is require, but the kernel plane is not complete")

// errLeftOut is why a part is missing that kernel.mode leaves out.
var errLeftOut = errors.New("left out by kernel.mode")

// Open loads what this host allows. The error is ErrRequired or nil.
func Open(opt Options) (*Plane, error) {
	p := &Plane{opt: opt, tier: Full, nodes: map[uint32]*node{}, left: map[uint32]reading{}, tuned: map[uint32]bpf.Rule{}}
	if opt.Mode == "off" {
		p.tier, p.from = Off, unknown
		return p, nil
	}
	p.from = Sources{ByUser, ByUser, ByUser, ByUser, ByUser}
	p.loadAll()
	p.listen()
	if opt.Mode == "require" && (p.tier != Full || opt.NodeLoad && !p.hears) {
		err := fmt.Errorf("%w: %v", ErrRequired, p.reasons)
		p.Close()
		return nil, err
	}
	return p, nil
}

// loadAll loads what there is and what the mode does not leave out.
func (p *Plane) loadAll() {
	try := func(tier Tier, part string, load func() error) Precision {
		err := error(errLeftOut)
		if p.opt.Mode != string(Passive) && (tier == Passive || p.opt.Mode != string(Lite)) {
			err = load()
		}
		if err != nil {
			p.lack(tier, part, err)
			return ByUser
		}
		return ByKernel
	}
	if p.from.Connections = try(Passive, "flow", p.load); p.from.Connections == ByUser {
		return
	}
	p.from.Segments = try(Lite, "segments", p.flow.FollowSegments)
	p.from.Resets = try(Lite, "resets", p.flow.CountResets)
	// What follows costs no tier.
	p.from.Windows = try(Full, "windows", p.flow.TellWindows)
	if p.from.Windows == ByUser && p.tier == Full {
		p.from.Windows = Unknown // the loops do not look
	}
	p.from.Errors = try(Full, "errors", p.flow.TellErrors)
	if p.from.Errors == ByUser && p.tier == Full {
		p.from.Errors = Unknown
	}
}

func (p *Plane) load() error {
	cgroup, err := bpf.OwnCgroup()
	if err != nil {
		return err
	}
	f, err := bpf.LoadFlow(cgroup, p.opt.Slots)
	if err != nil {
		return err
	}
	table, err := flow.NewTable(f.Memory(), bpf.NoSlot, f.Follow)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	p.flow, p.table = f, table
	return nil
}

// lack notes that a part is missing.
func (p *Plane) lack(tier Tier, part string, err error) {
	if tier == Passive || p.tier == Full && tier == Lite {
		p.tier = tier
	}
	p.reasons = append(p.reasons, Explain(part, err))
}

// Table returns the slots for dataplane.Options, nil where there are none. It
// must not be used any more once Close is called.
func (p *Plane) Table() *flow.Table {
	if p == nil {
		return nil
	}
	return p.table
}

// Tier returns how much the kernel tells, and why it is not more.
func (p *Plane) Tier() (Tier, []Reason) { return p.tier, p.reasons }

// String is the tier in one line, for the log.
func (p *Plane) String() string { return describe(p.tier, p.reasons) }

// Fault is something rare and bad that the kernel saw of a node.
type Fault struct {
	Kind       string // failed, rto, syn_rto, reset, closed_idle, no_window, error
	TimedOut   bool   // an established connection's retransmission did …
	SYN        bool   // … or that of a SYN
	Slot       int    // of the node in the fleet
	Generation uint32 // … and which tenant of it
	Count      int    // time-outs in a row
	Error      string // of a socket
	// Silent says that nothing at all, on any connection, has come from the node
	// since the first of the time-outs, SilentNs before the last. That is
	// known only where segments are timed.
	Silent   bool
	SilentNs int64
}

// Run samples the nodes of the fleet, and tells of faults and of what nodes said of
// their load, until ctx ends. Each function is called on one goroutine; loads are the
// callee's.
func (p *Plane) Run(ctx context.Context, nodes *fleet.Holder, fault func(Fault), said func([]Load)) {
	if p.tier == Off {
		<-ctx.Done()
		return
	}
	var both sync.WaitGroup
	if p.flow != nil {
		both.Go(func() { p.watch(fault) })
	}
	both.Go(func() {
		if p.flow != nil {
			p.measureTicks()
		}
		next := time.NewTimer(beat.Wait(sampleEvery))
		defer next.Stop()
		for {
			p.measure()
			if loads := p.sample(nodes.Load()); len(loads) > 0 {
				said(loads)
			}
			if p.flow == nil { // else its events tell of this
				p.tellTimeOuts(fault)
			}
			select {
			case <-ctx.Done():
				if p.flow != nil {
					_ = p.flow.StopEvents()
				}
				return
			case <-next.C:
				next.Reset(beat.Wait(sampleEvery))
			}
		}
	})
	both.Wait()
}

func (p *Plane) tellTimeOuts(fault func(Fault)) {
	for _, t := range p.seen.TimeOuts { // nobody else writes seen
		if f, ok := p.timedOut(t); ok {
			fault(f)
		}
	}
}

// measureTicks finds out how long a jiffy is; without it SYNs keep the host's
// time-out.
func (p *Plane) measureTicks() {
	ticks, err := bpf.TicksPerSecond()
	if err != nil {
		p.opt.Log.Warn("time-outs of SYNs stay as this host has them", "err", oneLine(err))
		return
	}
	p.ticks.Store(int64(ticks))
}

// watch tells of what the kernel says at once.
func (p *Plane) watch(fault func(Fault)) {
	for {
		var e bpf.Event
		if err := p.flow.Next(&e); err != nil {
			if !errors.Is(err, os.ErrClosed) {
				p.opt.Log.Error("events of the kernel's programs are not read any more", "err", err)
			}
			return
		}
		if f, ok := p.judge(&e); ok {
			fault(f)
		}
	}
}

// judge completes an event. It reports false for nodes that are gone: connections
// to a dead one time out for minutes after another has its slot.
func (p *Plane) judge(e *bpf.Event) (Fault, bool) {
	p.mu.Lock()
	n := p.nodes[e.Node]
	p.mu.Unlock()
	if n == nil || n.generation != e.Tenant {
		return Fault{}, false
	}
	kind := bpf.EventKind(e.Kind)
	f := Fault{Kind: kind.String(), TimedOut: kind == bpf.EventRTO, SYN: kind == bpf.EventSynRTO, Slot: int(e.Node), Generation: n.generation, Count: int(e.Count)}
	if kind == bpf.EventError {
		f.Count, f.Error = 0, syscall.Errno(e.Count).Error()
		p.noteError(e.Node, n, f.Error)
	}
	// What the loops heard is up to a sample old: silence takes a note of each segment.
	if p.from.Segments == ByKernel && (kind == bpf.EventRTO || kind == bpf.EventSynRTO) {
		if c, err := p.flow.Counters(e.Node); err == nil && c.HeardNs < e.SinceNs {
			f.Silent, f.SilentNs = true, int64(e.AtNs-e.SinceNs)
		}
	}
	return f, true
}

// noteError keeps what the socket of a node was told of last.
func (p *Plane) noteError(slot uint32, n *node, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nodes[slot] == n {
		n.lastError = text
	}
}

// Close takes the programs off the kernel. Nobody may use the table any more.
func (p *Plane) Close() {
	if p == nil || p.flow == nil {
		return
	}
	if err := p.flow.Close(); err != nil {
		p.opt.Log.Warn("taking programs off the kernel", "err", err)
	}
	p.flow = nil
}
