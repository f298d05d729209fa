package soak

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// client sends one request after the other, some of them on a connection of
// their own.
type client struct {
	run    *run
	number int
	source string // its address
	seq    int
	conn   *clientConn // nil while there is none to be used again
}

// clientConn is a connection of a client to the router.
type clientConn struct {
	run  *run
	c    *net.TCPConn
	r    *bufio.Reader
	used bool // a request was answered on it
}

// Times that a client waits: requestLimit for an answer, which is longer than
// the router's own limit, closeLimit for the close behind a last answer.
const (
	requestLimit = 60 * time.Second
	closeLimit   = 10 * time.Second
)

// stallsFrom is how long a run has to last for requests that never end: each
// takes as long as the router waits for a head.
const stallsFrom = 30 * time.Second

// sources is how many addresses of loopback the clients come from: one address
// has too few ports for as many connections as are opened.
const sources = 60

func newClient(run *run, number int) *client {
	return &client{run: run, number: number, source: fmt.Sprintf("127.0.0.%d", 2+number%sources)}
}

// loop sends requests until the run ends.
func (c *client) loop(ctx context.Context) {
	for c.run.next(ctx) {
		p := newPlan(c.run.Seed, c.number, c.seq, false)
		c.seq++
		if p.kind == kindStalled && c.run.Duration < stallsFrom {
			continue
		}
		if p.batch == 1 {
			c.one(&request{plan: p, source: c.source})
			continue
		}
		batch := []*request{{plan: p, source: c.source}}
		for len(batch) < p.batch {
			batch = append(batch, &request{plan: newPlan(c.run.Seed, c.number, c.seq, true), source: c.source})
			c.seq++
			c.run.next(ctx) // counted; a batch goes out whole
		}
		c.several(batch)
	}
	c.drop()
}

// drop ends the connection that would be used again.
func (c *client) drop() {
	if c.conn != nil {
		_ = c.conn.c.Close()
		c.conn = nil
	}
}

// connect returns a connection for a request.
func (c *client) connect(fresh, small bool) (*clientConn, error) {
	if c.conn != nil && !fresh && !small {
		return c.conn, nil
	}
	c.drop()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.source)}, Timeout: closeLimit}
	conn, err := d.Dial("tcp", c.run.address)
	if err != nil {
		return nil, err
	}
	tcp := conn.(*net.TCPConn)
	if small {
		// The router has to wait for this client; with less than a packet of
		// loopback the kernel would, for probes of a closed window.
		_ = tcp.SetReadBuffer(64 << 10)
	}
	return &clientConn{run: c.run, c: tcp, r: bufio.NewReaderSize(tcp, 16<<10)}, nil
}

// one sends a request and judges what comes of it.
func (c *client) one(r *request) {
	for fresh := r.fresh; ; fresh = true {
		conn, err := c.connect(fresh, r.slowRead)
		if err != nil {
			c.run.violate(r, "connect: %v", err)
			return
		}
		r.starts(time.Now())
		c.run.ledger.put(r)
		o := conn.exchange(r)
		o.reused = conn.used
		c.keep(conn, o)
		if o.stale(r) && c.run.restarting(r.started) {
			c.run.note("stale")
			continue // on a fresh connection, as HTTP leaves it to clients
		}
		c.run.judge(r, o)
		return
	}
}

// keep keeps the connection for the next request, if it can be used.
func (c *client) keep(conn *clientConn, o *outcome) {
	c.conn = nil
	if o.keeps {
		conn.used = true
		c.conn = conn
		return
	}
	_ = conn.c.Close()
}

// several sends requests in one write, and judges what comes of each.
func (c *client) several(batch []*request) {
	conn, err := c.connect(batch[0].fresh, false)
	if err != nil {
		c.run.violate(batch[0], "connect: %v", err)
		return
	}
	var all []byte
	now := time.Now()
	for _, r := range batch {
		content := r.body()
		all = append(all, r.requestHead(c.run.address, len(content))...)
		all = append(all, r.requestBody(content)...)
		r.starts(now)
		c.run.ledger.put(r)
	}
	sent := conn.send([][]byte{all}, 0, nil)
	reused := conn.used
	for i, r := range batch {
		o := conn.read(r)
		o.reused = reused || i > 0
		if i == 0 && o.stale(r) && c.run.restarting(r.started) {
			_ = conn.c.Close()
			<-sent
			c.run.note("stale")
			for _, r := range batch {
				c.one(r)
			}
			return
		}
		behind := o.end == endCut && brokenLater(batch[i+1:])
		if behind && r.answeredWhole() {
			c.run.count(classCutBehind, r)
		} else {
			c.run.judge(r, o)
		}
		if !o.keeps {
			c.lose(batch[i+1:], behind)
			_ = conn.c.Close()
			<-sent
			c.conn = nil
			return
		}
	}
	<-sent
	c.keep(conn, &outcome{keeps: true})
}

// brokenLater reports whether a node has broken the answer to one of the
// requests. The reset that shows it takes with it what the client has not read
// yet of answers before (RFC 9112, section 9.6).
func brokenLater(rest []*request) bool {
	for _, r := range rest {
		for _, t := range r.copyTries() {
			if t.broken != "" {
				return true
			}
		}
	}
	return false
}

// answeredWhole reports whether the last node that got the request has answered
// it whole.
func (r *request) answeredWhole() bool {
	tries := r.copyTries()
	return len(tries) > 0 && tries[len(tries)-1].whole
}

