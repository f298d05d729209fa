package dataplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/panjf2000/gnet/v2"
	"github.com/panjf2000/gnet/v2/pkg/logging"

	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
)

// Options are fixed for the life of a Dataplane.
type Options struct {
	Listener  net.Listener // where clients connect; closed by Drain or Stop
	Loops     int          // event loops; 0 = one a CPU
	Fleet     *fleet.Holder
	Index     *index.Index
	Settings  *Settings
	Decisions int // decision records kept over all loops
	Log       *slog.Logger
}

// Dataplane is the running data plane.
type Dataplane struct {
	gnet.BuiltinEventEngine
	opt      Options
	settings atomic.Pointer[Settings]
	exact    atomic.Pointer[ExactModels]
	started  time.Time // loop.now counts from here; the reading is monotonic
	loops    []*loop
	ticking  atomic.Pointer[[]*loop] // loops, once all of them are there
	engine   gnet.Engine
	dir      string // of the private socket
	wakeups  chan gnet.Conn
	bell     *Doorbell
	workers  workers

	disagreements chan Disagreement

	clients  atomic.Int64 // connections accepted and not closed
	active   atomic.Int64 // requests being answered
	retrying atomic.Int64 // of those, the ones in a try that the budget pays for
	draining atomic.Bool
	drainNs  atomic.Int64 // when draining began
	stopping atomic.Bool  // the loops are being ended
	accept   acceptor
	stopped  chan struct{}
	stopOnce sync.Once
	runErr   error
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
	dir, err := os.MkdirTemp("", "warmpath-")
	if err != nil {
		return nil, fmt.Errorf("make folder for the private socket: %w", err)
	}
	d := &Dataplane{opt: opt, started: time.Now(), dir: dir, bell: newDoorbell(), stopped: make(chan struct{}), disagreements: make(chan Disagreement, disagreementQueue), wakeups: make(chan gnet.Conn, opt.Loops)}
	d.settings.Store(opt.Settings)
	d.workers.start(opt.Loops, d.stopped)
	d.accept.init(d)
	if err := d.startLoops(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	_ = os.RemoveAll(dir) // nobody else is to connect to the loops; a killed process leaves nothing behind
	d.ticking.Store(&d.loops)
	go d.accept.run()
	return d, nil
}

// startLoops runs gnet on a private unix socket, which nobody but us connects
// to: an accept error there would end the whole engine. One connection a loop
// tells us the loops; it stays open as long as the loop.
func (d *Dataplane) startLoops() error {
	address := filepath.Join(d.dir, "loops")
	booted := make(chan error, 1)
	go func() {
		err := gnet.Run(d, "unix://"+address,
			gnet.WithNumEventLoop(d.opt.Loops),
			gnet.WithReadBufferCap(readBufferBytes),
			gnet.WithLoadBalancing(gnet.RoundRobin),
			gnet.WithTicker(true),
			gnet.WithLogLevel(logging.ErrorLevel),
			gnet.WithLogger(gnetLog{d.opt.Log}))
		d.runErr = err
		close(d.stopped)
		booted <- errors.Join(errors.New("event loops ended"), err)
	}()
	var keep []net.Conn
	for len(d.loops) < d.opt.Loops {
		c, err := dialPrivate(address, booted)
		if err != nil {
			return fmt.Errorf("start event loops: %w", err)
		}
		keep = append(keep, c)
		if err := d.adopt(<-d.wakeups); err != nil {
			return fmt.Errorf("start event loops: %w", err)
		}
	}
	go func() { // the private connections live as long as the loops
		<-d.stopped
		for _, c := range keep {
			_ = c.Close()
		}
	}()
	return nil
}

func dialPrivate(address string, booted <-chan error) (net.Conn, error) {
	for {
		c, err := net.Dial("unix", address)
		if err == nil {
			return c, nil
		}
		select {
		case err := <-booted:
			return nil, err
		case <-time.After(time.Millisecond): // gnet tells when it has begun to listen only by listening
		}
	}
}

// adopt makes the loop behind the private connection c one of ours.
func (d *Dataplane) adopt(c gnet.Conn) error {
	el := c.EventLoop()
	for _, l := range d.loops {
		if l.el == el {
			return nil // the balancer gave us one we have
		}
	}
	l := newLoop(d, el)
	ready := make(chan error, 1)
	err := el.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) (err error) {
		l.pause, err = newPauser(el, c)
		ready <- err
		return nil
	}))
	if err == nil {
		err = <-ready
	}
	d.loops = append(d.loops, l)
	return err
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

// Drain stops accepting, closes idle client connections, answers what is under
// way with Connection: close, and returns when nothing is under way or ctx
// ends. It reports how many requests it left unanswered.
func (d *Dataplane) Drain(ctx context.Context) int64 {
	d.drainNs.Store(d.nowNs())
	d.draining.Store(true)
	d.accept.stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		d.each(func(l *loop) { l.closeIdleClients() })
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
		// gnet's Stop begins the end and then looks each half second whether it
		// has come, unless ctx is over; stopped tells at once.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = d.engine.Stop(ctx)
		<-d.stopped
		d.workers.running.Wait()
		_ = os.RemoveAll(d.dir)
	})
	return d.runErr
}

// each runs f on every loop and waits for all of them.
func (d *Dataplane) each(f func(*loop)) {
	var wait sync.WaitGroup
	for _, l := range d.loops {
		wait.Add(1)
		err := l.el.Execute(context.Background(), runnable(func() {
			defer wait.Done()
			l.now = d.nowNs()
			f(l)
		}))
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

// WallTime turns a time of the data plane into the wall clock's.
func (d *Dataplane) WallTime(nowNs int64) time.Time { return d.started.Add(time.Duration(nowNs)) }

// NowNs returns the data plane's time: monotonic, from its start.
func (d *Dataplane) NowNs() int64 { return d.nowNs() }

// OnBoot is gnet's.
func (d *Dataplane) OnBoot(e gnet.Engine) gnet.Action {
	d.engine = e
	return gnet.None
}

// OnTick is gnet's: it runs in a goroutine of its own and moves every loop's
// timer wheel.
func (d *Dataplane) OnTick() (time.Duration, gnet.Action) {
	if loops := d.ticking.Load(); loops != nil {
		for _, l := range *loops {
			l.wakeForTick()
		}
	}
	return time.Duration(tickNs), gnet.None
}

// gnetLog passes gnet's own errors on. Its warnings are only for debugging: one
// comes for every event of a connection that was closed earlier in the same
// batch, which closing both sides of a request does.
type gnetLog struct{ log *slog.Logger }

func (g gnetLog) Debugf(string, ...any) {}
func (g gnetLog) Infof(string, ...any)  {}
func (g gnetLog) Warnf(format string, a ...any) {
	g.log.Debug("event loop: " + fmt.Sprintf(format, a...))
}

func (g gnetLog) Errorf(format string, a ...any) {
	g.log.Error("event loop: " + fmt.Sprintf(format, a...))
}

func (g gnetLog) Fatalf(format string, a ...any) {
	g.log.Error("event loop: " + fmt.Sprintf(format, a...))
}
