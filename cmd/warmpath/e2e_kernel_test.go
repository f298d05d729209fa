package main

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"warmpath/controlplane/kernel"
)

// needKernel skips where no programs can be loaded.
func needKernel(t *testing.T) {
	t.Helper()
	need(t, os.Geteuid() == 0, "root: eBPF programs are loaded")
}

const wholeKernel = "kernel: {mode: require}\n"

// TestKernelPlane asks streams of a router that follows its connections: what the
// kernel saw of each node, and how long the router took to see it too.
func TestKernelPlane(t *testing.T) {
	needKernel(t)
	t.Parallel()
	sim := startEngines(t, 2, "--time-scale", "0.05")
	r := serve(t, settings, wholeKernel, nodeList(sim.urls...))
	const streams = 20
	for i := range streams {
		if a := r.try(t, chatPath, chatBody(fmt.Sprintf("Kernel %d. %s", i, strings.Repeat("Words of a prompt. ", 60)), `,"max_tokens":5`+streaming)); a.err != nil || a.status != http.StatusOK {
			t.Fatalf("stream %d: %d, %v", i, a.status, a.err)
		}
	}
	var v kernel.View
	eventually(t, 5*time.Second, "the kernel has told of all streams", func() bool {
		getJSON(t, "http://"+r.admin+"/api/kernel", &v)
		seen := uint64(0)
		for _, n := range v.Nodes {
			if n.FirstByteSeconds != nil {
				seen += n.Segments
			}
		}
		return seen >= streams
	})
	if v.Tier != kernel.Full || len(v.Reasons) != 0 || v.EventsLost != 0 {
		t.Errorf("tier %v, %v, %d events lost", v.Tier, v.Reasons, v.EventsLost)
	}
	for _, n := range v.Nodes {
		if n.Segments == 0 {
			continue
		}
		if n.RTTSeconds == nil || *n.RTTSeconds > .005 || n.RTOMinUs != 50_000 {
			t.Errorf("%s is said to be %v s away, RTO_min %d µs", n.Name, n.RTTSeconds, n.RTOMinUs)
		}
		if n.GapSeconds == nil || n.ConnectSeconds == nil {
			t.Errorf("of %s there are no gaps or connect times: %+v", n.Name, n)
		}
	}
	if lags := r.metric(t, `router_lag_seconds_count`); lags != streams {
		t.Errorf("%v first events were timed by the kernel, want %d", lags, streams)
	}
}

// TestKernelTiers: a router that may load less, or nothing, tells the same of its
// nodes; whose clock it is by stands beside it.
func TestKernelTiers(t *testing.T) {
	for mode, want := range map[string]kernel.View{
		"require": {Tier: kernel.Full, Precision: kernel.ByKernel, Sources: by(kernel.ByKernel, kernel.ByKernel)},
		"lite":    {Tier: kernel.Lite, Precision: kernel.ByUser, Sources: by(kernel.ByKernel, kernel.ByUser)},
		"passive": {Tier: kernel.Passive, Precision: kernel.ByUser, Sources: by(kernel.ByUser, kernel.ByUser)},
	} {
		t.Run(mode, func(t *testing.T) {
			if mode != "passive" {
				needKernel(t)
			}
			t.Parallel()
			sim := startEngines(t, 1, "--time-scale", "0.2")
			r := serve(t, settings, "kernel: {mode: "+mode+"}\n", nodeList(sim.urls...))
			const streams = 10
			for i := range streams {
				if a := r.try(t, chatPath, chatBody(fmt.Sprintf("Tier %d. %s", i, strings.Repeat("Words of a prompt. ", 60)), `,"max_tokens":5`+streaming)); a.err != nil || a.status != http.StatusOK {
					t.Fatalf("stream %d: %d, %v", i, a.status, a.err)
				}
			}
			var v kernel.View
			eventually(t, 5*time.Second, "all streams are known of", func() bool {
				getJSON(t, "http://"+r.admin+"/api/kernel", &v)
				return r.metric(t, `kernel_first_byte_seconds_count{node="sim-0"}`) >= streams
			})
			if v.Tier != want.Tier || v.Precision != want.Precision || v.Sources != want.Sources {
				t.Errorf("tier %v, precision %v, sources %+v", v.Tier, v.Precision, v.Sources)
			}
			n := v.Nodes[0]
			if n.FirstByteSeconds == nil || n.GapSeconds == nil || n.ConnectSeconds == nil || n.RTTSeconds == nil || *n.RTTSeconds > .005 {
				t.Errorf("of a node is not known: %+v", n)
			}
			if n.Connects == 0 || n.Failed != 0 || n.Segments < 2*streams || n.Bytes < 100*streams {
				t.Errorf("counts of a node: %+v", n)
			}
			if lags := r.metric(t, `router_lag_seconds_count`); lags < streams/2 { // in user space the kernel begins to keep times a moment late
				t.Errorf("%v first events were timed by the kernel, of %d", lags, streams)
			}
			if got := n.FirstByteSeconds.P50; got < 1e-4 || got > 1 {
				t.Errorf("first bytes are said to come after %v s", got)
			}
		})
	}
}

