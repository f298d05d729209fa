package admin

import (
	_ "embed"
	"fmt"
	"html"
	"net/http"
	"strings"
)

// pageHead is the page up to its first heading.
//
//go:embed page.html
var pageHead string

const (
	pageDecisions = 25 // of the router …
	pageScalings  = 5  // … and of the scaler
)

// page is the status page: nodes, the scaler and the latest decisions as they are now,
// without scripts, so that it works in anything; it reloads itself.
func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	p := page{}
	p.WriteString(pageHead)
	index := indexView(s.opt.Index.Stats())
	p.markup("<h1><span>warm</span>path %s</h1>\n", s.opt.Version)
	p.markup("<p>clients at <code>http://%s</code> · policy <code>%s</code> · %s requests under way · index: %s units, %s of %s bytes · guard %s</p>\n",
		s.opt.Dataplane.Addr().String(), s.opt.Control.Config().Policy.Name, fmt.Sprint(s.opt.Dataplane.Active()),
		fmt.Sprint(index.Units), fmt.Sprint(index.Bytes), fmt.Sprint(index.MemoryBytes), s.opt.Control.Guard().Line())
	p.nodes(s.nodeViews())
	if v := scalerView(s.opt.Control.Scaler()); v.Enabled {
		p.scaler(&v)
	}
	p.decisions(s.decisionViews(pageDecisions))
	p.WriteString("</body>\n</html>\n")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_, _ = w.Write([]byte(p.String()))
}

// page is HTML that is being written. html/template is not used: it calls methods by
// their names, for which the linker keeps every method of every type of every library
// (cmd/link, "deadcode"), and the program is twice as large.
type page struct{ strings.Builder }

// markup writes HTML with texts, which are escaped, in place of each %s.
func (p *page) markup(format string, texts ...string) {
	escaped := make([]any, len(texts))
	for i, text := range texts {
		escaped[i] = html.EscapeString(text)
	}
	fmt.Fprintf(p, format, escaped...)
}

// cell is one of a table: a text, and what kind of cell it is.
type cell struct{ text, class string }

// table writes one with a heading; without rows it says so in the words of none.
func (p *page) table(title string, columns []string, rows [][]cell, none string) {
	p.markup("<h2>%s</h2>\n<div class=\"wide\"><table>\n<tr>", title)
	for _, name := range columns {
		p.markup("<th>%s</th>", name)
	}
	p.WriteString("</tr>\n")
	for _, row := range rows {
		p.WriteString("<tr>")
		for _, c := range row {
			switch c.class {
			case "":
				p.markup("<td>%s</td>", c.text)
			case "code":
				p.markup("<td><code>%s</code></td>", c.text)
			default:
				p.markup("<td class=\"%s\">%s</td>", c.class, c.text)
			}
		}
		p.WriteString("</tr>\n")
	}
	if len(rows) == 0 {
		p.markup("<tr><td colspan=\"%s\">%s</td></tr>\n", fmt.Sprint(len(columns)), none)
	}
	p.WriteString("</table></div>\n")
}

func (p *page) nodes(all []NodeView) {
	rows := make([][]cell, len(all))
	for i := range all {
		n := &all[i]
		rows[i] = []cell{
			{text: n.Name},
			{n.State, n.State},
			{n.Breaker, n.Breaker},
			{text: fmt.Sprint(n.InFlight)},
			{text: orUnknown(n.Queued, formatCount)},
			{text: orUnknown(n.Running, formatCount)},
			{text: orUnknown(n.KVUse, formatPercent)},
			{text: fmt.Sprint(n.IndexUnits)},
			{text: fmt.Sprintf("%.2f", n.Weight)},
			{text: orUnknown(n.Warmth, formatPercent)},
			{text: fmt.Sprint(n.Failures)},
			{text: strings.Join(n.Models, " ")},
			{n.Reason, "why"},
		}
	}
	p.table("Nodes", []string{"node", "state", "breaker", "in flight", "engine queue", "engine running", "KV use", "index units", "weight", "warmth", "failures", "models", "why"},
		rows, "No nodes. Add them to the configuration, or POST one to /api/nodes.")
}

func (p *page) scaler(v *ScalerView) {
	var rows [][]cell
	for i := range v.Decisions[:min(len(v.Decisions), pageScalings)] {
		d := &v.Decisions[i]
		rows = append(rows, []cell{{text: d.At.Format("15:04:05")}, {d.Action, d.Action}, {text: fmt.Sprint(d.Target)}, {d.Why, "why"}})
	}
	p.table("Scaler", []string{"at", "action", "nodes wanted", "why"}, rows, "Nothing was changed yet.")
	switch {
	case v.Waits != "":
		p.markup("<p>It does not run yet: %s</p>\n", v.Waits)
	case v.Last != nil:
		p.markup("<p>Now: %s</p>\n", v.Last.Why)
	}
	rows = nil
	for i := range v.Nodes {
		n := &v.Nodes[i]
		rows = append(rows, []cell{{text: n.Name}, {text: n.Offer}, {n.Stage, n.Stage}, {text: n.URL}, {text: formatCount(n.ForSeconds) + " s"}, {n.Why, "why"}})
	}
	p.table("Nodes of the scaler", []string{"node", "offer", "stage", "url", "for", "why"}, rows, "None.")
}

func (p *page) decisions(all []DecisionView) {
	rows := make([][]cell, len(all))
	for i := range all {
		d := &all[i]
		status, routing, whole := "…", "", ""
		if o := d.Outcome; o != nil {
			status, routing, whole = fmt.Sprint(o.Status), formatMillis(o.RoutingSeconds), formatMillis(o.DurationSeconds)
		}
		rows[i] = []cell{{d.RequestID, "code"}, {text: d.Node}, {d.Reason, d.Reason}, {text: status}, {text: routing}, {text: whole}, {d.Why, "why"}}
	}
	p.table("Latest decisions", []string{"request", "node", "reason", "status", "routing", "whole request", "why"}, rows, "None yet.")
}

// orUnknown says what is not known in place of a number.
func orUnknown(v *float64, format func(float64) string) string {
	if v == nil {
		return "unknown"
	}
	return format(*v)
}
