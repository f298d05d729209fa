package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"warmpath/controlplane/discover"
	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prompt"
)

// NodeView is one node as GET /api/nodes shows it. What is not known is null.
type NodeView struct {
	Name          string   `json:"name"`
	URL           string   `json:"url"`
	State         string   `json:"state"`
	Drain         bool     `json:"drain"` // nothing new is sent to it, whatever its state
	Down          string   `json:"down"`  // why the state is down: dead, hung, refused, unhealthy; "" = it is not
	Breaker       string   `json:"breaker"`
	Reason        string   `json:"reason"`
	Engine        string   `json:"engine"`
	Models        []string `json:"models"`
	Island        string   `json:"island,omitempty"`
	Region        string   `json:"region,omitempty"`
	Slot          int      `json:"slot"`
	Generation    uint32   `json:"generation"`
	CapacityClass float64  `json:"capacity_class"`
	Weight        float64  `json:"weight"`
	WeightError   *float64 `json:"weight_relative_error"` // one standard error of the speed it is made of, as of now
	WeightSamples int      `json:"weight_samples"`        // answers that would tell as much as is known now
	Warmth        *float64 `json:"warmth"`                // what its cache holds against what its like hold, 0 to 1
	Filling       bool     `json:"filling"`               // it ramps by its warmth
	Proof         *float64 `json:"proof"`                 // how far its answers have proved it since it came back; null = they need not

	InFlight        int64 `json:"in_flight"`
	InFlightTokens  int64 `json:"in_flight_tokens"`
	InFlightPrefill int64 `json:"in_flight_prefill_tokens"`
	MaxInFlight     int   `json:"max_in_flight"`
	Failures        int64 `json:"failures"`
	Successes       int64 `json:"successes"`
	IndexUnits      int64 `json:"index_units"`

	MaxModelLen  int      `json:"max_model_len"`
	BlockTokens  int      `json:"block_tokens"`
	CacheTokens  int64    `json:"cache_tokens"`
	Queued       *float64 `json:"queued_requests"`
	Running      *float64 `json:"running_requests"`
	KVUse        *float64 `json:"kv_use"`
	PrefillRate  *float64 `json:"prefill_tokens_per_second"`
	PrefillError *float64 `json:"prefill_relative_error"` // one standard error
	DecodeRate   *float64 `json:"decode_tokens_per_second"`
	DecodeError  *float64 `json:"decode_relative_error"`
	RoundTrip    *float64 `json:"round_trip_seconds"`
	ErrorShare   *float64 `json:"error_share"`
	SourceOfNode string   `json:"source"`

	Trust         []string `json:"trust"`                    // in its KV-cache events, by rank
	Exact         []string `json:"exact"`                    // classes of requests whose tokens are known here
	EngineVersion string   `json:"engine_version,omitempty"` // as it said when they were proved
}

func (s *Server) listNodes(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, s.nodeViews())
}

// nodeViews shows the published snapshot, with what only the state knows
// beside it.
func (s *Server) nodeViews() []NodeView {
	st := s.opt.Control.State()
	bySlot := make(map[int]*fleet.Node)
	for _, n := range s.opt.Fleet.Load().Nodes {
		if n != nil {
			bySlot[n.Slot] = n
		}
	}
	views := []NodeView{}
	for _, n := range st.Nodes { // ascending by name
		f := bySlot[n.Slot]
		if f == nil || f.Generation != n.Generation {
			continue // not published yet
		}
		views = append(views, s.nodeView(n, f))
	}
	return views
}

func (s *Server) nodeView(n *state.Node, f *fleet.Node) NodeView {
	models := make([]string, len(n.Models))
	for i, m := range n.Models {
		models[i] = m.ID
	}
	nowNs := s.opt.Control.NowNs()
	return NodeView{
		Name: f.Name, URL: f.URL, State: f.State.String(), Drain: n.Drain, Down: f.Cause.String(), Breaker: f.Breaker.String(), Reason: why(n, f),
		Engine: f.Engine, Models: models, Island: f.Island, Region: f.Region, Slot: f.Slot, Generation: f.Generation,
		CapacityClass: f.CapacityClass, Weight: f.Weight, WeightError: known(n.Prefill.ErrorAt(nowNs)), WeightSamples: n.Prefill.Samples(nowNs),
		Warmth: known(f.Warmth), Filling: f.Filling, Proof: known(f.Proof),
		InFlight: f.Load.Requests.Load(), InFlightTokens: f.Load.TotalTokens.Load(), InFlightPrefill: f.Load.PrefillTokens.Load(),
		MaxInFlight: f.MaxInFlight, Failures: f.Load.Failures.Load(), Successes: f.Load.Successes.Load(),
		IndexUnits:  s.indexUnits(f),
		MaxModelLen: f.MaxModelLen, BlockTokens: f.BlockTokens, CacheTokens: f.CacheTokens,
		Queued: known(f.QueuedRequests), Running: known(f.RunningRequests), KVUse: known(f.KVUse),
		PrefillRate: known(n.Prefill.Gauge), PrefillError: errorOf(&n.Prefill), DecodeRate: known(n.Decode.Gauge), DecodeError: errorOf(&n.Decode),
		RoundTrip: known(f.RoundTripSeconds), ErrorShare: known(f.ErrorShare),
		SourceOfNode: n.Source,
		Trust:        trustNames(f), Exact: exactClasses(f), EngineVersion: n.Version,
	}
}

