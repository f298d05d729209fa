package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"warmpath/controlplane/admin"
	"warmpath/controlplane/config"
)

const adminTimeout = 30 * time.Second

// adminFlags say which router a command talks to.
type adminFlags struct {
	address, token, config, output string
}

func addAdminFlags(cmd *cobra.Command, reads bool) *adminFlags {
	f := &adminFlags{}
	cmd.Flags().StringVar(&f.address, "admin", "127.0.0.1:8081", "host:port of the router's admin side")
	cmd.Flags().StringVar(&f.token, "token", "", "token of the admin side (admin.token)")
	cmd.Flags().StringVar(&f.config, "config", "", "take address and token from this configuration file")
	if reads {
		cmd.Flags().StringVar(&f.output, "output", "text", "text or json")
	}
	return f
}

// call sends one request and returns the answer's body.
func (f *adminFlags) call(method, path string, body []byte) ([]byte, error) {
	if f.output != "" && f.output != "text" && f.output != "json" {
		return nil, fmt.Errorf("%w: --output %q: use text or json", errUsage, f.output)
	}
	if f.config != "" {
		c, err := config.Load(f.config, config.Environ(), nil)
		if err != nil {
			return nil, err
		}
		f.address, f.token = c.Admin.Listen, c.Admin.Token
	}
	req, err := http.NewRequest(method, "http://"+f.address+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: --admin %q: %w", errUsage, f.address, err)
	}
	if f.token != "" {
		req.Header.Set("Authorization", "Bearer "+f.token)
	}
	client := http.Client{Timeout: adminTimeout}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the router at %s: %w; is it running, and is that its admin address (--admin)?", f.address, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read the router's answer: %w", err)
	}
	if resp.StatusCode >= 300 {
		return nil, errors.New(errorText(resp.Status, answer))
	}
	return answer, nil
}

func errorText(status string, body []byte) string {
	var e struct {
		Error struct{ Message, Code string }
	}
	if json.Unmarshal(body, &e) == nil && e.Error.Message != "" {
		return fmt.Sprintf("%s (%s, %s)", e.Error.Message, status, e.Error.Code)
	}
	return status
}

// show prints an answer as it is, or as text.
func show[T any](cmd *cobra.Command, f *adminFlags, answer []byte, text func(io.Writer, *T)) error {
	if f.output == "json" {
		_, err := cmd.OutOrStdout().Write(answer)
		return err
	}
	var v T
	if err := json.Unmarshal(answer, &v); err != nil {
		return fmt.Errorf("read the router's answer: %w", err)
	}
	w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
	text(w, &v)
	return w.Flush()
}

func newNodes() *cobra.Command {
	cmd := &cobra.Command{Use: "nodes [NODE]", Short: "List the nodes, or say what became of one", GroupID: "read", Args: cobra.MaximumNArgs(1)}
	f := addAdminFlags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			answer, err := f.call(http.MethodGet, "/api/nodes/"+url.PathEscape(args[0]), nil)
			if err != nil {
				return err
			}
			return show(cmd, f, answer, printNode)
		}
		answer, err := f.call(http.MethodGet, "/api/nodes", nil)
		if err != nil {
			return err
		}
		return show(cmd, f, answer, printNodes)
	}
	return cmd
}

func printNodes(w io.Writer, nodes *[]admin.NodeView) {
	fmt.Fprintln(w, "NODE\tSTATE\tBREAKER\tIN FLIGHT\tQUEUED\tKV USE\tINDEX UNITS\tTRUST\tEXACT\tWEIGHT\tDOUBT\tWARMTH\tURL\tMODELS\tWHY")
	for _, n := range *nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%d\t%s\t%s\t%.2f\t%s\t%s\t%s\t%s\t%s\n", n.Name, n.State, n.Breaker, n.InFlight,
			orUnknown(n.Queued, "%.0f"), orUnknown(n.KVUse, "%.2f"), n.IndexUnits, strings.Join(n.Trust, ","), orNone(n.Exact),
			n.Weight, orUnknown(n.WeightError, "%.2f"), orUnknown(n.Warmth, "%.2f"), n.URL, strings.Join(n.Models, ","), n.Reason)
	}
}

func printNode(w io.Writer, v *admin.OneNodeView) {
	if v.Node != nil {
		printNodes(w, &[]admin.NodeView{*v.Node})
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w, "AT\tTO\tWHY")
	for _, e := range v.Events {
		fmt.Fprintf(w, "%s\t%s\t%s\n", e.At.Format("2006-01-02 15:04:05.000Z"), e.To, e.Reason)
	}
}

// orNone names a few things, or says that there are none.
func orNone(names []string) string {
	switch {
	case len(names) == 0:
		return "-"
	case len(names) > 3:
		return fmt.Sprintf("%d classes", len(names))
	}
	return strings.Join(names, ",")
}

func orUnknown(v *float64, format string) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprintf(format, *v)
}

func newStatus() *cobra.Command {
	cmd := &cobra.Command{Use: "status", Short: "Say in a few lines how the router and its fleet are", GroupID: "read", Args: cobra.NoArgs}
	f := addAdminFlags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := f.call(http.MethodGet, "/api/status", nil)
		if err != nil {
			return err
		}
		return show(cmd, f, answer, printStatus)
	}
	return cmd
}

