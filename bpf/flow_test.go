package bpf

import (
	"context"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"warmpath/netlab"
)

// needBPF skips where nothing can be loaded. Who is root can, so that nothing is
// skipped in CI.
func needBPF(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: eBPF programs are loaded")
	}
}

// loadAll loads all programs; it skips the test where the kernel lacks something
// that one of them needs.
func loadAll(t testing.TB) *Flow {
	t.Helper()
	f := loadFollowing(t)
	for name, attach := range map[string]func() error{"segments": f.FollowSegments, "resets": f.CountResets, "errors": f.TellErrors, "windows": f.TellWindows} {
		err := attach()
		netlab.SkipLacking(t, err)
		if err != nil {
			t.Fatalf("%s: %+v", name, err)
		}
	}
	return f
}

// loadFollowing loads the program that follows connections, and none else: what
// the tier lite has.
func loadFollowing(t testing.TB) *Flow {
	t.Helper()
	needBPF(t)
	cgroup, err := OwnCgroup()
	if err != nil {
		t.Fatal(err)
	}
	f, err := LoadFlow(cgroup, 64)
	netlab.SkipLacking(t, err)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func (f *Flow) slot(i int) *Slot { return &unsafe.Slice((*Slot)(unsafe.Pointer(&f.memory[0])), 64)[i] }

// dial connects to a server of the test's, followed as a node in a slot.
func (f *Flow) dial(t *testing.T, address string, node, slot, generation uint32) *net.TCPConn {
	t.Helper()
	f.slot(int(slot)).Generation = generation
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = f.Follow(int(fd), node, slot, generation, 0) }); e != nil {
			return e
		}
		return err
	}}
	c, err := d.DialContext(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

func serve(t *testing.T, handle func(*net.TCPConn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go handle(c.(*net.TCPConn))
		}
	}()
	return ln.Addr().String()
}

