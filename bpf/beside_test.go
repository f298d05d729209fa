package bpf

import (
	"io"
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Of BPF_SOCK_OPS_* in include/uapi/linux/bpf.h, and of struct bpf_sock_ops.
const (
	sockOpsConnect = 3
	sockOpsRTT     = 12
	sockOpsRTTFlag = 1 << 3
	sockOpsOpAt    = 0
)

// TestOtherProgramsKeepTheirCallbacks: another program on the same cgroup, that
// was there before, asks to be called with each round trip, and still is.
func TestOtherProgramsKeepTheirCallbacks(t *testing.T) {
	needBPF(t)
	calls, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer calls.Close()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SockOps, License: "GPL", Instructions: asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1),
		asm.LoadMem(asm.R0, asm.R6, sockOpsOpAt, asm.Word),
		asm.JEq.Imm(asm.R0, sockOpsRTT, "rtt"),
		asm.JNE.Imm(asm.R0, sockOpsConnect, "end"),
		asm.Mov.Imm(asm.R2, sockOpsRTTFlag),
		asm.FnSockOpsCbFlagsSet.Call(),
		asm.Ja.Label("end"),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word).WithSymbol("rtt"),
		asm.LoadMapPtr(asm.R1, calls.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("end"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer program.Close()
	cgroup, err := OwnCgroup()
	if err != nil {
		t.Fatal(err)
	}
	beside, err := link.AttachCgroup(link.CgroupOptions{Path: cgroup, Attach: ebpf.AttachCGroupSockOps, Program: program})
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()

	f := loadAll(t)
	c := f.dial(t, serve(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) }), 1, 1, 1)
	var called uint64
	for range 20 {
		_, _ = c.Write([]byte("ask"))
		if _, err := c.Read(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
	}
	if err := calls.Lookup(uint32(0), &called); err != nil || called < 15 { // of 20 exchanges, and some of a handshake
		t.Errorf("the other program was called with %d round trips, %v", called, err)
	}
}
