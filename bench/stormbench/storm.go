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
	// poolPayloads is how many payloads a stream may have on their way.
	poolPayloads = 64
)

// storm is the events of all nodes. Its counters are for any goroutine.
type storm struct {
	indexer  *indexer.Indexer
	payloads [][]byte
	// conversations is how many times the payloads come, with other tokens each
	// time, before a node starts anew: how much it holds.
	conversations int

	decoder kvevent.Decoder // the indexer's goroutine's

	restarts, batches, blocks, refused atomic.Uint64
}

// stream is the events of one node.
type stream struct {
	*storm
	slot    int
	tracker *kvevent.Tracker // the indexer's goroutine's
	free    chan []byte
}

// run lets all nodes of a fleet storm until ctx ends, and returns when nothing
// of theirs is on its way any more.
func (s *storm) run(ctx context.Context, trackers []*kvevent.Tracker) {
	var running sync.WaitGroup
	for slot, tracker := range trackers {
		st := &stream{storm: s, slot: slot, tracker: tracker, free: make(chan []byte, poolPayloads)}
		for range poolPayloads {
			st.free <- nil
		}
		running.Go(func() { st.run(ctx) })
	}
	running.Wait()
}

func (s *stream) run(ctx context.Context) {
	for restart := 0; ctx.Err() == nil; restart++ {
		s.restarts.Add(1)
		s.deliver(ctx, nil, 0)
		for conversation := range s.conversations {
			vary := mix(uint64(s.slot)<<40 | uint64(restart)<<20 | uint64(conversation))
			for _, payload := range s.payloads {
				if ctx.Err() != nil {
					break
				}
				own := append((<-s.free)[:0], payload...)
				s.deliver(ctx, own, vary)
			}
		}
	}
	for range poolPayloads { // all are back: the indexer has applied everything
		<-s.free
	}
}

// deliver hands a payload, or with none the news of a restart, to the indexer, as
// controlplane/streams.go does, and tries again while there is no room.
func (s *stream) deliver(ctx context.Context, payload []byte, vary uint64) {
	for !s.indexer.Try(s.slot, generation, func(tenant bool) {
		switch {
		case !tenant:
		case payload == nil:
			s.tracker.Clear()
		default:
			s.tracker.Apply(s.decode(payload, vary))
		}
		if payload != nil {
			s.free <- payload
		}
	}) {
		s.refused.Add(1)
		select {
		case <-ctx.Done():
			if payload != nil {
				s.free <- payload
			}
			return
		case <-time.After(busyRetry):
		}
	}
	s.batches.Add(1)
}

// decode makes a batch of a payload, with other blocks each time.
func (s *storm) decode(payload []byte, vary uint64) *kvevent.Batch {
	b := kvevent.Delivery{Payload: payload}.Decode(&s.decoder)
	if b == nil {
		panic("BUG: stormbench: a payload that was read before")
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
	return b
}

// mix is SplitMix64's output function.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
