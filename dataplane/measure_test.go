package dataplane

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/dataplane/backend"
	"warmpath/dataplane/eventloop"
	"warmpath/dataplane/flow"
	"warmpath/netlab"
)

func TestSinceFirstTimeOut(t *testing.T) {
	for name, c := range map[string]struct {
		info unix.TCPInfo
		want int64
	}{
		"first":  {unix.TCPInfo{Retransmits: 1, Backoff: 1, Rto: 400_000, Last_data_sent: 30}, 30e6},
		"second": {unix.TCPInfo{Retransmits: 2, Backoff: 2, Rto: 800_000, Last_data_sent: 30}, 430e6},
		"fourth": {unix.TCPInfo{Retransmits: 4, Backoff: 4, Rto: 3_200_000, Last_data_sent: 1}, 2801e6},
		"linear": {unix.TCPInfo{Retransmits: 3, Backoff: 0, Rto: 200_000, Last_data_sent: 20}, 20e6},
	} {
		if got := sinceFirstNs(&c.info); got != c.want {
			t.Errorf("%s: %d ns, want %d", name, got, c.want)
		}
	}
}

// deaf is a handler of connections of which only TCP_INFO matters.
type deaf struct{}

func (deaf) Readable(*eventloop.Conn)      {}
func (deaf) Drained(*eventloop.Conn)       {}
func (deaf) Connected(*eventloop.Conn)     {}
func (deaf) Waits(*eventloop.Conn)         {}
func (deaf) Ended(*eventloop.Conn, error)  {}
func (deaf) Closed(*eventloop.Conn, error) {}

