package dataplane

import (
	"errors"
	"math"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"warmpath/dataplane/backend"
	"warmpath/dataplane/eventloop"
	"warmpath/dataplane/flow"
)

// Where the kernel's programs do not time segments the loops do it: by their own
// clock, and by what TCP_INFO says of connections. That is a system call of about
// a microsecond a connection, so it is asked of a few connections to each node at
// a time, each in its turn, and of more once one of them looks as if its node were
// gone. Only the loop touches its descriptors, so none is asked that has been
// given out again.

const (
	looksATurn   = 32  // of the loop: what follows waits for the next
	looksAPass   = 256 // shared by the nodes …
	looksANode   = 8   // … of which each has no more, …
	looksSuspect = 64  // … but for one that may be gone
	timeOutsMost = 64  // told of a pass
)

// Measure fills into with what all loops saw of nodes since they were started, and
// the time-outs that they found since they were last asked. It waits for one loop
// after the other. One goroutine at a time.
func (d *Dataplane) Measure(into *flow.Measurement) {
	into.Reset()
	for _, l := range d.loops {
		p := &pass{into: into, done: make(chan struct{})}
		if l.el.Execute(func() { l.measure(p) }) != nil {
			continue
		}
		select {
		case <-p.done:
		case <-d.stopped:
			return
		}
	}
}

// pass is one walk of a loop over its nodes.
type pass struct {
	into *flow.Measurement
	slot int // of the next node
	done chan struct{}
}

// measure goes on with a pass, and comes again in the next turn if it is not at
// its end.
func (l *loop) measure(p *pass) {
	l.now = l.d.nowNs()
	meters := l.share.Meters()
	each := min(max(looksAPass/max(len(meters), 1), 1), looksANode)
	for left := looksATurn; p.slot < len(meters); p.slot++ {
		if left <= 0 {
			if l.el.Execute(func() { l.measure(p) }) != nil {
				break
			}
			return
		}
		if m := meters[p.slot]; m != nil {
			left -= l.lookAt(p, m, each)
			p.into.Add(p.slot, m)
		}
	}
	close(p.done)
}

// lookAt reads so many of the connections to a node, and returns how many it read.
func (l *loop) lookAt(p *pass, m *flow.Meter, most int) (looks int) {
	for ; looks < min(most, l.live.Of(p.slot)); looks++ {
		c := l.live.Next(p.slot)
		timeOut, ok := l.look(c, m)
		if !ok {
			continue
		}
		most = looksSuspect
		if len(p.into.TimeOuts) < timeOutsMost {
			p.into.TimeOuts = append(p.into.TimeOuts, timeOut)
		}
	}
	return looks
}

// info is scratch of look.
type info struct{ unix.TCPInfo }

// TCP states (net/tcp_states.h).
const (
	tcpEstablished = 1
	tcpSynSent     = 2
)

// look reads TCP_INFO of a connection. It reports a time-out that was not reported
// before: of a SYN, or the second in a row and later ones.
func (l *loop) look(c *backend.Conn, m *flow.Meter) (t flow.TimeOut, ok bool) {
	i := &l.info.TCPInfo
	bytes, there := c.Info(i)
	if !there {
		return t, false
	}
	now := l.now + l.d.bootNs
	m.Retransmits += uint64(i.Total_retrans - c.Retransmits)
	c.Retransmits = i.Total_retrans
	syn := i.State == tcpSynSent
	if !syn {
		m.HeardNs = max(m.HeardNs, now-millis(min(i.Last_ack_recv, i.Last_data_recv)))
		if i.Min_rtt != math.MaxUint32 {
			m.NoteRTT(c.Generation, int64(i.Min_rtt)*1000)
		}
	}
	if noWindow := i.State == tcpEstablished && i.Snd_wnd == 0 && bytes >= sndWndEnd; noWindow != c.NoWindow {
		if c.NoWindow = noWindow; noWindow {
			m.ZeroWindows++
		}
	}
	count, was := int(i.Retransmits), c.TimeOuts
	if c.TimeOuts = count; count < was {
		was = 0 // they are of another row
	}
	m.RTOs += uint64(count - was)
	if count == was || count < 2 && !syn {
		return t, false
	}
	t = flow.TimeOut{Slot: c.Slot, Generation: c.Generation, Count: count, SYN: syn, AtNs: now}
	if t.SinceNs = now - sinceFirstNs(i); syn { // what was sent when is kept of data alone
		t.SinceNs = min(c.MadeNs+l.d.bootNs+firstRTONs(i), now)
	}
	return t, true
}

