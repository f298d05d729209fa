package takeover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	answerWithin = 20 * time.Second // for the running router to go on
	diedWithin   = 3 * time.Second  // from the end of the connection to the end of the process
	askAgain     = 100 * time.Millisecond

	maxSockets = 4096
	maxNodes   = 4096
	maxFormers = 1024
)

// ErrDied says that the running router ended before it had handed over: whoever
// asks goes on with what it has.
var ErrDied = errors.New("the running router has ended")

// Heir is a process that takes over, as it speaks to the running one. One
// goroutine uses it.
type Heir struct {
	conn  *conn
	pidfd int // -1 = none: whether the other process lives cannot be told

	// Offer is what the running router began with, Sockets what it handed over,
	// PID and Program who it is.
	Offer   Offer
	Sockets *Sockets
	PID     int
	Program string
	// HandedOver is how many sockets there are.
	HandedOver int
}

// Connect asks the router that waits at path to hand over. It returns nil if
// there is none. program is the version of this program, for people; serves are
// the sockets by which clients and operators will reach it, one of which the
// running router must have too. The error says why it does not hand over, and the
// remedy. With ErrDied there is an Heir all the same, of the sockets that have
// come.
func Connect(ctx context.Context, path, program string, serves ...SocketName) (*Heir, error) {
	var h *Heir
	var err error
	for limit := time.Now().Add(diedWithin); ; {
		h, err = connect(ctx, path, hello{Version, program, os.Getpid(), serves})
		// Before it has said who it is, nobody knows whether it has ended or has
		// only closed the connection: that shows when it is asked again.
		if !ended(err) || time.Now().After(limit) {
			return h, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(askAgain):
		}
	}
}

func connect(ctx context.Context, path string, own hello) (*Heir, error) {
	var dialer net.Dialer
	ctx, cancel := context.WithTimeout(ctx, helloWithin)
	defer cancel()
	c, err := dialer.DialContext(ctx, "unix", path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reach the running router: %w; start as its user, or end it", err)
	}
	n, err := newConn(c.(*net.UnixConn))
	if err != nil {
		return nil, fmt.Errorf("take over from the running router: %w", err)
	}
	h := &Heir{conn: n, pidfd: -1, Sockets: newSockets()}
	err = h.greet(own)
	if err == nil {
		return h, nil
	}
	err = h.Failed("take over from the running router", err)
	if errors.Is(err, ErrDied) {
		return h, err
	}
	h.Close()
	h.Sockets.CloseUnasked()
	return nil, err
}

// Close ends the connection. Before Ready that lets the running router go on.
func (h *Heir) Close() {
	h.conn.close()
	if h.pidfd >= 0 {
		_ = unix.Close(h.pidfd)
		h.pidfd = -1
	}
}

func (h *Heir) greet(own hello) error {
	h.conn.within(answerWithin)
	if err := h.conn.sendValue(Hello, own); err != nil {
		return err
	}
	kind, body, err := h.conn.receive()
	if err != nil {
		return err
	}
	var w welcome
	switch kind {
	case Refusal:
		var r refusal
		if err := decodeOpen(body, &r); err != nil {
			return err
		}
		return fmt.Errorf("it refuses (process %d): %s", r.PID, r.Why)
	case Welcome:
		err = decodeOpen(body, &w)
	default:
		err = errFrameKind
	}
	switch {
	case err != nil:
		return err
	case w.Version != Version:
		return fmt.Errorf("it speaks version %d of the protocol, this one version %d; end it (SIGTERM), then start the new one", w.Version, Version)
	case w.Sockets < 0 || w.Sockets > maxSockets || w.Nodes < 0 || w.Nodes > maxNodes:
		return fmt.Errorf("it announces %d sockets and %d nodes", w.Sockets, w.Nodes)
	case len(w.Formers) > maxFormers || slices.ContainsFunc(w.Formers, func(pid int) bool { return pid <= 0 }):
		return fmt.Errorf("it names %d processes before it, of which some cannot be", len(w.Formers))
	}
	h.PID, h.Program, h.HandedOver, h.Offer.Seed, h.Offer.Formers = w.PID, w.Program, w.Sockets, w.Seed, w.Formers
	if fd, err := unix.PidfdOpen(w.PID, 0); err == nil {
		h.pidfd = fd
	}
	return h.take(&w)
}

