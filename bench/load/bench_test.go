package load

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/bench/backend"
)

const (
	benchStreams  = 10_000
	benchInterval = 500 * time.Millisecond
)

// TestMain lets the test executable serve as the node of its own benchmark: one
// process may not have the open files for both ends.
func TestMain(m *testing.M) {
	if len(os.Args) != 3 || os.Args[1] != "backend" {
		os.Exit(m.Run())
	}
	o := backend.Options{Addresses: os.Args[2:], Loops: 1, Model: "bench", Chunks: 1000, Interval: benchInterval}
	if err := backend.Run(context.Background(), o, nil); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// BenchmarkStreams keeps 10000 streams open for two seconds, a chunk every half
// second each, and says what a chunk costs the generator. Run it with
// -benchtime 1x.
func BenchmarkStreams(b *testing.B) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Max < benchStreams+1000 {
		b.Skipf("needs %d open files a process, may have %d", benchStreams+1000, limit.Max)
	}
	url := startNode(b)
	for b.Loop() {
		r, err := Run(b.Context(), Options{
			URL: url, Bodies: chatBodies, Stream: true, Concurrency: benchStreams, Duration: 2 * time.Second, Warmup: 2 * time.Second,
		})
		if err != nil {
			b.Fatal(err)
		}
		if r.MostConcurrent != benchStreams || r.Errors+r.Cut > 0 || r.Chunks == nil {
			b.Fatalf("%d streams, %d errors (%s), %d cut", r.MostConcurrent, r.Errors, r.FirstError, r.Cut)
		}
		b.ReportMetric(r.Chunks.CPUUs, "cpu-µs/chunk")
		b.ReportMetric(100*r.LoadCPUShare, "cpu-%")
		b.ReportMetric(float64(r.Chunks.Received)/r.ElapsedS, "chunks/s")
		b.ReportMetric(r.ChunkUs.P50, "p50-µs")
	}
}

// startNode runs this executable as a node until the benchmark ends.
func startNode(b *testing.B) (url string) {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	node := exec.Command(self, "backend", address)
	node.Stderr = os.Stderr
	node.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := node.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = node.Process.Kill()
		_ = node.Wait()
	})
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return "http://" + address
		}
		<-time.After(10 * time.Millisecond)
	}
	b.Fatal("the node does not listen")
	return ""
}
