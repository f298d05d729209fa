package load

import (
	"math"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is what a run measured, in the form of one line of output. Requests is
// OK + Errors + Cut.
type Report struct {
	URL            string   `json:"url"`
	Stream         bool     `json:"stream"`
	Rate           float64  `json:"rate,omitempty"`        // requests a second, asked for
	Arrivals       Arrivals `json:"arrivals,omitempty"`    // of an open loop
	Seed           uint64   `json:"seed,omitempty"`        // of an open loop
	Concurrency    int      `json:"concurrency,omitempty"` // of a closed loop
	MaxConnections int      `json:"max_connections"`       // as the process allowed
	DurationS      float64  `json:"duration_s"`            // measured window
	WarmupS        float64  `json:"warmup_s"`              // before it
	TimeoutS       float64  `json:"timeout_s"`
	Bodies         int      `json:"bodies"`     // different requests
	BodyBytes      float64  `json:"body_bytes"` // mean length of a body

	Requests   int64            `json:"requests"`
	OK         int64            `json:"ok"`
	Errors     int64            `json:"errors"`
	Cut        int64            `json:"cut"`                   // answers that began with status 200 and broke off
	Unfinished int64            `json:"unfinished"`            // under way when the run ended; no part of requests
	ErrorKinds map[string]int64 `json:"error_kinds,omitempty"` // connect closed timeout unsent malformed not_streamed error_event long_line status_NNN
	FirstError string           `json:"first_error,omitempty"`

	ElapsedS     float64 `json:"elapsed_s"`      // from the window's begin to its end, or to the last end of an open loop's request, if that was later
	RequestsPerS float64 `json:"requests_per_s"` // ok requests a second of elapsed time
	GoodPerS     float64 `json:"good_per_s,omitempty"`

	TTFT    Distribution `json:"ttft_ms"`    // due to first event with content; streams only
	ITL     Distribution `json:"itl_ms"`     // between events with content
	TPOT    Distribution `json:"tpot_ms"`    // of a request: first to last content ÷ (tokens − 1)
	E2EL    Distribution `json:"e2el_ms"`    // due to the answer's last byte, of ok requests
	Service Distribution `json:"service_ms"` // sent to the answer's last byte, of ok requests: what a closed loop would see

	PromptTokens    int64   `json:"prompt_tokens"` // as the answers state, of ok requests
	CachedTokens    int64   `json:"cached_tokens"`
	OutputTokens    int64   `json:"output_tokens"`  // as the answers state, else events with content
	ContentEvents   int64   `json:"content_events"` // of all streams in the window, ended or not
	OutputTokensPS  float64 `json:"output_tokens_per_s"`
	MostEventsPerS  int64   `json:"most_events_per_s"` // in the best second
	ReceivedBytes   int64   `json:"received_bytes"`
	MostConcurrent  int     `json:"most_concurrent"`  // requests under way at once
	ConnectionsMade int64   `json:"connections_made"` // warm-up included

	Late   Late    `json:"late"`
	Chunks *Chunks `json:"chunks,omitempty"`
	// ChunkUs is receive time − send time of each stamped chunk.
	ChunkUs *Distribution `json:"chunk_us,omitempty"`

	LoadCPUS     float64 `json:"load_cpu_s"`     // of the generator's thread, in the window
	LoadCPUShare float64 `json:"load_cpu_share"` // of one core; near 1 the generator was the bottleneck

	goodput bool // was asked for
}

// Late says how well an open loop kept its times.
type Late struct {
	Requests int64   `json:"requests"` // sent more than over_ms after they were due
	OverMs   float64 `json:"over_ms"`
	MeanMs   float64 `json:"mean_ms"` // of all requests
	MaxMs    float64 `json:"max_ms"`
}

// Chunks counts the stamped chunks of a bench node and the reads that brought
// them: fewer reads than chunks means that somebody merged them, more that
// somebody split them.
type Chunks struct {
	Received  int64   `json:"received"`
	Reads     int64   `json:"reads"`       // that brought bytes of events
	Merged    int64   `json:"merged"`      // that came whole in one read with the chunk before
	CPUUs     float64 `json:"load_cpu_us"` // of the generator, a chunk
	ClockSkew int64   `json:"clock_skew"`  // stamped later than received: from another host; in no figure
}

// Distribution sums up a histogram in its unit. Without values all is 0.
type Distribution struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean"`
	Std   float64 `json:"std"`
	Min   float64 `json:"min"`
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P95   float64 `json:"p95"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`

	h    *hdrhistogram.Histogram
	unit float64
}

