package fleetbench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"warmpath/bench/load"
	"warmpath/bench/machine"
)

// Options of a measurement. The zero value of a field is its default, but for
// Program and Port.
type Options struct {
	Program      string        // the router's
	Port         int           // of the nodes, that run already
	Nodes        int           // of the large fleet; default 1,000
	MetricsBytes int           // of a node's metrics text, as the nodes were told; for the record
	Whole        bool          // … and that they give all of it each time
	Cases        []string      // names of Cases; default all
	Idle         time.Duration // for which the router is watched while nobody asks; default 60 s
	Settle       time.Duration // before that; default 10 s
	Load         time.Duration // of requests; default 20 s
	Rate         float64       // of requests; default 200 a second
	PromptBytes  int           // of a request's body; default 4,096
	Runs         int           // of each case; default 3
	Config       []string      // further lines of the router's configuration
	Commit       string        // of the programs
}

func (o *Options) complete() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.Idle, time.Minute}, {&o.Settle, 10 * time.Second}, {&o.Load, 20 * time.Second}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	for _, d := range []struct {
		field *int
		value int
	}{{&o.Nodes, 1000}, {&o.PromptBytes, 4096}, {&o.Runs, 3}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if o.Rate <= 0 {
		o.Rate = 200
	}
}

// Case is a fleet as a router sees it.
type Case struct {
	Name      string
	Nodes     int
	Unscraped bool // nobody asks the nodes for metrics
}

