package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patient is the node sim-0, as that to which things happen in trials.
type patient struct {
	ailments []ailment
	waiting  []waiting     // requests that are there without a byte by then
	every    time.Duration // between new requests to both nodes
	within   time.Duration // the longest that a trial lasts
	clear    func()        // ends what waiting has arranged
	settle   func()        // waits until nothing of the last trial is there; may be nil
}

// ailment is one thing that can befall a node.
type ailment struct {
	name       string
	dead       bool // its host is gone; else its engine hangs, and its host answers for it
	begin, end func()
}

func (a *ailment) truth() string {
	if a.dead {
		return "dead"
	}
	return "hung"
}

type waiting struct {
	more    string // keys of its body
	arrange func() // has the node not answer the next request; nil = the answer takes minutes, and its client leaves with the trial
}

// findings is what one trial has shown. Times count from the beginning of what
// befell the node.
type findings struct {
	*ailment
	said      string        // the first cause that the router named, "" if it named none
	saidAfter time.Duration // when that was
	also      []string      // causes that it named later, until the end of the trial
	why       string        // its words

	avoided time.Duration // when the last request came that was sent there
	moved   time.Duration // when the last that was there without a byte was answered by the other node
	kept    int           // of these, how many were answered after the trial's end only …
	left    int           // … or would have taken minutes
	others  int           // requests that the other node answered in place of this one
	failed  int           // requests that were not answered with 200
	service time.Duration // what it takes to answer one
	stall   time.Duration // the longest that this machine kept a program waiting
}

// inTime reports whether both times were kept that hold for a dead node, and
// whether they were but for what the machine took.
func (f *findings) inTime() (strictly, butForStalls bool) {
	if f.kept+f.left > 0 {
		return false, false
	}
	return f.avoided <= avoidedWithin && f.moved <= movedWithin,
		f.avoided <= avoidedWithin+f.stall && f.moved <= movedWithin+f.service+2*f.stall
}

// wrong reports whether the router said, at any time, what was not so.
func (f *findings) wrong() bool {
	return f.said != f.truth() || slices.ContainsFunc(f.also, func(cause string) bool { return cause != f.truth() })
}

func (f *findings) String() string {
	moved := fmt.Sprintf("%4d", f.moved.Milliseconds())
	if f.kept+f.left > 0 {
		moved = "   –"
	}
	said := cmp.Or(f.said, "nothing")
	if len(f.also) > 0 {
		said += ", then " + strings.Join(f.also, ", ")
	}
	return fmt.Sprintf("%-4s %-16s said %s after %d ms; avoided after %4d ms, moved after %s ms (%d requests, %d stay; serving %d ms), stalls %d ms, %d failed; %s",
		f.truth(), f.name, said, f.saidAfter.Milliseconds(), f.avoided.Milliseconds(), moved, f.others, f.kept+f.left, f.service.Milliseconds(), f.stall.Milliseconds(), f.failed, f.why)
}

// A trial is watched for so long after its beginning at least, and for so long
// after the router has named a cause, in case it names another.
const (
	watchedLeast = 600 * time.Millisecond
	watchedOn    = 700 * time.Millisecond
)

// asked is a request of a trial. The answer is there when done.
type asked struct {
	id     string
	leave  context.CancelFunc // nil = it wants its answer
	done   atomic.Bool
	answer *reply
	begun  time.Time // when its client had the first of it; zero = never
	at     time.Time // when it was there
}

// crowd are the requests of a trial that must be answered.
type crowd struct {
	r     *serving
	under sync.WaitGroup
	all   []*asked
}

func (c *crowd) ask(ctx context.Context, id string, body []byte) *asked {
	q := &asked{id: id}
	c.all = append(c.all, q)
	c.under.Go(func() {
		q.answer = c.r.send(ctx, chatPath, id, body, func() { q.begun = time.Now() })
		q.at = time.Now()
		q.done.Store(true)
	})
	return q
}

