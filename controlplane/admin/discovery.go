package admin

import (
	"net/http"
	"time"
)

// SourceView is how a source of nodes is doing, as GET /api/discovery shows it.
type SourceView struct {
	Source       string     `json:"source"`
	OK           bool       `json:"ok"`
	Nodes        int        `json:"nodes"` // that it named last
	Seen         *time.Time `json:"seen"`  // when it named them; null = not yet
	Error        string     `json:"error"` // why those stand and no newer ones; "" = none
	FailingSince *time.Time `json:"failing_since"`
}

func (s *Server) discovery(w http.ResponseWriter, _ *http.Request) {
	views := []SourceView{}
	for _, src := range s.opt.Control.Sources() {
		v := SourceView{Source: src.Name, OK: src.Err == "", Nodes: src.Nodes, Seen: some(src.Seen), Error: src.Err}
		if !v.OK {
			v.FailingSince = some(src.Since)
		}
		views = append(views, v)
	}
	reply(w, http.StatusOK, views)
}

// some is nil for the zero time.
func some(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

var (
	descSourceOK    = desc("discovery_ok", "1 if the source of nodes is well; else what it named last stands.", "source")
	descSourceNodes = desc("discovery_nodes", "Nodes that the source named last.", "source")
)

func (c *collector) discovery(m maker) {
	for _, src := range c.opt.Control.Sources() {
		m.gauge(descSourceOK, flag(src.Err == ""), src.Name)
		m.gauge(descSourceNodes, float64(src.Nodes), src.Name)
	}
}
