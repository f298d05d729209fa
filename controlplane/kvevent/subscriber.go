package kvevent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"warmpath/controlplane/kvevent/zmtp"
)

const (
	maxMessageBytes  = 32 << 20 // of a batch; 128k tokens take about 1 MiB
	handshakeTimeout = 5 * time.Second
	replayTimeout    = 5 * time.Second // for each message of a replay
	backoffFirst     = 100 * time.Millisecond
	backoffMost      = 5 * time.Second
	maxPublishers    = 64 // connections to one listening endpoint
)

// Subscriber follows the events of one rank: it keeps the connection, puts in
// order, and delivers. It has a few goroutines while Run runs, and
// a lock that they share; whoever owns the index applies what is delivered.
type Subscriber struct {
	source  Source
	deliver func(Delivery) bool
	started time.Time
	free    chan []byte   // payloads
	asks    chan wanted   // the replay that is wanted; the last one counts
	poke    chan struct{} // the timer must be set anew

	mu       sync.Mutex
	stream   *Stream
	paused   bool // nothing is delivered
	wakeAt   time.Duration
	cancel   context.CancelFunc // of the replay in hand
	asked    uint64             // replays, to tell late answers from wanted ones
	conns    uint64             // connections so far; each has its number
	current  uint64             // the connection that the stream follows, 0 = none
	rejected uint64
	subErr   error
	replyErr error

	refused refusals
}

// refusals are the payloads that are no batches. They have a lock of their own:
// a receiver may decode within the call that delivers.
type refusals struct {
	mu    sync.Mutex
	count uint64
	last  error
}

// forgive forgets why the last one was refused: it was another connection's.
func (s *Subscriber) forgive() {
	s.refused.mu.Lock()
	defer s.refused.mu.Unlock()
	s.refused.last = nil
}

// refuse counts a payload that is no batch. It is passed over: to ask for it
// again would bring the same bytes.
func (s *Subscriber) refuse(err error) {
	s.refused.mu.Lock()
	defer s.refused.mu.Unlock()
	s.refused.count++
	s.refused.last = err
}

type wanted struct {
	from   uint64
	number uint64
	ctx    context.Context
}

// NewSubscriber checks the source. deliver is called with each step, one at a
// time, from any goroutine; it must neither block nor call the Subscriber, and
// returns false when it has no room: then the step is offered again, and what
// cannot be kept meanwhile is asked for again from the engine.
func NewSubscriber(source Source, deliver func(Delivery) bool) (*Subscriber, error) {
	source, err := source.ranked()
	if err != nil {
		return nil, err
	}
	s := &Subscriber{
		source: source, deliver: deliver, started: time.Now(), wakeAt: never,
		free: make(chan []byte, poolPayloads), asks: make(chan wanted, 1), poke: make(chan struct{}, 1),
	}
	s.stream = NewStream(outlet{s}, source.Replay != "")
	s.stream.awaiting = source.Awaits
	return s, nil
}

// Run follows the stream until ctx ends, reconnecting as often as it takes. All
// its goroutines have ended when it returns. It is called once.
func (s *Subscriber) Run(ctx context.Context) {
	var running sync.WaitGroup
	if s.source.Listen != "" {
		running.Go(func() { s.retry(ctx, s.listen) })
	} else {
		running.Go(func() { s.retry(ctx, s.dial) })
	}
	if s.source.Replay != "" {
		running.Go(func() { s.replays(ctx) })
	}
	s.tick(ctx)
	s.mu.Lock()
	if s.cancel != nil {
		s.cancel()
	}
	s.mu.Unlock()
	running.Wait()
}

// Status is the state of the stream. Any goroutine may ask.
func (s *Subscriber) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.stream.Status()
	s.refused.mu.Lock()
	defer s.refused.mu.Unlock()
	status.Rejected = s.rejected + s.refused.count
	status.Reconnects = max(s.conns, 1) - 1
	if err := errors.Join(s.subErr, s.replyErr, s.refused.last); err != nil {
		status.Err = err.Error()
	}
	return status
}

// Resync forgets the rank's blocks and fetches them again, if the engine can
// replay; at most every 30 s. Any goroutine may call it.
func (s *Subscriber) Resync() {
	s.mu.Lock()
	defer s.unlock()
	s.stream.Resync(s.now())
}

func (s *Subscriber) now() time.Duration { return time.Since(s.started) }

// unlock releases the lock after the stream was changed, and wakes the timer
// if it has to ring earlier than was thought.
func (s *Subscriber) unlock() {
	if next := s.stream.wake(s.now()); next < s.wakeAt {
		s.wakeAt = next
		select {
		case s.poke <- struct{}{}:
		default:
		}
	}
	s.mu.Unlock()
}

// tick calls Stream.Tick when it wants to be called.
func (s *Subscriber) tick(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.poke:
		}
		s.mu.Lock()
		now := s.now()
		s.wakeAt = s.stream.Tick(now)
		wait := s.wakeAt - now
		s.mu.Unlock()
		timer.Reset(max(wait, 0))
	}
}

// retry runs open again and again, with growing pauses between failures that
// come soon.
func (s *Subscriber) retry(ctx context.Context, open func(context.Context) error) {
	for pause := backoffFirst; ; pause = min(2*pause, backoffMost) {
		begun := time.Now()
		err := open(ctx)
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		s.subErr = err
		s.mu.Unlock()
		if time.Since(begun) > backoffMost {
			pause = backoffFirst
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause/2 + rand.N(pause)): // so that not all routers come at once
		}
	}
}

