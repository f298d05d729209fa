package admin

import (
	"fmt"
	"net/http"
	"time"

	"warmpath/controlplane/state"
)

// OneNodeView is what GET /api/nodes/{name} shows: the node as it is, null if it is
// gone, and what became of it.
type OneNodeView struct {
	Node   *NodeView   `json:"node"`
	Events []NodeEvent `json:"events"` // oldest first; the last 32
}

// NodeEvent is one step of a node's life.
type NodeEvent struct {
	At     time.Time `json:"at"`
	To     string    `json:"to"` // see state.Change
	Reason string    `json:"reason"`
}

func (s *Server) oneNode(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	changes := s.opt.Control.State().History(name)
	if changes == nil {
		refuse(w, http.StatusNotFound, "unknown_node", fmt.Sprintf("no node %q is known; GET /api/nodes lists them", name))
		return
	}
	view := OneNodeView{Events: s.events(changes)}
	for _, v := range s.nodeViews() {
		if v.Name == name {
			view.Node = &v
		}
	}
	reply(w, http.StatusOK, view)
}

// events gives changes the time of day.
func (s *Server) events(changes []state.Change) []NodeEvent {
	now, nowNs := time.Now().UTC(), s.opt.Control.NowNs()
	events := make([]NodeEvent, len(changes))
	for i, c := range changes {
		events[i] = NodeEvent{now.Add(time.Duration(c.AtNs - nowNs)), c.To, c.Reason}
	}
	return events
}
