package kvevent

import (
	"time"

	"github.com/cespare/xxhash/v2"
)

// The times of a Stream.
const (
	staleAfter  = 15 * time.Second       // of being gapped; push reports have the same
	firstProbe  = 2 * time.Second        // after a connection: what the engine sent while the subscription was on its way is lost
	probeEvery  = 30 * time.Second       // of silence
	busyRetry   = 10 * time.Millisecond  // while the consumer has no room
	replayRetry = 500 * time.Millisecond // after a replay failed; doubled each time
	replayPause = 30 * time.Second       // at most
	resyncEvery = 30 * time.Second       // a resync costs a whole replay
)

// replayTries is how many replays in a row may fail before what comes next is
// taken as it is.
const replayTries = 3

// provenBy is the number from which on a batch that comes next after a lost
// connection is taken for a proof that the process is the same, where no replay
// can tell. One that was just started could have reached a smaller number.
const provenBy = 32

// Bounds of what is held while a replay runs or the consumer has no room.
const (
	maxHeld      = 4096
	maxHeldBytes = 64 << 20
)

// Outlet is what a Stream acts through. No method may block.
type Outlet interface {
	// Apply hands over a batch; false means that there is no room and that it
	// was not taken. The payload is borrowed.
	Apply(seq uint64, payload []byte) bool
	// Clear says that all of the rank's blocks are to be forgotten. False is as
	// for Apply.
	Clear() bool
	// Trust says that the trust has changed. False is as for Apply.
	Trust(t Trust) bool
	// Replay asks for all batches from a sequence number on. Replayed,
	// ReplayEnded or ReplayFailed follow. A request replaces the one before.
	Replay(from uint64)
}

// Stream decides what one rank's sequence numbers mean: which batches are
// applied, when a replay is asked for, when all is to be forgotten, and how far
// the result is to be trusted. It is pure: times are handed in (any clock), what
// is to be done goes out through an Outlet.
//
// Sequence numbers begin at 0 (the llm-d simulator: 1) with each engine process
// and grow by one. A publisher drops silently when a subscriber is slow or not
// there yet, so a gap is the only sign of a loss. A number that went back is
// another process. A replay, where there is one, fills gaps, shows what a
// reconnected stream has missed, and proves by the last batch (which the
// engine sends again, byte by byte) that the engine is still the same one.
type Stream struct {
	out       Outlet
	canReplay bool
	status    Status
	told      Trust // what the Outlet knows

	started bool   // status.Next is known
	dirty   bool   // something was applied since all was forgotten
	clear   bool   // a Clear that had no room yet
	hasLast bool   // last is the hash of batch status.Next-1
	last    uint64 // of its payload
	inGap   bool   // the gap in hand is counted
	doubted bool   // the engine of this connection may be another process

	sawLive bool   // on this connection
	first   uint64 // sequence number of it
	live    uint64 // last one
	covered uint64 // batches before it came by a replay, and may come again

	held       []heldBatch // in order; live batches that wait
	heldBytes  int
	mostHeld   int
	overflowed bool // batches behind them are lost

	awaiting       bool          // what the stream goes on from is still to come …
	unfit          bool          // … and will not fit: the engine may have restarted
	inherited      uint64        // batches before it were applied by another process …
	inheritedUntil time.Duration // … and may come here too, until then

	ask      request
	answered bool // a replay has ever sent a batch
	failures int  // of replays, in a row

	gappedAt, heardAt, askAt, resyncAt time.Duration
	probeIn                            time.Duration
}

type heldBatch struct {
	seq     uint64
	payload []byte
}

// request is the last replay that was asked for.
type request struct {
	active   bool
	proof    bool // begins with the batch that is known already …
	sum      uint64
	from     uint64
	replies  int
	progress bool
	hole     bool // something is missing in the answer itself
}

// NewStream returns a Stream of which nothing is known. canReplay says that
// Outlet.Replay leads somewhere.
func NewStream(out Outlet, canReplay bool) *Stream {
	return &Stream{out: out, canReplay: canReplay, mostHeld: maxHeld, askAt: never, resyncAt: -resyncEvery, probeIn: firstProbe}
}

const never time.Duration = 1<<63 - 1

// Status is a copy of the state.
func (s *Stream) Status() Status {
	status := s.status
	status.Heard, status.First = status.Connected && s.sawLive, s.first
	return status
}

// Connected says that the event socket reached its engine, for the first time
// or again.
func (s *Stream) Connected(now time.Duration) {
	s.status.Connected, s.sawLive, s.covered, s.inherited, s.failures = true, false, 0, 0, 0
	s.heardAt, s.probeIn, s.doubted = now, firstProbe, s.dirty
	if s.canReplay && !s.awaiting {
		s.request(s.hasLast)
	}
	s.settle()
}

// Lost says that the connection ended.
func (s *Stream) Lost(now time.Duration) {
	s.status.Connected, s.ask.active, s.askAt = false, false, never
	s.drop() // what comes next is perhaps of another process
	s.unfit = s.awaiting
	s.distrust(now)
	s.settle()
}