func (s *Subscriber) options(kind string) zmtp.Options {
	return zmtp.Options{Type: kind, MaxMessageBytes: maxMessageBytes, HandshakeTimeout: handshakeTimeout}
}

// dial connects to the engine and receives until the connection ends.
func (s *Subscriber) dial(ctx context.Context) error {
	conn, err := zmtp.Dial(ctx, s.source.Endpoint, s.options(zmtp.Sub))
	if err != nil {
		return fmt.Errorf("dial events: %w", err)
	}
	return s.receive(ctx, conn)
}

// listen binds the endpoint and receives from all engines that connect.
func (s *Subscriber) listen(ctx context.Context) error {
	o := s.options(zmtp.Sub)
	o.Bind = s.source.Bind
	l, err := zmtp.Listen(ctx, s.source.Listen, o)
	if err != nil {
		return fmt.Errorf("listen for events: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer l.Close()
	var publishers sync.WaitGroup
	defer publishers.Wait()
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	places := make(chan struct{}, maxPublishers)
	for {
		conn, err := l.Accept()
		if err != nil {
			return fmt.Errorf("accept events: %w", err)
		}
		select {
		case places <- struct{}{}:
		default: // somebody else's connections
			_ = conn.Close()
			continue
		}
		publishers.Go(func() {
			defer func() { <-places }()
			stop := context.AfterFunc(inner, func() { _ = conn.Close() })
			defer stop()
			err := conn.Handshake()
			if err == nil {
				err = s.receive(inner, conn)
			}
			s.mu.Lock()
			if inner.Err() == nil && s.current == 0 { // else it was a stranger
				s.subErr = err
			}
			s.mu.Unlock()
		})
	}
}

// receive subscribes and takes live batches until the connection ends.
func (s *Subscriber) receive(ctx context.Context, conn *zmtp.Conn) error {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	if err := conn.Subscribe(s.source.Topic); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	number := s.connected()
	defer s.lost(number)
	for {
		frames, err := conn.Recv()
		if err != nil {
			return fmt.Errorf("receive events from %s: %w", conn.RemoteAddr(), err)
		}
		s.live(number, frames)
	}
}

// connected numbers a connection, and follows it if there is no other. One of
// several publishers on a listening endpoint is followed from its first batch.
func (s *Subscriber) connected() (number uint64) {
	s.mu.Lock()
	defer s.unlock()
	s.conns++
	if s.current == 0 {
		s.current, s.subErr = s.conns, nil
		s.forgive()
		s.stream.Connected(s.now())
	}
	return s.conns
}

func (s *Subscriber) lost(number uint64) {
	s.mu.Lock()
	defer s.unlock()
	if s.current == number {
		s.current = 0
		s.stream.Lost(s.now())
	}
}

// live takes a message of a publisher: topic, sequence, payload. A newer
// connection replaces the one that was followed: the engine has come back
// before the end of its former connection was seen.
func (s *Subscriber) live(number uint64, frames [][]byte) {
	s.mu.Lock()
	defer s.unlock()
	seq, payload, ok := lastTwo(frames)
	if !ok || number < s.current {
		s.rejected++
		return
	}
	now := s.now()
	if number != s.current {
		if s.current != 0 {
			s.stream.Lost(now)
		}
		s.current, s.subErr = number, nil
		s.forgive()
		s.stream.Connected(now)
	}
	s.stream.Live(now, seq, payload)
}

// lastTwo are the frames that count in a live batch and in both forms of a
// replayed one: a sequence number and a payload.
func lastTwo(frames [][]byte) (seq uint64, payload []byte, ok bool) {
	n := len(frames)
	if n < 3 || len(frames[n-2]) != 8 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(frames[n-2]), frames[n-1], true
}

// outlet is how the stream acts. Its methods are called with the lock held.
type outlet struct{ s *Subscriber }

// step delivers d, or takes its payload back.
func (o outlet) step(d Delivery) bool {
	d.Node, d.Rank, d.Trust, d.from = o.s.source.Node, o.s.source.Rank, o.s.stream.status.Trust, o.s
	if !o.s.paused && o.s.deliver(d) {
		return true
	}
	d.Release()
	return false
}

// Apply delivers a copy of the payload.
func (o outlet) Apply(seq uint64, payload []byte) bool {
	var own []byte
	select {
	case own = <-o.s.free:
	default:
		own = make([]byte, 0, len(payload))
	}
	return o.step(Delivery{Payload: append(own, payload...), Seq: seq})
}

func (o outlet) Clear() bool        { return o.step(Delivery{Clear: true}) }
func (o outlet) Trust(t Trust) bool { return o.step(Delivery{}) }

// Replay wakes the goroutine that asks, and ends what it was doing.
func (o outlet) Replay(from uint64) {
	s := o.s
	if s.cancel != nil {
		s.cancel()
	}
	s.asked++
	a := wanted{from: from, number: s.asked}
	a.ctx, s.cancel = context.WithCancel(context.Background())
	select {
	case <-s.asks: // nobody has begun with it
	default:
	}
	s.asks <- a
}