// take takes the sockets and the nodes.
func (h *Heir) take(w *welcome) error {
	for range w.Sockets {
		var name SocketName
		if err := h.expect(SocketPassed, &name); err != nil {
			return err
		}
		l, err := h.conn.socket()
		if err != nil {
			return fmt.Errorf("take the socket of %s: %w", name.For, err)
		}
		if twice := h.Sockets.inherited[name]; twice != nil {
			_ = l.Close()
			return fmt.Errorf("the socket of %s came twice", name.For)
		}
		h.Sockets.inherited[name] = l
	}
	for range w.Nodes {
		var n Node
		if err := h.expect(NodeKnown, &n); err != nil {
			return err
		}
		h.Offer.Nodes = append(h.Offer.Nodes, n)
	}
	return nil
}

// expect receives a message.
func (h *Heir) expect(want Kind, v any) error {
	kind, body, err := h.conn.receive()
	switch {
	case err != nil:
		return err
	case kind != want:
		return errFrameKind
	}
	return decode(body, v)
}

// Fetch asks for what is known of a rank and hands each part of it to take, whose
// bytes are valid only there.
func (h *Heir) Fetch(f Fetch, take func(kind Kind, body []byte)) (Rank, error) {
	h.conn.within(answerWithin)
	if err := h.conn.sendValue(FetchRank, f); err != nil {
		return Rank{}, err
	}
	for {
		kind, body, err := h.conn.receive()
		if err != nil {
			return Rank{}, err
		}
		switch kind {
		case Piece, Tails:
			take(kind, body)
		case RankEnd:
			var end Rank
			if err := decode(body, &end); err != nil {
				return Rank{}, err
			}
			return end, nil
		default:
			return Rank{}, errFrameKind
		}
	}
}

// Ready says that this process serves now, and waits until the other one accepts
// nothing any more.
func (h *Heir) Ready() error {
	h.conn.within(answerWithin)
	if err := h.conn.send(Ready, nil); err != nil {
		return err
	}
	kind, _, err := h.conn.receive()
	if err == nil && kind != Yours {
		err = errFrameKind
	}
	return err
}

// Follow hands out what is still sent by the other process, until that ends.
func (h *Heir) Follow(take func(Note) error) error {
	_ = h.conn.unix.SetDeadline(time.Time{})
	for {
		kind, body, err := h.conn.receive()
		switch {
		case ended(err):
			return nil
		case err != nil:
			return err
		case kind != Notes:
			return errFrameKind
		}
		n, err := DecodeNote(body)
		if err == nil {
			err = take(n)
		}
		if err != nil {
			return err
		}
	}
}

// Failed judges an error of the connection: it is ErrDied if the other process
// has ended, and says what to do if it lives.
func (h *Heir) Failed(doing string, err error) error {
	switch {
	case h.PID == 0: // nothing is known of it
	case ended(err) && h.died():
		return fmt.Errorf("%s: %w", doing, ErrDied)
	case ended(err):
		return fmt.Errorf("%s: it has ended the connection, and goes on; its log says why", doing)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s: process %d does not answer; end it, then start the new one", doing, h.PID)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// died reports whether the other process has ended, or is about to: its
// connections are closed a moment before.
func (h *Heir) died() bool {
	if h.pidfd < 0 {
		return errors.Is(unix.Kill(h.PID, 0), unix.ESRCH)
	}
	for limit := time.Now().Add(diedWithin); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(h.pidfd), Events: unix.POLLIN}}, int(max(time.Until(limit).Milliseconds(), 0)))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// ended reports whether a connection was closed by the other side.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
