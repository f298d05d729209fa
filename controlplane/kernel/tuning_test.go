package kernel

import (
	"context"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/bpf"
	"warmpath/dataplane/fleet"
	"warmpath/netlab"
)

// TestTheAdministratorsWord: what is set for a whole network namespace is left alone
// there.
func TestTheAdministratorsWord(t *testing.T) {
	lab := netlab.New(t)
	look := func() (h hostSets) {
		if err := lab.Router.In(func() error { h = readHost(); return nil }); err != nil {
			t.Fatal(err)
		}
		return h
	}
	if h := look(); h != (hostSets{}) {
		t.Errorf("of a fresh namespace: %+v", h)
	}
	for _, s := range []string{"net.ipv4.tcp_notsent_lowat=131072", "net.ipv4.tcp_retries2=8"} {
		if out, err := lab.Router.Command(context.Background(), "sysctl", "-qw", s).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if h := look(); h != (hostSets{userTimeout: true, notSentLowat: true}) {
		t.Errorf("of one that was set: %+v", h)
	}
}

// TestTunedSockets reads from sockets what the configuration made of them, for a
// node with marks of its own and for one without, and after a change.
func TestTunedSockets(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: eBPF programs are loaded")
	}
	if h := readHost(); h.userTimeout || h.notSentLowat {
		t.Skipf("this host is set: %+v", h)
	}
	tuning := Tuning{UserTimeout: 7 * time.Second, NotSentLowatBytes: 1 << 17, Mark: Mark{DSCP: 34 + 1, Priority: 5 + 1}, Marks: map[string]Mark{"b": {DSCP: 8 + 1}}}
	p, err := Open(Options{Mode: "auto", Slots: 16, Tuning: tuning, Log: slog.New(slog.DiscardHandler)})
	if err != nil || p.flow == nil {
		t.Fatal(p, err)
	}
	defer p.Close()
	snap := &fleet.Snapshot{Nodes: []*fleet.Node{{Name: "a", Generation: 1}, {Name: "b", Generation: 1}}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for round, wants := range [][2]map[[2]int]int{
		{
			{userTimeout: 7000, lowat: 1 << 17, tos: 34 << 2, priority: 5},
			{userTimeout: 7000, lowat: 1 << 17, tos: 8 << 2, priority: 5},
		},
		{
			{userTimeout: 0, lowat: 0, tos: 0, priority: 0},
			{userTimeout: 0, lowat: 0, tos: 0, priority: 0},
		},
	} {
		p.sample(snap)
		for node, want := range wants {
			for option, v := range want {
				if got := p.optionOf(t, ln.Addr().String(), uint32(node), option); got != v {
					t.Errorf("round %d, node %d: option %v is %d, want %d", round, node, option, got, v)
				}
			}
		}
		v := p.View()
		if tuned := v.Nodes[1].DSCP != nil && *v.Nodes[1].DSCP == 8 && *v.Nodes[0].Priority == 5 && v.Nodes[0].UserTimeoutMs == 7000 && v.Nodes[0].NotSentLowat == 1<<17; tuned != (round == 0) || len(v.LeftAlone) != 0 {
			t.Errorf("round %d: %+v", round, v.Nodes)
		}
		p.Retune(Tuning{})
	}
}

var (
	userTimeout = [2]int{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT}
	lowat       = [2]int{unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT}
	tos         = [2]int{unix.IPPROTO_IP, unix.IP_TOS}
	priority    = [2]int{unix.SOL_SOCKET, unix.SO_PRIORITY}
)

// optionOf connects as to a node, and reads an option of the socket.
func (p *Plane) optionOf(t *testing.T, address string, node uint32, option [2]int) (value int) {
	t.Helper()
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = p.flow.Follow(int(fd), node, bpf.NoSlot, 0, 1) })
	}}
	c, err := d.DialContext(context.Background(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { value, err = unix.GetsockoptInt(int(fd), option[0], option[1]) })
	if err != nil {
		t.Fatal(err)
	}
	return value
}
