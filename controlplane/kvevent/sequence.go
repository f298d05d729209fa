package kvevent

import (
	"time"

	"github.com/cespare/xxhash/v2"
)

// take handles a live batch whose turn it is. It reports whether the batch is
// dealt with; else it has to be held.
func (s *Stream) take(now time.Duration, seq uint64, payload []byte) bool {
	switch {
	case !s.started:
		s.startAt(seq)
	case seq < s.covered || seq < s.inherited && now < s.inheritedUntil:
		return true // a replay has brought it already, or another process had it
	case seq < s.status.Next || s.doubted && seq == s.status.Next && seq < provenBy:
		s.restarted(now)
		if s.waiting() {
			return false
		}
		s.startAt(seq)
	case seq > s.status.Next:
		s.gap(now)
		if s.canReplay && s.failures < replayTries {
			s.request(false)
			return false
		}
		s.skipTo(seq)
	}
	if !s.apply(seq, payload) {
		return false
	}
	s.status.Trust, s.inGap, s.doubted = Live, false, false
	return true
}

// drain takes what is held, in order, as far as it goes. exhausted says that
// no replay can fill a gap in front of it.
func (s *Stream) drain(now time.Duration, exhausted bool) {
	done := 0
	for _, h := range s.held {
		if exhausted && s.started && h.seq > s.status.Next {
			s.gap(now)
			s.skipTo(h.seq)
		}
		if !s.take(now, h.seq, h.payload) {
			break
		}
		s.heldBytes -= len(h.payload)
		done++
	}
	if s.held = s.held[done:]; len(s.held) > 0 {
		return
	}
	s.held = nil // else the array would creep through memory
	if s.overflowed {
		s.overflowed = false
		s.gap(now)
		if s.canReplay && s.failures < replayTries {
			s.request(false)
		}
	}
}

// drop gives up what is held.
func (s *Stream) drop() { s.held, s.heldBytes, s.overflowed = nil, 0, false }

// hold keeps a live batch for later. One for which there is no room is lost: a
// gap, when its turn comes.
func (s *Stream) hold(now time.Duration, seq uint64, payload []byte) {
	if len(s.held) >= s.mostHeld || s.heldBytes+len(payload) > maxHeldBytes {
		s.status.Overflows++
		s.overflowed = true
		s.distrust(now)
		return
	}
	s.held = append(s.held, heldBatch{seq, append([]byte(nil), payload...)})
	s.heldBytes += len(payload)
}

// apply hands a batch over and counts on.
func (s *Stream) apply(seq uint64, payload []byte) bool {
	if !s.flush() || !s.out.Apply(seq, payload) {
		return false
	}
	s.dirty, s.hasLast, s.last = true, true, xxhash.Sum64(payload)
	s.status.Next = seq + 1
	s.status.Batches++
	return true
}

// startAt begins to count, with nothing known.
func (s *Stream) startAt(seq uint64) {
	s.started, s.hasLast = true, false
	s.status.Next, s.status.From = seq, seq
}

// gap counts a run of missing batches, once.
func (s *Stream) gap(now time.Duration) {
	if !s.inGap {
		s.inGap = true
		s.status.Gaps++
	}
	s.distrust(now)
}

// skipTo gives up what is missing before seq, and with it all that was told.
func (s *Stream) skipTo(seq uint64) {
	if s.dirty {
		s.status.Lost++
	}
	s.forget()
	s.startAt(seq)
}

// forget drops all that was told.
func (s *Stream) forget() {
	s.clear = s.clear || s.dirty
	s.started, s.dirty, s.hasLast, s.doubted, s.covered, s.inherited = false, false, false, false, 0, 0
	s.status.Next, s.status.From = 0, 0
	s.flush()
}

// flush sends a Clear that waits, and reports whether none waits any more.
func (s *Stream) flush() bool {
	if s.clear && s.out.Clear() {
		s.clear = false
	}
	return !s.clear
}

// restarted begins anew with another engine process.
func (s *Stream) restarted(now time.Duration) {
	s.status.Restarts++
	s.forget()
	if s.canReplay && s.failures < replayTries {
		s.distrust(now)
		s.request(false)
	}
}

// request asks for a replay: of what is missing or, as a proof, from the last
// batch that is known.
func (s *Stream) request(proof bool) {
	s.ask = request{active: true, proof: proof, sum: s.last, from: s.status.Next}
	if proof {
		s.ask.from--
	}
	s.askAt = never
	s.status.Replays++
	s.out.Replay(s.ask.from)
}

// distrust begins to be gapped. A stream that was never live stays cold.
func (s *Stream) distrust(now time.Duration) {
	if s.status.Trust == Live {
		s.status.Trust, s.gappedAt = Gapped, now
	}
}

// settle tells the Outlet what it does not know yet. The order matters: a
// stream is not live again before what was wrong is forgotten.
func (s *Stream) settle() {
	if s.flush() && s.told != s.status.Trust && s.out.Trust(s.status.Trust) {
		s.told = s.status.Trust
	}
}
