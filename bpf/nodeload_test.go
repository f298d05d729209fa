package bpf

import (
	"bytes"
	"io"
	"math"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"warmpath/netlab"
)

func TestNodeLoadWord(t *testing.T) {
	for _, c := range []struct{ said, want NodeLoad }{
		{NodeLoad{0, 0}, NodeLoad{0, 0}},
		{NodeLoad{7, 1}, NodeLoad{7, 1}},
		{NodeLoad{65534, 3}, NodeLoad{65534, 1}},
		{NodeLoad{1 << 20, .5}, NodeLoad{65534, .5}},
		{NodeLoad{-1, .25}, NodeLoad{-1, .25}},
		{NodeLoad{3, -1}, NodeLoad{3, -1}},
		{Unsaid, Unsaid},
	} {
		got := loadOf(c.said.word())
		if got.Waiting != c.want.Waiting || math.Abs(got.KVUse-c.want.KVUse) > .5/mostUse {
			t.Errorf("%+v is read as %+v, want %+v", c.said, got, c.want)
		}
	}
	if got := loadOf(0); got != Unsaid {
		t.Errorf("no word is read as %+v", got)
	}
}

// loadLab is a node that says its load, before a router that reads it.
type loadLab struct {
	*netlab.Lab
	f       *Flow
	w       *LoadWriter
	address string // answers each byte
	port    uint16
}

func newLoadLab(t testing.TB) *loadLab {
	t.Helper()
	l := &loadLab{Lab: netlab.New(t), f: loadAll(t)}
	own, err := OwnCgroup()
	if err != nil {
		t.Fatal(err)
	}
	root, err := RootCgroup()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.f.ReadLoads(own); err != nil {
		t.Fatalf("%+v", err)
	}
	at := l.Serve(l.Node, netlab.Echo)
	l.address, l.port = at.String(), uint16(at.Port)
	if l.w, err = WriteLoads(root, []uint16{l.port}); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := l.w.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *loadLab) dial(t testing.TB, node, slot uint32) net.Conn {
	t.Helper()
	c, err := l.f.dialIn(l.Lab, l.address, node, slot, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func exchange(t testing.TB, c net.Conn) {
	t.Helper()
	var b [1]byte
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, b[:]); err != nil {
		t.Fatal(err)
	}
}

func (l *loadLab) readings(node uint32) uint64 {
	_, _, n := l.f.NodeLoad(node)
	return n
}

// TestNodeLoadArrives: with an answer comes what was said when it was sent, on each
// of a node's connections, each time it changes.
func TestNodeLoadArrives(t *testing.T) {
	l := newLoadLab(t)
	conns := []net.Conn{l.dial(t, 3, 1), l.dial(t, 3, 2)}
	if got, at, n := l.f.NodeLoad(3); got != Unsaid || at != 0 {
		t.Errorf("before anything is said: %+v at %d, %d readings", got, at, n)
	}
	for i := range 200 {
		said := NodeLoad{Waiting: i * 331 % 65535, KVUse: float64(i%101) / 100}
		before := uint64(MonotonicNs())
		l.w.Say(said)
		exchange(t, conns[i%2])
		got, at, n := l.f.NodeLoad(3)
		if got != loadOf(said.word()) || at < before || at > uint64(MonotonicNs()) || n < uint64(i+1) {
			t.Fatalf("%d: said %+v at %d, read %+v at %d, %d readings", i, said, before, got, at, n)
		}
	}
	if n := l.readings(4); n != 0 {
		t.Errorf("another node said its load %d times", n)
	}
}

// TestNodeLoadIsRare: what has not changed is said again only after 5 ms, and not at
// all once it is a second old or taken back.
func TestNodeLoadIsRare(t *testing.T) {
	l := newLoadLab(t)
	c := l.dial(t, 3, 1)
	began := time.Now()
	l.w.Say(NodeLoad{Waiting: 5, KVUse: .5})
	exchanges := uint64(0)
	for time.Since(began) < 500*time.Millisecond {
		exchange(t, c)
		exchanges++
	}
	most := uint64(time.Since(began)/(5*time.Millisecond)) + 2
	n := l.readings(3)
	t.Logf("%d exchanges in %v carried it %d times", exchanges, time.Since(began).Round(time.Millisecond), n)
	if n > most || n < 2 {
		t.Errorf("an unchanged load was said %d times in %v, want at most %d", n, time.Since(began), most)
	}
	for time.Since(began) < 1050*time.Millisecond {
		exchange(t, c)
	}
	n = l.readings(3)
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
		exchange(t, c)
	}
	if now := l.readings(3); now != n {
		t.Errorf("a load that is older than a second was said %d times", now-n)
	}
	l.w.Say(NodeLoad{Waiting: 6, KVUse: .5})
	exchange(t, c)
	if now := l.readings(3); now <= n {
		t.Error("a new load was not said after an old one")
	}
	l.w.Say(Unsaid)
	n = l.readings(3)
	for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); {
		exchange(t, c)
	}
	if now := l.readings(3); now != n {
		t.Errorf("a load that was taken back was said %d times", now-n)
	}
}