func printStatus(w io.Writer, s *admin.StatusView) {
	fmt.Fprintf(w, "clients\thttp://%s\t%d connections, %d requests under way\n", s.Listen, s.Connections, s.Active)
	fmt.Fprintf(w, "policy\t%s\n", s.Policy)
	fmt.Fprintf(w, "nodes\t%d of %d ready\t%s\n", s.NodesReady, s.Nodes, strings.Join(s.Unwell, ", "))
	fmt.Fprintf(w, "models\t%s\n", strings.Join(s.Models, ", "))
	fmt.Fprintf(w, "requests\t%d answered\t%d with 5xx, %d tries after the first\n", s.Requests, s.ServerErrors, s.Retries)
	fmt.Fprintf(w, "prefix\t%.1f %% of prompt tokens were where they were sent\n", 100*s.MatchedShare)
	fmt.Fprintf(w, "index\t%d units\t%d of %d bytes\n", s.IndexUnits, s.IndexBytes, s.IndexLimitBytes)
	fmt.Fprintf(w, "reload\t%s\n", map[bool]string{true: "ok", false: "the last one failed; the configuration before it is in force"}[s.ReloadOK])
	fmt.Fprintf(w, "version\t%s\n", s.Version)
}

func newExplain() *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain (FILE | - | REQUEST-ID)", Short: "Say where a request body would go and why, or why a past request went where it did",
		GroupID: "read", Args: cobra.ExactArgs(1),
		Long: "With a file, or - for standard input: decide that request body without sending it.\nWith a request id (X-Request-Id of an answer): show the decision that was made.",
	}
	f := addAdminFlags(cmd, true)
	path := cmd.Flags().String("path", "/v1/chat/completions", "route that the body would be sent to")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var answer []byte
		body, isBody, err := bodyOf(cmd, args[0])
		switch {
		case err != nil:
			return err
		case isBody:
			answer, err = f.call(http.MethodPost, "/api/explain?path="+url.QueryEscape(*path), body)
		default:
			answer, err = f.call(http.MethodGet, "/api/decisions/"+url.PathEscape(args[0]), nil)
		}
		if err != nil {
			return err
		}
		return show(cmd, f, answer, printDecision)
	}
	return cmd
}

// bodyOf reads the argument as a file; one that does not exist is a request id.
func bodyOf(cmd *cobra.Command, arg string) (body []byte, isBody bool, err error) {
	if arg == "-" {
		body, err = io.ReadAll(cmd.InOrStdin())
		return body, true, err
	}
	body, err = os.ReadFile(arg)
	if errors.Is(err, os.ErrNotExist) && !strings.Contains(arg, "/") {
		return nil, false, nil
	}
	return body, true, err
}

func printDecision(w io.Writer, d *admin.DecisionView) {
	fmt.Fprintf(w, "node\t%s\n", d.Node)
	fmt.Fprintf(w, "reason\t%s: %s\n", d.Reason, d.Why)
	fmt.Fprintf(w, "policy\t%s\n", d.Policy)
	fmt.Fprintf(w, "model\t%s\n", d.Model)
	about := "about "
	if d.Exactness == "exact" {
		about = ""
	}
	fmt.Fprintf(w, "prompt\t%s%d tokens, exactness %s\n", about, d.PromptTokens, d.Exactness)
	if d.Inexact != "" {
		fmt.Fprintf(w, "inexact\t%s\n", d.Inexact)
	}
	if o := d.Outcome; o != nil {
		fmt.Fprintf(w, "outcome\t%d %s after %.1f ms, routed in %.0f µs\n", o.Status, o.Outcome, 1e3*o.DurationSeconds, 1e6*o.RoutingSeconds)
		if o.CachedTokens != nil {
			fmt.Fprintf(w, "engine\ttook %d tokens from its cache\n", *o.CachedTokens)
		}
	}
	fmt.Fprintf(w, "\nCANDIDATE\tMATCHED TOKENS\tSCORE\tIN FLIGHT\n")
	for _, c := range d.Candidates {
		fmt.Fprintf(w, "%s\t%d\t%.6g\t%d\n", c.Node, c.MatchedTokens, c.Score, c.InFlight)
	}
	for _, p := range d.PassedOver {
		fmt.Fprintf(w, "%s\t%d\tout: %s\t\n", p.Node, p.MatchedTokens, p.Why)
	}
	for i, t := range d.Tries {
		fmt.Fprintf(w, "try %d\t%s\t%s\t\n", i+1, t.Node, t.Outcome)
	}
}

func newDrain(drain bool) *cobra.Command {
	verb, short := "drain", "Send a node nothing new; it finishes what it has"
	if !drain {
		verb, short = "undrain", "Send a drained node requests again"
	}
	cmd := &cobra.Command{Use: verb + " NODE", Short: short, GroupID: "change", Args: cobra.ExactArgs(1)}
	f := addAdminFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := f.call(http.MethodPost, "/api/nodes/"+url.PathEscape(args[0])+"/"+verb, nil); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s asked\n", args[0], verb)
		return err
	}
	return cmd
}

func newReload() *cobra.Command {
	cmd := &cobra.Command{Use: "reload", Short: "Load the configuration again", GroupID: "change", Args: cobra.NoArgs}
	f := addAdminFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := f.call(http.MethodPost, "/api/reload", nil)
		if err != nil {
			return err
		}
		_, err = cmd.OutOrStdout().Write(answer)
		return err
	}
	return cmd
}
