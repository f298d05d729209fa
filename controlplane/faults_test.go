package controlplane

import (
	"testing"

	"warmpath/controlplane/kernel"
)

func TestProofOfDeath(t *testing.T) {
	const ms = int64(1e6)
	for name, c := range map[string]struct {
		fault     kernel.Fault
		connectNs int64
		want      string
	}{
		"two time-outs":         {kernel.Fault{TimedOut: true, Count: 2, Silent: true, SilentNs: 100 * ms}, ms, "2 retransmission time-outs in a row, and nothing came for 100ms"},
		"one":                   {kernel.Fault{TimedOut: true, Count: 1, Silent: true, SilentNs: 100 * ms}, ms, ""},
		"heard meanwhile":       {kernel.Fault{TimedOut: true, Count: 5}, ms, ""},
		"a SYN, by and by":      {kernel.Fault{SYN: true, Count: 3, Silent: true, SilentNs: 120 * ms}, ms, "3 time-outs of a SYN in a row, and nothing came for 120ms"},
		"too soon":              {kernel.Fault{SYN: true, Count: 4, Silent: true, SilentNs: 60 * ms}, ms, ""},
		"too few":               {kernel.Fault{SYN: true, Count: 2, Silent: true, SilentNs: 1000 * ms}, ms, ""},
		"far away":              {kernel.Fault{SYN: true, Count: 4, Silent: true, SilentNs: 300 * ms}, 100 * ms, ""},
		"far away, and late":    {kernel.Fault{SYN: true, Count: 5, Silent: true, SilentNs: 500 * ms}, 100 * ms, "5 time-outs of a SYN in a row, and nothing came for 500ms"},
		"a SYN, heard":          {kernel.Fault{SYN: true, Count: 6, SilentNs: 500 * ms}, 0, ""},
		"reset":                 {kernel.Fault{Kind: "reset", Silent: true, Count: 9}, ms, ""},
		"nothing known of ways": {kernel.Fault{SYN: true, Count: 3, Silent: true, SilentNs: 110 * ms}, 0, "3 time-outs of a SYN in a row, and nothing came for 110ms"},
	} {
		if got := proofOf(c.fault, c.connectNs); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
