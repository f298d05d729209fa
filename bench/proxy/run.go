package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"warmpath/bench/peers"
	"warmpath/bench/wrk"
)

// model is the name of the one model that the nodes serve.
const model = "bench"

// Parameters stand in every line, so that one file can hold many series.
type Parameters struct {
	Proxy       string  `json:"proxy"`
	Load        Load    `json:"load"`
	SizeBytes   int     `json:"size_bytes"`
	Concurrency int     `json:"concurrency"` // connections; streams at once
	IntervalMs  float64 `json:"interval_ms,omitempty"`
	Share       float64 `json:"share,omitempty"`
	OneCore     bool    `json:"one_core"`
}

// Run is one measured run, one line of the output. Figures about the proxy's
// process are absent for Direct, which has none.
type Run struct {
	Record string `json:"record"` // "run"
	Parameters
	Run       int     `json:"run"` // from 1
	Try       int     `json:"try"` // from 1; more than 1 when the machine was busy with other things
	DurationS float64 `json:"duration_s"`
	Requests  int64   `json:"requests"`
	Errors    int64   `json:"errors"`
	Figures[float64]
	ForeignShare float64 `json:"foreign_cpu_share"` // CPU time of other processes and of the host per second of the run
	StealPercent float64 `json:"steal_percent"`     // of all processors' time, taken by the host
}

// Failure is a peer that could not be measured, one line of the output.
type Failure struct {
	Record string `json:"record"` // "failure"
	Parameters
	Error string `json:"error"`
}

// bench is one call of Measure.
type bench struct {
	o       Options
	folder  string
	script  string
	bodies  [][]byte // for loads that do not come from wrk
	nodes   []string
	backend *process
	log     io.Writer
}

