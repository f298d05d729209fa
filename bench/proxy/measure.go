package proxy

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"warmpath/bench/load"
	"warmpath/bench/machine"
)

// Figures are what a run measured, or with T = Spread what all runs did. A
// figure that a load does not have is absent.
type Figures[T any] struct {
	RequestsPerS    *T `json:"requests_per_s,omitempty"`
	RequestsPerCPUS *T `json:"requests_per_cpu_s,omitempty"`
	CPUUsPerRequest *T `json:"cpu_us_per_request,omitempty"`
	CPUShare        *T `json:"cpu_share,omitempty"` // of its core; well below 1 = the proxy was not the bottleneck
	P50Us           *T `json:"p50_us,omitempty"`
	P99Us           *T `json:"p99_us,omitempty"`
	RSSMiB          *T `json:"rss_mib,omitempty"` // peak

	// Of an open loop.
	RatePerS    *T `json:"rate_per_s,omitempty"`    // requests a second, asked for
	DirectP50Us *T `json:"direct_p50_us,omitempty"` // at the same rate, straight to a node, right after
	DirectP99Us *T `json:"direct_p99_us,omitempty"`

	// Of event streams: from the node's sending to the client's reading.
	ChunksPerS    *T `json:"chunks_per_s,omitempty"`
	CPUUsPerChunk *T `json:"cpu_us_per_chunk,omitempty"`
	ChunkP50Us    *T `json:"chunk_p50_us,omitempty"`
	ChunkP99Us    *T `json:"chunk_p99_us,omitempty"`
	ReadsPerChunk *T `json:"reads_per_chunk,omitempty"` // of the client; below 1 = chunks came together, above 1 = in pieces

	ExactShare *T `json:"exact_share,omitempty"` // of the router's decisions, by the engine's tokens
}

// under is what is being measured.
type under struct {
	name    string
	process *process // nil for Direct
	address string
	alike   bool // the same bodies come again

	warmup, duration time.Duration // whole seconds
}

// reading is what the counters said at one instant.
type reading struct {
	at                         time.Time
	busy                       float64
	proxy, backend, tool, self usage
	meter                      machine.Meter
	stealPercent               float64 // since the reading before
}

// ours is the CPU time of all that belongs to a run.
func (r *reading) ours() float64 {
	return r.proxy.cpuSeconds + r.backend.cpuSeconds + r.tool.cpuSeconds + r.self.cpuSeconds
}

// read takes all counters; p is nil where there is no proxy, tool 0 where the
// load comes from here, before nil for the first reading of a run.
func (b *bench) read(p *process, tool int, before *reading) (r reading, err error) {
	r.at, r.meter = time.Now(), machine.Start()
	if before != nil {
		r.stealPercent = before.meter.StealPercent()
	}
	if r.busy, err = busySeconds(); err != nil {
		return r, err
	}
	if p != nil {
		if r.proxy, err = treeUsage(p.pid); err != nil {
			return r, err
		}
	}
	if tool != 0 {
		r.tool, _ = treeUsage(tool) // on a busy core it may have ended: see measureWrk
	}
	if r.backend, err = treeUsage(b.backend.pid); err != nil {
		return r, err
	}
	r.self, err = selfUsage()
	return r, err
}

// measure puts the load on the subject.
func (b *bench) measure(ctx context.Context, u *under) (*Run, error) {
	switch b.o.Load {
	case LoadStream:
		return b.measureStreams(ctx, u)
	case LoadOpen:
		return b.measureOpen(ctx, u)
	default:
		return b.measureWrk(ctx, u)
	}
}

// wrkLoad is a call of wrk without a duration.
func (b *bench) wrkLoad(u *under) wrkLoad {
	return wrkLoad{
		core: b.o.LoadCore, concurrency: b.o.Concurrency, sizeBytes: b.o.SizeBytes, script: b.script, address: u.address, model: model,
	}
}

