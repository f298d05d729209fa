package proxy

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// column is one of the table for people.
type column struct {
	title string
	text  func(s *Summary) string
}

const absent = "–"

// columnsFor are those that a load has figures for.
func columnsFor(load Load) []column {
	subject := column{"proxy", func(s *Summary) string { return s.Proxy }}
	core := column{"core %", func(s *Summary) string { return middle(s.CPUShare, 100) }}
	end := []column{
		{"peak MiB", func(s *Summary) string { return middle(s.RSSMiB, 1) }},
		{"its CPU ÷ warmpath's", func(s *Summary) string { return one(s.WarmpathRatio, "%.2f") }},
		{"errors", func(s *Summary) string { return fmt.Sprint(s.Errors) }},
		{"noisy", func(s *Summary) string { return fmt.Sprintf("%d/%d", s.NoisyRuns, s.Runs) }},
	}
	added := []column{
		{"p50 µs", func(s *Summary) string { return triple(s.P50Us, 0) }},
		{"p99 µs", func(s *Summary) string { return triple(s.P99Us, 0) }},
		{"added p50", func(s *Summary) string { return one(s.AddedP50Us, "%.0f") }},
		{"added p99", func(s *Summary) string { return one(s.AddedP99Us, "%.0f") }},
	}
	cost := column{"CPU µs/request", func(s *Summary) string { return triple(s.CPUUsPerRequest, 1) }}
	switch load {
	case LoadStream:
		return append([]column{
			subject,
			{"chunks/s", func(s *Summary) string { return triple(s.ChunksPerS, 0) }},
			{"CPU µs/chunk", func(s *Summary) string { return triple(s.CPUUsPerChunk, 1) }},
			core,
			{"chunk p50 µs", func(s *Summary) string { return triple(s.ChunkP50Us, 0) }},
			{"chunk p99 µs", func(s *Summary) string { return triple(s.ChunkP99Us, 0) }},
			{"added p50", func(s *Summary) string { return one(s.AddedChunkP50Us, "%.0f") }},
			{"added p99", func(s *Summary) string { return one(s.AddedChunkP99Us, "%.0f") }},
			{"reads/chunk", func(s *Summary) string { return triple(s.ReadsPerChunk, 2) }},
		}, end...)
	case LoadOpen:
		return append(append([]column{
			subject,
			{"requests/s asked", func(s *Summary) string { return triple(s.RatePerS, 0) }},
			cost, core,
		}, added...), end...)
	default:
		return append(append([]column{
			subject,
			{"requests/s", func(s *Summary) string { return triple(s.RequestsPerS, 0) }},
			{"requests per CPU-s", func(s *Summary) string { return triple(s.RequestsPerCPUS, 0) }},
			cost, core,
		}, added...), end...)
	}
}

// heading says what was measured.
func (o *Options) heading() string {
	var what string
	switch o.Load {
	case LoadGet:
		what = fmt.Sprintf("GET, %d connections", o.Concurrency)
	case LoadStream:
		what = fmt.Sprintf("%d streams, a chunk every %s, %d-byte bodies", o.Concurrency, o.Interval, o.SizeBytes)
	case LoadOpen:
		what = fmt.Sprintf("open loop at %.0f %% of what each carries, %d-byte bodies", 100*o.Share, o.SizeBytes)
	default:
		what = fmt.Sprintf("%d-byte bodies, %d connections", o.SizeBytes, o.Concurrency)
	}
	if o.OneCore {
		what += ", everything on one core"
	}
	return what
}

// writeTable prints medians with minimum and maximum.
func writeTable(w io.Writer, o *Options, summaries []Summary) error {
	fmt.Fprintf(w, "\n%s, %d runs of %s, min / median / max\n", o.heading(), o.Runs, o.Duration)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	columns := columnsFor(o.Load)
	titles := make([]string, len(columns))
	for i, c := range columns {
		titles[i] = c.title
	}
	fmt.Fprintln(t, strings.Join(titles, "\t"))
	for i := range summaries {
		cells := make([]string, len(columns))
		for at, c := range columns {
			cells[at] = c.text(&summaries[i])
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

func triple(s *Spread, digits int) string {
	if s == nil {
		return absent
	}
	return fmt.Sprintf("%.*f / %.*f / %.*f", digits, s.Min, digits, s.Median, digits, s.Max)
}

func middle(s *Spread, scale float64) string {
	if s == nil {
		return absent
	}
	return fmt.Sprintf("%.0f", s.Median*scale)
}

func one(v *float64, format string) string {
	if v == nil {
		return absent
	}
	return fmt.Sprintf(format, *v)
}
