package kvevent

import (
	"context"
	"time"
)

// Saved is what another process needs of one rank's stream in order to go on
// with it, besides what the index holds of the rank.
type Saved struct {
	Next uint64 `json:"next"` // as Status has it, like the next two
	From uint64 `json:"from"`
	Lost uint64 `json:"lost"`
	Live bool   `json:"live"`
	// Last is the hash of batch Next-1, if HasLast.
	Last    uint64 `json:"last"`
	HasLast bool   `json:"has_last"`
	// Of the Tracker.
	Group       int    `json:"group"`
	BlockTokens int    `json:"block_tokens"`
	Orphans     uint64 `json:"orphans"`
}

// overlap is how long two connections to one engine may be apart in what they
// have brought.
const overlap = 500 * time.Millisecond

const pauseLook = 2 * time.Millisecond // of Pause

// Save returns where the stream is; false if there is nothing to go on from.
// The caller adds what the Tracker knows.
func (s *Stream) Save() (saved Saved, ok bool) {
	if !s.started || !s.dirty || s.clear || s.awaiting {
		return Saved{}, false
	}
	return Saved{
		Next: s.status.Next, From: s.status.From, Lost: s.status.Lost, Live: s.status.Trust == Live,
		Last: s.last, HasLast: s.hasLast,
	}, true
}

// Resume ends the wait for what the stream goes on from: the index holds what
// was told before batch Next. It reports false if it cannot go on from there,
// because the engine may be another process by now; then Begin is to be called,
// and the index must not hold any of it.
//
// What was kept meanwhile is taken from Next on. If the connection was there all
// the time, nothing can be missing that would not show, so a stream that was
// live is live; a replay, where there is one, proves it, and fills what is
// missing.
func (s *Stream) Resume(now time.Duration, from Saved) (ok bool) {
	if !s.awaiting || s.unfit || from.Next == 0 || from.From > from.Next {
		return false
	}
	s.awaiting = false
	s.started, s.dirty, s.doubted = true, true, !s.canReplay
	s.hasLast, s.last = from.HasLast, from.Last
	s.status.Next, s.status.From, s.status.Lost = from.Next, from.From, from.Lost
	s.inherited, s.inheritedUntil = from.Next, now+overlap
	s.status.Trust, s.gappedAt = Gapped, now
	if from.Live && s.status.Connected {
		s.status.Trust = Live
	}
	s.goOn(now)
	return true
}

// Begin ends the wait for what the stream goes on from: there is nothing.
func (s *Stream) Begin(now time.Duration) {
	if s.awaiting {
		s.awaiting, s.unfit = false, false
		s.goOn(now)
	}
}

// goOn takes what was kept, or asks for what was before it.
func (s *Stream) goOn(now time.Duration) {
	if s.canReplay && s.status.Connected {
		s.request(s.hasLast)
	}
	if !s.waiting() {
		s.drain(now, false)
	}
	s.settle()
}

// Pause stops deliveries, so that what was delivered and what Save returns are
// of one moment. Batches are kept until Unpause. It waits until the batches
// before first were delivered, which whoever goes on has not heard, or ctx ends.
func (s *Subscriber) Pause(ctx context.Context, first uint64) {
	look := time.NewTicker(pauseLook)
	defer look.Stop()
	for !s.pauseAt(first, ctx.Err() != nil) {
		select {
		case <-ctx.Done():
		case <-look.C:
		}
	}
}

func (s *Subscriber) pauseAt(first uint64, anyway bool) bool {
	s.mu.Lock()
	defer s.unlock()
	s.paused = anyway || s.stream.status.Next >= first
	return s.paused
}

// Unpause ends a Pause.
func (s *Subscriber) Unpause() {
	s.mu.Lock()
	defer s.unlock()
	s.paused = false
}

// Save is Stream.Save. Pause before.
func (s *Subscriber) Save() (saved Saved, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stream.Save()
}

// Resume is Stream.Resume.
func (s *Subscriber) Resume(from Saved) (ok bool) {
	s.mu.Lock()
	defer s.unlock()
	return s.stream.Resume(s.now(), from)
}

// Begin is Stream.Begin. It does nothing if the stream has begun.
func (s *Subscriber) Begin() {
	s.mu.Lock()
	defer s.unlock()
	s.stream.Begin(s.now())
}
