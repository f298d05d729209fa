package proxy

import (
	"reflect"
	"slices"
)

// Spread is a figure over all runs.
type Spread struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// Summary is one subject over all its runs, one line of the output.
type Summary struct {
	Record string `json:"record"` // "summary"
	Parameters
	Runs      int   `json:"runs"`
	NoisyRuns int   `json:"noisy_runs"` // kept although other processes or the host took more than the limit
	Errors    int64 `json:"errors"`
	Figures[Spread]

	// Medians less those of Direct in the same series, or of an open loop less
	// those of the node at the same rate; absent without.
	AddedP50Us      *float64 `json:"added_p50_us,omitempty"`
	AddedP99Us      *float64 `json:"added_p99_us,omitempty"`
	AddedChunkP50Us *float64 `json:"added_chunk_p50_us,omitempty"`
	AddedChunkP99Us *float64 `json:"added_chunk_p99_us,omitempty"`
	// WarmpathRatio is this subject's median of CPU time, a request or a chunk,
	// over warmpath's: above 1 warmpath is the cheaper one.
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

// spreads sums up each figure that a run has.
func spreads(runs []Run) (all Figures[Spread]) {
	into := reflect.ValueOf(&all).Elem()
	for i := range into.NumField() {
		var values []float64
		for r := range runs {
			if v, ok := reflect.ValueOf(&runs[r].Figures).Elem().Field(i).Interface().(*float64); ok && v != nil {
				values = append(values, *v)
			}
		}
		into.Field(i).Set(reflect.ValueOf(spread(values)))
	}
	return all
}

func summarise(o *Options, runs []Run) []Summary {
	summaries := make([]Summary, 0, len(o.Subjects))
	at := map[string]*Summary{}
	for _, name := range o.Subjects {
		of := slices.DeleteFunc(slices.Clone(runs), func(r Run) bool { return r.Proxy != name })
		if len(of) == 0 {
			continue
		}
		s := Summary{Record: "summary", Parameters: of[0].Parameters, Runs: len(of), Figures: spreads(of)}
		for i := range of {
			s.Errors += of[i].Errors
			if o.noisy(&of[i]) {
				s.NoisyRuns++
			}
		}
		summaries = append(summaries, s)
		at[name] = &summaries[len(summaries)-1]
	}
	for i := range summaries {
		s := &summaries[i]
		if direct := at[Direct]; direct != nil && s != direct {
			s.AddedP50Us, s.AddedP99Us = less(s.P50Us, direct.P50Us), less(s.P99Us, direct.P99Us)
			s.AddedChunkP50Us, s.AddedChunkP99Us = less(s.ChunkP50Us, direct.ChunkP50Us), less(s.ChunkP99Us, direct.ChunkP99Us)
		}
		if s.DirectP50Us != nil {
			s.AddedP50Us, s.AddedP99Us = less(s.P50Us, s.DirectP50Us), less(s.P99Us, s.DirectP99Us)
		}
		if own := at[Warmpath]; own != nil && s != own {
			s.WarmpathRatio = over(s.CPUUsPerRequest, own.CPUUsPerRequest)
			if s.CPUUsPerChunk != nil {
				s.WarmpathRatio = over(s.CPUUsPerChunk, own.CPUUsPerChunk)
			}
		}
	}
	return summaries
}

// less is the difference of two medians, nil without one of them.
func less(a, b *Spread) *float64 {
	if a == nil || b == nil {
		return nil
	}
	return figure(a.Median-b.Median, 10)
}

// over is the ratio of two medians, nil without one of them.
func over(a, b *Spread) *float64 {
	if a == nil || b == nil || b.Median == 0 {
		return nil
	}
	return figure(a.Median/b.Median, 1000)
}
