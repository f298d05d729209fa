package admin

import (
	"fmt"
	"net/http"

	"warmpath/controlplane/state"
)

// Lease is what a node that registers itself is answered. It stays for so long, and
// should have come again by a third of that.
type Lease struct {
	state.Spec
	LeaseSeconds float64 `json:"lease_seconds"`
}

// leases is the surface of nodes that register themselves: what the token of
// discovery.register.token opens.
func (s *Server) leases() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/nodes", s.register)
	mux.HandleFunc("DELETE /api/nodes/{name}", s.release)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "forbidden", "discovery.register.token opens POST /api/nodes and DELETE /api/nodes/{name} of registered nodes alone; send admin.token")
	})
	return mux
}

// register begins a node's lease or renews it: 201 or 200.
func (s *Server) register(w http.ResponseWriter, r *http.Request) {
	spec, ok := readSpec(w, r)
	if !ok || s.taken(w, &spec, state.LeaseSource) {
		return
	}
	status := http.StatusCreated
	if n := s.opt.Control.State().Find(spec.Name); n != nil && !n.Removing {
		status = http.StatusOK
	}
	leases := s.opt.Control.Leases()
	spec, err := leases.Register(spec)
	if err != nil {
		refuseSpec(w, err)
		return
	}
	reply(w, status, Lease{spec, leases.Length().Seconds()})
}

// release ends a node's lease: it gets nothing new, and is gone when it has finished
// what it has.
func (s *Server) release(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if !s.opt.Control.Leases().Release(name) {
		refuse(w, http.StatusNotFound, "unknown_node", fmt.Sprintf("no node %q has a lease", name))
		return
	}
	w.WriteHeader(http.StatusAccepted)
}
