package soak

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"strconv"
	"time"
)

// Report is the line that a run prints.
type Report struct {
	Record       string           `json:"record"` // "soak"
	Verdict      string           `json:"verdict"`
	Violations   []string         `json:"violations,omitempty"`
	Errors       []string         `json:"errors,omitempty"` // the first requests that nobody could answer, to be looked at
	Seed         uint64           `json:"seed"`
	DurationS    float64          `json:"duration_s"`
	Requests     int64            `json:"requests"`
	RequestsPerS float64          `json:"requests_per_s"`
	Clients      int              `json:"clients"`
	Nodes        int              `json:"nodes"`
	Outcomes     map[string]int64 `json:"outcomes"` // requests by what came of them, and what else happened
	Statuses     map[string]int64 `json:"statuses"` // of answers
	Tries        int64            `json:"tries"`    // requests that nodes got
	Faults       map[string]int64 `json:"faults"`   // that nodes had at a try

	ResidentFirstMiB  float64 `json:"resident_first_mib"` // the router's, mean of the run's first third …
	ResidentLastMiB   float64 `json:"resident_last_mib"`  // … and of its last
	DescriptorsBefore int     `json:"descriptors_before"` // the router's, before the traffic …
	DescriptorsMost   int     `json:"descriptors_most"`
	DescriptorsAfter  int     `json:"descriptors_after"` // … and when it was at rest again
	GoroutinesBefore  int     `json:"goroutines_before"`
	GoroutinesAfter   int     `json:"goroutines_after"`

	Commit string `json:"commit,omitempty"`
	Go     string `json:"go"`
	CPUs   int    `json:"cpus"`
}

func (r *run) report(w *watch, took time.Duration) *Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	first, last := w.thirds()
	out := &Report{
		Record: "soak", Verdict: "ok", Violations: r.violations, Errors: r.errors, Seed: r.Seed, DurationS: round(took.Seconds()), Requests: r.issued.Load(),
		Clients: r.Clients, Nodes: r.Nodes, Outcomes: maps.Clone(r.counts), Statuses: map[string]int64{}, Faults: map[string]int64{},
		ResidentFirstMiB: round(first / (1 << 20)), ResidentLastMiB: round(last / (1 << 20)),
		DescriptorsBefore: w.descriptors, DescriptorsAfter: w.rested.descriptors, GoroutinesBefore: w.goroutines, GoroutinesAfter: w.rested.goroutines,
		Commit: r.Commit, Go: runtime.Version(), CPUs: runtime.NumCPU(),
	}
	out.RequestsPerS = round(float64(out.Requests) / took.Seconds())
	if len(r.violations) > 0 {
		out.Verdict = "violated"
	}
	for status, n := range r.statuses {
		out.Statuses[strconv.Itoa(status)] = n
	}
	for k, n := range r.faults {
		out.Faults[k.String()] = n
	}
	for _, s := range w.samples {
		out.DescriptorsMost = max(out.DescriptorsMost, s.descriptors)
	}
	for _, n := range r.nodes {
		out.Tries += n.served.Load()
	}
	return out
}

func round(v float64) float64 { return math.Round(v*10) / 10 }

func (r *Report) write(out io.Writer) error {
	if err := json.NewEncoder(out).Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
