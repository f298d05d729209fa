package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"warmpath/controlplane/admin"
)

func newScaler() *cobra.Command {
	cmd := &cobra.Command{
		Use: "scaler", Short: "Say what the scaler did last and why, and which nodes it owns", GroupID: "read", Args: cobra.NoArgs,
	}
	f := addAdminFlags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := f.call(http.MethodGet, "/api/scaler", nil)
		if err != nil {
			return err
		}
		return show(cmd, f, answer, printScaler)
	}
	return cmd
}

// shownDecisions is how many of the latest decisions are printed.
const shownDecisions = 10

func printScaler(w io.Writer, v *admin.ScalerView) {
	switch {
	case !v.Enabled:
		fmt.Fprintln(w, "there is no scaler: scaler.enabled is false")
		return
	case v.Waits != "":
		fmt.Fprintf(w, "waits\t%s\n", v.Waits)
		return
	case v.Last == nil:
		fmt.Fprintln(w, "no decision yet")
	default:
		fmt.Fprintf(w, "now\t%s (%s)\t%s\n", v.Last.Action, v.Last.Reason, onLine(v.Last.Why))
	}
	for _, r := range v.Routers {
		how := "answers"
		if !r.OK {
			how = onLine(r.Error)
		}
		fmt.Fprintf(w, "router\t%s\t%d of its nodes there; %s\n", r.URL, r.Nodes, how)
	}
	if v.Refused != "" {
		fmt.Fprintf(w, "refused\t%s\n", onLine(v.Refused))
	}
	fmt.Fprintln(w, "\nNODE\tOFFER\tSTAGE\tFOR\tURL\tWHY")
	for _, n := range v.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.0f s\t%s\t%s\n", n.Name, n.Offer, n.Stage, n.ForSeconds, n.URL, onLine(n.Why))
	}
	fmt.Fprintln(w, "\nOFFER\tSTART-UP\tMAY BE ASKED")
	for _, o := range v.Offers {
		start, may := "not measured yet", "yes"
		if o.StartUpSeconds.Known {
			start = fmt.Sprintf("%.0f s", o.StartUpSeconds.Value)
		}
		if o.Withheld != "" {
			may = "no: " + onLine(o.Withheld)
		} else if o.Unlisted != "" {
			may = "yes, but which nodes there are is not known: " + onLine(o.Unlisted)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", o.Name, start, may)
	}
	for _, o := range v.Orphans {
		fmt.Fprintf(w, "\norphan\t%s at %s (%s), which nobody asked for\n", o.ID, o.Offer, o.Phase)
	}
	if len(v.Decisions) > 0 {
		fmt.Fprintln(w, "\nAT\tACTION\tNODES\tWHY")
	}
	for _, d := range v.Decisions[:min(shownDecisions, len(v.Decisions))] {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\n", d.At.Format("2006-01-02 15:04:05Z"), d.Action, d.Target, onLine(d.Why))
	}
}

// onLine is what a provider or a script said, on one line of a table: they may say
// anything, a page of HTML or what would steer a terminal.
func onLine(words string) string {
	return strings.Join(strings.FieldsFunc(words, func(r rune) bool { return r == ' ' || unicode.IsControl(r) }), " ")
}