func by(connections, rest kernel.Precision) kernel.Sources {
	return kernel.Sources{Connections: connections, Segments: rest, Resets: rest, Windows: rest, Errors: rest}
}

// TestNothingStaysBehind kills a router that another runs beside: its programs are
// gone with it, the other's are not.
func TestNothingStaysBehind(t *testing.T) {
	needKernel(t)
	t.Parallel()
	sim := startEngines(t, 1, "--time-scale", "0.05")
	killed, other := serve(t, settings, wholeKernel, nodeList(sim.urls...)), serve(t, settings, wholeKernel, nodeList(sim.urls...))
	ids, others := programsOf(t, killed.pid()), programsOf(t, other.pid())
	if len(ids) < 4 || len(others) < 4 {
		t.Fatalf("%d and %d programs", len(ids), len(others))
	}
	killed.signal(t, syscall.SIGKILL)
	killed.wait(t, 10*time.Second)
	eventually(t, 10*time.Second, "the killed router's programs are gone", func() bool {
		for _, id := range ids {
			if p, err := ebpf.NewProgramFromID(id); err == nil {
				_ = p.Close()
				return false
			}
		}
		return true
	})
	if a := other.ask(t, chatBody("Still there?", `,"max_tokens":1`)); a.status != http.StatusOK {
		t.Errorf("the other router answers %d", a.status)
	}
	if left := programsOf(t, other.pid()); len(left) < 4 { // one that measures jiffies comes and goes
		t.Errorf("the other router had programs %v and has %v", others, left)
	}
}

// programsOf reads which programs a process holds (proc_pid_fdinfo(5)).
func programsOf(t *testing.T, pid int) (ids []ebpf.ProgramID) {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(text), "prog_type:") {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if s, ok := strings.CutPrefix(line, "prog_id:"); ok {
				if id, err := strconv.Atoi(strings.TrimSpace(s)); err == nil {
					ids = append(ids, ebpf.ProgramID(id))
				}
			}
		}
	}
	return ids
}

// TestRestartedEngineWithIdleConnections kills an engine to which 200 connections
// lie idle, and starts it again, at 1,000 requests a second: none fails.
func TestRestartedEngineWithIdleConnections(t *testing.T) {
	needKernel(t)
	sims := []*engines{startEngines(t, 1, "--time-scale", "0.01"), startEngines(t, 1, "--time-scale", "0.01")}
	r := serve(t, settings, wholeKernel, "policy: {name: round_robin}\n", nodeList(sims[0].urls[0], sims[1].urls[0]))
	sims[0].fault(t, 0, `{"kind":"slow","factor":50}`)
	b := startBurst(t, r, "idle", 400, 1)
	b.wait.Wait()
	sims[0].clear(t, 0)
	if idle := r.metric(t, `connections{side="node_idle"}`); idle < 200 {
		t.Skipf("only %v connections lie idle: this machine is too slow to have 200 at once", idle)
	}
	port, err := url.Parse(sims[0].urls[0])
	if err != nil {
		t.Fatal(err)
	}
	var failed, asked atomic.Int64
	var wait sync.WaitGroup
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for i := range 3000 {
		<-tick.C
		switch i {
		case 500:
			sims[0].kill(t)
		case 1500:
			startEngines(t, 1, "--port", port.Port(), "--time-scale", "0.01")
		}
		wait.Go(func() {
			asked.Add(1)
			if a := r.try(t, chatPath, chatBody(fmt.Sprintf("Load %d.", i), `,"max_tokens":1`)); a.err != nil || a.status != http.StatusOK {
				if failed.Add(1) <= 3 {
					t.Errorf("request %d: %d, %v: %s", i, a.status, a.err, tail(string(a.body)))
				}
			}
		})
	}
	wait.Wait()
	t.Logf("%d requests, %d failed; idle connections closed by their node: %v", asked.Load(), failed.Load(), r.metric(t, `kernel_idle_closed_total{node="sim-0"}`))
}