// TestNodeLoadInLargeAnswers: segments have room for it, however full they are. The
// node's card is one that cuts nothing itself, so that one that is too long shows.
func TestNodeLoadInLargeAnswers(t *testing.T) {
	l := newLoadLab(t)
	if out, err := l.Node.Command(t.Context(), "ip", "link", "set", l.Node.Link, "gso_max_segs", "1").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ln := l.Listen(l.Node)
	if err := l.w.objects.Ports.Put(uint32(ln.Addr().(*net.TCPAddr).Port), uint32(1)); err != nil {
		t.Fatal(err)
	}
	c, err := l.f.dialIn(l.Lab, ln.Addr().String(), 3, 1, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	node, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	const chunk = 4096 // of which two segments are full
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range len(sent) / chunk {
			l.w.Say(NodeLoad{Waiting: i, KVUse: .1})
			_, _ = node.Write(sent[i*chunk : (i+1)*chunk])
		}
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	<-done
	t.Logf("%d bytes carried it %d times", len(got), l.readings(3))
	if !bytes.Equal(got, sent) {
		t.Error("the answer is not what was sent")
	}
	if n := l.readings(3); n < 10 {
		t.Errorf("it was said %d times", n)
	}
	stats, err := l.Node.Command(t.Context(), "cat", "/proc/net/snmp").Output()
	if err != nil {
		t.Fatal(err)
	}
	if n := counted(t, string(stats), "Ip:", "FragFails"); n != "0" {
		t.Errorf("%s segments were too long", n)
	}
}

// counted finds a count in the text of /proc/net/snmp: a line of names above one of
// values for each protocol.
func counted(t *testing.T, text, protocol, name string) string {
	t.Helper()
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0] != protocol:
		case names == nil:
			names = f
		default:
			if i := slices.Index(names, name); i > 0 && i < len(f) {
				return f[i]
			}
		}
	}
	t.Fatalf("no count %s of %s in %q", name, protocol, text)
	return ""
}

// TestNodeLoadOfTheNextAgent: connections that one agent left carry what the next one
// says, and nothing in between.
func TestNodeLoadOfTheNextAgent(t *testing.T) {
	l := newLoadLab(t)
	c := l.dial(t, 3, 1)
	l.w.Say(NodeLoad{Waiting: 1, KVUse: .5})
	exchange(t, c)
	if err := l.w.Close(); err != nil {
		t.Fatal(err)
	}
	n := l.readings(3)
	exchange(t, c)
	if now := l.readings(3); n == 0 || now != n {
		t.Errorf("%d readings, and %d without an agent", n, now)
	}
	root, err := RootCgroup()
	if err != nil {
		t.Fatal(err)
	}
	if l.w, err = WriteLoads(root, []uint16{l.port}); err != nil {
		t.Fatal(err)
	}
	l.w.Say(NodeLoad{Waiting: 2, KVUse: .5})
	exchange(t, c)
	if got, _, _ := l.f.NodeLoad(3); got.Waiting != 2 {
		t.Errorf("after the next agent came: %+v", got)
	}
}

