package admin

import (
	"bytes"
	_ "embed"
	"html/template"
	"net/http"
)

//go:embed page.html
var pageText string

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"percent": func(f *float64) string {
		if f == nil {
			return "unknown"
		}
		return formatPercent(*f)
	},
	"count": func(f *float64) string {
		if f == nil {
			return "unknown"
		}
		return formatCount(*f)
	},
	"ms": formatMillis,
}).Parse(pageText))

const pageDecisions = 25

// page is the status page: the nodes and the latest decisions as they are now,
// without scripts, so that it works in anything; it reloads itself.
func (s *Server) page(w http.ResponseWriter, _ *http.Request) {
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, map[string]any{
		"Version": s.opt.Version, "Listen": s.opt.Dataplane.Addr().String(), "Policy": s.opt.Control.Config().Policy.Name,
		"Nodes": s.nodeViews(), "Decisions": s.decisionViews(pageDecisions), "Index": indexView(s.opt.Index.Stats()),
		"Active": s.opt.Dataplane.Active(), "Guard": s.opt.Control.Guard().Line(),
	})
	if err != nil {
		refuse(w, http.StatusInternalServerError, "page", err.Error())
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	_, _ = w.Write(b.Bytes())
}
