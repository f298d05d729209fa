package backend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"

	"warmpath/bench/load/stamp"
)

// maxUnsentBytes is how much of a stream may wait for a slow client; beyond it
// the stream rests.
const maxUnsentBytes = 64 << 10

// pacer sends the chunks of one loop's streams when they are due. A timer of
// the kernel wakes it, because the runtime's own are only exact to a
// millisecond. All but stop and wait is loop-owned.
type pacer struct {
	h          *handler
	loop       gnet.EventLoop
	chunks     chunkPair
	intervalNs int64
	random     *rand.Rand
	streams    []*session // a heap: the first is due first
	armed      int64      // when the timer goes off, ns; 0 = not at all
	timer      int
	stopping   atomic.Bool
	stopped    chan struct{} // closed when wait has ended
}

func newPacer(h *handler, loop gnet.EventLoop, seed uint64) (*pacer, error) {
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make timer: %w", err)
	}
	p := &pacer{
		h: h, loop: loop, timer: timer, chunks: newChunkPair(h.o.ChunkBytes), intervalNs: int64(h.o.Interval),
		random: rand.New(rand.NewPCG(seed, 1)), stopped: make(chan struct{}),
	}
	go p.wait()
	return p, nil
}

// wait tells the loop each time the timer goes off.
func (p *pacer) wait() {
	defer close(p.stopped)
	tick := gnet.RunnableFunc(p.tick)
	var expirations [8]byte
	for {
		if _, err := unix.Read(p.timer, expirations[:]); err != nil && err != unix.EINTR {
			panic("BUG: backend: a timer cannot be read: " + err.Error())
		}
		if p.stopping.Load() || p.loop.Execute(context.Background(), tick) != nil {
			return
		}
	}
}

// stop ends wait; any goroutine may call it, once, when the loop has ended.
func (p *pacer) stop() {
	p.stopping.Store(true)
	p.set(1)
	<-p.stopped
	_ = unix.Close(p.timer)
}

// set lets the timer go off at an absolute time; the past means at once.
func (p *pacer) set(at int64) {
	value := unix.ItimerSpec{Value: unix.NsecToTimespec(at)}
	if err := unix.TimerfdSettime(p.timer, unix.TFD_TIMER_ABSTIME, &value, nil); err != nil {
		panic("BUG: backend: a timer cannot be set: " + err.Error())
	}
}

// arm sets the timer for the first stream, if it is not set for that time or
// an earlier one.
func (p *pacer) arm() {
	if len(p.streams) == 0 {
		return
	}
	if due := p.streams[0].due; p.armed == 0 || due < p.armed {
		p.armed = due
		p.set(due)
	}
}

// begin starts a stream. Its chunks have a phase of their own, so that the
// streams of clients that came at once do not speak at once.
func (p *pacer) begin(s *session) {
	s.left = p.h.o.Chunks
	s.due = stamp.Now() + p.random.Int64N(max(p.intervalNs, 1))
	p.push(s)
	p.arm()
}

// tick sends every chunk that is due.
func (p *pacer) tick(context.Context) error {
	p.armed = 0
	now := stamp.Now()
	for len(p.streams) > 0 && p.streams[0].due <= now {
		p.speak(p.streams[0])
	}
	p.arm()
	return nil
}

// speak sends the next chunk of the first stream.
func (p *pacer) speak(s *session) {
	s.due += p.intervalNs
	if s.conn.OutboundBuffered() > maxUnsentBytes {
		s.due = max(s.due, stamp.Now()+p.intervalNs)
		p.down(0)
		return
	}
	s.left--
	if s.left > 0 {
		p.down(0)
	} else {
		p.remove(s)
	}
	// A broken connection is closed inside the call, which removes the stream.
	if _, err := s.conn.Write(p.chunks.stamped(s.left == 0)); err != nil || s.left > 0 {
		return
	}
	if s.framer.close || p.h.serve(s) == gnet.Close { // what came meanwhile
		_ = p.loop.Close(s.conn)
	}
}

// push adds a stream to the heap.
func (p *pacer) push(s *session) {
	s.at = len(p.streams)
	p.streams = append(p.streams, s)
	p.up(s.at)
}

// remove takes a stream out of the heap.
func (p *pacer) remove(s *session) {
	at, end := s.at, len(p.streams)-1
	p.swap(at, end)
	p.streams[end] = nil
	p.streams = p.streams[:end]
	s.at = -1
	if at < end {
		p.down(at)
		p.up(at)
	}
}

func (p *pacer) swap(i, j int) {
	p.streams[i], p.streams[j] = p.streams[j], p.streams[i]
	p.streams[i].at, p.streams[j].at = i, j
}

func (p *pacer) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if p.streams[parent].due <= p.streams[i].due {
			return
		}
		p.swap(i, parent)
		i = parent
	}
}

func (p *pacer) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(p.streams); child++ {
			if p.streams[child].due < p.streams[least].due {
				least = child
			}
		}
		if least == i {
			return
		}
		p.swap(i, least)
		i = least
	}
}