// indexUnits is what the index holds for all ranks of a node.
func (s *Server) indexUnits(n *fleet.Node) (units int64) {
	for r := range n.Ranks {
		units += s.opt.Index.SlotUnits(n.Slot + r)
	}
	return units
}

func trustNames(n *fleet.Node) []string {
	names := make([]string, len(n.Trust))
	for r, t := range n.Trust {
		names[r] = t.String()
	}
	return names
}

func exactClasses(n *fleet.Node) []string {
	names := []string{}
	for c := range prompt.Classes {
		if n.Exact>>c&1 != 0 {
			names = append(names, c.String())
		}
	}
	return names
}

// why says what put the node where it is; that it drains, or an open breaker,
// matters more than how the health route answered last.
func why(n *state.Node, f *fleet.Node) string {
	switch {
	case f.State == fleet.Draining && n.Removing:
		return "it is being removed and finishes what it has"
	case f.State == fleet.Draining:
		return "draining was asked for; undrain takes it back"
	case f.Breaker == fleet.Closed:
		return n.Reason + ramp(f)
	}
	return "breaker " + f.Breaker.String() + ": " + n.BreakerReason + "; before that: " + n.Reason
}

// ramp says why a node takes only a part of its share, "" if it takes all of it.
func ramp(f *fleet.Node) (why string) {
	if f.Proof.Known {
		why = fmt.Sprintf("; it ramps: %.0f %% of the answers that prove it are given", 100*f.Proof.Value)
	}
	if f.Filling {
		why += fmt.Sprintf("; it ramps: its cache holds %.0f %% of what its like hold", 100*f.Warmth.Or(1))
	}
	return why
}

func known(g fleet.Gauge) *float64 {
	if !g.Known {
		return nil
	}
	return &g.Value
}

// errorOf is how far a learned rate may be off.
func errorOf(r *state.Rate) *float64 {
	if !r.Known {
		return nil
	}
	return &r.Error
}

func (s *Server) addNode(w http.ResponseWriter, r *http.Request) {
	spec, ok := readSpec(w, r)
	if !ok || s.taken(w, &spec, state.APISource) {
		return
	}
	added, err := s.opt.Control.Nodes().Add(spec)
	if err != nil {
		refuseSpec(w, err)
		return
	}
	reply(w, http.StatusCreated, added)
}

// readSpec reads the description of a node, or refuses.
func readSpec(w http.ResponseWriter, r *http.Request) (spec state.Spec, ok bool) {
	body, ok := readBody(w, r, maxNodeBytes)
	if !ok {
		return spec, false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err := d.Decode(&spec)
	if err == nil && d.More() {
		err = errors.New("more than one value")
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad_node", "read node: "+err.Error()+`; send {"name":…,"url":…}`)
		return spec, false
	}
	return spec, true
}

// taken refuses a node whose name or URL one of another source has.
func (s *Server) taken(w http.ResponseWriter, spec *state.Spec, source string) bool {
	end, _ := state.ParseEndpoint(spec.URL) // whoever takes it says what is wrong with it
	for _, n := range s.opt.Control.State().Nodes {
		if (n.Spec.Name == spec.Name || n.Endpoint == end) && n.Source != source {
			refuse(w, http.StatusConflict, "exists", fmt.Sprintf("node %q at %q comes from source %q: take another name and url, or remove that node first", n.Spec.Name, n.Endpoint.URL, n.Source))
			return true
		}
	}
	return false
}

// refuseSpec says why a source does not take a node.
func refuseSpec(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, discover.ErrExists):
		refuse(w, http.StatusConflict, "exists", err.Error())
	case errors.Is(err, discover.ErrFull):
		refuse(w, http.StatusInsufficientStorage, "full", err.Error())
	default:
		refuse(w, http.StatusBadRequest, "bad_node", err.Error())
	}
}

func (s *Server) removeNode(w http.ResponseWriter, r *http.Request) {
	name, ok := s.named(w, r)
	if !ok {
		return
	}
	force := r.URL.Query().Get("force") == "true"
	if !s.opt.Control.Nodes().Remove(name) || force {
		s.opt.Control.Send(state.NodeRemoved{NowNs: s.opt.Control.NowNs(), Node: name, Force: force})
	}
	w.WriteHeader(http.StatusAccepted)
}

func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	if name, ok := s.named(w, r); ok {
		s.opt.Control.Send(state.DrainAsked{NowNs: s.opt.Control.NowNs(), Node: name})
		w.WriteHeader(http.StatusAccepted)
	}
}

func (s *Server) undrain(w http.ResponseWriter, r *http.Request) {
	if name, ok := s.named(w, r); ok {
		s.opt.Control.Send(state.UndrainAsked{NowNs: s.opt.Control.NowNs(), Node: name})
		w.WriteHeader(http.StatusAccepted)
	}
}
