package admin

import (
	"fmt"
	"net/http"

	"warmpath/dataplane/fleet"
)

// StatusView is the router and its fleet in a few figures.
type StatusView struct {
	Version         string   `json:"version"`
	Listen          string   `json:"listen"`
	Policy          string   `json:"policy"`
	Connections     int64    `json:"connections"`
	Active          int64    `json:"active"`
	Nodes           int      `json:"nodes"`
	NodesReady      int      `json:"nodes_ready"`
	Unwell          []string `json:"unwell"` // "name: state, why", and sources of nodes that fail
	Models          []string `json:"models"`
	Requests        uint64   `json:"requests"`
	ServerErrors    uint64   `json:"server_errors"`
	Retries         uint64   `json:"retries"`
	MatchedShare    float64  `json:"matched_share"`
	IndexUnits      int64    `json:"index_units"`
	IndexBytes      int64    `json:"index_bytes"`
	IndexLimitBytes int64    `json:"index_limit_bytes"`
	ReloadOK        bool     `json:"reload_ok"`
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	t, idx := s.opt.Dataplane.Totals(), s.opt.Index.Stats()
	v := StatusView{
		Version: s.opt.Version, Listen: s.opt.Dataplane.Addr().String(), Policy: s.opt.Control.Config().Policy.Name,
		Connections: t.Clients, Active: t.Active, Unwell: []string{}, Models: []string{},
		IndexUnits: idx.Units, IndexBytes: idx.Bytes, IndexLimitBytes: idx.MemoryBytes, ReloadOK: s.opt.Control.ReloadOK(),
	}
	for k, n := range t.Requests {
		v.Requests += n
		if k.Code >= 500 {
			v.ServerErrors += n
		}
	}
	for _, n := range t.Retries {
		v.Retries += n
	}
	matched := uint64(0)
	for _, n := range t.MatchedTokens {
		matched += n
	}
	if t.PromptTokens > 0 {
		v.MatchedShare = float64(matched) / float64(t.PromptTokens)
	}
	for _, n := range s.nodeViews() {
		v.Nodes++
		if n.State == fleet.Ready.String() && n.Breaker == fleet.Closed.String() {
			v.NodesReady++
			continue
		}
		v.Unwell = append(v.Unwell, n.Name+": "+n.State+", "+n.Reason)
	}
	for _, src := range s.opt.Control.Sources() {
		if src.Err != "" {
			v.Unwell = append(v.Unwell, fmt.Sprintf("source %s: its last %d nodes stand, %s", src.Name, src.Nodes, src.Err))
		}
	}
	for _, m := range s.opt.Fleet.Load().Models {
		v.Models = append(v.Models, m.Name)
	}
	reply(w, http.StatusOK, v)
}
