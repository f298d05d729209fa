package main

import (
	"strings"
	"testing"
	"text/tabwriter"

	"warmpath/controlplane/admin"
	"warmpath/scaler"
)

// What providers say stands on one line each, and steers no terminal.
func TestPrintScaler(t *testing.T) {
	words := "status 403:\n<p>\tno\x1b[31m</p>\r\n"
	for _, c := range []struct {
		name string
		v    admin.ScalerView
		want []string
	}{
		{"none", admin.ScalerView{}, []string{"there is no scaler: scaler.enabled is false"}},
		{"waits", admin.ScalerView{Enabled: true, Waits: "for the journal"}, []string{"waits  for the journal"}},
		{"begins", admin.ScalerView{Enabled: true}, []string{"no decision yet", "", "NODE  OFFER  STAGE  FOR  URL  WHY", "", "OFFER  START-UP  MAY BE ASKED"}},
		{"all", admin.ScalerView{
			Enabled: true, Refused: "node a:\nno", Last: &admin.ScalerDecisionView{Action: "hold", Reason: "steady", Why: "so it is"},
			Nodes: []admin.OwnedView{{Name: "a-1", Offer: "a", Stage: "serving", URL: "http://h:1", Why: words, ForSeconds: 2}},
			Offers: []scaler.OfferStatus{
				{Name: "a", StartUpSeconds: scaler.Known(3)},
				{Name: "b", Withheld: words},
				{Name: "c", Unlisted: words},
			},
			Orphans:   []admin.OrphanView{{Offer: "a", ID: "i", Phase: "running"}},
			Decisions: []admin.ScalerDecisionView{{Action: "up", Target: 2, Why: words}},
		}, []string{
			"now      hold (steady)  so it is",
			"refused  node a: no",
			"",
			"NODE  OFFER  STAGE    FOR  URL         WHY",
			"a-1   a      serving  2 s  http://h:1  status 403: <p> no [31m</p>",
			"",
			"OFFER  START-UP          MAY BE ASKED",
			"a      3 s               yes",
			"b      not measured yet  no: status 403: <p> no [31m</p>",
			"c      not measured yet  yes, but which nodes there are is not known: status 403: <p> no [31m</p>",
			"",
			"orphan  i at a (running), which nobody asked for",
			"",
			"AT                    ACTION  NODES  WHY",
			"0001-01-01 00:00:00Z  up      2      status 403: <p> no [31m</p>",
		}},
	} {
		var text strings.Builder
		w := tabwriter.NewWriter(&text, 0, 4, 2, ' ', 0)
		printScaler(w, &c.v)
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSuffix(text.String(), "\n"); got != strings.Join(c.want, "\n") {
			t.Errorf("%s:\n%s\nwant:\n%s", c.name, got, strings.Join(c.want, "\n"))
		}
	}
}
