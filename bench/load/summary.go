package load

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// WriteSummary writes the report for people.
func (r *Report) WriteSummary(w io.Writer) error {
	var b strings.Builder
	if r.Rate > 0 {
		fmt.Fprintf(&b, "%s  %g requests/s, %s, %gs after %gs\n", r.URL, r.Rate, r.Arrivals, r.DurationS, r.WarmupS)
	} else {
		fmt.Fprintf(&b, "%s  %d connections, %gs after %gs\n", r.URL, r.Concurrency, r.DurationS, r.WarmupS)
	}
	fmt.Fprintf(&b, "requests %d  ok %d  errors %d  cut %d  unfinished %d  %.1f ok/s", r.Requests, r.OK, r.Errors, r.Cut, r.Unfinished, r.RequestsPerS)
	if r.OutputTokens > 0 {
		fmt.Fprintf(&b, "  %.1f output tokens/s", r.OutputTokensPS)
	}
	b.WriteByte('\n')
	for _, kind := range slices.Sorted(maps.Keys(r.ErrorKinds)) {
		fmt.Fprintf(&b, "  %-14s %d\n", kind, r.ErrorKinds[kind])
	}
	if r.FirstError != "" {
		fmt.Fprintf(&b, "  the first: %q\n", r.FirstError)
	}
	fmt.Fprintf(&b, "%-10s %10s %10s %10s %10s %10s %10s\n", "", "mean", "p50", "p90", "p99", "p99.9", "max")
	line := func(name string, d *Distribution) {
		if d != nil && d.Count > 0 {
			fmt.Fprintf(&b, "%-10s %10.3f %10.3f %10.3f %10.3f %10.3f %10.3f\n", name, d.Mean, d.P50, d.P90, d.P99, d.P999, d.Max)
		}
	}
	line("ttft ms", &r.TTFT)
	line("itl ms", &r.ITL)
	line("tpot ms", &r.TPOT)
	line("e2el ms", &r.E2EL)
	line("service ms", &r.Service)
	line("chunk µs", r.ChunkUs)
	if c := r.Chunks; c != nil {
		fmt.Fprintf(&b, "chunks %d in %d reads, %d merged\n", c.Received, c.Reads, c.Merged)
	}
	if r.Late.Requests > 0 {
		fmt.Fprintf(&b, "%d requests were sent more than %g ms late, the latest %.1f ms\n", r.Late.Requests, r.Late.OverMs, r.Late.MaxMs)
	}
	if r.LoadCPUShare > 0.9 {
		fmt.Fprintf(&b, "the generator used %.0f %% of its core: it may have been the bottleneck\n", 100*r.LoadCPUShare)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
