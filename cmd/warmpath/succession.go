package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"warmpath/controlplane"
	"warmpath/controlplane/config"
	"warmpath/controlplane/takeover"
)

// succession is a router that may have taken over from another process, and that
// another one may take over from.
type succession struct {
	router *router
	log    *slog.Logger
	path   string           // of the socket; "" = nobody can take over
	server *takeover.Server // nil if nobody can
}

// succeed starts a router: from nothing, or in place of the one that runs. On an
// error that one goes on.
func succeed(ctx context.Context, c *config.Config, log *slog.Logger, reread func() (*config.Config, error)) (*succession, error) {
	began := time.Now()
	s := &succession{log: log}
	var why string
	if s.path, why = takeover.Path(c.StateDir, config.RuntimeDir(), c.Listen); s.path == "" {
		log.Info("a new process will not be able to take over", "why", why)
	}
	heir, err := s.connect(ctx, c)
	if err != nil {
		return nil, err
	}
	if heir == nil {
		if s.router, err = startRouter(c, log, reread); err != nil {
			return nil, err
		}
		s.await(s.listen())
		return s, nil
	}
	s.router, err = prepare(c, log, reread, heir.Sockets, &heir.Offer)
	if err == nil {
		if err = s.takeOver(ctx, heir, began); err != nil {
			s.router.stop()
		}
	}
	if err != nil { // the running router goes on
		heir.Close()
		heir.Sockets.CloseUnasked()
		return nil, err
	}
	return s, nil
}

// connect asks the running router to hand over, nil if there is none.
func (s *succession) connect(ctx context.Context, c *config.Config) (*takeover.Heir, error) {
	if s.path == "" {
		return nil, nil
	}
	heir, err := takeover.Connect(ctx, s.path, version,
		takeover.SocketName{For: "listen", Network: "tcp", Address: c.Listen}, takeover.SocketName{For: "admin.listen", Network: "tcp", Address: c.Admin.Listen})
	if errors.Is(err, takeover.ErrDied) {
		s.log.Warn("the running router died while it handed over; going on with what has come", "sockets", heir.HandedOver, "nodes", len(heir.Offer.Nodes))
		return heir, nil
	}
	return heir, err
}

// takeOver takes over what the running router knows, and then its place.
func (s *succession) takeOver(ctx context.Context, heir *takeover.Heir, began time.Time) error {
	s.log.Info("taking over", "pid", heir.PID, "its_version", heir.Program, "listeners", heir.HandedOver, "nodes", len(heir.Offer.Nodes))
	// At once: the later, the likelier is it that a pid names somebody else by then.
	s.router.control.SetFormers(append(heir.Offer.Formers, heir.PID))
	got, err := s.router.control.Inherit(ctx, heir)
	if err != nil {
		if err = heir.Failed("take over what the running router knows", err); !errors.Is(err, takeover.ErrDied) {
			return err
		}
		s.log.Warn("the running router died while it handed over; going on with what has come", "index_units", got.Units)
	}
	listener := s.listen()
	if unasked := heir.Sockets.CloseUnasked(); len(unasked) > 0 {
		s.log.Info("sockets of the former process are not configured any more", "closed", unasked)
	}
	if err := s.router.serve(time.Since(began).Seconds(), heir.PID); err != nil {
		return err
	}
	heir.Sockets.Open()
	if err := heir.Ready(); err != nil {
		if err = heir.Failed("tell the running router that this one serves", err); !errors.Is(err, takeover.ErrDied) {
			s.log.Error("the former process may still accept requests; end it", "pid", heir.PID, "err", err)
		}
	}
	s.log.Info(fmt.Sprintf("taken over from pid %d: listeners %d, index units %d in %.2f s", heir.PID, heir.HandedOver, got.Units, time.Since(began).Seconds()),
		"ranks", got.Ranks, "ranks_left", got.Left)
	s.await(listener)
	go s.follow(heir)
	return nil
}

// follow takes what the former process tells while it drains. That its word ends does
// not say that it has: it may hang up with requests under way.
func (s *succession) follow(heir *takeover.Heir) {
	defer heir.Close()
	if err := heir.Follow(s.router.control.TakeNote); err != nil {
		s.log.Warn("what the former process still sends to nodes is not heard any more", "pid", heir.PID, "err", err)
	}
}

// listen opens the socket for successors, nil if that cannot be done: it costs
// the next start its ease, nothing else.
func (s *succession) listen() net.Listener {
	if s.path == "" {
		return nil
	}
	l, err := s.router.sockets.ListenPath(context.Background(), s.path)
	if err != nil {
		s.log.Warn("a new process will not be able to take over", "err", err)
		return nil
	}
	return l
}

// await waits for a successor on a socket, if there is one.
func (s *succession) await(l net.Listener) {
	if l != nil {
		s.server = takeover.Serve(l, s.router.sockets, giver{s.router.control.Giver(), s.router}, version, s.log)
	}
}

// giver hands a whole router over.
type giver struct {
	takeover.Giver // the control plane's
	router         *router
}

// answerWithin is for requests to the admin side that are being read when a
// successor takes over: net/http drops those when it is told to end.
const answerWithin = 100 * time.Millisecond

// Leave implements takeover.Giver. It ends the admin side, and accepting; clients
// are drained by whoever waits for Server.Done.
func (g giver) Leave() {
	g.Giver.Leave()
	time.Sleep(answerWithin)
	g.router.stopAdmin()
	atOnce, cancel := context.WithCancel(context.Background())
	cancel()
	g.router.data.Drain(atOnce, succeededGrace)
}

// done tells when a successor has taken over.
func (s *succession) done() <-chan takeover.Successor {
	if s.server == nil {
		return nil
	}
	return s.server.Done()
}

// withdraw ends waiting for a successor, so that the next process starts from
// nothing.
func (s *succession) withdraw() {
	if s.server != nil {
		if !s.server.Stop() {
			_ = os.Remove(s.path) // else it is the successor's
		}
	}
}

// tellManager tells a service manager, if there is one, that this process serves
// and is the main one of its unit (sd_notify(3)).
func (s *succession) tellManager() {
	address := config.NotifySocket()
	if address == "" {
		return
	}
	c, err := net.Dial("unixgram", address)
	if err == nil {
		_, err = fmt.Fprintf(c, "MAINPID=%d\nREADY=1", os.Getpid())
		err = errors.Join(err, c.Close())
	}
	if err != nil {
		s.log.Warn("the service manager could not be told that the router is ready", "err", err)
	}
}

var _ controlplane.Predecessor = (*takeover.Heir)(nil)
