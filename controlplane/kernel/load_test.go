package kernel

import (
	"io"
	"log/slog"
	"net"
	"os"
	"syscall"
	"testing"

	"warmpath/bpf"
	"warmpath/dataplane/fleet"
)

// TestLoadOfATenant: what a node says in band comes once with the sample after it;
// the next tenant of its slot has said nothing of it.
func TestLoadOfATenant(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: eBPF programs are loaded")
	}
	p, err := Open(Options{Mode: "auto", Slots: 64, NodeLoad: true, Log: slog.New(slog.DiscardHandler)})
	if err != nil || p.flow == nil {
		t.Fatal(p, err)
	}
	defer p.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			_, _ = io.Copy(c, c)
		}
	}()
	root, err := bpf.RootCgroup()
	if err != nil {
		t.Fatal(err)
	}
	w, err := bpf.WriteLoads(root, []uint16{uint16(ln.Addr().(*net.TCPAddr).Port)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	const slot = 2
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		if e := c.Control(func(fd uintptr) { err = p.flow.Follow(int(fd), slot, bpf.NoSlot, 0, 1) }); e != nil {
			return e
		}
		return err
	}}
	c, err := d.DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	say := func(l bpf.NodeLoad) {
		t.Helper()
		w.Say(l)
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	tenant := func(name string, generation uint32) *fleet.Snapshot {
		return &fleet.Snapshot{Nodes: []*fleet.Node{nil, nil, {Name: name, Slot: slot, Generation: generation}}}
	}
	a, b := tenant("a", 1), tenant("b", 2)

	if loads := p.sample(a); len(loads) != 0 || p.View().Nodes[0].Load != nil {
		t.Errorf("a node that said nothing is heard to say %+v", loads)
	}
	say(bpf.NodeLoad{Waiting: 7, KVUse: -1})
	loads := p.sample(a)
	if len(loads) != 1 || loads[0].Slot != slot || loads[0].Generation != 1 || loads[0].Queued != gaugeOf(7) || loads[0].KVUse.Known || loads[0].AgoNs < 0 || loads[0].AgoNs > 5e9 {
		t.Errorf("heard %+v", loads)
	}
	if loads := p.sample(a); len(loads) != 0 {
		t.Errorf("heard twice: %+v", loads)
	}
	v := p.View().Nodes[0]
	if v.Load == nil || v.Load.Queued == nil || *v.Load.Queued != 7 || v.Load.KVUse != nil || v.Load.Readings == 0 || v.Readings != v.Load.Readings {
		t.Errorf("shown as %+v", v.Load)
	}
	if loads := p.sample(b); len(loads) != 0 || p.View().Nodes[0].Load != nil {
		t.Errorf("of the tenant before: %+v", loads)
	}
	say(bpf.NodeLoad{Waiting: 8, KVUse: 1})
	if loads := p.sample(b); len(loads) != 1 || loads[0].Generation != 2 || loads[0].Queued != gaugeOf(8) || loads[0].KVUse != gaugeOf(1) {
		t.Errorf("heard %+v", loads)
	}
}
