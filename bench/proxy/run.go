package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"warmpath/bench/peers"
	"warmpath/bench/wrk"
)

// Run is one measured run, one line of the output. Fields about the proxy's
// process are absent for Direct, which has none.
type Run struct {
	Record          string   `json:"record"` // "run"
	Proxy           string   `json:"proxy"`
	SizeBytes       int      `json:"size_bytes"`
	Concurrency     int      `json:"concurrency"`
	OneCore         bool     `json:"one_core"`
	Run             int      `json:"run"` // from 1
	Try             int      `json:"try"` // from 1; more than 1 when the machine was busy with other things
	DurationS       float64  `json:"duration_s"`
	Requests        int64    `json:"requests"`
	Errors          int64    `json:"errors"`
	RequestsPerS    float64  `json:"requests_per_s"`
	RequestsPerCPUS *float64 `json:"requests_per_cpu_s,omitempty"`
	CPUUsPerRequest *float64 `json:"cpu_us_per_request,omitempty"`
	CPUShare        *float64 `json:"cpu_share,omitempty"` // of its core; well below 1 = the proxy was not the bottleneck
	P50Us           float64  `json:"p50_us"`
	P99Us           float64  `json:"p99_us"`
	RSSMiB          *float64 `json:"rss_mib,omitempty"` // peak
	ForeignShare    float64  `json:"foreign_cpu_share"` // CPU time of other processes per second of the run
}

// bench is one call of Measure.
type bench struct {
	o       Options
	folder  string
	script  string
	nodes   []string
	backend *process
	log     io.Writer
}

// Measure runs the benchmark: JSON lines (environment, runs, summaries) go to
// out, progress and the table of medians to log. It fails when a subject
// answered with errors, after everything was written, and with *OptionsError
// when o cannot be used.
func Measure(ctx context.Context, o Options, out, log io.Writer) error {
	if o.OneCore {
		o.Concurrency, o.LoadCore = 1, o.ProxyCore
	}
	if err := o.check(); err != nil {
		return &OptionsError{err}
	}
	env, err := readEnvironment(ctx, &o, log)
	if err != nil {
		return err
	}
	lines := json.NewEncoder(out)
	if err := lines.Encode(env); err != nil {
		return fmt.Errorf("write environment: %w", err)
	}
	folder, err := os.MkdirTemp("", "warmbench-")
	if err != nil {
		return fmt.Errorf("make temporary folder: %w", err)
	}
	defer os.RemoveAll(folder)
	b := &bench{o: o, folder: folder, log: log}
	if err := b.startBackend(ctx); err != nil {
		return err
	}
	defer b.backend.close()

	var runs []Run
	for n := 1; n <= o.Runs; n++ {
		for _, name := range o.Subjects {
			run, err := b.quietRun(ctx, name)
			if err != nil {
				return err
			}
			run.Run = n
			runs = append(runs, *run)
			if err := lines.Encode(run); err != nil {
				return fmt.Errorf("write run: %w", err)
			}
		}
	}
	summaries := summarise(&o, runs)
	for i := range summaries {
		if err := lines.Encode(&summaries[i]); err != nil {
			return fmt.Errorf("write summary: %w", err)
		}
	}
	if err := writeTable(log, &o, summaries); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return failures(summaries)
}

func failures(summaries []Summary) error {
	var problems []error
	for i := range summaries {
		if s := &summaries[i]; s.Errors > 0 {
			problems = append(problems, fmt.Errorf("measure %q: %d requests failed, its figures do not count", s.Proxy, s.Errors))
		}
	}
	return errors.Join(problems...)
}

// startBackend writes the script of wrk and starts the nodes.
func (b *bench) startBackend(ctx context.Context) error {
	script, err := wrk.Scripts.ReadFile(wrk.Chat)
	if err != nil {
		return fmt.Errorf("read script %q: %w", wrk.Chat, err)
	}
	b.script = filepath.Join(b.folder, wrk.Chat)
	if err := os.WriteFile(b.script, script, 0o600); err != nil {
		return fmt.Errorf("write script: %w", err)
	}
	if b.nodes, err = freeAddresses(b.o.Nodes); err != nil {
		return err
	}
	argv := append(slices.Clone(b.o.Backend), "--listen", strings.Join(b.nodes, ","), "--loops", "1")
	if b.backend, err = startPinned(ctx, b.o.LoadCore, b.folder, "backend", argv); err != nil {
		return err
	}
	for _, node := range b.nodes {
		if err := b.backend.waitReady(ctx, node); err != nil {
			b.backend.close()
			return err
		}
	}
	return nil
}