// TestSegmentsOfAnAnswer sends a request, and looks at what the kernel wrote of
// an answer in two segments with a wait before each.
func TestSegmentsOfAnAnswer(t *testing.T) {
	f := loadAll(t)
	const thinks, pauses = 20 * time.Millisecond, 10 * time.Millisecond
	address := serve(t, func(c *net.TCPConn) {
		var b [64]byte
		for {
			if n, err := c.Read(b[:]); n == 0 || err != nil {
				return
			}
			<-time.After(thinks)
			_, _ = c.Write([]byte("head"))
			<-time.After(pauses)
			_, _ = c.Write([]byte("and body"))
		}
	})
	began := uint64(MonotonicNs())
	c, s := f.dial(t, address, 3, 5, 7), f.slot(5)
	far := max(uint64(10*time.Millisecond), uint64(MonotonicNs())-began) // no further than a handshake took
	for request := uint32(1); request <= 3; request++ {
		before := uint64(MonotonicNs())
		s.SendNs, s.Seq = before, request
		if _, err := c.Write([]byte("ask")); err != nil {
			t.Fatal(err)
		}
		var b [64]byte
		for got := 0; got < 12; {
			n, err := c.Read(b[:])
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
		after := uint64(MonotonicNs())
		if s.Answer != request || s.Bytes != 12 || s.Segments != 2 || s.State != 1 {
			t.Fatalf("request %d: answer %d, bytes %d, segments %d, state %d; want the request's, 12, 2, 1", request, s.Answer, s.Bytes, s.Segments, s.State)
		}
		if s.Segment[0].EndBytes != 4 || s.Segment[1].EndBytes != 12 {
			t.Errorf("segments end at %d and %d, want 4 and 12", s.Segment[0].EndBytes, s.Segment[1].EndBytes)
		}
		if s.FirstNs < before+uint64(thinks) || s.LastNs < s.FirstNs+uint64(pauses)/2 || s.LastNs > after || s.GapNs != s.LastNs-s.FirstNs {
			t.Errorf("sent at 0, first segment at %d ns, last at %d, gap %d, read at %d", s.FirstNs-before, s.LastNs-before, s.GapNs, after-before)
		}
		if uint64(s.RttMinUs)*1000 > far {
			t.Errorf("a node that thinks 20 ms is said to be %d µs away", s.RttMinUs)
		}
	}
	n, err := f.Counters(3)
	if err != nil {
		t.Fatal(err)
	}
	if n.Connects != 1 || n.Established != 1 || n.Segments != 6 || n.Bytes != 36 || n.HeardNs < s.LastNs {
		t.Errorf("counters are %+v", n)
	}
	times, err := f.Times(3)
	if err != nil {
		t.Fatal(err)
	}
	var first, gaps, connects uint64
	for b := range Buckets {
		first += times.FirstByte[b]
		gaps += times.Gap[b]
		connects += times.Connect[b]
	}
	if first != 3 || gaps != 3 || connects != 1 || times.FirstByte[25]+times.FirstByte[26] != 3 { // 2^24 ns = 17 ms
		t.Errorf("%d first bytes, %d gaps, %d connects: %v", first, gaps, connects, times.FirstByte)
	}
}

// expect reads events until one of a kind comes of a node.
func (f *Flow) expect(t *testing.T, kind EventKind, node uint32) Event {
	t.Helper()
	found := make(chan Event, 1)
	go func() {
		for {
			var e Event
			if f.Next(&e) != nil {
				return
			}
			if EventKind(e.Kind) == kind && e.Node == node {
				found <- e
				return
			}
		}
	}()
	select {
	case e := <-found:
		return e
	case <-time.After(5 * time.Second):
		t.Fatalf("no event %v of node %d", kind, node)
		return Event{}
	}
}

func TestResetIsTold(t *testing.T) {
	f := loadAll(t)
	address := serve(t, func(c *net.TCPConn) {
		var b [64]byte
		_, _ = c.Read(b[:])
		_ = c.SetLinger(0)
		_ = c.Close()
	})
	c := f.dial(t, address, 1, 2, 1)
	f.slot(2).Seq = 1
	_, _ = c.Write([]byte("ask"))
	if e := f.expect(t, EventReset, 1); e.Slot != 2 || e.AtNs == 0 {
		t.Errorf("event %+v", e)
	}
	if n, _ := f.Counters(1); n.ResetsIn != 1 || n.ClosedIdle != 0 {
		t.Errorf("counters %+v", n)
	}
}

// TestIdleConnectionClosedByTheNode is told of only where no request is on it.
func TestIdleConnectionClosedByTheNode(t *testing.T) {
	f := loadFollowing(t)
	address := serve(t, func(c *net.TCPConn) {
		var b [64]byte
		_, _ = c.Read(b[:])
		_ = c.Close()
	})
	busy, idle := f.dial(t, address, 1, 1, 1), f.dial(t, address, 1, 2, 1)
	f.slot(1).Seq = 1
	_, _ = busy.Write([]byte("x"))
	_, _ = busy.Read(make([]byte, 1))
	_, _ = idle.Write([]byte("x"))
	if e := f.expect(t, EventClosedIdle, 1); e.Slot != 2 {
		t.Errorf("event %+v, want one of slot 2", e)
	}
	if s := f.slot(2); s.State != 8 { // TCP_CLOSE_WAIT
		t.Errorf("the state is %d", s.State)
	}
	if n, _ := f.Counters(1); n.ClosedIdle != 1 {
		t.Errorf("counters %+v", n)
	}
}

func TestRefusedConnection(t *testing.T) {
	f := loadFollowing(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	_ = ln.Close()
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = f.Follow(int(fd), 4, NoSlot, 0, 0) })
	}}
	if _, err := d.DialContext(context.Background(), "tcp", address); err == nil {
		t.Fatal("connected")
	}
	f.expect(t, EventFailed, 4)
	if n, _ := f.Counters(4); n.Connects != 1 || n.Failed != 1 || n.Established != 0 {
		t.Errorf("counters %+v", n)
	}
}

