package bpf

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/netlab"
)

// lab is two network namespaces and a veth between them: clients have 10.77.0.2
// to .9 and fd77::2 to ::9, the server 10.77.0.1 and fd77::1. Nothing of the host
// but the names of the namespaces is touched, and those carry the process's id.
// From the addresses in warm a connection has been made before it is handed out.
type lab struct {
	t                testing.TB
	clients, server  string // namespaces
	listener         net.Listener
	connectionsWaits time.Duration
}

const nic = "guarded.0" // a dot is what bpffs takes in no name

func newLab(t testing.TB, warm ...string) *lab {
	t.Helper()
	load(t) // skips where it is not permitted
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("missing on this host: ip (iproute2)")
	}
	l := &lab{
		t: t, clients: fmt.Sprintf("warmpath-%d-c", os.Getpid()), server: fmt.Sprintf("warmpath-%d-s", os.Getpid()),
		connectionsWaits: 400 * time.Millisecond, // less than the first SYN takes to be sent again
	}
	t.Cleanup(func() {
		for _, ns := range []string{l.clients, l.server} {
			_ = exec.Command("ip", "netns", "del", ns).Run() // with all that is in it
		}
	})
	for _, ns := range []string{l.clients, l.server} {
		l.ip("netns", "add", ns)
		l.ip("-n", ns, "link", "set", "lo", "up")
	}
	l.ip("-n", l.server, "link", "add", nic, "type", "veth", "peer", "name", "client", "netns", l.clients)
	l.ip("-n", l.server, "addr", "add", "10.77.0.1/16", "dev", nic)
	l.ip("-n", l.server, "addr", "add", "fd77::1/64", "dev", nic, "nodad")
	for i := 2; i < 10; i++ {
		l.ip("-n", l.clients, "addr", "add", fmt.Sprintf("10.77.0.%d/16", i), "dev", "client")
		l.ip("-n", l.clients, "addr", "add", fmt.Sprintf("fd77::%d/64", i), "dev", "client", "nodad")
	}
	l.ip("-n", l.server, "link", "set", nic, "up")
	l.ip("-n", l.clients, "link", "set", "client", "up")
	l.serve()
	for _, from := range warm { // neighbours need a moment to know each other
		for tries := 0; l.connect(from) == nil; tries++ {
			if tries == 20 {
				t.Fatalf("no connection from %s before anything guards", from)
			}
		}
	}
	return l
}

