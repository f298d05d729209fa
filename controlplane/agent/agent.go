package agent

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"warmpath/controlplane/kvevent"
)

// Bounds of Options.
const (
	MinInterval   = 10 * time.Millisecond
	MinSync       = 500 * time.Millisecond
	MaxSync       = 10 * time.Second // routers take 15 s of silence for a loss
	MaxRanks      = 64
	MaxRouters    = 64
	defaultBlocks = 2 << 20 // about 600 MB at 16 tokens a block, when all are in use
	statusEvery   = time.Minute
)

// Sink takes what happens to one rank's event stream, in its order.
type Sink interface {
	// Events takes a batch, which is borrowed.
	Events(b *kvevent.Batch)
	// Restarted says that the engine is another process.
	Restarted()
	// Void says that events are missing for good.
	Void()
	// Trust says how far the stream can be believed from now on.
	Trust(t kvevent.Trust)
}

// Source brings the events of one rank until ctx ends; then it returns nil. It
// connects again by itself.
type Source func(ctx context.Context, rank int, to Sink) error

// Options of Run.
type Options struct {
	WorkerID  string
	Model     string   // "" = the one that the node serves
	Routers   []string // as ParseRouter returns them
	Ranks     int
	Token     *Token
	Interval  time.Duration // between two flushes
	Sync      time.Duration // between two digests
	Encoding  Encoding
	MaxBlocks int // live blocks of a rank; 0 = 2^21
	Source    Source
	Log       *slog.Logger
}

// Check says what is wrong with the options, all at once.
func (o *Options) Check() error {
	var faults []error
	if o.WorkerID == "" {
		faults = append(faults, errors.New("worker id: missing; use the node's name in the routers' configuration"))
	}
	if len(o.Routers) == 0 || len(o.Routers) > MaxRouters {
		faults = append(faults, fmt.Errorf("routers: %d; use 1 to %d", len(o.Routers), MaxRouters))
	}
	if o.Ranks < 1 || o.Ranks > MaxRanks {
		faults = append(faults, fmt.Errorf("ranks: %d; use 1 to %d", o.Ranks, MaxRanks))
	}
	if o.Interval < MinInterval || o.Interval > o.Sync {
		faults = append(faults, fmt.Errorf("interval: %v; use %v up to the sync interval", o.Interval, MinInterval))
	}
	if o.Sync < MinSync || o.Sync > MaxSync {
		faults = append(faults, fmt.Errorf("sync: %v; use %v to %v", o.Sync, MinSync, MaxSync))
	}
	return errors.Join(faults...)
}

// Agent is Core behind its sources and routers.
type Agent struct {
	opt   Options
	start time.Time
	mu    sync.Mutex
	core  *Core           // guarded by mu
	bells []chan struct{} // one a router, with room for one
}

// Run reports until ctx ends, then returns nil. An error means that it could
// not go on, or not begin.
func Run(ctx context.Context, o Options) error {
	if err := o.Check(); err != nil {
		return fmt.Errorf("start agent: %w", err)
	}
	if o.MaxBlocks == 0 {
		o.MaxBlocks = defaultBlocks
	}
	a := &Agent{opt: o, start: time.Now(), core: NewCore(CoreOptions{
		WorkerID: o.WorkerID, Model: o.Model, Ranks: o.Ranks, Routers: len(o.Routers), MaxBlocks: o.MaxBlocks,
		Epoch: newEpoch, Jitter: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
	})}
	client := &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 1, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: postWithin,
	}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	for range o.Routers {
		a.bells = append(a.bells, make(chan struct{}, 1))
	}
	for i, base := range o.Routers {
		s := &sender{base: base, encoding: o.Encoding, token: o.Token, client: client}
		wait.Go(func() { a.send(ctx, i, s) })
	}
	failed := make(chan error, o.Ranks)
	for rank := range o.Ranks {
		wait.Go(func() {
			if err := o.Source(ctx, rank, &sink{a, rank}); err != nil {
				failed <- fmt.Errorf("follow events of rank %d: %w", rank, err)
			}
		})
	}
	o.Log.Info("reporting", "worker", o.WorkerID, "routers", o.Routers, "ranks", o.Ranks)
	err := a.beat(ctx, failed)
	o.Log.Info("stopped", a.status()...)
	return err
}