// cases are all of them, the one that matters first.
func (o *Options) cases() ([]Case, error) {
	all := []Case{{"large", o.Nodes, false}, {"large, no scrapes", o.Nodes, true}, {"small", min(10, o.Nodes), false}}
	if len(o.Cases) == 0 {
		return all, nil
	}
	var chosen []Case
	for _, name := range o.Cases {
		i := slices.IndexFunc(all, func(c Case) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("check case %q: use %q, %q or %q", name, all[0].Name, all[1].Name, all[2].Name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// Environment is the first line of the output.
type Environment struct {
	Record       string  `json:"record"` // "environment"
	Started      string  `json:"started"`
	Commit       string  `json:"commit"`
	CPU          string  `json:"cpu"`
	CPUs         int     `json:"cpus"`
	Kernel       string  `json:"kernel"`
	Go           string  `json:"go"`
	LoadAverage  string  `json:"load_average"` // of the machine, before anything was started but the nodes
	MetricsBytes int     `json:"metrics_bytes"`
	Whole        bool    `json:"whole"` // each scrape brought all of it; else those metrics that were asked for, and all once a minute
	ScrapeS      float64 `json:"scrape_s"`
	IdleS        float64 `json:"idle_s"`
	LoadS        float64 `json:"load_s"`
	Rate         float64 `json:"rate"`
	PromptBytes  int     `json:"prompt_bytes"`
}

// Run is one line of the output.
type Run struct {
	Record string `json:"record"` // "run", or "summary": medians of a case's runs
	Case   string `json:"case"`
	Nodes  int    `json:"nodes"`
	Runs   int    `json:"runs,omitempty"`

	CPUPercent  float64 `json:"idle_cpu_percent"` // of a core, of the whole process, while nobody asks
	PublishesPS float64 `json:"publishes_per_s"`
	PublishMean float64 `json:"publish_mean_ms"`
	PublishP50  float64 `json:"publish_p50_ms"` // bounds of the histogram's buckets
	PublishP99  float64 `json:"publish_p99_ms"`
	ResidentMiB float64 `json:"resident_mib"`

	Requests    int64   `json:"requests"`
	Errors      int64   `json:"errors"`
	NodesUsed   int     `json:"nodes_used"`
	RoutingP50  float64 `json:"routing_p50_us"` // the router's own: from a request's last byte to its dispatch
	RoutingP99  float64 `json:"routing_p99_us"`
	TTFTP50     float64 `json:"ttft_p50_ms"` // the client's: due to first event
	TTFTP99     float64 `json:"ttft_p99_ms"`
	LoadCPU     float64 `json:"load_cpu_percent"` // of a core, of the router under load
	LoadPublish float64 `json:"load_publish_p99_ms"`

	Steal float64 `json:"steal_percent"`
}

// Measure runs the cases in turns and prints what came of it: JSON lines to out, a
// table to log.
func Measure(ctx context.Context, o Options, out, log io.Writer) error {
	o.complete()
	cases, err := o.cases()
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(out)
	if err := encoder.Encode(environment(&o)); err != nil {
		return fmt.Errorf("write environment: %w", err)
	}
	all := map[string][]Run{}
	for range o.Runs {
		for _, c := range cases {
			r, err := measure(ctx, &o, c)
			if err != nil {
				return fmt.Errorf("measure %q: %w", c.Name, err)
			}
			if err := encoder.Encode(r); err != nil {
				return fmt.Errorf("write run: %w", err)
			}
			all[c.Name] = append(all[c.Name], r)
		}
	}
	fmt.Fprintf(log, "%-18s %7s %9s %9s %9s %11s %11s %9s %9s\n", "", "idle", "publish", "publish", "publish", "routing", "routing", "TTFT", "TTFT")
	fmt.Fprintf(log, "%-18s %7s %9s %9s %9s %11s %11s %9s %9s\n", "medians", "CPU %", "a second", "mean ms", "p99 ms", "p50 µs", "p99 µs", "p50 ms", "p99 ms")
	for _, c := range cases {
		s := summary(all[c.Name])
		if err := encoder.Encode(s); err != nil {
			return fmt.Errorf("write summary: %w", err)
		}
		fmt.Fprintf(log, "%-18s %7.2f %9.1f %9.3f %9.2f %11.1f %11.1f %9.2f %9.2f\n", fmt.Sprint(c.Name, " ", c.Nodes), s.CPUPercent, s.PublishesPS, s.PublishMean, s.PublishP99, s.RoutingP50, s.RoutingP99, s.TTFTP50, s.TTFTP99)
	}
	return nil
}

func environment(o *Options) Environment {
	var name unix.Utsname
	_ = unix.Uname(&name)
	average, _ := os.ReadFile("/proc/loadavg")
	return Environment{
		Record: "environment", Started: time.Now().UTC().Format(time.RFC3339), Commit: o.Commit, CPU: cpuModel(), CPUs: runtime.NumCPU(),
		Kernel: unix.ByteSliceToString(name.Release[:]), Go: runtime.Version(), LoadAverage: strings.TrimSpace(string(average)),
		MetricsBytes: o.MetricsBytes, Whole: o.Whole, ScrapeS: 1, IdleS: o.Idle.Seconds(), LoadS: o.Load.Seconds(), Rate: o.Rate, PromptBytes: o.PromptBytes,
	}
}

// cpuModel returns the processor's name, "unknown" where the kernel has none.
func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// look is one reading of the router.
type look struct {
	at        time.Time
	cpu       float64
	published publishes
}

// before reads the router's processor time last, so that asking is no part of what
// is measured; after reads it first.
func (r *router) look(ctx context.Context, after bool) (l look, err error) {
	if !after {
		if l.published, err = r.publishes(ctx); err != nil {
			return l, err
		}
		select { // what answering leaves behind, such as garbage
		case <-ctx.Done():
			return l, ctx.Err()
		case <-time.After(time.Second):
		}
	}
	l.at = time.Now()
	if l.cpu, err = r.cpuSeconds(); err == nil && after {
		l.published, err = r.publishes(ctx)
	}
	return l, err
}

func (l look) percent(was look) float64 {
	return round((l.cpu-was.cpu)/l.at.Sub(was.at).Seconds()*100, 2)
}

func measure(ctx context.Context, o *Options, c Case) (run Run, err error) {
	r, err := startRouter(ctx, o, c)
	if err != nil {
		return run, err
	}
	defer r.close()
	run = Run{Record: "run", Case: c.Name, Nodes: c.Nodes}
	meter := machine.Start()
	pause := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	pause(o.Settle)
	was, err := r.look(ctx, false)
	if err != nil {
		return run, err
	}
	pause(o.Idle)
	is, err := r.look(ctx, true)
	if err != nil {
		return run, err
	}
	run.CPUPercent, run.ResidentMiB = is.percent(was), round(r.residentMiB(), 1)
	p := is.published.since(was.published)
	run.PublishesPS, run.PublishMean = round(p.total()/is.at.Sub(was.at).Seconds(), 1), round(p.meanMs(), 3)
	run.PublishP50, run.PublishP99 = p.within(.5), p.within(.99)
	if err := r.loaded(ctx, o, &run); err != nil {
		return run, err
	}
	run.Steal = meter.StealPercent()
	return run, ctx.Err()
}

// loaded measures while requests come.
func (r *router) loaded(ctx context.Context, o *Options, run *Run) error {
	bodies := load.Bodies{Model: model, Stream: true}
	made, err := bodies.MadeUp(o.PromptBytes)
	if err != nil {
		return err
	}
	was, err := r.look(ctx, false)
	if err != nil {
		return err
	}
	const warmup = 2 * time.Second
	start := time.Now().Add(warmup)
	report, err := load.Run(ctx, load.Options{URL: "http://" + r.clients, Bodies: made, Stream: true, Rate: o.Rate, Duration: o.Load, Warmup: warmup, Timeout: 30 * time.Second})
	if err != nil {
		return err
	}
	is, err := r.look(ctx, true)
	if err != nil {
		return err
	}
	run.Requests, run.Errors, run.TTFTP50, run.TTFTP99 = report.Requests, report.Errors+report.Cut, report.TTFT.P50, report.TTFT.P99
	run.LoadCPU, run.LoadPublish = is.percent(was), is.published.since(was.published).within(.99)
	if run.Errors > 0 {
		return fmt.Errorf("%d of %d requests failed, the first: %s", run.Errors, run.Requests, report.FirstError)
	}
	seconds, used, err := r.routing(ctx, start)
	if err != nil {
		return err
	}
	run.RoutingP50, run.RoutingP99, run.NodesUsed = micros(seconds, .5), micros(seconds, .99), used
	return nil
}

// summary has the medians of a case's runs.
func summary(runs []Run) Run {
	s := Run{Record: "summary", Case: runs[0].Case, Nodes: runs[0].Nodes, Runs: len(runs)}
	for _, f := range []func(*Run) *float64{
		func(r *Run) *float64 { return &r.CPUPercent }, func(r *Run) *float64 { return &r.PublishesPS },
		func(r *Run) *float64 { return &r.PublishMean }, func(r *Run) *float64 { return &r.PublishP50 },
		func(r *Run) *float64 { return &r.PublishP99 }, func(r *Run) *float64 { return &r.ResidentMiB },
		func(r *Run) *float64 { return &r.RoutingP50 }, func(r *Run) *float64 { return &r.RoutingP99 },
		func(r *Run) *float64 { return &r.TTFTP50 }, func(r *Run) *float64 { return &r.TTFTP99 },
		func(r *Run) *float64 { return &r.LoadCPU }, func(r *Run) *float64 { return &r.LoadPublish },
		func(r *Run) *float64 { return &r.Steal },
	} {
		values := make([]float64, len(runs))
		for i := range runs {
			values[i] = *f(&runs[i])
		}
		*f(&s) = machine.Median(values)
	}
	for i := range runs {
		s.Requests, s.Errors, s.NodesUsed = s.Requests+runs[i].Requests, s.Errors+runs[i].Errors, max(s.NodesUsed, runs[i].NodesUsed)
	}
	return s
}

// micros returns a quantile of seconds, in microseconds.
func micros(seconds []float64, q float64) float64 {
	if len(seconds) == 0 {
		return 0
	}
	slices.Sort(seconds)
	return round(seconds[int(q*float64(len(seconds)-1))]*1e6, 1)
}

func round(v float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(v*scale) / scale
}
