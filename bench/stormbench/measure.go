package stormbench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"warmpath/bench/machine"
)

// Options of a measurement. The zero value of a field is its default, but for
// Node.
type Options struct {
	Node          string        // host:port where all nodes answer
	Nodes         int           // default 100
	Loops         int           // of the data plane; default 1
	Rate          int           // requests a second; default 1,000
	PromptBytes   int           // of a request; default 4,096
	Conversations int           // that a node reports before it starts anew; default 200
	IndexBytes    int64         // bound of the index's memory; default 256 MiB
	Runs          int           // pairs of a run at rest and one in the storm; default 9
	Steal         float64       // percent; a pair from which the host took more is done again; default 1
	Duration      time.Duration // of a run; default 3 s
	Captures      string        // pattern of the captures' names; default: those of the repository
	Tokenizer     string        // path of a tokenizer.json; default: the small one of the repository
	Commit        string        // of the program that measures
}

func (o *Options) complete() {
	set := func(field *int, value int) {
		if *field <= 0 {
			*field = value
		}
	}
	set(&o.Nodes, 100)
	set(&o.Loops, 1)
	set(&o.Rate, 1000)
	set(&o.PromptBytes, 4096)
	set(&o.Conversations, 200)
	set(&o.Runs, 9)
	if o.Steal <= 0 {
		o.Steal = 1
	}
	if o.IndexBytes <= 0 {
		o.IndexBytes = 256 << 20
	}
	if o.Duration <= 0 {
		o.Duration = 3 * time.Second
	}
	if o.Captures == "" {
		o.Captures = "controlplane/kvevent/testdata/captures/bs32_0[1-7]_*.kvcap" // 09 has a reset in it
	}
	if o.Tokenizer == "" {
		o.Tokenizer = "dataplane/tokenize/testdata/tiny.json"
	}
}

// settling is how long a storm, or its end, is left alone before a run.
const settling = 500 * time.Millisecond

// Run is one line of the output: a run at rest or in the storm.
type Run struct {
	Record       string  `json:"record"` // "run"
	Storm        bool    `json:"storm"`
	Requests     int     `json:"requests"`
	Errors       int     `json:"errors"`
	RoutingP50   float64 `json:"routing_p50_us"` // from a request's last byte to its dispatch
	RoutingP99   float64 `json:"routing_p99_us"`
	AnswerP50    float64 `json:"answer_p50_us"` // from when it was due to the answer's end
	AnswerP99    float64 `json:"answer_p99_us"`
	Restarts     uint64  `json:"restarts,omitempty"` // of nodes
	BatchesPerS  float64 `json:"batches_per_s,omitempty"`
	BlocksPerS   float64 `json:"blocks_per_s,omitempty"`
	IndexBytes   int64   `json:"index_bytes"`
	HolderUnits  int64   `json:"holder_units"`
	HeapBytes    uint64  `json:"heap_bytes"`
	NotesDropped uint64  `json:"notes_dropped"`
	Steal        float64 `json:"steal_percent"` // of processor time: what the machine's host took
}

// Summary is the last line.
type Summary struct {
	Record           string  `json:"record"` // "summary"
	Nodes            int     `json:"nodes"`
	Loops            int     `json:"loops"`
	Rate             int     `json:"rate"`
	Runs             int     `json:"runs"` // pairs that count
	StealMost        float64 `json:"steal_percent_most"`
	RoutingP99Rest   float64 `json:"routing_p99_us_rest"` // medians of the runs
	RoutingP99Storm  float64 `json:"routing_p99_us_storm"`
	RoutingP99Growth float64 `json:"routing_p99_growth"` // median of the pairs' storm ÷ rest, less 1
	AnswerP99Rest    float64 `json:"answer_p99_us_rest"`
	AnswerP99Storm   float64 `json:"answer_p99_us_storm"`
	BlocksPerS       float64 `json:"blocks_per_s"`
	IndexBytesMost   int64   `json:"index_bytes_most"`
	IndexBytesBound  int64   `json:"index_bytes_bound"`
	Commit           string  `json:"commit,omitempty"`
	Go               string  `json:"go"`
	CPUs             int     `json:"cpus"`
}

// Measure runs at rest and in the storm in turns, and prints what came of it to
// out.
func Measure(ctx context.Context, o Options, out io.Writer) (err error) {
	o.complete()
	payloads, err := readCaptures(o.Captures)
	if err != nil {
		return fmt.Errorf("read captures: %w", err)
	}
	r, err := startRouter(&o)
	if err != nil {
		return err
	}
	defer func() {
		if closed := r.close(); err == nil {
			err = closed
		}
	}()
	m := &measurement{Options: o, router: r, payloads: payloads, clients: newClients(r.plane.Addr().String(), 500, o.PromptBytes)}
	defer m.clients.close()
	encoder := json.NewEncoder(out)
	m.clients.run(ctx, o.Rate, o.Duration) // warm-up
	_, _, _ = m.clients.taken()
	var runs []Run
	for tries := 0; len(runs) < 2*o.Runs && tries < mostTries*o.Runs; tries++ {
		pair, err := m.pair(ctx, encoder)
		if err != nil {
			return err
		}
		if max(pair[0].Steal, pair[1].Steal) <= o.Steal {
			runs = append(runs, pair[:]...)
		}
	}
	if len(runs) == 0 {
		return fmt.Errorf("the machine's host took more than %g %% of the processors in every run: try again later", o.Steal)
	}
	return encoder.Encode(m.summary(runs))
}