// trial has one thing befall sim-0, with a stream from it under way, requests
// waiting there and others coming, and heals it when the router has made up its
// mind, or did not.
func (r *serving) trial(t *testing.T, p *patient, a *ailment, n int) (f findings) {
	t.Helper()
	f = findings{ailment: a}
	r.calm(t, "sim-0")
	if p.settle != nil {
		p.settle()
	}
	body := r.bodyFor(t, "sim-1", `,"max_tokens":4`)
	began := time.Now()
	r.ask(t, body)
	f.service = time.Since(began)

	live := r.live(t)
	var waits, comes crowd
	waits.r, comes.r = r, r
	for i, w := range p.waiting {
		body := r.bodyFor(t, "sim-0", w.more)
		if w.arrange != nil {
			w.arrange()
		}
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		q := waits.ask(ctx, fmt.Sprintf("waits-%d-%d", n, i), body)
		if w.arrange == nil {
			q.leave = leave
		}
		eventually(t, 10*time.Second, "it waits at sim-0", func() bool { return r.node(t, "sim-0").InFlight >= int64(i+2) })
	}
	stop := comes.arrive(t, p.every, n)
	acknowledged := time.Now()
	phase := 60*time.Millisecond + time.Duration(n*37%100)*time.Millisecond // of what the router does at intervals
	eventually(t, 10*time.Second, "requests to be acknowledged", func() bool { return time.Since(acknowledged) > phase })
	if v := r.node(t, "sim-0"); v.State != "ready" {
		t.Fatalf("trial %d: nothing happened yet, and sim-0 is %s: %s", n, v.State, v.Reason)
	}

	stalled := stalls()
	t0 := time.Now()
	a.begin()
	r.watch(t, &f, t0, p.within, &waits)
	f.stall = stalled()
	stop()
	end := time.Now()
	a.end()
	p.clear()
	live()
	r.conclude(t, &f, t0, end, &waits, &comes)
	r.usable(t, "sim-0")
	return f
}

// live begins a stream from sim-0 that would take minutes, and returns when some
// of it is there.
func (r *serving) live(t *testing.T) (leave func()) {
	t.Helper()
	body := r.bodyFor(t, "sim-0", `,"max_tokens":7000,"ignore_eos":true`+streaming)
	ctx, cancel := context.WithCancel(t.Context())
	begun, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		if a := r.send(ctx, chatPath, "", body, func() { close(begun) }); ctx.Err() == nil && !a.begun {
			t.Errorf("a long stream got no head: %v", a.err)
		}
	}()
	select {
	case <-begun:
	case <-ended:
		t.Fatal("a long stream ended at once")
	}
	return func() { cancel(); <-ended }
}

// arrive sends short requests, every second one a stream, until stop.
func (c *crowd) arrive(t *testing.T, every time.Duration, n int) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-end:
				return
			case <-tick.C:
				id := fmt.Sprintf("new-%d-%d", n, i)
				c.ask(t.Context(), id, chatBody("Short "+id, `,"max_tokens":2`+[]string{"", streaming}[i%2]))
			}
		}
	}()
	return func() { close(end); <-ended }
}

// watch notes what the router says of sim-0, until it is clear what becomes of
// the trial.
func (r *serving) watch(t *testing.T, f *findings, t0 time.Time, most time.Duration, waits *crowd) {
	t.Helper()
	last := ""
	eventually(t, 2*most, "the trial to come to its end", func() bool {
		v, since := r.node(t, "sim-0"), time.Since(t0)
		switch {
		case v.Down == last || v.Down == "":
		case f.said == "":
			f.said, f.saidAfter, f.why = v.Down, since, v.Reason
		default:
			f.also = append(f.also, v.Down)
		}
		last = v.Down
		moved := true
		for _, q := range waits.all {
			moved = moved && q.done.Load()
		}
		settled := f.said != "" && since > f.saidAfter+watchedOn && (moved || f.said == "hung" && !f.dead)
		return since > watchedLeast && settled || since > most
	})
}

// conclude waits for all answers, after the end of what befell sim-0, and reads
// from the router's records where requests have been.
func (r *serving) conclude(t *testing.T, f *findings, t0, end time.Time, waits, comes *crowd) {
	t.Helper()
	for _, q := range waits.all {
		if q.leave != nil && !q.done.Load() {
			q.leave()
			f.left++
		}
	}
	waits.under.Wait()
	comes.under.Wait()
	for i, q := range append(append([]*asked(nil), waits.all...), comes.all...) {
		if errors.Is(q.answer.err, context.Canceled) {
			continue
		}
		if q.answer.err != nil || q.answer.status != http.StatusOK {
			f.failed++
		}
		rec := r.record(t, q.id)
		if len(rec.Tries) == 0 || rec.Tries[0].Node != "sim-0" {
			continue
		}
		if i >= len(waits.all) && rec.At.Before(end) {
			f.avoided = max(f.avoided, rec.At.Sub(t0))
		}
		switch {
		case q.at.Before(t0): // it was there before
		case !q.begun.IsZero() && q.begun.Before(t0): // its client had some of it
		case q.at.After(end) && rec.At.Before(end):
			f.kept++
		case q.answer.node() != "sim-0" && q.at.Before(end):
			f.moved, f.others = max(f.moved, q.at.Sub(t0)), f.others+1
		}
	}
}