// Measure runs the benchmark: JSON lines (environment, runs, failures,
// summaries) go to out, progress and the table of medians to log. A peer that
// cannot be measured is left out from then on. Measure fails when that happened
// or when a subject answered with errors, after everything was written, and with
// *OptionsError when o cannot be used.
func Measure(ctx context.Context, o Options, out, log io.Writer) error {
	if o.OneCore {
		o.LoadCore = o.ProxyCore
		if o.Load == LoadPost || o.Load == LoadGet {
			o.Concurrency = 1
		}
	}
	if o.Load == LoadGet {
		o.SizeBytes = 0
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
	if err := pinSelf(o.LoadCore); err != nil {
		return err
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
	runs, failed, err := b.rounds(ctx, lines)
	if err != nil {
		return err
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
	return errors.Join(failed, failures(summaries))
}

// rounds lets the subjects take turns. A peer that fails is out; failed joins
// what they failed with.
func (b *bench) rounds(ctx context.Context, lines *json.Encoder) (runs []Run, failed, err error) {
	out := map[string]bool{}
	for n := 1; n <= b.o.Runs; n++ {
		order := slices.Clone(b.o.Subjects)
		if n%2 == 0 { // so that none has the same one before it each time
			slices.Reverse(order)
		}
		for _, name := range order {
			s := findSubject(name)
			if out[name] || s.slow && n > 1 {
				continue
			}
			run, err := b.quietRun(ctx, s)
			switch {
			case err != nil && (s.ours || ctx.Err() != nil):
				return nil, nil, err
			case err != nil:
				out[name] = true
				failed = errors.Join(failed, err)
				fmt.Fprintf(b.log, "left out from now on: %v\n", err)
				if err := lines.Encode(&Failure{"failure", b.parameters(name), err.Error()}); err != nil {
					return nil, nil, fmt.Errorf("write failure: %w", err)
				}
				continue
			}
			run.Run = n
			runs = append(runs, *run)
			if err := lines.Encode(run); err != nil {
				return nil, nil, fmt.Errorf("write run: %w", err)
			}
		}
	}
	return runs, failed, nil
}

func (b *bench) parameters(name string) Parameters {
	o := &b.o
	p := Parameters{Proxy: name, Load: o.Load, SizeBytes: o.SizeBytes, Concurrency: o.Concurrency, OneCore: o.OneCore}
	if o.Load == LoadStream {
		p.IntervalMs = float64(o.Interval.Microseconds()) / 1000
	}
	if o.Load == LoadOpen {
		p.Share = o.Share
	}
	return p
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

// startBackend writes what the load needs and starts the nodes.
func (b *bench) startBackend(ctx context.Context) error {
	script, err := wrk.Scripts.ReadFile(wrk.Chat)
	if err != nil {
		return fmt.Errorf("read script %q: %w", wrk.Chat, err)
	}
	b.script = filepath.Join(b.folder, wrk.Chat)
	if err := os.WriteFile(b.script, script, 0o600); err != nil {
		return fmt.Errorf("write script: %w", err)
	}
	if b.o.Load == LoadStream || b.o.Load == LoadOpen {
		b.bodies = wrk.ChatBodies(b.o.SizeBytes, model, b.o.Load == LoadStream)
	}
	if b.nodes, err = freeAddresses(b.o.Nodes); err != nil {
		return err
	}
	argv := []string{b.o.Self, "backend", "--listen", strings.Join(b.nodes, ","), "--loops", "1", "--model", model}
	if b.o.Load == LoadStream {
		argv = append(argv, "--interval", b.o.Interval.String(), "--chunks", strconv.Itoa(chunksOfStream))
	}
	if slices.ContainsFunc(b.o.Subjects, func(name string) bool { return findSubject(name).isExact() }) {
		argv = append(argv, "--model-dir", b.o.ModelDir)
	}
	if b.backend, err = startPinned(ctx, b.o.LoadCore, b.folder, "backend", true, argv); err != nil {
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

// quietRun measures again while other processes or the host took too much of
// the machine; the last try counts whatever it met.
func (b *bench) quietRun(ctx context.Context, s *subject) (*Run, error) {
	tries := b.o.Tries
	if s.slow {
		tries = 1
	}
	for try := 1; ; try++ {
		run, err := b.freshRun(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("measure %q: %w", s.name, err)
		}
		run.Try = try
		if !b.o.noisy(run) {
			return run, nil
		}
		if try == tries {
			fmt.Fprintf(b.log, "noisy machine: %s was measured with %.0f %% of a core taken by other processes and the host\n", s.name, 100*run.ForeignShare)
			return run, nil
		}
	}
}

// noisy reports whether the machine was not the run's own.
func (o *Options) noisy(r *Run) bool {
	return r.ForeignShare > o.MaxForeignShare || r.StealPercent > o.MaxStealPercent
}

// Times of slow subjects, at least.
const (
	slowWarmup   = 2 * time.Second
	slowDuration = 5 * time.Second
)

// freshRun starts the proxy, warms it up, measures and ends it.
func (b *bench) freshRun(ctx context.Context, s *subject) (*Run, error) {
	if s.name == Direct {
		return b.measure(ctx, &under{name: Direct, address: b.nodes[0], alike: true, warmup: b.o.Warmup, duration: b.o.Duration})
	}
	listen, err := freeAddresses(2)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp(b.folder, s.name+"-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(folder)
	p, err := s.start(ctx, &b.o, b.o.ProxyCore, peers.Values{
		Listen: listen[0], Admin: listen[1], Nodes: b.nodes, Folder: folder, Root: os.Geteuid() == 0,
		Model: model, SizeBytes: b.o.SizeBytes,
	})
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := p.waitReady(ctx, listen[0]); err != nil {
		return nil, err
	}
	if s.isExact() {
		if err := p.waitExact(ctx, listen[1]); err != nil {
			return nil, err
		}
	}
	u := &under{
		name: s.name, process: p, address: listen[0], alike: s.name != WarmpathNew, warmup: b.o.Warmup, duration: b.o.Duration,
	}
	if s.slow {
		u.warmup, u.duration = max(u.warmup, slowWarmup), max(u.duration, slowDuration)
	}
	run, err := b.measure(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("%w; it printed: %s", err, p.logTail())
	}
	if s.isExact() {
		return run, b.countExact(ctx, run, listen[1])
	}
	return run, nil
}