// inLab makes a loop that nobody runs, with one connection from the lab's router.
func inLab(t *testing.T, lab *netlab.Lab, to netip.AddrPort) (*loop, *backend.Conn) {
	t.Helper()
	el, err := eventloop.New()
	if err != nil {
		t.Fatal(err)
	}
	started := time.Now()
	l := &loop{d: &Dataplane{started: started, bootNs: bootNs(started)}, el: el, share: (*flow.Table)(nil).Share(0, 1)}
	l.share.Time()
	c := &backend.Conn{Slot: 1, Generation: 7}
	if err := lab.Router.In(func() error {
		return el.Connect(&c.Conn, to, deaf{}, func(fd int) { l.socketMade(c, fd) })
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return l, c
}

// until looks again and again, as Measure does.
func until(t *testing.T, l *loop, c *backend.Conn, what string, found func(flow.TimeOut, bool) bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(10 * time.Second); ; {
		l.now = l.d.nowNs()
		if found(l.look(c, l.share.Meter(c.Slot))) {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("never: %s; TCP_INFO %+v", what, l.info)
		}
	}
}

// TestTCPInfoOfADeadHost: a request goes out and nothing comes back. TCP_INFO says
// since when, nearly as the kernel's own event does.
func TestTCPInfoOfADeadHost(t *testing.T) {
	lab := netlab.New(t)
	l, c := inLab(t, lab, lab.Listen(lab.Node).Addr().(*net.TCPAddr).AddrPort())
	until(t, l, c, "connected", func(flow.TimeOut, bool) bool { return l.info.State == tcpEstablished })
	l.measureConnect(c)
	m := l.share.Meter(1)
	if m.Established != 1 || m.RTTMinNs <= 0 || m.RTTMinNs > 5e6 || sumOf(m.Times.SynRTT[:]) != 1 {
		t.Errorf("connected: %+v", m)
	}
	lab.Lose(1000)
	sentNs := l.d.kernelNs()
	if _, err := unix.Write(c.FD(), []byte("ask")); err != nil {
		t.Fatal(err)
	}
	until(t, l, c, "a second time-out", func(o flow.TimeOut, ok bool) bool {
		if !ok {
			return false
		}
		if o.Count != 2 || o.SYN || o.Slot != 1 || o.Generation != 7 {
			t.Errorf("time-out %+v", o)
		}
		// The first comes 200 ms after the request, or later behind a probe.
		if after := o.SinceNs - sentNs; after < 150e6 || after > 900e6 || o.SinceNs >= o.AtNs {
			t.Errorf("the first time-out was %d ms after the request, found out %d ms after it", after/1e6, (o.AtNs-sentNs)/1e6)
		}
		if m.HeardNs >= o.SinceNs || m.HeardNs > sentNs+8e6 {
			t.Errorf("heard %d ms after the request, which was never answered", (m.HeardNs-sentNs)/1e6)
		}
		return true
	})
	if m.RTOs != 2 || m.Retransmits < 2 {
		t.Errorf("%d time-outs, %d segments sent again", m.RTOs, m.Retransmits)
	}
}

// TestTCPInfoOfALostSYN: the host's own time-out is a second.
func TestTCPInfoOfALostSYN(t *testing.T) {
	lab := netlab.New(t)
	to := lab.Listen(lab.Node).Addr().(*net.TCPAddr).AddrPort()
	lab.Lose(1000)
	l, c := inLab(t, lab, to)
	madeNs := c.MadeNs + l.d.bootNs
	until(t, l, c, "a SYN timed out", func(o flow.TimeOut, ok bool) bool {
		if ok && (o.Count != 1 || !o.SYN || o.SinceNs-madeNs < 900e6 || o.SinceNs-madeNs > 1300e6) {
			t.Errorf("%d ms after the SYN: %+v", (o.SinceNs-madeNs)/1e6, o)
		}
		return ok
	})
	l.lineEnded(c)
	if m := l.share.Meter(1); m.Connects != 1 || m.Failed != 1 || m.HeardNs != 0 {
		t.Errorf("meter %+v", m)
	}
}

// TestTCPInfoOfAClosedWindow: a node that reads nothing.
func TestTCPInfoOfAClosedWindow(t *testing.T) {
	lab := netlab.New(t)
	l, c := inLab(t, lab, lab.Listen(lab.Node).Addr().(*net.TCPAddr).AddrPort())
	much := make([]byte, 1<<20)
	until(t, l, c, "the window closes", func(flow.TimeOut, bool) bool {
		if l.info.State == tcpEstablished {
			_, _ = unix.Write(c.FD(), much)
		}
		return l.share.Meter(1).ZeroWindows > 0
	})
	if n := l.share.Meter(1).ZeroWindows; n != 1 || !c.NoWindow {
		t.Errorf("the window closed %d times", n)
	}
}

// TestMeasureTakesTurns: more nodes than one turn of the loop looks at, twice; and
// loops that have ended keep nobody waiting.
func TestMeasureTakesTurns(t *testing.T) {
	const nodes, each = 40, 3
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	el, err := eventloop.New()
	if err != nil {
		t.Fatal(err)
	}
	d := &Dataplane{started: time.Now(), bootNs: int64(time.Hour), stopped: make(chan struct{})} // what was heard lies before now, not before the boot
	l := &loop{d: d, el: el, share: (*flow.Table)(nil).Share(0, 1)}
	l.share.Time()
	d.loops = []*loop{l}
	go func() { _ = el.Run(); close(d.stopped) }()
	_ = el.Execute(func() {
		for slot := range nodes {
			for range each {
				c := &backend.Conn{Slot: slot, Generation: 1}
				if err := el.Connect(&c.Conn, ln.Addr().(*net.TCPAddr).AddrPort(), deaf{}, func(fd int) { l.socketMade(c, fd) }); err != nil {
					t.Error(err)
				}
			}
		}
	})
	var m flow.Measurement
	for range 2 {
		if d.Measure(&m); len(m.Meters) != nodes || len(m.TimeOuts) != 0 {
			t.Fatalf("%d meters, time-outs %+v", len(m.Meters), m.TimeOuts)
		}
		for slot := range m.Meters {
			if got := m.Of(slot); got.Connects != each || got.RTTMinNs == 0 || got.HeardNs == 0 {
				t.Errorf("node %d: %+v", slot, got)
			}
		}
	}
	el.Stop()
	<-d.stopped
	if d.Measure(&m); len(m.Meters) != 0 {
		t.Errorf("%d meters of a loop that has ended", len(m.Meters))
	}
}

func sumOf(h []uint64) (n uint64) {
	for _, v := range h {
		n += v
	}
	return n
}

// BenchmarkLook is what TCP_INFO of one connection costs its loop.
func BenchmarkLook(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	el, err := eventloop.New()
	if err != nil {
		b.Fatal(err)
	}
	l := &loop{d: &Dataplane{started: time.Now()}, el: el, share: (*flow.Table)(nil).Share(0, 1)}
	l.share.Time()
	c := &backend.Conn{}
	if err := el.Connect(&c.Conn, ln.Addr().(*net.TCPAddr).AddrPort(), deaf{}, func(fd int) { l.socketMade(c, fd) }); err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	b.ReportAllocs()
	for b.Loop() {
		l.look(c, l.share.Meter(0))
	}
}