const sndWndEnd = int(unsafe.Offsetof(unix.TCPInfo{}.Snd_wnd) + unsafe.Sizeof(uint32(0)))

// sinceFirstNs is how long the first of the retransmission time-outs in a row is
// over: the last was when something was sent last, and each came after twice the
// time of the one before (tcp_retransmit_timer of net/ipv4/tcp_timer.c).
func sinceFirstNs(i *unix.TCPInfo) int64 {
	doubled := min(i.Backoff, i.Retransmits, 30)
	return millis(i.Last_data_sent) + firstRTONs(i)*max(int64(1)<<doubled-2, 0)
}

// firstRTONs is what the first of them had waited for.
func firstRTONs(i *unix.TCPInfo) int64 { return int64(i.Rto) * 1000 >> min(i.Backoff, 30) }

func millis(ms uint32) int64 { return int64(ms) * 1e6 }

// socketMade runs for each socket that is about to connect to a node.
func (l *loop) socketMade(c *backend.Conn, fd int) {
	if l.share.Timed() {
		l.socketEnded(c)
		c.MadeNs, c.Established, c.TimeOuts, c.Retransmits, c.NoWindow = l.d.nowNs(), false, 0, 0, false
		l.live.Add(c)
		_ = eventloop.Stamp(fd) // without it the times are those of reading
	}
	l.share.Open(&c.Line, fd, uint32(c.Slot), c.Generation)
}

// socketEnded runs when the socket of c, if it has one, is gone.
func (l *loop) socketEnded(c *backend.Conn) {
	if m := l.share.Meter(c.Slot); m != nil && c.MadeNs != 0 && !c.Established {
		m.Failed++
	}
	c.MadeNs = 0
}

// lineEnded ends what is measured of a connection.
func (l *loop) lineEnded(c *backend.Conn) {
	l.socketEnded(c)
	l.live.Remove(c)
	l.share.Close(&c.Line)
}

// measureConnect runs when a connection to a node is there.
func (l *loop) measureConnect(c *backend.Conn) {
	m := l.share.Meter(c.Slot)
	if m == nil {
		return
	}
	c.Established = true
	m.Established++
	m.HeardNs = max(m.HeardNs, l.now+l.d.bootNs)
	m.Times.Connect[flow.Bucket(l.now-c.MadeNs)]++
	if _, ok := c.Info(&l.info.TCPInfo); ok { // nothing but the SYN has been timed yet
		m.Times.SynRTT[flow.Bucket(int64(l.info.Rtt)*1000)]++
		m.NoteRTT(c.Generation, int64(l.info.Rtt)*1000)
	}
}

// measureEnd runs while a connection ends. Its socket is gone.
func (l *loop) measureEnd(c *backend.Conn, err error) {
	m := l.share.Meter(c.Slot)
	if m == nil {
		return
	}
	if told := syscall.Errno(0); errors.As(err, &told) {
		m.Errors++
	}
	switch {
	case !c.Established:
	case errors.Is(err, syscall.ECONNRESET):
		m.ResetsIn++
		m.HeardNs = max(m.HeardNs, l.now+l.d.bootNs)
	case c.Owner == nil && backend.FromPeer(err):
		m.ClosedIdle++
	}
}

// measureLast reads of a connection what nobody will be able to read any more.
func (l *loop) measureLast(c *backend.Conn) {
	if m := l.share.Meter(c.Slot); m != nil {
		l.look(c, m)
	}
}
