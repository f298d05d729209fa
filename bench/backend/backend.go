package backend

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// readBufferBytes lets one read take a large body whole; the buffer belongs
// to the loop, so that it costs nothing a connection.
const readBufferBytes = 256 << 10

// Options says where and how a backend serves.
type Options struct {
	Addresses []string // host:port, one listener each; at least one
	Loops     int      // event loops; at least 1
	Model     string   // the one model that /v1/models names

	// Tokens names the token ids of the prompt in a request's body; its error is
	// told to the client. nil: POST /tokenize is 404, as of an engine without
	// that route. Loops call it, possibly at once.
	Tokens func(body []byte) ([]uint32, error)

	// A chat request with "stream":true is answered with Chunks events of
	// ChunkBytes bytes each, one every Interval. 0 means 20, 150 and 10 ms.
	Chunks     int
	ChunkBytes int // at least MinChunkBytes
	Interval   time.Duration
}

// Bounds of a stream.
const (
	maxChunks     = 1 << 30
	maxChunkBytes = 1 << 20
)

// withDefaults fills what was left zero and reports what cannot be used.
func (o Options) withDefaults() (Options, error) {
	if o.Chunks == 0 {
		o.Chunks = 20
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = 150
	}
	if o.Interval == 0 {
		o.Interval = 10 * time.Millisecond
	}
	var problems []error
	if len(o.Addresses) == 0 || o.Loops < 1 {
		problems = append(problems, errors.New("start backend: give at least one address and one loop"))
	}
	if o.Chunks < 1 || o.Chunks > maxChunks {
		problems = append(problems, fmt.Errorf("check chunks %d: use 1 to %d", o.Chunks, maxChunks))
	}
	if o.ChunkBytes < MinChunkBytes || o.ChunkBytes > maxChunkBytes {
		problems = append(problems, fmt.Errorf("check chunk bytes %d: use %d to %d", o.ChunkBytes, MinChunkBytes, maxChunkBytes))
	}
	if o.Interval < time.Microsecond || o.Interval > time.Hour {
		problems = append(problems, fmt.Errorf("check interval %s: use 1µs to 1h", o.Interval))
	}
	return o, errors.Join(problems...)
}

// Run serves until ctx ends. It returns nil on a clean end. It sets GOMAXPROCS
// to Loops+1, because with no spare processor the runtime takes the loop's
// away in every blocking wait; so call it from a program that does nothing
// else. ready, when not nil, is called once, when all listeners accept.
func Run(ctx context.Context, o Options, ready func()) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(o.Loops + 1)
	addresses := make([]string, len(o.Addresses))
	for i, address := range o.Addresses {
		addresses[i] = "tcp://" + address
	}
	h := &handler{o: o, answers: newAnswers(o.Model), ready: ready, booted: make(chan struct{}), pacers: map[gnet.EventLoop]*pacer{}}
	defer h.stopPacers()
	stopped := context.AfterFunc(ctx, func() { h.stop() })
	defer stopped()
	err = gnet.Rotate(
		h,
		addresses,
		gnet.WithNumEventLoop(o.Loops),
		gnet.WithReusePort(true),
		gnet.WithReadBufferCap(readBufferBytes),
	)
	if err != nil {
		return fmt.Errorf("serve %q: %w", o.Addresses, err)
	}
	return nil
}

// maxWaitingBytes bounds what a client may send while its stream goes on.
const maxWaitingBytes = 1 << 20

// handler is shared by the loops; all it holds is immutable after boot, but for
// the table of pacers. What belongs to a connection is the session in its
// context, loop-owned.
type handler struct {
	gnet.BuiltinEventEngine
	o       Options
	answers answers
	ready   func()
	engine  gnet.Engine
	booted  chan struct{}

	mu     sync.Mutex
	pacers map[gnet.EventLoop]*pacer // one a loop, made when its first connection comes
}

// session is one connection. Loop-owned.
type session struct {
	framer framer
	conn   gnet.Conn
	pacer  *pacer

	// Of the stream under way.
	left int   // chunks to come; 0 = no stream
	due  int64 // ns, of the next chunk
	at   int   // in the pacer's heap
}

// OnBoot runs before the loops start.
func (h *handler) OnBoot(engine gnet.Engine) gnet.Action {
	h.engine = engine
	close(h.booted)
	if h.ready != nil {
		h.ready()
	}
	return gnet.None
}

// stop waits for the boot, so that a context that ended early still ends the
// engine.
func (h *handler) stop() {
	<-h.booted
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = h.engine.Stop(ctx) // its error only says that the engine is gone already
}

// pacerOf returns the pacer of a loop. Only a new connection asks.
func (h *handler) pacerOf(loop gnet.EventLoop) (*pacer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.pacers[loop]; p != nil {
		return p, nil
	}
	p, err := newPacer(h, loop, uint64(len(h.pacers)))
	if err == nil {
		h.pacers[loop] = p
	}
	return p, err
}

func (h *handler) stopPacers() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.pacers {
		p.stop()
	}
}

// OnOpen gives the connection its session.
func (h *handler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	p, err := h.pacerOf(c.EventLoop())
	if err != nil {
		return nil, gnet.Close
	}
	c.SetContext(&session{conn: c, pacer: p, at: -1})
	return nil, gnet.None
}

// OnClose ends the stream of a client that left.
func (h *handler) OnClose(c gnet.Conn, _ error) gnet.Action {
	if s, ok := c.Context().(*session); ok && s.at >= 0 {
		s.pacer.remove(s)
		s.left = 0
	}
	return gnet.None
}

// OnTraffic answers every request that is complete.
func (h *handler) OnTraffic(c gnet.Conn) gnet.Action {
	s, ok := c.Context().(*session)
	if !ok {
		panic("BUG: connection without a session")
	}
	return h.serve(s)
}

// serve answers the requests that have come, up to one whose answer is a
// stream: those after it wait until it has ended.
func (h *handler) serve(s *session) gnet.Action {
	f, c := &s.framer, s.conn
	if s.left > 0 {
		if c.InboundBuffered() > maxWaitingBytes {
			return gnet.Close
		}
		return gnet.None
	}
	buf, err := c.Peek(-1)
	if err != nil {
		return gnet.Close
	}
	used := 0
	for used < len(buf) && s.left == 0 {
		n, done, err := f.step(buf[used:])
		used += n
		if err != nil {
			_, _ = c.Write(h.answers.malformed)
			return gnet.Close
		}
		if !done {
			break
		}
		if f.route == routeTokenize && h.o.Tokens != nil {
			if _, err := c.Write(tokensAnswer(h.o.Tokens(f.text))); err != nil {
				return gnet.Close
			}
			continue
		}
		if f.route == routeChat && f.stream() {
			if _, err := c.Write(h.answers.stream); err != nil {
				return gnet.Close
			}
			s.pacer.begin(s)
			continue
		}
		if _, err := c.Write(h.answers.of[f.route]); err != nil || f.close {
			return gnet.Close
		}
	}
	if used > 0 { // Discard(0) would throw everything away
		_, _ = c.Discard(used)
	}
	return gnet.None
}
