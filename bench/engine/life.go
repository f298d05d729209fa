package engine

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// maxLag is how far behind its schedule the step loop catches up.
const maxLag = 100 * time.Millisecond

// errQueueFull is what a request gets when MaxWaiting others wait already.
var errQueueFull = errors.New("admit request: the queue is full, send less or raise MaxWaiting")

// answer is how far one request's answer is, written by the step loop and
// read by the handler. The words themselves follow from start and position.
type answer struct {
	emitted atomic.Int64  // tokens generated so far
	news    chan struct{} // one slot: filled when emitted changed
	start   uint64
	seq     *Sequence
	reason  string       // finish_reason of the complete answer
	cached  atomic.Int64 // prompt tokens from the cache; valid once emitted > 0

	arrived time.Time // loop-owned after submit
	first   time.Time
	latest  time.Time
}

// life is one data-parallel rank of a process, from start to restart: its
// cache, scheduler, metrics and event stream. ended is closed at its end.
type life struct {
	cfg    *Config
	faults *faultSet
	events *publisher // nil without events
	stats  *metrics
	rank   int // data-parallel rank, from 0
	ended  context.Context
	end    context.CancelFunc
	wake   chan struct{} // one slot: work came, or a fault changed
	done   chan struct{} // closed when the step loop has returned

	mu      sync.Mutex // guards what follows
	sched   *Scheduler
	aborted int64
}

// startLife makes a fresh engine core and starts its step loop.
func startLife(cfg *Config, faults *faultSet, events *publisher, rank int) *life {
	l := &life{
		cfg: cfg, faults: faults, events: events, rank: rank,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		sched: NewScheduler(NewCache(cfg.Blocks, cfg.BlockTokens), cfg.Physics, cfg.Seed),
	}
	l.sched.answers = cfg.vocabulary().answers()
	l.ended, l.end = context.WithCancel(context.Background())
	l.stats = newMetrics(cfg, l)
	go l.run()
	return l
}

// stop ends the life and waits for its step loop; open answers end unfinished.
func (l *life) stop() {
	l.end()
	<-l.done
	if l.events != nil {
		l.events.close()
	}
}

// submit queues a request. The answer's news tell of its tokens; reason is
// why a complete answer ends, "stop" or "length".
func (l *life) submit(q *Sequence, reason string) (*answer, error) {
	a := &answer{news: make(chan struct{}, 1), arrived: time.Now(), seq: q, reason: reason}
	l.mu.Lock()
	if l.sched.Waiting() >= l.cfg.MaxWaiting {
		l.mu.Unlock()
		return nil, errQueueFull
	}
	q.live = a
	l.sched.Add(q)
	a.start = q.start
	l.mu.Unlock()
	l.nudge()
	return a, nil
}

// wait blocks until more than seen tokens of an answer exist and returns how
// many do. ok is false when the client or this life went away first; the
// request is then aborted.
func (l *life) wait(ctx context.Context, a *answer, seen int64) (tokens int64, ok bool) {
	for {
		if n := a.emitted.Load(); n > seen {
			return n, true
		}
		select {
		case <-a.news:
		case <-ctx.Done():
			l.abort(a)
			return seen, false
		case <-l.ended.Done():
			return seen, false
		}
	}
}

// abort ends a request whose client has gone and frees its blocks at once.
func (l *life) abort(a *answer) {
	l.mu.Lock()
	hit := l.sched.Abort(a.seq)
	if hit {
		l.aborted++
	}
	l.mu.Unlock()
	if hit {
		l.stats.finished.WithLabelValues("abort").Inc()
		l.nudge() // blocks came free
	}
}

// nudge lets the step loop look again.
func (l *life) nudge() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run is the step loop: plan a step, let its time pass, hand out its tokens.
func (l *life) run() {
	defer close(l.done)
	var due time.Time // end of the current step; kept across steps so that late timers do not add up
	for l.ended.Err() == nil {
		if !l.waitCore() {
			return
		}
		l.mu.Lock()
		step, ok := l.sched.Begin()
		l.mu.Unlock()
		if !ok {
			due = time.Time{}
			select {
			case <-l.wake:
				continue
			case <-l.ended.Done():
				return
			}
		}
		if due = l.pass(step.Duration, due); due.IsZero() || !l.waitCore() {
			return
		}
		l.finishStep()
	}
}