// quietRun measures again while other processes took too much of the machine;
// the last try counts whatever it met.
func (b *bench) quietRun(ctx context.Context, name string) (*Run, error) {
	for try := 1; ; try++ {
		run, err := b.freshRun(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("measure %q: %w", name, err)
		}
		run.Try = try
		if run.ForeignShare <= b.o.MaxForeignShare {
			return run, nil
		}
		if try == b.o.Tries {
			fmt.Fprintf(b.log, "noisy machine: %s was measured with %.0f %% of a core taken by other processes\n", name, 100*run.ForeignShare)
			return run, nil
		}
	}
}

// freshRun starts the proxy, warms it up, measures and ends it.
func (b *bench) freshRun(ctx context.Context, name string) (*Run, error) {
	if name == Direct {
		return b.measure(ctx, name, nil, b.nodes[0])
	}
	listen, err := freeAddresses(2)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(b.folder, name+"-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(folder)
	p, err := findSubject(name).start(ctx, &b.o, b.o.ProxyCore, peers.Values{
		Listen: listen[0], Admin: listen[1], Nodes: b.nodes, Folder: folder, Root: os.Geteuid() == 0,
	})
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.waitReady(ctx, listen[0]); err != nil {
		return nil, err
	}
	return b.measure(ctx, name, p, listen[0])
}

// reading is what the counters said at one instant.
type reading struct {
	at                   time.Time
	busy                 float64
	proxy, backend, self usage
}

func (b *bench) read(p *process) (r reading, err error) {
	r.at = time.Now()
	if r.busy, err = busySeconds(); err != nil {
		return r, err
	}
	if p != nil {
		if r.proxy, err = treeUsage(p.pid); err != nil {
			return r, err
		}
	}
	if r.backend, err = treeUsage(b.backend.pid); err != nil {
		return r, err
	}
	r.self, err = selfUsage()
	return r, err
}

// measure puts the load on address; p is nil where there is no proxy.
func (b *bench) measure(ctx context.Context, name string, p *process, address string) (*Run, error) {
	l := load{
		core: b.o.LoadCore, concurrency: b.o.Concurrency, sizeBytes: b.o.SizeBytes,
		script: b.script, address: address, duration: b.o.Warmup,
	}
	if l.duration > 0 {
		if _, err := l.run(ctx); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
	}
	before, err := b.read(p)
	if err != nil {
		return nil, err
	}
	l.duration = b.o.Duration
	result, err := l.run(ctx)
	if err != nil {
		return nil, err
	}
	after, err := b.read(p)
	if err != nil {
		return nil, err
	}
	return b.figures(name, p != nil, result, before, after), nil
}

// figures turns two readings and wrk's result into a Run.
func (b *bench) figures(name string, proxied bool, result *wrkResult, before, after reading) *Run {
	seconds := float64(result.DurationUs) / 1e6
	run := &Run{
		Record: "run", Proxy: name, SizeBytes: b.o.SizeBytes, Concurrency: b.o.Concurrency, OneCore: b.o.OneCore,
		DurationS: seconds, Requests: result.Requests, Errors: result.errors(),
		RequestsPerS: rounded(float64(result.Requests)/seconds, 10), P50Us: result.P50Us, P99Us: result.P99Us,
	}
	cpu := after.proxy.cpuSeconds - before.proxy.cpuSeconds
	ours := cpu + result.cpuSeconds + after.backend.cpuSeconds - before.backend.cpuSeconds +
		after.self.cpuSeconds - before.self.cpuSeconds
	foreign := after.busy - before.busy - ours
	run.ForeignShare = rounded(max(0, foreign/after.at.Sub(before.at).Seconds()), 1000)
	if proxied {
		run.CPUShare = new(rounded(cpu/seconds, 1000))
		run.RSSMiB = new(rounded(after.proxy.peakMiB, 10))
		if cpu > 0 && result.Requests > 0 {
			run.RequestsPerCPUS = new(rounded(float64(result.Requests)/cpu, 10))
			run.CPUUsPerRequest = new(rounded(cpu*1e6/float64(result.Requests), 1000))
		}
	}
	return run
}

// rounded drops digits that mean nothing; steps is 10 for one decimal.
func rounded(v, steps float64) float64 { return math.Round(v*steps) / steps }