// TestForeignSocketsAreLeftAlone: another router in the same cgroup, and what a
// slot's earlier connection still does.
func TestForeignSocketsAreLeftAlone(t *testing.T) {
	f, other := loadAll(t), loadAll(t)
	closing := make(chan struct{})
	address := serve(t, func(c *net.TCPConn) {
		var b [64]byte
		_, _ = c.Read(b[:])
		_, _ = c.Write([]byte("answer"))
		<-closing
		_ = c.Close()
	})
	c := f.dial(t, address, 1, 1, 1)
	f.slot(1).Generation = 2 // another has the slot now
	f.slot(1).Seq = 1
	_, _ = c.Write([]byte("x"))
	_, _ = c.Read(make([]byte, 10))
	close(closing)
	_, _ = c.Read(make([]byte, 1))
	if s := f.slot(1); s.Answer != 0 || s.FirstNs != 0 || s.Segments != 0 {
		t.Errorf("an older connection has written %+v", s)
	}
	if n, _ := other.Counters(1); n != (Counters{}) {
		t.Errorf("another router counted %+v", n)
	}
}

// TestRules reads back from a socket what its node's rule made of it.
func TestRules(t *testing.T) {
	f := loadFollowing(t)
	address := serve(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	if err := f.SetRule(6, Rule{UserTimeoutMs: 4321, NotsentLowatBytes: 65536, Priority: 4 + 1, Tos: 0x28 + 1, RtoMinUs: 50_000, Near: 1}); err != nil {
		t.Fatal(err)
	}
	want := map[[2]int]int{
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT}: 4321, {unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT}: 65536,
		{unix.SOL_SOCKET, unix.SO_PRIORITY}: 4, {unix.IPPROTO_IP, unix.IP_TOS}: 0x28,
	}
	c := f.dial(t, address, 6, 1, 1)
	for range 3 { // the time-out is reckoned anew with each round trip
		_, _ = c.Write([]byte("ask"))
		_, _ = c.Read(make([]byte, 8))
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		for o, v := range want {
			if got, err := unix.GetsockoptInt(int(fd), o[0], o[1]); err != nil || got != v {
				t.Errorf("option %v is %d (%v), want %d", o, got, err, v)
			}
		}
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil || info.Rto > 100_000 {
			t.Errorf("the time-out is %d µs (%v), want about 50,000", info.Rto, err)
		}
	})
}

func TestOwnCgroup(t *testing.T) {
	const hybrid = `25 1 0:22 / /sys rw - sysfs sysfs rw
30 25 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
`
	for name, c := range map[string]struct{ mounts, own, want string }{
		"hybrid":     {hybrid, "4:cpu:/a\n0::/b\n", "/sys/fs/cgroup/unified/b"},
		"root":       {hybrid, "0::/\n", "/sys/fs/cgroup/unified"},
		"v2 only":    {"30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n", "0::/system.slice/warmpath.service\n", "/sys/fs/cgroup/system.slice/warmpath.service"},
		"part":       {"30 25 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/box/inner\n", "/sys/fs/cgroup/inner"},
		"blank":      {"30 25 0:26 / /my\\040cgroups rw - cgroup2 cgroup2 rw\n", "0::/a\n", "/my cgroups/a"},
		"not ours":   {"30 25 0:26 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/elsewhere\n", ""},
		"no v2":      {"32 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", "4:cpu:/a\n0::/\n", ""},
		"only v1":    {hybrid, "4:cpu:/a\n", ""},
		"bad mounts": {"30\n\n- cgroup2\n", "0::/\n", ""},
	} {
		got, err := findCgroup(strings.NewReader(c.mounts), strings.NewReader(c.own))
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
	if dir, err := OwnCgroup(); err == nil {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
}