// newEpoch is 64 random bits.
func newEpoch() string {
	var b [8]byte
	_, _ = crand.Read(b[:]) // it never fails
	return hex.EncodeToString(b[:])
}

func (a *Agent) nowNs() int64 { return int64(time.Since(a.start)) }

// beat flushes and digests.
func (a *Agent) beat(ctx context.Context, failed <-chan error) error {
	flush := time.NewTicker(a.opt.Interval)
	defer flush.Stop()
	digest := time.NewTicker(a.opt.Sync)
	defer digest.Stop()
	status := time.NewTicker(statusEvery)
	defer status.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-flush.C:
			a.with((*Core).Flush)
		case <-digest.C:
			a.with((*Core).Digests)
		case <-status.C:
			a.opt.Log.Info("status", a.status()...)
		}
	}
}

// with changes the core and wakes the senders.
func (a *Agent) with(change func(*Core)) {
	a.mu.Lock()
	change(a.core)
	a.mu.Unlock()
	for _, bell := range a.bells {
		select {
		case bell <- struct{}{}:
		default: // it is awake
		}
	}
}

func (a *Agent) status() []any {
	a.mu.Lock()
	s := a.core.Status()
	a.mu.Unlock()
	attrs := []any{"live", s.Live, "stored", s.Cache.Stored, "removed", s.Cache.Removed, "ignored", s.Cache.Ignored, "overflow", s.Cache.Overflow, "voided", s.Cache.Voided}
	for i, l := range s.Routers {
		attrs = append(attrs, slog.Group(a.opt.Routers[i], "reports", l.Reports, "failures", l.Failures, "fulls", l.Fulls, "collapses", l.Collapses))
	}
	return attrs
}

// send is the goroutine of one router.
func (a *Agent) send(ctx context.Context, router int, s *sender) {
	away := "" // what was logged last
	for ctx.Err() == nil {
		a.mu.Lock()
		out, waitNs := a.core.Next(router, a.nowNs())
		a.mu.Unlock()
		if out == nil {
			a.sleep(ctx, router, waitNs)
			continue
		}
		answer, failure, err := s.post(ctx, &out.Report)
		if ctx.Err() != nil {
			return
		}
		a.mu.Lock()
		if err == nil {
			a.core.Answered(router, out, answer)
		} else {
			a.core.Failed(router, out, failure, a.nowNs())
		}
		a.mu.Unlock()
		switch {
		case err != nil && err.Error() != away:
			away = err.Error()
			a.opt.Log.Warn("router does not take reports; trying again", "router", s.base, "err", err)
		case err == nil && away != "":
			away = ""
			a.opt.Log.Info("router takes reports again", "router", s.base)
		}
	}
}

// sleep waits until there may be something to send.
func (a *Agent) sleep(ctx context.Context, router int, waitNs int64) {
	if waitNs == 0 {
		select {
		case <-ctx.Done():
		case <-a.bells[router]:
		}
		return
	}
	pause := time.NewTimer(time.Duration(waitNs))
	defer pause.Stop()
	select {
	case <-ctx.Done():
	case <-pause.C:
	}
}

// sink is one rank's way into the core.
type sink struct {
	a    *Agent
	rank int
}

func (k *sink) Events(b *kvevent.Batch) {
	k.a.mu.Lock()
	defer k.a.mu.Unlock()
	k.a.core.Events(k.rank, b)
}

func (k *sink) Restarted() {
	k.a.opt.Log.Info("engine restarted", "rank", k.rank)
	k.a.with(func(c *Core) { c.Restarted(k.rank) })
}

func (k *sink) Void() {
	k.a.opt.Log.Warn("events are missing; what was known of this rank is taken back", "rank", k.rank)
	k.a.with(func(c *Core) { c.Void(k.rank) })
}

func (k *sink) Trust(t kvevent.Trust) {
	k.a.opt.Log.Info("engine's events", "rank", k.rank, "trust", t.String())
	k.a.with(func(c *Core) { c.Quiet(k.rank, t == kvevent.Stale) })
}
