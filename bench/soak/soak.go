package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// run is one run.
type run struct {
	Options
	log     io.Writer
	address string // of the router's client side
	ledger  *ledger
	nodes   []*node
	router  *router

	start  time.Time
	issued atomic.Int64
	over   atomic.Bool
	stop   context.CancelFunc

	restarts timeline

	mu         sync.Mutex
	counts     map[string]int64 // outcomes by class, and what else happened
	statuses   map[int]int64    // of answers
	faults     map[faultKind]int64
	violations []string
	errors     []string // of the first requests that nobody could answer
}

// mostExamples bounds what is kept to be looked at.
const mostExamples = 20

// Run runs the soak and writes one line to out, progress to log. The error says
// what was violated first.
func Run(ctx context.Context, o Options, out, log io.Writer) error {
	o.complete()
	if err := o.Check(); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := &run{
		Options: o, log: log, stop: stop, ledger: newLedger(o.Seed, o.Clients),
		counts: map[string]int64{}, statuses: map[int]int64{}, faults: map[faultKind]int64{},
	}
	if err := r.set(); err != nil {
		return err
	}
	defer r.clear()
	report, err := r.soak(ctx)
	if report == nil {
		return err
	}
	if writeErr := report.write(out); writeErr != nil {
		return writeErr
	}
	return err
}

// set starts nodes and router.
func (r *run) set() (err error) {
	defer func() {
		if err != nil {
			r.clear()
		}
	}()
	addresses, err := freeAddresses(r.Nodes + 2)
	if err != nil {
		return err
	}
	for i := range r.Nodes {
		n := &node{run: r, number: i, name: nodeName(i), address: addresses[i], conns: map[*nodeConn]struct{}{}}
		r.nodes = append(r.nodes, n)
		if err := n.start(); err != nil {
			return err
		}
	}
	r.address = addresses[len(addresses)-2]
	r.router, err = startRouter(r, addresses[len(addresses)-1])
	return err
}

// clear ends all that was started.
func (r *run) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	r.over.Store(true)
	if r.router != nil {
		r.router.end(ctx)
	}
	for _, n := range r.nodes {
		n.stopAll(ctx)
	}
}

// soak sends all requests while nodes and operations disturb them, and then looks
// whether anything is left.
func (r *run) soak(ctx context.Context) (*Report, error) {
	watch, err := newWatch(r)
	if err != nil {
		return nil, err
	}
	r.start = time.Now()
	traffic, done := context.WithCancel(ctx)
	defer done()
	var others, clients sync.WaitGroup
	others.Go(func() { watch.follow(traffic) })
	others.Go(func() { r.disturb(traffic) })
	others.Go(func() { r.operate(traffic) })
	for i := range r.Clients {
		clients.Go(func() { newClient(r, i).loop(traffic) })
	}
	clients.Wait()
	took := time.Since(r.start)
	done()
	others.Wait()
	for _, n := range r.nodes {
		if err := n.start(); err != nil {
			return nil, err
		}
	}
	if len(r.violated()) == 0 && ctx.Err() == nil {
		watch.settle(ctx)
	}
	if len(r.violated()) == 0 && ctx.Err() == nil {
		r.checkShares()
	}
	if crash := r.router.crashed(); crash != "" {
		r.violate(nil, "the router has logged %s", crash)
	}
	report := r.report(watch, took)
	if v := r.violated(); len(v) > 0 {
		return report, fmt.Errorf("violated: %s", v[0])
	}
	if err := ctx.Err(); err != nil {
		return report, errors.New("interrupted before its end")
	}
	return report, nil
}

// next waits for the turn of a client's next request. It reports false when the
// run is over.
func (r *run) next(ctx context.Context) bool {
	n := r.issued.Load()
	after := time.Since(r.start)
	if ctx.Err() != nil || after >= r.Duration && (n >= r.Requests || after >= mostTimes*r.Duration) {
		return false
	}
	n = r.issued.Add(1)
	if r.Rate > 0 {
		due := r.start.Add(time.Duration(n) * time.Second / time.Duration(r.Rate))
		if wait := time.Until(due); wait > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
	}
	return true
}