func (l *lab) ip(args ...string) {
	l.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		l.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// in runs f in a namespace.
func (l *lab) in(namespace string, f func()) {
	l.t.Helper()
	must(l.t, netlab.In(namespace, func() error { f(); return nil }))
}

// serve echoes what comes, on port 8080.
func (l *lab) serve() {
	var err error
	l.in(l.server, func() { l.listener, err = net.Listen("tcp", ":8080") })
	must(l.t, err)
	l.t.Cleanup(func() { _ = l.listener.Close() })
	go func() {
		for {
			c, err := l.listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
}

// connect connects from a client's address; nil if it gets no answer.
func (l *lab) connect(from string) net.Conn {
	l.t.Helper()
	to := "10.77.0.1:8080"
	if strings.Contains(from, ":") {
		to = "[fd77::1]:8080"
	}
	var c net.Conn
	var err error
	l.in(l.clients, func() {
		d := net.Dialer{Timeout: l.connectionsWaits, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		d.SetMultipathTCP(false)
		c, err = d.Dial("tcp", to)
	})
	if err == nil {
		l.t.Cleanup(func() { _ = c.Close() })
		return c
	}
	if timeout := net.Error(nil); !errors.As(err, &timeout) || !timeout.Timeout() {
		l.t.Fatalf("connect from %s: %v", from, err)
	}
	return nil
}

// echo reports whether a connection still works.
func (l *lab) echo(c net.Conn) bool {
	l.t.Helper()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write([]byte("hello")); err != nil {
		return false
	}
	b := make([]byte, 5)
	_, err := io.ReadFull(c, b)
	return err == nil && string(b) == "hello"
}

func (l *lab) attach(opt GuardOptions) (g *Guard, err error) {
	l.t.Helper()
	opt.Interface = orElse(opt.Interface, nic)
	l.in(l.server, func() { g, err = AttachGuard(opt) })
	if err == nil {
		must(l.t, g.SetPorts([]PortCap{{Port: 8080}}))
	}
	return g, err
}

// mountBPFFS mounts one, for this test.
func mountBPFFS(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("bpf", dir, "bpf", 0, ""); err != nil {
		t.Skipf("bpffs cannot be mounted: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// TestGuardOnVeth: real connections, in both modes.
func TestGuardOnVeth(t *testing.T) {
	l := newLab(t, "10.77.0.2", "10.77.0.3", "fd77::2", "fd77::3")
	for _, mode := range []GuardMode{GuardNative, GuardGeneric} {
		t.Run(mode.String(), func(t *testing.T) {
			g, err := l.attach(GuardOptions{Mode: mode})
			must(t, err)
			defer func() { must(t, g.Detach()) }()
			if g.Mode() != mode || !g.Attached() || g.ProgramID() == 0 {
				t.Errorf("mode %v, attached %v, program %d", g.Mode(), g.Attached(), g.ProgramID())
			}
			for _, from := range []string{"10.77.0.2", "fd77::2"} {
				before := l.connect(from)
				if before == nil || !l.echo(before) {
					t.Fatalf("%s: no connection with an empty list", from)
				}
				must(t, g.SetLists(Lists{Deny: prefixes("10.77.0.2/32", "fd77::2/128")}))
				if l.connect(from) != nil {
					t.Errorf("%s is denied and got a connection", from)
				}
				if !l.echo(before) {
					t.Errorf("%s is denied and lost the connection that it had", from)
				}
				if l.connect(strings.TrimSuffix(from, "2")+"3") == nil {
					t.Errorf("the neighbour of %s got no connection", from)
				}
				must(t, g.SetLists(Lists{}))
				if l.connect(from) == nil {
					t.Errorf("%s got no connection after the list was emptied", from)
				}
			}
			v, err := g.Counts()
			if err != nil || v.Denied != 2 || v.SYN != 6 || v.Established == 0 {
				t.Errorf("counts %+v, %v", v, err)
			}
		})
	}
}

// TestGuardRateOnVeth: eight quick connections against five at once.
func TestGuardRateOnVeth(t *testing.T) {
	l := newLab(t, "10.77.0.2", "10.77.0.3")
	l.connectionsWaits = 200 * time.Millisecond // six wait in vain
	g, err := l.attach(GuardOptions{})
	must(t, err)
	defer func() { must(t, g.Detach()) }()
	g.limits.IntervalNs, g.limits.DepthNs = hour, 5*hour
	must(t, g.put())
	for _, from := range []string{"10.77.0.2", "10.77.0.3"} {
		got := 0
		for range 8 {
			if l.connect(from) != nil {
				got++
			}
		}
		if got != 5 {
			t.Errorf("%s got %d connections, want 5", from, got)
		}
	}
	if v, err := g.Counts(); err != nil || v.Rate < 6 || v.SYN != 10 { // a SYN may have been sent again
		t.Errorf("counts %+v, %v", v, err)
	}
}

// TestGuardOutlivesProcess: what is pinned stays when the process lets go, and
// the next one goes on with its lists, counts and connections.
func TestGuardOutlivesProcess(t *testing.T) {
	l := newLab(t)
	opt := GuardOptions{PinFolder: filepath.Join(mountBPFFS(t), "warmpath")}
	g, err := l.attach(opt)
	must(t, err)
	if pinned, why := g.Pinned(); !pinned || g.Adopted() {
		t.Fatalf("not pinned: %s", why)
	}
	held := l.connect("10.77.0.2")
	must(t, g.SetLists(Lists{Deny: prefixes("10.77.0.2/32")}))
	g.Close() // the process ends

	if l.connect("10.77.0.2") != nil {
		t.Error("without a process nothing is denied")
	}
	if held == nil || !l.echo(held) {
		t.Error("without a process an established connection broke")
	}
	if nics := PinnedGuards(opt.PinFolder); len(nics) != 1 || nics[0] != nic {
		t.Errorf("pinned: %v", nics)
	}
	next, err := l.attach(opt)
	must(t, err)
	if pinned, _ := next.Pinned(); !pinned || !next.Adopted() || next.Mode() != GuardNative || next.ProgramID() == g.ProgramID() {
		t.Errorf("adopted %v in mode %v, program %d after %d", next.Adopted(), next.Mode(), next.ProgramID(), g.ProgramID())
	}
	if v, err := next.Counts(); err != nil || v.Denied != 1 || v.SYN != 1 {
		t.Errorf("counts do not go on: %+v, %v", v, err)
	}
	if l.connect("10.77.0.2") != nil || l.connect("10.77.0.3") == nil || !l.echo(held) {
		t.Error("the lists are others after the restart")
	}
	must(t, next.Detach())
	if l.connect("10.77.0.2") == nil || len(PinnedGuards(opt.PinFolder)) != 0 {
		t.Error("something is left of a guard that was detached")
	}
}

// TestGuardOtherPins: pins that cannot be gone on with.
func TestGuardOtherPins(t *testing.T) {
	l := newLab(t)
	opt := GuardOptions{PinFolder: filepath.Join(mountBPFFS(t), "warmpath")}
	attach := func(what string, mode GuardMode, adopted bool) *Guard {
		t.Helper()
		opt.Mode = mode
		g, err := l.attach(opt)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if pinned, why := g.Pinned(); !pinned || g.Adopted() != adopted || !g.Attached() {
			t.Fatalf("%s: pinned %v %s, adopted %v", what, pinned, why, g.Adopted())
		}
		return g
	}
	g := attach("first", GuardAuto, false)
	g.limits.Abi++ // as another version would have it
	must(t, g.put())
	g.Close()
	g = attach("another version", GuardAuto, true)
	if g.Mode() != GuardNative {
		t.Errorf("another version forgot its mode: %v", g.Mode())
	}
	if pid, runs := GuardOwner(opt.PinFolder, nic); pid != os.Getpid() || !runs {
		t.Errorf("owner %d, runs %v", pid, runs)
	}
	g.limits.OwnerBegan-- // who had this process's number before
	must(t, g.store())
	if pid, runs := GuardOwner(opt.PinFolder, nic); pid != os.Getpid() || runs {
		t.Errorf("former owner %d, runs %v", pid, runs)
	}
	g.Close()
	g = attach("the same", GuardAuto, true)
	must(t, os.Remove(filepath.Join(opt.PinFolder, strings.ReplaceAll(nic, ".", ":"), guardMapPorts)))
	g.Close()
	g = attach("a map is missing", GuardAuto, true)
	g.Close()
	g = attach("another mode", GuardGeneric, false)
	if g.Mode() != GuardGeneric {
		t.Errorf("mode %v", g.Mode())
	}
	must(t, g.link.Detach())
	if g.Attached() {
		t.Error("a link that is off says that it is on")
	}
	g.Close()
	g = attach("its interface was away", GuardAuto, false)
	must(t, os.Remove(filepath.Join(opt.PinFolder, strings.ReplaceAll(nic, ".", ":"), pinnedLink)))
	g.Close()
	g = attach("no link, as of a process that died", GuardAuto, false)
	g.Close()
	must(t, RemoveGuard(opt.PinFolder, nic))
	if err := RemoveGuard(opt.PinFolder, nic); !errors.Is(err, ErrGuardUnknown) {
		t.Errorf("removed twice: %v", err)
	}
}

// TestGuardBusy: another program is there, or another process's guard without a
// folder to find it by.
func TestGuardBusy(t *testing.T) {
	l := newLab(t)
	first, err := l.attach(GuardOptions{PinFolder: t.TempDir()})
	must(t, err)
	if pinned, why := first.Pinned(); pinned || !strings.Contains(why, "mount -t bpf") {
		t.Errorf("pinned in no bpffs: %v, %q", pinned, why)
	}
	for _, mode := range []GuardMode{GuardAuto, GuardNative, GuardGeneric} {
		if _, err := l.attach(GuardOptions{Mode: mode}); !errors.Is(err, ErrGuardBusy) {
			t.Errorf("a second guard, mode %v: %v", mode, err)
		}
	}
	if !first.Owned() {
		t.Error("who attached it does not own it")
	}
	first.Close() // it is not pinned: now the interface is free
	second, err := l.attach(GuardOptions{})
	must(t, err)
	must(t, second.Detach())
	if _, err := l.attach(GuardOptions{Interface: "nosuch0"}); !errors.Is(err, ErrGuardUnknown) {
		t.Errorf("an interface that there is not: %v", err)
	}
}

// TestGuardOnLoopback: loopback has no native mode.
func TestGuardOnLoopback(t *testing.T) {
	l := newLab(t)
	if _, err := l.attach(GuardOptions{Interface: "lo", Mode: GuardNative}); err == nil {
		t.Error("native mode on loopback")
	}
	g, err := l.attach(GuardOptions{Interface: "lo"})
	must(t, err)
	defer func() { must(t, g.Detach()) }()
	if g.Mode() != GuardGeneric || g.NotNative() == nil {
		t.Errorf("mode %v, not native: %v", g.Mode(), g.NotNative())
	}
	must(t, g.SetLists(Lists{Deny: prefixes("127.0.0.2/32")}))
	dial := func(from string) (err error) {
		l.in(l.server, func() {
			d := net.Dialer{Timeout: 200 * time.Millisecond, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
			var c net.Conn
			if c, err = d.Dial("tcp", "127.0.0.1:8080"); err == nil {
				_ = c.Close()
			}
		})
		return err
	}
	if err := dial("127.0.0.1"); err != nil {
		t.Errorf("a source on no list: %v", err)
	}
	if dial("127.0.0.2") == nil {
		t.Error("a denied source got a connection")
	}
}
