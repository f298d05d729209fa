package bpf

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// BenchmarkNodeLoad: nanoseconds a run of both programs, by the kernel's own count
// (which adds some to each run), where each exchange carries a new load, where it is
// as rare as it is, and without the programs.
func BenchmarkNodeLoad(b *testing.B) {
	for _, each := range []bool{true, false} {
		b.Run(fmt.Sprintf("changed=%v", each), func(b *testing.B) {
			l := newLoadLab(b)
			c := l.dial(b, 3, 1)
			stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
			if err != nil {
				b.Fatal(err)
			}
			defer stats.Close()
			write, read := costOf(b, l.w.objects.Write), costOf(b, l.f.loads.objects.Read)
			for i := 0; b.Loop(); i++ {
				if each || i%1000 == 0 {
					l.w.Say(NodeLoad{Waiting: i % 50000, KVUse: .5})
				}
				exchange(b, c)
			}
			write.report(b, "write")
			read.report(b, "read")
			b.ReportMetric(float64(l.readings(3))/float64(b.N), "readings/op")
		})
	}
	b.Run("without", func(b *testing.B) {
		l := newLoadLab(b)
		if err := l.w.Close(); err != nil {
			b.Fatal(err)
		}
		l.w.sockops, l.w.memory = nil, nil
		c := l.dial(b, 3, 1)
		for b.Loop() {
			exchange(b, c)
		}
	})
}

// cost is what a program had taken when it was looked at.
type cost struct {
	p  *ebpf.Program
	ns time.Duration
	n  uint64
}

func costOf(b *testing.B, p *ebpf.Program) cost {
	b.Helper()
	s, err := p.Stats()
	if err != nil {
		b.Fatal(err)
	}
	return cost{p, s.Runtime, s.RunCount}
}

func (c cost) report(b *testing.B, name string) {
	b.Helper()
	now := costOf(b, c.p)
	if runs := now.n - c.n; runs > 0 {
		b.ReportMetric(float64(now.ns-c.ns)/float64(runs), name+"-ns/run")
		b.ReportMetric(float64(runs)/float64(b.N), name+"-runs/op")
	}
}