// mostTimes bounds how much longer a run takes than planned to get its requests.
const mostTimes = 4

// judge notes what came of a request.
func (r *run) judge(q *request, o *outcome) {
	f := facts{plan: &q.plan, tries: q.copyTries(), outcome: o}
	for _, n := range r.nodes {
		if n.stops.overlaps(q.started.Add(-stoppedFor)) {
			f.stopped = append(f.stopped, n.number)
		}
	}
	class, err := f.judge()
	if err != nil {
		r.violate(q, "%v; its client saw: %v", err, o)
		return
	}
	r.count(class, q)
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.got {
		r.statuses[o.status]++
	}
	if class == classOwnError || class == classPassedOn {
		r.counts[class+" "+strconv.Itoa(o.status)+" "+o.code]++
		if len(r.errors) < mostExamples {
			r.errors = append(r.errors, fmt.Sprintf("%s: %v; planned: %v; nodes: %s", q.id, o, &q.plan, q.story()))
		}
	}
	if o.got && o.end == endWhole && !o.keeps && q.needlessly(o) {
		r.counts["needless_close"]++
	}
}

// stoppedFor is how long after a node is back requests may meet what its stop
// has left.
const stoppedFor = 3 * time.Second

// needlessly reports whether the connection ended with an answer without a
// reason in request or answer.
func (q *request) needlessly(o *outcome) bool {
	return q.kind == kindNormal && q.leave == staying && o.ofNode && !q.closes && q.minor == 1 && !q.answer.early &&
		(q.answer.form != formClose || q.noContent(o.status))
}

// count counts a request that is over.
func (r *run) count(class string, q *request) {
	r.note(class)
	if q.batch > 1 {
		r.note("batches")
	}
}

func (r *run) note(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[what]++
}

func (r *run) countFault(k faultKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults[k]++
}

// violate notes a violation; the run ends with as many as are asked for. q may be
// nil.
func (r *run) violate(q *request, format string, values ...any) {
	if r.over.Load() {
		return // the router is being stopped
	}
	text := fmt.Sprintf(format, values...)
	if q != nil {
		text = fmt.Sprintf("request %s after %v: %s; planned: %v; nodes: %s", q.id, time.Since(r.start).Round(time.Millisecond), text, &q.plan, q.story())
	}
	text += fmt.Sprintf(" (seed %d)", r.Seed)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.violations) >= r.Violations {
		return
	}
	r.violations = append(r.violations, text)
	fmt.Fprintln(r.log, "VIOLATION", strings.ToValidUTF8(text, "?"))
	if len(r.violations) >= r.Violations {
		r.stop()
	}
}

func (r *run) violated() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.violations
}

// mostErrors bounds the share of requests that get an error for want of another
// try: more means that retries do not work.
const mostErrors = 0.01

// checkShares checks what may happen to some requests only.
func (r *run) checkShares() {
	r.mu.Lock()
	counts := maps.Clone(r.counts)
	r.mu.Unlock()
	all, failed := r.issued.Load(), counts[classOwnError]+counts[classPassedOn]
	if float64(failed) > mostErrors*float64(all)+5 {
		r.violate(nil, "%d of %d requests got an error of a node or of the router: more than %g %%", failed, all, 100*mostErrors)
	}
}

// timeline remembers when something was the case.
type timeline struct {
	mu    sync.Mutex
	open  int
	ended time.Time // the last time
}

func (t *timeline) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open++
}

func (t *timeline) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open--
	t.ended = time.Now()
}

// overlaps reports whether it was the case at any time since.
func (t *timeline) overlaps(since time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open > 0 || t.ended.After(since)
}