// waitCore blocks while the engine core is stopped; false when life ended.
func (l *life) waitCore() bool {
	for {
		f := l.faults.on(FaultCoreStopped)
		if f == nil {
			return l.ended.Err() == nil
		}
		select {
		case <-f.cleared:
		case <-l.ended.Done():
			return false
		}
	}
}

// pass lets a step's time go by, in real time after scaling, and returns when
// it ended; the zero time means that life ended first.
func (l *life) pass(simulated time.Duration, due time.Time) time.Time {
	now := time.Now()
	if l.cfg.AsFastAsPossible {
		runtime.Gosched() // lets handlers write what the last step gave them
		return now
	}
	scale := l.cfg.TimeScale
	if f := l.faults.on(FaultSlow); f != nil {
		scale *= f.Factor
	}
	// A loop that could not run for long must not rush through many steps.
	if due.IsZero() || now.Sub(due) > maxLag {
		due = now
	}
	due = due.Add(time.Duration(float64(simulated) * scale))
	wait := due.Sub(now)
	if wait <= 0 {
		return due
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return due
	case <-l.ended.Done():
		return time.Time{}
	}
}

// finishStep ends a step: events first, as vLLM does, then the tokens.
func (l *life) finishStep() {
	l.mu.Lock()
	defer l.mu.Unlock()
	outputs := l.sched.End()
	now := time.Now()
	if events := l.sched.Cache.Drain(); len(events) > 0 && l.events != nil {
		payload := appendBatch(nil, float64(now.UnixNano())/1e9, events, l.cfg.BlockTokens, l.adapterID, l.rank)
		// A batch that cannot be sent is lost, which subscribers see as a gap.
		_ = l.events.publish(payload, l.faults.use(FaultDropEvents) != nil)
	}
	for _, o := range outputs {
		a := o.Seq.live
		l.stats.token(a, now, o.Last)
		a.cached.Store(int64(o.Seq.Cached()))
		a.emitted.Add(1)
		select {
		case a.news <- struct{}{}:
		default:
		}
	}
}

// adapterID numbers LoRA adapters from 1, in the order of the configuration.
func (l *life) adapterID(name string) int {
	for i, a := range l.cfg.Adapters {
		if a == name {
			return i + 1
		}
	}
	panic("BUG: an event names an adapter that is not configured")
}

// clearCache empties the prefix cache if no request holds a block. As in vLLM
// the event goes out with the next step.
func (l *life) clearCache() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sched.Cache.Clear()
}

// gauges are the figures of one moment.
type gauges struct {
	running, waiting    int
	total, free, hashed int // blocks
	aborted             int64
	counters            Counters
}

// add adds the figures of another rank.
func (g *gauges) add(o gauges) {
	g.running, g.waiting = g.running+o.running, g.waiting+o.waiting
	g.total, g.free, g.hashed = g.total+o.total, g.free+o.free, g.hashed+o.hashed
	g.aborted += o.aborted
	c, d := &g.counters, &o.counters
	c.QueriedTokens, c.HitTokens = c.QueriedTokens+d.QueriedTokens, c.HitTokens+d.HitTokens
	c.PromptTokens, c.GeneratedTokens = c.PromptTokens+d.PromptTokens, c.GeneratedTokens+d.GeneratedTokens
	c.Preemptions, c.Steps = c.Preemptions+d.Preemptions, c.Steps+d.Steps
}

// look reads the figures of this moment.
func (l *life) look() gauges {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.sched.Cache
	return gauges{
		running: l.sched.Running(), waiting: l.sched.Waiting(),
		total: c.Total(), free: c.Free(), hashed: c.Hashed(),
		aborted: l.aborted, counters: l.sched.Counters,
	}
}
