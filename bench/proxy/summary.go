package proxy

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Spread is a figure over all runs.
type Spread struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// Summary is one subject over all its runs, one line of the output.
type Summary struct {
	Record          string  `json:"record"` // "summary"
	Proxy           string  `json:"proxy"`
	SizeBytes       int     `json:"size_bytes"`
	Concurrency     int     `json:"concurrency"`
	OneCore         bool    `json:"one_core"`
	Runs            int     `json:"runs"`
	NoisyRuns       int     `json:"noisy_runs"` // kept although other processes took more than the limit
	Errors          int64   `json:"errors"`
	RequestsPerS    Spread  `json:"requests_per_s"`
	RequestsPerCPUS *Spread `json:"requests_per_cpu_s,omitempty"`
	CPUUsPerRequest *Spread `json:"cpu_us_per_request,omitempty"`
	CPUShare        *Spread `json:"cpu_share,omitempty"`
	P50Us           Spread  `json:"p50_us"`
	P99Us           Spread  `json:"p99_us"`
	RSSMiB          *Spread `json:"rss_mib,omitempty"`
	// AddedP50Us is the median p50 less that of Direct; absent without Direct.
	AddedP50Us *float64 `json:"added_p50_us,omitempty"`
	// WarmpathRatio is warmpath's median of requests per CPU second over this
	// subject's: above 1 warmpath is the cheaper one.
	WarmpathRatio *float64 `json:"warmpath_ratio,omitempty"`
}

// spread is nil when no value is known.
func spread(values []float64) *Spread {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return &Spread{Min: sorted[0], Median: rounded((sorted[(n-1)/2]+sorted[n/2])/2, 1000), Max: sorted[n-1]}
}

// known collects the values that are not absent.
func known(runs []Run, of func(*Run) *float64) []float64 {
	var values []float64
	for i := range runs {
		if v := of(&runs[i]); v != nil {
			values = append(values, *v)
		}
	}
	return values
}

func summarise(o *Options, runs []Run) []Summary {
	summaries := make([]Summary, 0, len(o.Subjects))
	at := map[string]*Summary{}
	for _, name := range o.Subjects {
		of := slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Proxy != name })
		if len(of) == 0 {
			continue
		}
		s := Summary{
			Record: "summary", Proxy: name, SizeBytes: o.SizeBytes, Concurrency: o.Concurrency, OneCore: o.OneCore, Runs: len(of),
			RequestsPerS:    *spread(known(of, func(r *Run) *float64 { return &r.RequestsPerS })),
			P50Us:           *spread(known(of, func(r *Run) *float64 { return &r.P50Us })),
			P99Us:           *spread(known(of, func(r *Run) *float64 { return &r.P99Us })),
			RequestsPerCPUS: spread(known(of, func(r *Run) *float64 { return r.RequestsPerCPUS })),
			CPUUsPerRequest: spread(known(of, func(r *Run) *float64 { return r.CPUUsPerRequest })),
			CPUShare:        spread(known(of, func(r *Run) *float64 { return r.CPUShare })),
			RSSMiB:          spread(known(of, func(r *Run) *float64 { return r.RSSMiB })),
		}
		for i := range of {
			s.Errors += of[i].Errors
			if of[i].ForeignShare > o.MaxForeignShare {
				s.NoisyRuns++
			}
		}
		summaries = append(summaries, s)
		at[name] = &summaries[len(summaries)-1]
	}
	direct, own := at[Direct], at[Warmpath]
	for i := range summaries {
		s := &summaries[i]
		if direct != nil && s != direct {
			s.AddedP50Us = new(rounded(s.P50Us.Median-direct.P50Us.Median, 10))
		}
		if own != nil && s != own && own.RequestsPerCPUS != nil && s.RequestsPerCPUS != nil {
			s.WarmpathRatio = new(rounded(own.RequestsPerCPUS.Median/s.RequestsPerCPUS.Median, 1000))
		}
	}
	return summaries
}

// writeTable prints medians with minimum and maximum.
func writeTable(w io.Writer, o *Options, summaries []Summary) error {
	fmt.Fprintf(w, "\n%d-byte bodies, %d connections, %d runs of %s, min / median / max\n", o.SizeBytes, o.Concurrency, o.Runs, o.Duration)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "proxy\trequests/s\trequests per CPU-s\tCPU µs/request\tcore %\tp50 µs\tp99 µs\tadded p50 µs\tpeak MiB\twarmpath is\terrors\tnoisy")
	for i := range summaries {
		s := &summaries[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d/%d\n",
			s.Proxy, triple(&s.RequestsPerS, 1, 0), triple(s.RequestsPerCPUS, 1, 0), triple(s.CPUUsPerRequest, 1, 1),
			middle(s.CPUShare, 100), triple(&s.P50Us, 1, 0), triple(&s.P99Us, 1, 0), one(s.AddedP50Us, "%.0f"),
			middle(s.RSSMiB, 1), one(s.WarmpathRatio, "%.2f ×"), s.Errors, s.NoisyRuns, s.Runs)
	}
	return t.Flush()
}

const absent = "–"

func triple(s *Spread, scale float64, digits int) string {
	if s == nil {
		return absent
	}
	return fmt.Sprintf("%.*f / %.*f / %.*f", digits, s.Min*scale, digits, s.Median*scale, digits, s.Max*scale)
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
