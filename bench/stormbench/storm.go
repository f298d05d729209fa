package stormbench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"warmpath/controlplane/indexer"
	"warmpath/controlplane/kvevent"
)

const (
	// busyRetry is how long a subscriber waits when the indexer has no room
	// (controlplane/kvevent).
	busyRetry = 10 * time.Millisecond
	// poolBatches is how many decoded batches a stream may have on their way.
	poolBatches = 64
)

// storm is the events of all nodes. Its counters are for any goroutine.
type storm struct {
	indexer  *indexer.Indexer
	payloads [][]byte
	// conversations is how many times the payloads come, with other tokens each
	// time, before a node starts anew: how much it holds.
	conversations int

	restarts, batches, blocks, refused atomic.Uint64
}

// stream is the events of one node.
type stream struct {
	*storm
	slot    int
	tracker *kvevent.Tracker // the indexer's goroutine's
	decoder kvevent.Decoder
	free    chan *kvevent.Batch
}

// run lets all nodes of a fleet storm until ctx ends, and returns when nothing
// of theirs is on its way any more.
func (s *storm) run(ctx context.Context, trackers []*kvevent.Tracker) {
	var running sync.WaitGroup
	for slot, tracker := range trackers {
		st := &stream{storm: s, slot: slot, tracker: tracker, free: make(chan *kvevent.Batch, poolBatches)}
		for range poolBatches {
			st.free <- new(kvevent.Batch)
		}
		running.Go(func() { st.run(ctx) })
	}
	running.Wait()
}

func (s *stream) run(ctx context.Context) {
	for restart := 0; ctx.Err() == nil; restart++ {
		s.restarts.Add(1)
		s.deliver(ctx, nil)
		for conversation := range s.conversations {
			vary := mix(uint64(s.slot)<<40 | uint64(restart)<<20 | uint64(conversation))
			for _, payload := range s.payloads {
				if ctx.Err() != nil {
					break
				}
				s.report(ctx, payload, vary)
			}
		}
	}
	for range poolBatches { // all are back: the indexer has applied everything
		<-s.free
	}
}

// report decodes a payload and delivers it.
func (s *stream) report(ctx context.Context, payload []byte, vary uint64) {
	b := <-s.free
	if err := s.decoder.DecodeInto(b, payload); err != nil {
		panic("BUG: stormbench: a payload that was read before: " + err.Error())
	}
	for i := range b.Events {
		e := &b.Events[i]
		e.Parent = mix(e.Parent ^ vary)
		for k := range e.Hashes {
			e.Hashes[k] = mix(e.Hashes[k] ^ vary)
		}
		for k := range e.Tokens {
			e.Tokens[k] = uint32(mix(uint64(e.Tokens[k])^vary) % 150_000)
		}
		s.blocks.Add(uint64(len(e.Hashes)))
	}
	s.deliver(ctx, b)
}

// deliver hands a batch, or with none the news of a restart, to the indexer, as
// controlplane/streams.go does, and tries again while there is no room.
func (s *stream) deliver(ctx context.Context, b *kvevent.Batch) {
	for !s.indexer.Try(s.slot, generation, func(tenant bool) {
		switch {
		case !tenant:
		case b == nil:
			s.tracker.Clear()
		default:
			s.tracker.Apply(b)
		}
		if b != nil {
			s.free <- b
		}
	}) {
		s.refused.Add(1)
		select {
		case <-ctx.Done():
			if b != nil {
				s.free <- b
			}
			return
		case <-time.After(busyRetry):
		}
	}
	s.batches.Add(1)
}

// mix is SplitMix64's output function.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
