package bpf

import (
	"net"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/netlab"
)

// TestErrorsOfSockets: of a port where nobody listens, and of a way that ICMP says
// leads nowhere.
func TestErrorsOfSockets(t *testing.T) {
	l, f := netlab.New(t), loadAll(t)
	for _, args := range [][]string{
		{"-n", l.Router.Namespace, "route", "add", "10.79.0.0/24", "via", l.Node.Address},
		{"-n", l.Node.Namespace, "route", "add", "unreachable", "10.79.0.0/24"},
		{"netns", "exec", l.Node.Namespace, "sysctl", "-qw", "net.ipv4.ip_forward=1"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v\n%s", args, err, out)
		}
	}
	for node, c := range map[uint32]struct {
		address string
		want    syscall.Errno
	}{
		2: {net.JoinHostPort(l.Node.Address, "9"), syscall.ECONNREFUSED},
		3: {"10.79.0.5:9", syscall.EHOSTUNREACH},
	} {
		began := time.Now()
		if _, err := f.dialIn(l, c.address, node, node, 5*time.Second); err == nil {
			t.Fatalf("connected to %s", c.address)
		}
		if e := f.expect(t, EventError, node); syscall.Errno(e.Count) != c.want || time.Since(began) > 2*time.Second {
			t.Errorf("%s: error %v after %v, want %v", c.address, syscall.Errno(e.Count), time.Since(began), c.want)
		}
		if n, err := f.Counters(node); err != nil || n.Errors != 1 || n.Failed != 1 {
			t.Errorf("%s: counters %+v, %v", c.address, n, err)
		}
	}
}

// TestClosedWindow: a node reads nothing of a long request, which then waits here.
// It is told of once a second at most.
func TestClosedWindow(t *testing.T) {
	f := loadAll(t)
	reads := make(chan struct{})
	address := serve(t, func(c *net.TCPConn) {
		<-reads
		_ = c.Close()
	})
	defer close(reads)
	c := f.dial(t, address, 5, 1, 1)
	quiet := f.dial(t, address, 6, 2, 1)
	_, _ = quiet.Write([]byte("x"))
	_ = c.SetWriteDeadline(time.Now().Add(4 * time.Second))
	full := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, 64<<20))
		full <- err
	}()
	if e := f.expect(t, EventNoWindow, 5); e.Slot != 1 || e.AtNs == 0 {
		t.Errorf("event %+v", e)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err != nil || info.Snd_wnd != 0 {
			t.Errorf("the window is %d, %v", info.Snd_wnd, err)
		}
	})
	if err := <-full; err == nil {
		t.Error("a node that reads nothing took 64 MiB")
	}
	if n, err := f.Counters(5); err != nil || n.ZeroWindows == 0 || n.ZeroWindows > 6 {
		t.Errorf("counters %+v, %v", n, err)
	}
	if n, err := f.Counters(6); err != nil || n.ZeroWindows != 0 {
		t.Errorf("of a node with a window: %+v, %v", n, err)
	}
}
