package admin

import "strconv"

func formatPercent(f float64) string { return strconv.FormatFloat(100*f, 'f', 0, 64) + " %" }

func formatCount(f float64) string { return strconv.FormatFloat(f, 'f', 0, 64) }

func formatMillis(seconds float64) string {
	return strconv.FormatFloat(1e3*seconds, 'f', 1, 64) + " ms"
}