// lose notes that requests sent ahead have no answer: their connection ended
// with the answer before. They may not have been begun, unless a reset took
// answers with it.
func (c *client) lose(rest []*request, begun bool) {
	for _, r := range rest {
		r.mu.Lock()
		r.lost = true
		seen := len(r.tries)
		r.mu.Unlock()
		if seen > 0 && !begun {
			c.run.violate(r, "sent ahead, begun, and its connection ended before its answer")
		}
		c.run.count("unanswered", r)
	}
}

// exchange sends a request and reads its answer, as its plan says.
func (c *clientConn) exchange(r *request) *outcome {
	if r.kind == kindRefused {
		return c.refused(r)
	}
	content := r.body()
	first, second := r.requestHead(c.run.address, len(content)), r.requestBody(content)
	d := roll(r.seed, uint64(r.worker), uint64(r.seq), 11)
	switch {
	case r.kind == kindStalled && len(second) > 1:
		second = second[:len(second)/2]
	case r.kind == kindStalled, r.leave == leaveHeadOnly:
		first, second = first[:d.between(1, len(first)-2)], nil
	case r.leave == leaveSending:
		second = second[:d.IntN(len(second))]
	}
	var proceed chan struct{}
	if r.expect && r.leave != leaveHeadOnly {
		proceed = make(chan struct{}, 1)
	}
	sent := c.send(pieces(d, r, first, second), pauseBetween(d, r), proceed)
	switch r.leave {
	case leaveHeadOnly, leaveSending, leaveWaiting:
		if proceed != nil {
			_ = c.c.SetReadDeadline(time.Now().Add(requestLimit))
			_, _ = c.r.Peek(1)
			proceed <- struct{}{}
		}
		<-sent
		time.Sleep(d.pause(0, 50*time.Millisecond))
		c.leave(r)
		return &outcome{end: endLeft}
	case leaveHalfway:
		go func() {
			<-sent
			r.leaves()
			_ = c.c.CloseWrite()
		}()
	}
	o := c.readWith(r, proceed)
	if r.leave == leaveHalfway {
		o.keeps = false
		return o
	}
	return c.finish(r, o, sent)
}

// earlyGrace is how long a client still sends after it has its answer.
const earlyGrace = 500 * time.Millisecond

// finish waits until all is sent, if it is going to be, and for the end of a
// connection that has to end.
func (c *clientConn) finish(r *request, o *outcome, sent <-chan error) *outcome {
	select {
	case err := <-sent:
		o.keeps = o.keeps && err == nil
	case <-time.After(earlyGrace):
		// The answer came before the request was sent: nobody reads the rest.
		_ = c.c.SetWriteDeadline(time.Now())
		<-sent
		o.keeps = false
		return o
	}
	if o.end != endWhole || o.keeps {
		return o
	}
	_ = c.c.SetReadDeadline(time.Now().Add(closeLimit))
	b, err := c.r.Peek(1)
	switch {
	case err == nil:
		c.run.violate(r, "%q came behind the last answer", b)
	case timedOut(err):
		c.run.violate(r, "the connection is open %v after its last answer", closeLimit)
	}
	return o
}

// leave ends the connection before the answer is whole.
func (c *clientConn) leave(r *request) {
	r.leaves()
	if r.abort {
		_ = c.c.SetLinger(0)
	}
	_ = c.c.Close()
}

// pieces are the writes that a request goes out in.
func pieces(d dice, r *request, first, second []byte) [][]byte {
	if r.expect {
		return append([][]byte{first}, split(d, r, second)...)
	}
	return split(d, r, append(first, second...))
}

func split(d dice, r *request, b []byte) [][]byte {
	if r.sending == sendWhole {
		return [][]byte{b}
	}
	var all [][]byte
	last := 0
	for _, at := range append(d.cuts(len(b), d.between(2, 10)), len(b)) {
		all = append(all, b[last:at])
		last = at
	}
	return all
}

func pauseBetween(d dice, r *request) time.Duration {
	if r.sending != sendSlowly {
		return 0
	}
	if r.large() { // for longer than a node may be silent
		return d.pause(time.Millisecond, 600*time.Millisecond)
	}
	return d.pause(time.Millisecond, 100*time.Millisecond)
}

// send writes pieces with pauses between, the first one alone until proceed
// says so. What is short goes out at once. It says on the channel what came of it.
func (c *clientConn) send(pieces [][]byte, pause time.Duration, proceed <-chan struct{}) <-chan error {
	sent := make(chan error, 1)
	_ = c.c.SetWriteDeadline(time.Now().Add(requestLimit))
	const short = 32 << 10 // fits the socket's buffer
	if proceed == nil && pause == 0 && len(pieces) == 1 && len(pieces[0]) <= short {
		_, err := c.c.Write(pieces[0])
		sent <- err
		return sent
	}
	go func() {
		for i, piece := range pieces {
			if _, err := c.c.Write(piece); err != nil {
				sent <- err
				return
			}
			if i == 0 && proceed != nil {
				<-proceed
			}
			if i < len(pieces)-1 {
				time.Sleep(pause)
			}
		}
		sent <- nil
	}()
	return sent
}

// read is readWith without Expect.
func (c *clientConn) read(r *request) *outcome { return c.readWith(r, nil) }

// timedOut reports whether the error is that of waiting for too long.
func timedOut(err error) bool {
	timeout := net.Error(nil)
	return errors.As(err, &timeout) && timeout.Timeout()
}
