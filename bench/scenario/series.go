package scenario

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
)

// WriteSeries writes the points of a run as CSV, with the load and the attainment of
// the requests that came in the seconds before each.
func (r *Report) WriteSeries(out io.Writer) error {
	w := csv.NewWriter(out)
	rows := [][]string{{"at_s", "requests_per_s", "attainment", "ready", "starting", "draining", "down", "in_flight", "queued", "held"}}
	for _, p := range r.Points {
		requests, attained := r.Window(p.AtSeconds-float64(seriesNs)/1e9, p.AtSeconds)
		row := []string{
			strconv.FormatFloat(p.AtSeconds, 'f', 0, 64),
			strconv.FormatFloat(requests, 'f', 2, 64), strconv.FormatFloat(attained, 'f', 5, 64),
		}
		for _, n := range []int{p.Ready, p.Starting, p.Draining, p.Down, p.InFlight, p.Queued, p.Held} {
			row = append(row, strconv.Itoa(n))
		}
		rows = append(rows, row)
	}
	if err := w.WriteAll(rows); err != nil {
		return fmt.Errorf("write series: %w", err)
	}
	return nil
}

// Window is how many requests came a second in a span of seconds, and the share of
// them that attained their target; 1 if none came.
func (r *Report) Window(from, to float64) (perSecond, attained float64) {
	first, last := max(0, int(from)), min(len(r.Seconds), int(to))
	if first >= last {
		return 0, 1
	}
	n, share := Attainment(r.Seconds[first:last])
	return float64(n) / float64(last-first), share
}