// At returns the value below or at which the given percent of the values are.
func (d *Distribution) At(percent float64) float64 {
	if d.Count == 0 {
		return 0
	}
	return tidy(float64(d.h.ValueAtPercentile(percent)) / d.unit)
}

// Nanoseconds of the units.
const (
	microsecond = 1e3
	millisecond = 1e6
)

// distribution sums up the timing in a unit of so many ns.
func (t *timing) distribution(unit float64) Distribution {
	d := Distribution{Count: t.h.TotalCount(), h: t.h, unit: unit}
	if d.Count == 0 {
		return d
	}
	d.Mean = tidy(t.sum / float64(d.Count) / unit)
	d.Std = tidy(t.h.StdDev() / unit)
	d.Min, d.Max = tidy(float64(t.h.Min())/unit), tidy(float64(t.h.Max())/unit)
	d.P50, d.P90, d.P95, d.P99, d.P999 = d.At(50), d.At(90), d.At(95), d.At(99), d.At(99.9)
	return d
}

// tidy drops digits that mean nothing.
func tidy(v float64) float64 { return math.Round(v*1e4) / 1e4 }

// report sums the run up.
func (l *loop) report() *Report {
	o, t := &l.o, l.t
	r := &Report{
		URL: o.URL, Stream: o.Stream, Rate: o.Rate, Arrivals: o.Arrivals, Concurrency: o.Concurrency, MaxConnections: l.most,
		DurationS: o.Duration.Seconds(), WarmupS: o.Warmup.Seconds(), TimeoutS: o.Timeout.Seconds(), Bodies: len(o.Bodies),
		OK: t.ok, Cut: t.cut, Unfinished: t.unfinished, FirstError: t.firstError,
		TTFT: t.ttft.distribution(millisecond), ITL: t.itl.distribution(millisecond), TPOT: t.tpot.distribution(millisecond),
		E2EL: t.e2el.distribution(millisecond), Service: t.service.distribution(millisecond),
		PromptTokens: t.promptTokens, CachedTokens: t.cachedTokens, OutputTokens: t.answerTokens, ContentEvents: t.contentEvents,
		MostEventsPerS: t.tokensMost, ReceivedBytes: t.bytes, MostConcurrent: t.busyMost, ConnectionsMade: t.connections,
		Late: Late{Requests: t.late, OverMs: float64(lateNs) / millisecond, MaxMs: tidy(float64(t.lagMax) / millisecond)},
	}
	if o.Rate > 0 {
		r.Seed = o.Seed
	}
	for _, body := range o.Bodies {
		r.BodyBytes += float64(len(body)) / float64(len(o.Bodies))
	}
	r.BodyBytes = tidy(r.BodyBytes)
	r.goodput = o.Goodput.wanted()
	r.Errors, r.ErrorKinds = t.errors()
	r.Requests = r.OK + r.Errors + r.Cut
	if t.dispatched > 0 {
		r.Late.MeanMs = tidy(float64(t.lagSum) / float64(t.dispatched) / millisecond)
	}
	end := min(l.shut, l.now) // earlier when it was stopped
	if o.Rate > 0 {
		end = max(end, t.lastEnd)
	}
	r.LoadCPUS = tidy(float64(l.cpuEnd-l.cpuBegin) / 1e9)
	if seconds := float64(end-l.open) / 1e9; seconds > 0 {
		r.ElapsedS = tidy(seconds)
		r.RequestsPerS = tidy(float64(t.ok) / seconds)
		r.OutputTokensPS = tidy(l.outputTokens() / seconds)
		r.GoodPerS = tidy(float64(t.good) / seconds)
		r.LoadCPUShare = tidy(r.LoadCPUS / (float64(min(l.shut, l.now)-l.open) / 1e9))
	}
	if n := t.chunk.h.TotalCount(); n+t.chunksFromAfter > 0 {
		r.Chunks = &Chunks{
			Received: n, Reads: t.streamReads, Merged: t.chunksMerged, ClockSkew: t.chunksFromAfter,
			CPUUs: tidy(r.LoadCPUS * 1e6 / float64(max(n, 1))),
		}
		chunks := t.chunk.distribution(microsecond)
		r.ChunkUs = &chunks
	}
	return r
}

// outputTokens are the tokens that came in the elapsed time. An open loop ends
// with its last request, so that they are those of all requests. A closed loop
// ends amid streams: their events count, each as many tokens as in those that
// ended.
func (l *loop) outputTokens() float64 {
	t := l.t
	if l.o.Rate > 0 || t.contentEvents == 0 {
		return float64(t.answerTokens)
	}
	perEvent := 1.0
	if t.endedContents > 0 {
		perEvent = float64(t.answerTokens) / float64(t.endedContents)
	}
	return perEvent * float64(t.contentEvents)
}