// measureWrk measures a closed loop of wrk.
func (b *bench) measureWrk(ctx context.Context, u *under) (*Run, error) {
	l := b.wrkLoad(u)
	if !u.alike {
		l.first = "0"
	}
	if l.duration = u.warmup; l.duration > 0 {
		if _, err := l.run(ctx, nil); err != nil {
			return nil, fmt.Errorf("warm up: %w", err)
		}
	}
	if l.duration = u.duration; !u.alike {
		l.first = "8388608" // half of the numbers that there are: far from those of the warm-up
	}
	var before, after reading
	result, err := l.run(ctx, func(open bool, pid int) (err error) {
		if open {
			before, err = b.read(u.process, pid, nil)
		} else {
			after, err = b.read(u.process, pid, &before)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if after.tool.cpuSeconds == 0 {
		after.tool.cpuSeconds = result.cpuSeconds
	}
	run := b.newRun(u, before, after)
	run.DurationS = float64(result.DurationUs) / 1e6
	if run.Requests, run.Errors = result.Requests, result.errors(); run.Requests == 0 {
		return nil, fmt.Errorf("measure requests: none ended within %s", u.duration)
	}
	run.RequestsPerS = figure(float64(result.Requests)/run.DurationS, 10)
	run.P50Us, run.P99Us = &result.P50Us, &result.P99Us
	b.countCPU(run, float64(result.Requests)/run.DurationS, before, after)
	return run, nil
}

// newRun fills in what every load has.
func (b *bench) newRun(u *under, before, after reading) *Run {
	seconds := after.at.Sub(before.at).Seconds()
	run := &Run{Record: "run", Parameters: b.parameters(u.name), DurationS: seconds, StealPercent: after.stealPercent}
	foreign := after.busy - before.busy - (after.ours() - before.ours())
	run.ForeignShare = rounded(max(0, foreign/seconds), 1000)
	if u.process != nil {
		run.CPUShare = figure((after.proxy.cpuSeconds-before.proxy.cpuSeconds)/seconds, 1000)
		run.RSSMiB = figure(after.proxy.peakMiB, 10)
	}
	return run
}

// countCPU divides the proxy's CPU time by its requests: a second's by a
// second's, because both were not counted over the very same time.
func (b *bench) countCPU(run *Run, requestsPerS float64, before, after reading) {
	share := (after.proxy.cpuSeconds - before.proxy.cpuSeconds) / after.at.Sub(before.at).Seconds()
	if run.CPUShare == nil || share <= 0 || requestsPerS == 0 {
		return
	}
	run.RequestsPerCPUS = figure(requestsPerS/share, 10)
	run.CPUUsPerRequest = figure(share*1e6/requestsPerS, 1000)
}

// window runs load from inside this process and reads the counters when its
// measured time begins and ends.
func (b *bench) window(ctx context.Context, u *under, o load.Options) (report *load.Report, before, after reading, err error) {
	edges := make(chan bool, 2)
	o.Window = func(open bool) { edges <- open }
	var loadErr error
	go func() {
		defer close(edges)
		report, loadErr = load.Run(ctx, o)
	}()
	var problems []error
	for open := range edges {
		var readErr error
		if open {
			before, readErr = b.read(u.process, 0, nil)
		} else {
			after, readErr = b.read(u.process, 0, &before)
		}
		problems = append(problems, readErr)
	}
	if err := errors.Join(append(problems, loadErr)...); err != nil {
		return nil, before, after, err
	}
	return report, before, after, nil
}

// measureStreams measures event streams.
func (b *bench) measureStreams(ctx context.Context, u *under) (*Run, error) {
	report, before, after, err := b.window(ctx, u, load.Options{
		URL: "http://" + u.address, Bodies: b.bodies, Headers: headers, Stream: true, Concurrency: b.o.Concurrency,
		Duration: u.duration, Warmup: max(u.warmup, streamWarmup+chunksOfStream*b.o.Interval), Timeout: streamTimeout,
	})
	if err != nil {
		return nil, err
	}
	run := b.newRun(u, before, after)
	run.Requests, run.Errors = report.Requests, report.Errors+report.Cut
	run.RequestsPerS = figure(report.RequestsPerS, 10)
	if run.Errors > 0 {
		fmt.Fprintf(b.log, "%s: %d streams failed, the first: %s\n", u.name, run.Errors, report.FirstError)
	}
	chunks := report.ContentEvents // of a peer that writes events anew, without our stamps
	if report.Chunks != nil && report.ChunkUs != nil {
		chunks = report.Chunks.Received
		run.ChunkP50Us, run.ChunkP99Us = &report.ChunkUs.P50, &report.ChunkUs.P99
		run.ReadsPerChunk = figure(float64(report.Chunks.Reads)/float64(max(chunks, 1)), 1000)
	}
	if chunks == 0 {
		return nil, fmt.Errorf("measure streams: no chunk came in %s; the first error: %s", u.duration, report.FirstError)
	}
	run.ChunksPerS = figure(float64(chunks)/u.duration.Seconds(), 10)
	if u.process != nil {
		run.CPUUsPerChunk = figure((after.proxy.cpuSeconds-before.proxy.cpuSeconds)*1e6/float64(chunks), 1000)
	}
	return run, nil
}

// measureOpen finds out what the subject can carry, which warms it up, and
// measures at a share of that; then the node alone at the same rate.
func (b *bench) measureOpen(ctx context.Context, u *under) (*Run, error) {
	l := b.wrkLoad(u)
	l.duration = max(u.warmup, time.Second)
	most, err := l.run(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("find out the capacity: %w", err)
	}
	if n := most.errors(); n > 0 {
		return nil, fmt.Errorf("find out the capacity: %d of %d requests failed", n, most.Requests)
	}
	o := load.Options{
		URL: "http://" + u.address, Bodies: b.bodies, Headers: headers, Rate: b.o.Share * float64(most.Requests) / (float64(most.DurationUs) / 1e6),
		Seed: 1, Warmup: openWarmup, Duration: u.duration, Timeout: openTimeout,
	}
	report, before, after, err := b.window(ctx, u, o)
	if err != nil {
		return nil, err
	}
	if report.OK == 0 {
		return nil, fmt.Errorf("measure an open loop: no request of %d ended well; the first error: %s", report.Requests, report.FirstError)
	}
	run := b.newRun(u, before, after)
	run.Requests, run.Errors = report.Requests, report.Errors+report.Cut
	run.RequestsPerS, run.RatePerS = figure(report.RequestsPerS, 10), figure(o.Rate, 10)
	run.P50Us, run.P99Us = figure(report.E2EL.P50*1000, 10), figure(report.E2EL.P99*1000, 10)
	b.countCPU(run, float64(report.Requests)/u.duration.Seconds(), before, after)
	if u.process == nil {
		return run, nil
	}
	o.URL = "http://" + b.nodes[0]
	direct, _, _, err := b.window(ctx, &under{name: Direct}, o)
	if err != nil {
		return nil, fmt.Errorf("measure the node alone: %w", err)
	}
	run.DirectP50Us, run.DirectP99Us = figure(direct.E2EL.P50*1000, 10), figure(direct.E2EL.P99*1000, 10)
	return run, nil
}

const (
	// A run begins when each connection has had a stream: they begin all over the
	// first half of the warm-up.
	streamWarmup   = time.Second
	chunksOfStream = 20
	streamTimeout  = time.Minute
	openWarmup     = 500 * time.Millisecond
	openTimeout    = 10 * time.Second
)

// headers come on top of those that every load sends.
var headers = map[string]string{"Authorization": "Bearer not-a-key"}

// countExact adds how many of the router's decisions were by exact tokens. Nearly
// all must be, or the figures are of something else.
func (b *bench) countExact(ctx context.Context, run *Run, admin string) error {
	const least = 0.99 // the first request comes before the proof
	exact, all, err := decisions(ctx, admin)
	if err != nil {
		return fmt.Errorf("count decisions: %w", err)
	}
	run.ExactShare = figure(exact/max(all, 1), 1000)
	if *run.ExactShare < least {
		return fmt.Errorf("measure %q: %.1f %% of its decisions were by exact tokens", run.Proxy, 100**run.ExactShare)
	}
	return nil
}

// figure drops digits that mean nothing; steps is 10 for one decimal.
func figure(v, steps float64) *float64 { return new(rounded(v, steps)) }

func rounded(v, steps float64) float64 { return math.Round(v*steps) / steps }
