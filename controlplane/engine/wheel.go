package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/dataplane/beat"
)

// wheel asks nodes from one goroutine, on sockets of its own. It wakes in a few moments
// of a period: then it reads what has come since the last one, and asks the nodes that
// are due. What a goroutine and a place in the runtime's poller cost each node is being
// woken, twice an answer, which is five times what the answer itself takes to be read. So
// an answer lies for a moment before it is read.
//
// It serves nodes whose addresses are numbers: names would have to be looked up.
type wheel struct {
	poller *Poller
	news   chan struct{} // holds at most one

	mu      sync.Mutex
	come    []*spoke // guarded by mu: new, or to ask at once
	running bool     // guarded by mu
}

// spoke is one node and one question to it. Of the wheel's goroutine.
type spoke struct {
	kind Kind
	in   bool            // the wheel's round
	ctx  context.Context // ends when the node leaves the set
	n    *polled
	q    query
	to   unix.Sockaddr
	seen metricsSeen // of MetricsEvent

	due      time.Time // of the next question, or of the next look for its answer
	began    time.Time
	timeout  time.Duration
	deadline time.Time
	narrow   *dialect // whose narrow text was asked for; nil = the whole
	asking   bool
	sent     int  // of the request
	kept     bool // … on a connection that had served before
	looks    int  // for the answer
	page     *page

	fd     int       // -1 = no connection
	usedAt time.Time // when a question ended; zero before the first
}

const looksOften = 5 // at each moment; then at each fifth, for the node is slow or hangs

// take takes a node up, and reports whether it can be asked so.
func (w *wheel) take(ctx context.Context, n *polled) bool {
	q := newQuery(w.poller.prober, n.target.URL)
	at, err := netip.ParseAddrPort(q.address)
	if err != nil || at.Addr().Zone() != "" || n.target.Engine == OpenAI {
		return false
	}
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()}
	if at.Addr().Unmap().Is4() {
		to = &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().Unmap().As4()}
	}
	metrics := &spoke{kind: MetricsEvent, ctx: ctx, n: n, q: q, to: to, fd: -1}
	models := &spoke{kind: ModelsEvent, ctx: ctx, n: n, q: q, to: to, fd: -1}
	health := &spoke{kind: HealthEvent, ctx: ctx, n: n, q: q, to: to, fd: -1}
	n.models.pass = func() { w.add(models) }
	n.health.pass = func() { w.add(health) }
	w.add(models, metrics)
	return true
}

// add has spokes ask at once, but for metrics that are asked for the first time.
func (w *wheel) add(spokes ...*spoke) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.come = append(w.come, spokes...)
	if !w.running {
		w.running = true
		w.poller.wg.Go(w.run)
	}
	select {
	case w.news <- struct{}{}:
	default:
	}
}

func (w *wheel) run() {
	var round []*spoke
	defer func() {
		for _, k := range round {
			k.drop()
		}
	}()
	moment := w.poller.moment()
	timer := time.NewTimer(moment)
	defer timer.Stop()
	for {
		select {
		case <-w.poller.ctx.Done():
			return
		case <-w.news: // it may be due before the others
		case <-timer.C:
		}
		now := time.Now()
		round = w.takeUp(round, now)
		next := now.Add(time.Hour)
		left := round[:0]
		for _, k := range round {
			if stays := k.visit(now, moment); !stays {
				continue
			}
			if k.due.Before(next) {
				next = k.due
			}
			left = append(left, k)
		}
		clear(round[len(left):])
		round = left
		timer.Reset(beat.Until(next, moment))
	}
}

// takeUp adds what has come.
func (w *wheel) takeUp(round []*spoke, now time.Time) []*spoke {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range w.come {
		k.due = now
		if k.in {
			continue
		}
		if k.kind == MetricsEvent {
			k.due = now.Add(k.n.firstWait())
		}
		k.in = true
		round = append(round, k)
	}
	clear(w.come)
	w.come = w.come[:0]
	return round
}

// visit does what is due, and reports whether the spoke stays in the round.
func (k *spoke) visit(now time.Time, moment time.Duration) (stays bool) {
	if k.ctx.Err() != nil {
		k.drop()
		return false
	}
	if !now.Before(k.due) {
		k.turn(now, moment)
	}
	k.in = k.kind != HealthEvent || k.asking // health is asked for when it is wanted
	return k.in
}

// turn does what is due: it asks, or looks for the answer.
func (k *spoke) turn(now time.Time, moment time.Duration) {
	if !k.asking {
		k.begin(now)
	}
	asks := k.sent < len(k.q.request)
	err := k.step(now)
	if asks && k.sent == len(k.q.request) && k.looks > 0 {
		// It was connected since the last look. The time for the answer begins now: what
		// passed until this look is not the engine's.
		k.deadline = now.Add(k.timeout)
	}
	switch {
	case k.asking && err == nil && !now.Before(k.deadline):
		err = os.ErrDeadlineExceeded
	case k.asking && err == nil: // the answer is not whole yet
		if k.looks++; k.looks > looksOften {
			moment *= looksOften
		}
		k.due = now.Add(min(beat.Until(now.Add(1), moment), k.deadline.Sub(now)))
		return
	case k.asking && k.stale(err) && now.Before(k.deadline):
		k.drop()
		k.looks, k.due = 0, now // again, on a new connection
		return
	}
	if k.asking {
		k.drop()
		k.done(answer{}, err)
	}
}

// stale reports whether a connection that was kept had ended before the question came.
func (k *spoke) stale(err error) bool {
	return err != nil && k.kept && k.page == nil
}

