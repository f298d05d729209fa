package kvevent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"warmpath/controlplane/kvevent/zmtp"
)

// endOfReplay is the sequence number of the message that ends an answer: −1.
const endOfReplay = ^uint64(0)

var errSuperseded = errors.New("another replay is wanted")

// replays asks for what the stream wants to have again, one after the other.
func (s *Subscriber) replays(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-s.asks:
			err := s.replay(a)
			if ctx.Err() != nil {
				return
			}
			s.replayed(a, err)
		}
	}
}

// replayed tells the stream how an answer ended.
func (s *Subscriber) replayed(a wanted, err error) {
	s.mu.Lock()
	defer s.unlock()
	if a.number != s.asked {
		return
	}
	s.replyErr = err
	if err != nil {
		s.stream.ReplayFailed(s.now())
	} else {
		s.stream.ReplayEnded(s.now())
	}
}

// replay asks for all batches from a number on and hands them to the stream.
// The question is an empty frame and the number; each answer an empty frame,
// the topic (vLLM since 2026; SGLang 0.5.23), the number, the payload; at the
// end comes number −1.
func (s *Subscriber) replay(a wanted) error {
	conn, err := zmtp.Dial(a.ctx, s.source.Replay, s.options(zmtp.Dealer))
	if err != nil {
		return fmt.Errorf("dial replay: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(a.ctx, func() { _ = conn.Close() })()
	if err := conn.Send(nil, binary.BigEndian.AppendUint64(nil, a.from)); err != nil {
		return fmt.Errorf("ask for replay: %w", err)
	}
	for {
		if err := conn.SetReadDeadline(time.Now().Add(replayTimeout)); err != nil {
			return err
		}
		frames, err := conn.Recv()
		if err != nil {
			return fmt.Errorf("receive replay: %w", err)
		}
		seq, payload, ok := lastTwo(frames)
		switch {
		case !ok:
			return fmt.Errorf("receive replay: message of %d frames is no batch", len(frames))
		case seq == endOfReplay:
			return nil
		}
		if err := s.again(a, seq, payload); err != nil {
			return err
		}
	}
}

// again takes one batch of an answer, as soon as there is room for it. Meanwhile
// the engine's answer waits in the network; what it drops then is a hole, and
// asked for again.
func (s *Subscriber) again(a wanted, seq uint64, payload []byte) error {
	for {
		taken, err := s.offer(a, seq, payload)
		if taken || err != nil {
			return err
		}
		select {
		case <-a.ctx.Done():
			return a.ctx.Err()
		case <-time.After(busyRetry):
		}
	}
}

func (s *Subscriber) offer(a wanted, seq uint64, payload []byte) (taken bool, err error) {
	s.mu.Lock()
	defer s.unlock()
	if a.number != s.asked {
		return false, errSuperseded
	}
	return s.stream.Replayed(s.now(), seq, payload), nil
}
