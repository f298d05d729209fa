package dataplane

import (
	"sync/atomic"
	"time"

	"warmpath/dataplane/backend"
	"warmpath/dataplane/eventloop"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/flow"
	"warmpath/dataplane/policy"
	"warmpath/dataplane/prefix"
)

// loop is one event loop and all that it owns. Fields are loop-owned unless
// their group says otherwise.
type loop struct {
	d     *Dataplane
	el    *eventloop.Loop
	share *flow.Share // slots for its connections to nodes

	// shared: typed atomics
	clients atomic.Int64 // connections given to this loop and not closed
	ticking atomic.Bool  // a tick waits in the loop's queue
	routed  atomic.Bool  // requests, since Refresh was last called
	notes   NoteRing

	now    int64 // ns since d.started, read once a callback
	wheel  wheel
	pool   backend.Pool
	live   backend.Live
	info   info // scratch of measure.go
	dialer backend.Dialer

	in            []byte       // what one read brings
	open          clientList   // clients, for draining
	idle          []*exchange  // free list
	buffers       buffers      // for bodies
	identities    []*identity  // free list
	identityBytes int          // of what is in it
	identifying   int          // identities in use
	withWorkers   int          // of them, waiting for a worker or with one
	evidenceBytes int          // of bodies kept by exchanges that are settled
	out           []byte       // scratch of one write
	source        []byte       // scratch of X-Forwarded-For
	rankField     []byte       // scratch of putRank
	slow          int          // nodes' connections that are paused for their clients
	pauses        uint64       // … ever
	leading       []uint32     // scratch of reporterIDs
	view          *view        // what depends on snapshot and settings alone
	match         matchScratch // of one decision
	overlay       overlay
	cursor        uint64 // decisions made; for round_robin
	random        uint64 // state of the generator
	ids           idSource
	tally         loopTally
	census        census
	records       recordRing
	answers       answerCache
	parking       parking
}

// matchScratch is the input of one decision. Slices have a place a slot.
type matchScratch struct {
	units   []uint32 // held, in units
	walked  []uint32 // … of those, what the index knows
	credits []uint32 // what they are worth, in quarters of a unit
	rank    []int16  // the best rank
	// considered has, by slot, the number of the latest decision that it was a candidate of.
	considered []uint64

	decision policy.Decision // the latest, with all its candidates

	match  policy.Match
	loads  policy.Loads
	inputs policy.Inputs
	prefix prefix.Scratch
	tail   prefix.Tail
}

func newLoop(d *Dataplane, el *eventloop.Loop) *loop {
	l := &loop{d: d, el: el, in: make([]byte, readBufferBytes)}
	l.notes.bell = d.bell
	l.now = d.nowNs()
	l.wheel.init(l.now)
	l.random = uint64(time.Now().UnixNano())*2 + 1
	l.view = &view{snap: &fleet.Snapshot{}}
	l.ids.init()
	l.records.init(max(d.opt.Decisions/max(d.opt.Loops, 1), 1))
	l.tally.init()
	l.share = d.opt.Flow.Share(len(d.loops), d.opt.Loops)
	if d.opt.Time {
		l.share.Time()
	}
	l.dialer = backend.Dialer{Loop: el, Failed: l.dialFailed, Made: l.socketMade}
	return l
}

func resize[T any](s []T, n int) []T {
	if n <= cap(s) {
		return s[:n]
	}
	return make([]T, n)
}

// nextRandom is xorshift64* (Vigna, 2016): enough for tie-breaks and two choices.
func (l *loop) nextRandom() uint64 {
	x := l.random
	x ^= x >> 12
	x ^= x << 25
	x ^= x >> 27
	l.random = x
	return x * 2685821657736338717
}

// wakeForTick asks the loop to run its tick, unless one waits already.
func (l *loop) wakeForTick() {
	if l.ticking.Swap(true) {
		return
	}
	_ = l.el.Execute(func() {
		l.ticking.Store(false)
		l.now = l.d.nowNs()
		l.onTick()
	})
}

func (l *loop) onTick() {
	l.wheel.advance(l.now)
	set := l.d.settings.Load()
	if set.IdleNodeNs > 0 {
		l.pool.Expire(l.now-set.IdleNodeNs, l.closeNode)
	}
	l.shedReaders(set)
	l.tickParked()
	l.takeStock()
}
