package dataplane

import "sync"

// sliceNs is how much work on one prompt a worker does before others have a
// turn, so that one that takes seconds holds up nobody for so long.
const sliceNs = 5_000_000

// work does a slice of an identity's job, on a worker, and reports whether it
// is done.
func (id *identity) work() (done bool) {
	if id.job == jobFinish {
		id.finish(sliceNs, true)
		return id.walk.Complete()
	}
	if id.vain.Load() {
		return true
	}
	id.advance(sliceNs, true)
	return id.matched
}

// workers do what is too long for a turn of a loop. They hold no request: one
// whose client has left is done in vain, and bounded like any other.
type workers struct {
	queue   chan queuedWork
	stopped <-chan struct{}
	running sync.WaitGroup
}

type queuedWork struct {
	l  *loop
	id *identity
}

// workQueue bounds what waits for a worker. A decision that finds it full is
// made by the text of its prompt instead, so that nobody waits for long.
const workQueue = 256

func (w *workers) start(count int, stopped <-chan struct{}) {
	w.queue, w.stopped = make(chan queuedWork, workQueue), stopped
	for range count {
		w.running.Go(func() {
			for {
				select {
				case q := <-w.queue:
					w.work(q)
				case <-stopped:
					return
				}
			}
		})
	}
}

// work goes on with an identity until it is done, or until there are others in
// the queue that have waited while it had its slice. When the loops have ended
// nobody waits any more.
func (w *workers) work(q queuedWork) {
	for !q.id.work() {
		select {
		case <-w.stopped:
			return
		default:
		}
		if len(w.queue) == 0 {
			continue
		}
		select {
		case w.queue <- q:
			return
		default: // full: nobody can be let in before
		}
	}
	q.l.give(q.id)
}

// hand gives an identity to a worker, false if too much waits.
func (l *loop) hand(id *identity, what job) bool {
	id.out, id.job = true, what
	select {
	case l.d.workers.queue <- queuedWork{l, id}:
		l.withWorkers++
		l.el.Yield()
		return true
	default:
		id.out = false
		l.tally.workFull++
		return false
	}
}

// give brings an identity back to its loop. It runs on a worker.
func (l *loop) give(id *identity) {
	_ = l.el.Execute(func() {
		l.now = l.d.nowNs()
		l.identified(id)
	})
}

// identified runs on the loop when a worker is done.
func (l *loop) identified(id *identity) {
	id.out = false
	l.withWorkers--
	x := id.x
	switch {
	case x != nil && id.job == jobMatch:
		l.route(x) // which may drop it, and even give it to another request
	case x != nil:
		l.noteRest(x)
		l.settleBegun(x)
	default: // its request has ended
		if id.job == jobFinish && id.usage > 0 {
			l.judge(id.spoken, int64(id.walk.Count()), id.usage)
		}
		l.freeIdentity(id)
	}
}

// identifyLate routes x by its text: a worker has had its prompt for too long.
func (l *loop) identifyLate(x *exchange) {
	x.late, x.inexact = true, "its tokens were not known in time"
	l.tally.workFull++
	l.dropIdentity(x)
	l.route(x)
}
