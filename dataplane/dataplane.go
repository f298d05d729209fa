package dataplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/dataplane/beat"
	"warmpath/dataplane/eventloop"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/flow"
	"warmpath/dataplane/index"
)

// Options are fixed for the life of a Dataplane.
type Options struct {
	Listener  *net.TCPListener // where clients connect; closed by Drain or Stop
	Loops     int              // event loops; 0 = one a CPU
	Fleet     *fleet.Holder
	Index     *index.Index
	Settings  *Settings
	Decisions int         // decision records kept over all loops
	Flow      *flow.Table // what the kernel measures of connections to nodes; nil = it does not
	Time      bool        // the loops keep time of these connections themselves, for Measure
	Log       *slog.Logger
}

// Dataplane is the running data plane.
type Dataplane struct {
	opt      Options
	settings atomic.Pointer[Settings]
	exact    atomic.Pointer[ExactModels]
	started  time.Time // loop.now counts from here; the reading is monotonic
	bootNs   int64     // CLOCK_MONOTONIC at started
	loops    []*loop
	running  sync.WaitGroup // goroutines of the loops
	bell     *Doorbell
	workers  workers

	disagreements chan Disagreement

	made atomic.Pointer[view] // the latest that anybody made

	clients     atomic.Int64 // connections accepted and not closed
	memory      atomic.Int64 // bytes that count against the budget
	active      atomic.Int64 // requests being answered
	retrying    atomic.Int64 // of those, the ones in a try that the budget pays for
	parked      atomic.Int64 // … and the ones that wait for a node …
	parkedBytes atomic.Int64 // … with bodies of so many bytes
	draining    atomic.Bool
	drainNs     atomic.Int64 // when draining began
	stopping    atomic.Bool  // the loops are being ended
	accept      acceptor
	dials       lack
	stopped     chan struct{}
	stopOnce    sync.Once
	runErr      error
}

// spareProcs is how many Ps there are besides one for each loop. While one is
// idle, a loop that blocks in epoll_wait keeps its own; else the runtime takes
// it after 20 µs (proc.go, retake), which costs up to 45 % at low rates, and a
// loop that wakes has to wait for whoever has it, 10 ms and more. So there is one
// to be idle beside two that may be busy for long: the indexer's, in a storm of
// events, and that of a decoder or of the garbage collector.
const spareProcs = 3

// Start runs the data plane until Stop. It returns when clients are served.
func Start(opt Options) (*Dataplane, error) {
	if opt.Loops <= 0 {
		opt.Loops = runtime.NumCPU()
	}
	if need := opt.Loops + spareProcs; runtime.GOMAXPROCS(0) < need {
		runtime.GOMAXPROCS(need)
	}
	d := &Dataplane{opt: opt, started: time.Now(), bell: newDoorbell(), stopped: make(chan struct{}), disagreements: make(chan Disagreement, disagreementQueue)}
	d.bootNs = bootNs(d.started)
	d.settings.Store(opt.Settings)
	if err := d.accept.init(d); err != nil {
		return nil, err
	}
	d.dials.init(opt.Log, dialsHealed, "cannot connect to nodes, for want of something of this host's own; no node is blamed", "connecting to nodes again")
	for range opt.Loops {
		el, err := eventloop.New()
		if err != nil {
			return nil, fmt.Errorf("start event loops: %w", err)
		}
		d.loops = append(d.loops, newLoop(d, el))
	}
	d.workers.start(opt.Loops, d.stopped)
	d.runLoops()
	for _, l := range d.loops {
		if err := l.el.SelfTest(); err != nil {
			return nil, errors.Join(err, d.Stop())
		}
	}
	go d.tick()
	go d.accept.run()
	return d, nil
}

// runLoops runs every loop in a goroutine of its own. When one fails, all end:
// half a router is worse than one that its supervisor starts again.
func (d *Dataplane) runLoops() {
	failures := make(chan error, len(d.loops))
	for _, l := range d.loops {
		d.running.Go(func() {
			err := l.el.Run()
			failures <- err
			if err != nil {
				for _, other := range d.loops {
					other.el.Stop()
				}
			}
		})
	}
	go func() {
		d.running.Wait()
		close(failures)
		for err := range failures {
			d.runErr = errors.Join(d.runErr, err)
		}
		close(d.stopped)
	}()
}

