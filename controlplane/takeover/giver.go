package takeover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	helloWithin = 5 * time.Second
	startWithin = 2 * time.Minute // for the successor, from Hello to Ready
	sendWithin  = 10 * time.Second
	acceptAgain = time.Second
)

// Giver is a router that another process takes over from. Its methods are called
// by one goroutine, in the order of Begin, Export …, and then Keep, or Leave and
// Notes.
type Giver interface {
	// Begin returns what the successor begins with.
	Begin() Offer
	// Export hands out what is known of a rank, by frames of the kinds Piece and
	// Tails, and has what is sent there from now on kept for Notes. A rank that
	// cannot be handed over is no error: Rank.Why says so.
	Export(ctx context.Context, f Fetch, emit func(kind Kind, body []byte) error) (Rank, error)
	// Keep says that nothing came of it.
	Keep()
	// Leave says that the successor serves now, and that no socket is accepted on
	// here any more.
	Leave()
	// Notes hands out frames that AppendNote has made, until ctx ends.
	Notes(ctx context.Context, emit func(frames []byte) error) error
}

// Successor is who has taken over.
type Successor struct{ PID int }

// Server waits for a successor.
type Server struct {
	sockets *Sockets
	giver   Giver
	program string
	log     *slog.Logger
	done    chan Successor
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex
	taker int  // who is at it; 0 = nobody
	given bool // it is done
}

// Serve waits on listener, one of sockets, until Stop. program is the version of
// the program, for people.
func Serve(listener net.Listener, sockets *Sockets, giver Giver, program string, log *slog.Logger) *Server {
	s := &Server{sockets: sockets, giver: giver, program: program, log: log, done: make(chan Successor, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.running.Go(func() { s.accept(listener) })
	context.AfterFunc(s.ctx, func() { _ = listener.Close() })
	return s
}

func (s *Server) accept(listener net.Listener) {
	for {
		c, err := listener.Accept()
		switch {
		case err == nil:
			s.running.Go(func() { s.serve(c.(*net.UnixConn)) })
			continue
		case errors.Is(err, net.ErrClosed):
			return
		}
		s.log.Error("a new process cannot reach this one; trying again", "err", err)
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(acceptAgain):
		}
	}
}

// Done tells of the one who has taken over. The router is to be drained then, and
// stopped.
func (s *Server) Done() <-chan Successor { return s.done }

// Stop ends waiting, and what goes on. It reports whether somebody has taken
// over.
func (s *Server) Stop() (given bool) {
	s.cancel()
	s.running.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.given
}

func (s *Server) serve(unix *net.UnixConn) {
	c, err := newConn(unix)
	if err != nil {
		s.log.Warn("somebody who may not asked to take over", "err", err)
		return
	}
	defer c.close()
	defer context.AfterFunc(s.ctx, func() { _ = unix.Close() })()
	h, err := s.greeted(c)
	if err != nil {
		s.log.Warn("a process that asked to take over was refused", "pid", h.PID, "why", err)
		_ = c.sendValue(Refusal, refusal{Version, os.Getpid(), err.Error()})
		return
	}
	began := time.Now()
	s.log.Info("a new process begins to take over", "pid", h.PID, "its_version", h.Program)
	ranks, err := s.give(c)
	if err != nil {
		s.release()
		s.giver.Keep()
		s.log.Warn("the new process did not take over; this one goes on", "pid", h.PID, "why", reason(err), "after_seconds", time.Since(began).Seconds())
		return
	}
	s.sockets.Leave()
	s.giver.Leave()
	c.within(sendWithin)
	err = c.send(Yours, nil)
	s.log.Info("a new process has taken over; this one finishes what is under way", "pid", h.PID, "ranks", ranks, "seconds", time.Since(began).Seconds())
	s.done <- Successor{h.PID}
	if err == nil {
		err = s.giver.Notes(s.ctx, func(frames []byte) error {
			c.within(sendWithin)
			return c.write(frames)
		})
	}
	if err != nil && s.ctx.Err() == nil {
		s.log.Warn("the new process does not hear any more what is still sent here", "pid", h.PID, "err", err)
	}
}

// greeted reads a Hello and reserves the place for whoever sent it.
func (s *Server) greeted(c *conn) (h hello, err error) {
	c.within(helloWithin)
	kind, body, err := c.receive()
	if err != nil {
		return h, err
	}
	if kind != Hello {
		return h, errFrameKind
	}
	if err := decodeOpen(body, &h); err != nil {
		return h, err
	}
	if h.Version != Version {
		return h, fmt.Errorf("it speaks version %d of the protocol, the running router version %d; end that one (SIGTERM), then start the new one", h.Version, Version)
	}
	if !slices.ContainsFunc(s.sockets.all(), func(l *socket) bool { return slices.Contains(h.Serves, l.name) }) {
		return h, errElsewhere
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.given:
		return h, fmt.Errorf("process %d has just taken over; start again in a moment", s.taker)
	case s.taker != 0:
		return h, fmt.Errorf("process %d is taking over already; wait until it has, or end it, and start again then", s.taker)
	}
	s.taker = max(h.PID, 1)
	return h, nil
}

// release lets somebody else try.
func (s *Server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taker = 0
}

var (
	errNotReady  = errors.New("the connection ended before it was ready")
	errElsewhere = errors.New("it will listen elsewhere, so it is another router; give each its own state_dir, or end the running one (SIGTERM) first")
)

// give hands over until the successor is ready.
func (s *Server) give(c *conn) (ranks int, err error) {
	offer := s.giver.Begin()
	c.within(startWithin)
	ctx, cancel := context.WithTimeout(s.ctx, startWithin)
	defer cancel()
	if err := s.offer(c, &offer); err != nil {
		return 0, err
	}
	for {
		kind, body, err := c.receive()
		if err != nil {
			return ranks, err
		}
		switch kind {
		case Ready:
			if c.hungUp() { // it has died since
				return ranks, io.EOF
			}
			s.mu.Lock()
			s.given = true
			s.mu.Unlock()
			return ranks, nil
		case FetchRank:
			var f Fetch
			if err := decode(body, &f); err != nil {
				return ranks, err
			}
			end, err := s.giver.Export(ctx, f, c.send)
			if err != nil {
				return ranks, err
			}
			if err := c.sendValue(RankEnd, end); err != nil {
				return ranks, err
			}
			ranks++
		default:
			return ranks, errFrameKind
		}
	}
}

func (s *Server) offer(c *conn, offer *Offer) error {
	sockets := s.sockets.all()
	if err := c.sendValue(Welcome, welcome{Version, s.program, os.Getpid(), offer.Seed, len(sockets), len(offer.Nodes), offer.Formers}); err != nil {
		return err
	}
	for _, l := range sockets {
		if err := c.sendSocket(l.name, l); err != nil {
			return fmt.Errorf("hand over the socket of %s: %w", l.name.For, err)
		}
	}
	for i := range offer.Nodes {
		if err := c.sendValue(NodeKnown, &offer.Nodes[i]); err != nil {
			return err
		}
	}
	return nil
}

// reason says it better than the end of a connection does.
func reason(err error) string {
	if ended(err) {
		return errNotReady.Error()
	}
	return err.Error()
}