// mostTries bounds how often a pair is done again on a machine whose host is
// busy, on the average.
const mostTries = 3

// pair measures once at rest and once in the storm, and prints both.
func (m *measurement) pair(ctx context.Context, encoder *json.Encoder) (runs [2]Run, err error) {
	for i := range runs {
		if runs[i], err = m.run(ctx, i == 1); err != nil {
			return runs, err
		}
		if err := encoder.Encode(runs[i]); err != nil {
			return runs, fmt.Errorf("print run: %w", err)
		}
	}
	return runs, nil
}

type measurement struct {
	Options
	router   *router
	payloads [][]byte
	clients  *clients
}

// run measures once.
func (m *measurement) run(ctx context.Context, stormy bool) (run Run, err error) {
	s := &storm{indexer: m.router.indexer, payloads: m.payloads, conversations: m.Conversations}
	raging, calm := context.WithCancel(ctx)
	var wait sync.WaitGroup
	if stormy {
		wait.Go(func() { s.run(raging, m.router.trackers) })
	}
	end := func() { calm(); wait.Wait() }
	defer end()
	m.clients.run(ctx, m.Rate, settling)
	_, _, _ = m.clients.taken()
	restarts, batches, blocks, start := s.restarts.Load(), s.batches.Load(), s.blocks.Load(), time.Now()
	meter := machine.Start()
	m.clients.run(ctx, m.Rate, m.Duration)
	seconds := time.Since(start).Seconds()
	if err := ctx.Err(); err != nil {
		return run, err
	}
	run = Run{
		Record: "run", Storm: stormy, Restarts: s.restarts.Load() - restarts,
		BatchesPerS: float64(s.batches.Load()-batches) / seconds, BlocksPerS: float64(s.blocks.Load()-blocks) / seconds,
		Steal: meter.StealPercent(),
	}
	m.fill(&run, start)
	end()
	took, errs, failed := m.clients.taken()
	if run.Requests, run.Errors = len(took), errs; errs > len(took)/100 {
		return run, fmt.Errorf("%d of %d requests failed: %w", errs, errs+len(took), failed)
	}
	run.AnswerP50, run.AnswerP99 = micros(took, .5), micros(took, .99)
	return run, nil
}

// fill takes what the router has recorded since start.
func (m *measurement) fill(run *Run, start time.Time) {
	var routing []float64
	for _, rec := range m.router.plane.Records(records * m.Loops) {
		if rec.At.After(start) {
			routing = append(routing, rec.RoutingSeconds)
		}
	}
	run.RoutingP50, run.RoutingP99 = micros(routing, .5), micros(routing, .99)
	stats := m.router.index.Stats()
	run.IndexBytes, run.HolderUnits = stats.Bytes, stats.HolderUnits
	run.NotesDropped = m.router.plane.Totals().NotesDropped
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	run.HeapBytes = memory.HeapAlloc
}

func (m *measurement) summary(runs []Run) Summary {
	s := Summary{
		Record: "summary", Nodes: m.Nodes, Loops: m.Loops, Rate: m.Rate, Runs: len(runs) / 2, IndexBytesBound: m.IndexBytes,
		Commit: m.Commit, Go: runtime.Version(), CPUs: runtime.NumCPU(),
	}
	var rest, stormy, growth, answers, stormyAnswers, blocks []float64
	for i := 0; i+1 < len(runs); i += 2 {
		calm, wild := runs[i], runs[i+1]
		rest, stormy = append(rest, calm.RoutingP99), append(stormy, wild.RoutingP99)
		growth = append(growth, wild.RoutingP99/calm.RoutingP99-1)
		answers, stormyAnswers = append(answers, calm.AnswerP99), append(stormyAnswers, wild.AnswerP99)
		blocks = append(blocks, wild.BlocksPerS)
		s.StealMost = max(s.StealMost, calm.Steal, wild.Steal)
		s.IndexBytesMost = max(s.IndexBytesMost, calm.IndexBytes, wild.IndexBytes)
	}
	s.RoutingP99Rest, s.RoutingP99Storm, s.RoutingP99Growth = machine.Median(rest), machine.Median(stormy), machine.Median(growth)
	s.AnswerP99Rest, s.AnswerP99Storm, s.BlocksPerS = machine.Median(answers), machine.Median(stormyAnswers), machine.Median(blocks)
	return s
}

// micros returns a quantile of seconds, in microseconds.
func micros(seconds []float64, q float64) float64 {
	if len(seconds) == 0 {
		return 0
	}
	slices.Sort(seconds)
	return math.Round(seconds[int(q*float64(len(seconds)-1))]*1e7) / 10
}