// Live takes a batch from the event socket. The payload is borrowed.
func (s *Stream) Live(now time.Duration, seq uint64, payload []byte) {
	s.heardAt, s.probeIn = now, probeEvery
	if s.sawLive && seq < s.live {
		s.drop()
		if s.unfit = s.awaiting; !s.unfit {
			s.restarted(now)
		}
	}
	if !s.sawLive {
		s.first = seq
	}
	s.sawLive, s.live = true, seq
	if len(s.held) > 0 || s.waiting() || !s.take(now, seq, payload) {
		s.hold(now, seq, payload)
	}
	s.settle()
}

// waiting reports whether live batches have to wait for a replay. They do not
// wait for a probe, nor for a replay that fails again and again. All wait for
// what the stream goes on from.
func (s *Stream) waiting() bool {
	return s.awaiting || s.status.Trust != Live && (s.ask.active || s.askAt != never && s.failures < replayTries)
}

// Replayed takes a batch of the answer to the last Outlet.Replay. It reports
// false if there is no room for it yet: it is to be offered again, for the next
// one would leave a hole. The payload is borrowed.
func (s *Stream) Replayed(now time.Duration, seq uint64, payload []byte) (taken bool) {
	if !s.ask.active {
		return true
	}
	defer s.settle()
	first := s.ask.replies == 0
	s.ask.replies++
	s.answered = true
	if first && !s.begin(now, seq, payload) {
		return true
	}
	switch {
	case s.ask.hole || seq < s.status.Next:
		return true
	case seq > s.status.Next:
		s.ask.hole = true
		return true
	case !s.apply(seq, payload):
		return false
	}
	s.ask.progress, s.covered = true, s.status.Next
	return true
}

// begin judges the first batch of an answer. It reports whether the answer is
// of use.
func (s *Stream) begin(now time.Duration, seq uint64, payload []byte) bool {
	switch {
	case !s.started:
		s.startAt(seq)
	case seq > s.ask.from && seq > s.status.Next:
		s.skipTo(seq) // the engine has forgotten what is missing here
	case seq > s.ask.from && seq < s.status.Next:
		// A probe, overtaken by live batches.
	case s.ask.proof && (seq != s.ask.from || xxhash.Sum64(payload) != s.ask.sum):
		s.restarted(now)
		return false
	}
	return true
}

// ReplayEnded says that the answer is complete.
func (s *Stream) ReplayEnded(now time.Duration) {
	if !s.ask.active {
		return
	}
	s.ask.active = false
	s.failures = 0
	switch {
	case s.ask.hole && s.ask.progress:
		s.request(false)
	case s.ask.hole:
		s.askAt = now + replayRetry
	case s.ask.proof && s.ask.replies == 0:
		s.restarted(now) // it has neither the last batch nor any later one
	default:
		if !s.started {
			s.startAt(0) // the engine has not published yet
		}
		s.status.Trust, s.doubted = Live, false
		s.drain(now, s.ask.replies == 0)
	}
	s.settle()
}

// ReplayFailed says that no complete answer came.
func (s *Stream) ReplayFailed(now time.Duration) {
	if !s.ask.active {
		return
	}
	s.ask.active = false
	s.failures++
	if s.failures >= replayTries {
		s.drain(now, true)
	}
	if s.status.Trust != Live || s.failures >= replayTries {
		s.askAt = now + min(replayRetry<<min(s.failures-1, 10), replayPause)
	}
	s.settle()
}

// Resync forgets the rank's blocks and asks for all of them again, at most
// every 30 s. Without a replay it does nothing: an engine does not tell again
// of blocks that it uses every day.
func (s *Stream) Resync(now time.Duration) {
	if !s.canReplay || now-s.resyncAt < resyncEvery {
		return
	}
	s.resyncAt = now
	s.forget()
	s.distrust(now)
	if s.status.Connected {
		s.request(false)
	}
	s.settle()
}

// Tick does what time has come for, and returns when it wants to be called
// again at the latest.
func (s *Stream) Tick(now time.Duration) (next time.Duration) {
	if now >= s.askAt && !s.ask.active {
		s.request(s.ask.proof && s.hasLast)
	}
	if len(s.held) > 0 && !s.waiting() {
		s.drain(now, false)
	}
	if s.status.Trust == Gapped && now-s.gappedAt >= staleAfter {
		s.status.Trust = Stale
	}
	if s.probes() && now-s.heardAt >= s.probeIn {
		s.heardAt, s.probeIn = now, probeEvery
		s.request(s.hasLast)
	}
	s.settle()
	return s.wake(now)
}

// probes reports whether silence is to be tested: only of an engine whose
// replay has shown that it keeps batches, else the lack of the last one would
// be taken for a restart.
func (s *Stream) probes() bool {
	return s.canReplay && s.status.Connected && s.status.Trust == Live && !s.ask.active && (s.answered || !s.hasLast)
}

// wake is when Tick has something to do.
func (s *Stream) wake(now time.Duration) time.Duration {
	next := s.askAt
	if s.clear || s.told != s.status.Trust || len(s.held) > 0 && !s.waiting() {
		next = min(next, now+busyRetry)
	}
	if s.status.Trust == Gapped {
		next = min(next, s.gappedAt+staleAfter)
	}
	if s.probes() {
		next = min(next, s.heardAt+s.probeIn)
	}
	return next
}