// strip has the router's end of the cable turn the option into padding, as some
// firewalls do with options that they do not know.
func (l *loadLab) strip(t *testing.T) (end func()) {
	t.Helper()
	// Behind the heads of Ethernet, IPv4 and TCP, and the time stamps.
	const at = 14 + 20 + 20 + 12
	load := func(to asm.Register, from int16, size asm.Size) asm.Instruction {
		return asm.LoadMem(to, asm.R2, from, size)
	}
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "strip", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // data
			asm.LoadMem(asm.R3, asm.R1, 4, asm.Word), // data_end
			asm.Mov.Reg(asm.R4, asm.R2),
			asm.Add.Imm(asm.R4, at+optionBytes),
			asm.JGT.Reg(asm.R4, asm.R3, "pass"),
			load(asm.R5, at, asm.Half),
			asm.JNE.Imm(asm.R5, 0x08fe, "pass"), // kind 254, 8 bytes, as a little-endian machine has them
			asm.LoadImm(asm.R5, 0x0101010101010101, asm.DWord),
			asm.StoreMem(asm.R2, at, asm.R5, asm.DWord),
			asm.Mov.Imm(asm.R0, 2).WithSymbol("pass"), // XDP_PASS
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer p.Close()
	var x link.Link
	if err := l.Router.In(func() error {
		i, err := net.InterfaceByName(l.Router.Link)
		if err != nil {
			return err
		}
		x, err = link.AttachXDP(link.XDPOptions{Program: p, Interface: i.Index, Flags: link.XDPGenericMode})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

// optionBytes is abi.h's.
const optionBytes = 8

// TestNodeLoadStripped: a path that takes the option off takes nothing else.
func TestNodeLoadStripped(t *testing.T) {
	l := newLoadLab(t)
	c := l.dial(t, 3, 1)
	say := func(from int) {
		for i := range 50 {
			l.w.Say(NodeLoad{Waiting: from + i, KVUse: .5})
			exchange(t, c)
		}
	}
	say(0)
	last, at, n := l.f.NodeLoad(3)
	if n < 50 || last.Waiting != 49 {
		t.Fatalf("%d readings, %+v", n, last)
	}
	end := l.strip(t)
	say(100)
	if got, atNow, now := l.f.NodeLoad(3); now != n || got != last || atNow != at {
		t.Errorf("%d readings came through a path that takes them off: %+v", now-n, got)
	}
	if again, err := l.f.Counters(3); err != nil || again.Retransmits != 0 || again.Rtos != 0 {
		t.Errorf("%+v, %v", again, err)
	}
	end()
	say(200)
	if got, _, _ := l.f.NodeLoad(3); got.Waiting != 249 {
		t.Errorf("behind the path: %+v", got)
	}
}

// TestNodeLoadForeign: ports that are not named carry nothing; what comes on a
// connection that is not followed is nobody's; and a program of somebody else's on
// the same sockets keeps its callbacks.
func TestNodeLoadForeign(t *testing.T) {
	needBPF(t)
	counts := foreign(t)
	l := newLoadLab(t)
	unnamed := l.Serve(l.Node, netlab.Echo)
	counts.watch(t, l.port, uint16(unnamed.Port))
	l.w.Say(NodeLoad{Waiting: 9, KVUse: .5})
	other, err := l.f.dialIn(l.Lab, unnamed.String(), 5, 2, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	var stranger net.Conn
	if err := l.Router.In(func() (err error) {
		stranger, err = net.Dial("tcp", l.address)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	for range 50 {
		exchange(t, other)
		exchange(t, stranger)
	}
	for node := range uint32(8) {
		if n := l.readings(node); n != 0 {
			t.Errorf("node %d was heard %d times", node, n)
		}
	}
	before := counts.of(t, l.port)
	c := l.dial(t, 3, 1)
	for range 50 {
		exchange(t, c)
	}
	if n := l.readings(3); n == 0 {
		t.Error("beside a foreign program nothing is heard")
	}
	// Both ends are of this host: each has round trips.
	if after := counts.of(t, l.port); after.server <= before.server || after.client <= before.client {
		t.Errorf("the foreign program has lost its callbacks: %+v, then %+v", before, after)
	}
}

// foreignCounts are callbacks of somebody else's program, by port.
type foreignCounts struct{ ports *ebpf.Map }

type foreignCount struct{ server, client uint64 }

// foreign attaches a program that asks for round trips of all sockets and counts
// those of ports that are watched.
func foreign(t *testing.T) foreignCounts {
	t.Helper()
	const (
		connect, active, passive, rtt = 3, 4, 5, 12 // BPF_SOCK_OPS_…
		rttFlag                       = 1 << 3
		op, remotePort, localPort     = 0, 64, 68 // of struct bpf_sock_ops
	)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "foreign", Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 16})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	count := func(end string) asm.Instructions { // of the key in R7
		return asm.Instructions{
			asm.StoreMem(asm.RFP, -4, asm.R7, asm.Word),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, end),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		}
	}
	in := asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R2, asm.R6, op, asm.Word),
		asm.JEq.Imm(asm.R2, connect, "ask"),
		asm.JEq.Imm(asm.R2, passive, "ask"),
		asm.JNE.Imm(asm.R2, rtt, "end"),
		asm.LoadMem(asm.R7, asm.R6, localPort, asm.Word),
	}
	in = append(in, count("remote")...)
	in = append(in,
		asm.LoadMem(asm.R7, asm.R6, remotePort, asm.Word).WithSymbol("remote"),
		asm.HostTo(asm.BE, asm.R7, asm.Word),
		asm.Or.Imm(asm.R7, 1<<16))
	in = append(in, count("end")...)
	in = append(in,
		asm.Ja.Label("end"),
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol("ask"),
		asm.Mov.Imm(asm.R2, rttFlag),
		asm.FnSockOpsCbFlagsSet.Call(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("end"),
		asm.Return())
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "foreign", Type: ebpf.SockOps, AttachType: ebpf.AttachCGroupSockOps, License: "Dual BSD/GPL", Instructions: in})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer p.Close()
	own, err := OwnCgroup()
	if err != nil {
		t.Fatal(err)
	}
	k, err := link.AttachCgroup(link.CgroupOptions{Path: own, Attach: ebpf.AttachCGroupSockOps, Program: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return foreignCounts{m}
}

func (f foreignCounts) watch(t *testing.T, ports ...uint16) {
	t.Helper()
	for _, p := range ports {
		for _, key := range []uint32{uint32(p), uint32(p) | 1<<16} {
			if err := f.ports.Put(key, uint64(0)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func (f foreignCounts) of(t *testing.T, port uint16) (c foreignCount) {
	t.Helper()
	for key, to := range map[uint32]*uint64{uint32(port): &c.server, uint32(port) | 1<<16: &c.client} {
		if err := f.ports.Lookup(key, to); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestNodeLoadPorts: what cannot be named is said.
func TestNodeLoadPorts(t *testing.T) {
	for _, ports := range [][]uint16{nil, {0}, make([]uint16, MaxLoadPorts+1)} {
		if w, err := WriteLoads("/", ports); err == nil {
			_ = w.Close()
			t.Errorf("ports %v are taken", ports)
		}
	}
}