// tick moves every loop's timer wheel.
func (d *Dataplane) tick() {
	next := time.NewTimer(beat.Wait(time.Duration(tickNs)))
	defer next.Stop()
	for {
		select {
		case <-next.C:
			next.Reset(beat.Wait(time.Duration(tickNs)))
			for _, l := range d.loops {
				l.wakeForTick()
			}
		case <-d.stopped:
			return
		}
	}
}

// Apply makes new requests use s. Requests under way keep theirs.
func (d *Dataplane) Apply(s *Settings) { d.settings.Store(s) }

// ApplyExact says for which models prompts are known by their tokens. Requests
// under way keep what they have.
func (d *Dataplane) ApplyExact(m *ExactModels) { d.exact.Store(m) }

// Notes returns the loops' rings and their bell, for the indexer: the only
// consumer.
func (d *Dataplane) Notes() ([]*NoteRing, *Doorbell) {
	rings := make([]*NoteRing, len(d.loops))
	for i, l := range d.loops {
		rings[i] = &l.notes
	}
	return rings, d.bell
}

// Addr returns the address that clients connect to.
func (d *Dataplane) Addr() net.Addr { return d.opt.Listener.Addr() }

// Stopped is closed when the loops have ended, by Stop or by a failure.
func (d *Dataplane) Stopped() <-chan struct{} { return d.stopped }

// Draining reports whether Drain or Stop has begun.
func (d *Dataplane) Draining() bool { return d.draining.Load() }

// Active returns how many requests are being answered.
func (d *Dataplane) Active() int64 { return d.active.Load() }

// Clients returns how many connections of clients are open.
func (d *Dataplane) Clients() int64 { return d.clients.Load() }

// Drain stops accepting, closes the connections of clients that have been idle for the
// grace, answers what is under way with Connection: close, what waits for a node with
// 503, and returns when nothing is under way or ctx ends. It reports how many requests it
// left unanswered. A client that sends in the moment in which it is closed cannot know
// whether it was heard (RFC 9112, section 9.3.1): the longer the grace, the fewer do.
func (d *Dataplane) Drain(ctx context.Context, grace time.Duration) int64 {
	d.drainNs.Store(d.nowNs())
	d.draining.Store(true)
	d.accept.stop()
	<-d.accept.ended // what was accepted is counted
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		d.each(func(l *loop) {
			l.refuseParked()
			l.closeIdleClients(int64(grace))
		})
		if d.active.Load() == 0 && d.clients.Load() == 0 {
			return 0
		}
		select {
		case <-ctx.Done():
			return d.active.Load()
		case <-tick.C:
		}
	}
}

// Stop ends the loops and closes every connection. Drain first.
func (d *Dataplane) Stop() error {
	d.stopOnce.Do(func() {
		d.draining.Store(true)
		d.each(func(l *loop) { l.endAll() })
		d.stopping.Store(true)
		d.accept.stop()
		for _, l := range d.loops {
			l.el.Stop()
		}
		<-d.stopped
		d.dials.stop()
		d.workers.running.Wait()
	})
	return d.runErr
}

// each runs f on every loop and waits for all of them.
func (d *Dataplane) each(f func(*loop)) {
	var wait sync.WaitGroup
	for _, l := range d.loops {
		wait.Add(1)
		err := l.el.Execute(func() {
			defer wait.Done()
			l.now = d.nowNs()
			f(l)
		})
		if err != nil { // the loops have ended
			wait.Done()
		}
	}
	done := make(chan struct{})
	go func() { wait.Wait(); close(done) }()
	select {
	case <-done:
	case <-d.stopped:
	}
}

func (d *Dataplane) nowNs() int64 { return int64(time.Since(d.started)) }

// kernelNs is the time by the clock of the kernel's programs. It is read anew.
func (d *Dataplane) kernelNs() int64 { return d.nowNs() + d.bootNs }

// bootNs is what CLOCK_MONOTONIC was at a moment. Go's monotonic readings count by
// that clock, from a start of their own (runtime.nanotime). Of several tries the
// least is the one that was held up least between its two readings.
func bootNs(at time.Time) int64 {
	least := int64(math.MaxInt64)
	for range 8 {
		since := time.Since(at)
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err == nil {
			least = min(least, now.Nano()-int64(since))
		}
	}
	return least
}

// WallTime turns a time of the data plane into the wall clock's.
func (d *Dataplane) WallTime(nowNs int64) time.Time { return d.started.Add(time.Duration(nowNs)) }

// NowNs returns the data plane's time: monotonic, from its start.
func (d *Dataplane) NowNs() int64 { return d.nowNs() }
