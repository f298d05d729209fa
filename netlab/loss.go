package netlab

import (
	"net"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// Loss has packets vanish that come in at ends of cables, whatever they are.
type Loss struct {
	t        testing.TB
	perMille *ebpf.Map
}

// NewLoss is there until the test ends. At first nothing is lost.
func NewLoss(t testing.TB, at ...Host) *Loss {
	t.Helper()
	share, err := ebpf.NewMap(&ebpf.MapSpec{Name: "per_mille", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = share.Close() })
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "lose", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{
			asm.StoreImm(asm.RFP, -4, 0, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, share.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "pass"),
			asm.LoadMem(asm.R6, asm.R0, 0, asm.Word),
			asm.FnGetPrandomU32.Call(),
			asm.Mod.Imm32(asm.R0, 1000),
			asm.JLT.Reg(asm.R0, asm.R6, "drop"),
			asm.Mov.Imm(asm.R0, xdpPass).WithSymbol("pass"),
			asm.Return(),
			asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol("drop"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, h := range at {
		if err := h.In(func() error {
			i, err := net.InterfaceByName(h.Link)
			if err != nil {
				return err
			}
			x, err := link.AttachXDP(link.XDPOptions{Program: p, Interface: i.Index, Flags: link.XDPGenericMode})
			if err == nil {
				t.Cleanup(func() { _ = x.Close() })
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return &Loss{t, share}
}

// Set has so many in a thousand packets vanish from now on: at 1000 nothing comes
// through, at 0 all does. It takes no time that would count.
func (x *Loss) Set(perMille int) {
	x.t.Helper()
	if err := x.perMille.Put(uint32(0), uint32(perMille)); err != nil {
		x.t.Fatal(err)
	}
}

// Verdicts of XDP programs (include/uapi/linux/bpf.h).
const (
	xdpDrop = 1
	xdpPass = 2
)
