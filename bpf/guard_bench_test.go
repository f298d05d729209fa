package bpf

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// The kernel runs the program b.N times at one system call and says how long a
// run took; an empty program's time is what its own loop costs.

func kernelTime(b *testing.B, program *ebpf.Program, frame []byte, want uint32) {
	b.Helper()
	v, took, err := program.Benchmark(frame, max(b.N, 2), b.ResetTimer)
	if err != nil || v != want {
		b.Fatalf("verdict %d, want %d; %v", v, want, err)
	}
	b.ReportMetric(float64(took)/float64(time.Nanosecond), "kernel-ns/op")
}

func BenchmarkGuardEmpty(b *testing.B) {
	load(b) // skips where that is not permitted
	empty, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, xdpPass), asm.Return()},
	})
	must(b, err)
	defer empty.Close()
	kernelTime(b, empty, packet{from: "192.0.2.1", flags: ack}.bytes(), xdpPass)
}

func BenchmarkGuard(b *testing.B) {
	g := load(b)
	must(b, g.SetSourceRate(Rate{PerSecond: 1_000_000_000})) // never dry, and no less looked up
	lists := func(n int) (l Lists) {
		for i := range n {
			a := netip.AddrFrom4([4]byte{byte(1 + i%200), byte(i * 7), byte(i >> 3), byte(i)})
			p, _ := a.Prefix(20 + i%13)
			l.Deny = append(l.Deny, p)
			six := a.As16()
			six[0], six[1] = 0x20, byte(i*31)
			p, _ = netip.AddrFrom16(six).Prefix(40 + i%25)
			l.Deny = append(l.Deny, p)
		}
		l.Deny = append(l.Deny, prefixes("198.51.100.0/24", "2001:db8:bad::/48")...)
		return l
	}
	v4, v6 := packet{from: "192.0.2.1"}, packet{from: "2001:db8::1"}
	for _, entries := range []int{0, 1000} {
		if entries > 0 {
			must(b, g.SetLists(lists(entries)))
		}
		for _, c := range []struct {
			name string
			packet
			want uint32
		}{
			{"established", packet{from: "192.0.2.1", flags: ack}, xdpPass},
			{"established-v6", packet{from: "2001:db8::1", flags: ack}, xdpPass},
			{"syn", v4, xdpPass},
			{"syn-v6", v6, xdpPass},
			{"denied", packet{from: "198.51.100.1"}, xdpDrop},
			{"denied-v6", packet{from: "2001:db8:bad::1"}, xdpDrop},
		} {
			if entries == 0 && c.want == xdpDrop {
				continue
			}
			b.Run(fmt.Sprintf("entries=%d/%s", entries, c.name), func(b *testing.B) {
				kernelTime(b, g.objects.Guard, c.bytes(), c.want)
			})
		}
	}
	must(b, g.SetLists(Lists{}))
	must(b, g.SetPorts([]PortCap{{Port: 8080, Rate: Rate{PerSecond: 1_000_000_000}}}))
	must(b, g.SetShed(1, 1, time.Hour))
	b.Run("capped,shedding/syn", func(b *testing.B) { kernelTime(b, g.objects.Guard, v4.bytes(), xdpPass) })
	g.limits = guardLimits{Abi: guardABI, IntervalNs: hour, DepthNs: hour}
	must(b, g.put())
	g.verdict(b, v4.bytes())
	b.Run("over its rate/syn", func(b *testing.B) { kernelTime(b, g.objects.Guard, v4.bytes(), xdpDrop) })
}