// begin makes the next question.
func (k *spoke) begin(now time.Time) {
	switch k.kind {
	case MetricsEvent:
		k.timeout = k.n.poller.prober.MetricsTimeout
		engineName := k.n.dialect()
		if k.narrow = k.q.aimNarrow(engineName); k.narrow == nil {
			k.q.aimWhole(engineName)
		}
	case ModelsEvent:
		k.n.models.begin()
		k.timeout = k.n.poller.prober.ModelsTimeout
		k.q.aim(modelsPath)
	case HealthEvent:
		k.timeout = cmp.Or(k.n.healthTimeout(), k.n.poller.prober.HealthTimeout)
		k.q.aimHealth(k.n.target.HealthPath)
	}
	k.asking, k.began, k.deadline = true, now, now.Add(k.timeout)
	if k.fd >= 0 && now.Sub(k.usedAt) > idleTimeout {
		k.drop()
	}
	k.kept, k.sent, k.looks = k.fd >= 0, 0, 0
}

// step goes on as far as it can without waiting. When the answer is whole it is dealt
// with, and nothing is asked any more.
func (k *spoke) step(now time.Time) error {
	if k.fd < 0 {
		if err := k.dial(); err != nil {
			return err
		}
	}
	for k.sent < len(k.q.request) {
		n, err := unix.Write(k.fd, k.q.request[k.sent:])
		if k.sent += max(n, 0); err == nil || errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOTCONN) {
			return nil
		}
		return os.NewSyscallError("write", err)
	}
	if k.looks == 0 && k.page == nil {
		return nil // it was just asked
	}
	for {
		if k.page == nil {
			k.page = pagePool.Get().(*page)
			k.page.begin()
		}
		p := k.page
		room := p.room()
		n, err := unix.Read(k.fd, room)
		if n > 0 {
			p.bytes = p.bytes[:len(p.bytes)+n]
		} else if len(p.bytes) == 0 {
			k.forget() // nodes that do not answer hold no page
		}
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return os.NewSyscallError("read", err)
		case n == 0 && (k.page == nil || !p.end()):
			return fmt.Errorf("%w (%w)", errBroken, io.EOF)
		}
		done, fault := n == 0, error(nil)
		if n > 0 {
			done, fault = p.take()
		}
		if done || fault != nil {
			return k.answered(now, fault)
		}
		if n < len(room) {
			return nil // that was all there is
		}
	}
}

// answered deals with an answer that is whole.
func (k *spoke) answered(now time.Time, err error) error {
	if err != nil {
		return err
	}
	text, keep := k.page.whole()
	a := answer{size: len(text)}
	if err = k.q.refusal(k.page.head.Status, text); err == nil {
		err = k.read(&a, text)
		a.sample.AtNs = now.UnixNano()
	}
	k.forget()
	if !keep {
		k.drop()
	}
	k.done(a, err)
	return nil
}

// answer is what a good one says; size is in bytes.
type answer struct {
	sample Sample
	models ModelList
	size   int
}

func (k *spoke) read(a *answer, text []byte) (err error) {
	switch k.kind {
	case MetricsEvent:
		name := k.n.dialect()
		if k.narrow != nil {
			name = k.narrow.name
		}
		a.sample, err = decodeText(name, text)
	case ModelsEvent:
		if a.models, err = Models(bytes.NewReader(text)); err == nil {
			a.models.heard(k.page.field("Server"))
		}
	}
	return err
}

// done delivers what came of a question, and says when the next is due.
func (k *spoke) done(a answer, err error) {
	first := k.usedAt.IsZero()
	k.asking, k.usedAt = false, time.Now()
	k.forget()
	switch k.kind {
	case MetricsEvent:
		k.doneMetrics(&a, orNone(err))
	case ModelsEvent:
		k.drop() // it would be idle for too long
		e := k.event(err)
		e.Models = a.models
		k.due = k.usedAt.Add(k.n.concludeModels(k.ctx, e, first))
	case HealthEvent:
		k.drop() // that the engine accepts a connection is part of what is asked
		k.n.deliver(k.ctx, k.event(err))
		k.n.health.end()
	}
}

// doneMetrics delivers what came, unless the question was a narrow one that did not do:
// then the whole is asked for at once.
func (k *spoke) doneMetrics(a *answer, err error) {
	if k.narrow != nil && !k.q.narrow.take(a.sample, err) {
		k.due = k.usedAt
		return
	}
	if k.narrow == nil && err == nil {
		k.q.narrow.whole(a.sample, a.size)
	}
	e := k.event(err)
	if err == nil {
		e.Sample = a.sample
	}
	wait := k.n.conclude(k.ctx, &k.seen, e)
	if wait > idleTimeout {
		k.drop()
	}
	k.due = k.began.Add(wait)
}

func (k *spoke) event(err error) Event {
	e := Event{
		Kind: k.kind, Node: k.n.target.Name, Key: k.n.target.Key,
		AtNs: k.usedAt.UnixNano(), TookSeconds: k.usedAt.Sub(k.began).Seconds(),
	}
	if err != nil {
		e.Err = fmt.Errorf("ask %v: %q: %w", k.kind, k.q.base+k.q.path, err)
	}
	return e
}

// dial begins to connect.
func (k *spoke) dial() error {
	family := unix.AF_INET
	if _, six := k.to.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	if err := unix.Connect(fd, k.to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		_ = unix.Close(fd)
		return os.NewSyscallError("connect", err)
	}
	k.fd, k.kept = fd, false
	return nil
}

// drop ends the connection, if there is one, and with it what has come of an answer.
func (k *spoke) drop() {
	k.forget()
	if k.fd >= 0 {
		_ = unix.Close(k.fd)
		k.fd = -1
	}
	k.sent, k.kept = 0, false
}

// forget gives the page back.
func (k *spoke) forget() {
	if k.page != nil {
		k.page.release()
		k.page = nil
	}
}
