package admin

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"warmpath/controlplane"
	"warmpath/scaler"
)

// ScalerView is what GET /api/scaler shows. What is not known is null.
type ScalerView struct {
	Enabled   bool                  `json:"enabled"`
	Waits     string                `json:"waits,omitempty"`   // why it does not run yet
	Refused   string                `json:"refused,omitempty"` // why nodes that providers named cannot be taken in
	Last      *ScalerDecisionView   `json:"last"`              // the latest decision; null = none yet
	Decisions []ScalerDecisionView  `json:"decisions"`         // those that did something, the latest first
	Nodes     []OwnedView           `json:"nodes"`
	Offers    []scaler.OfferStatus  `json:"offers"`
	Orphans   []OrphanView          `json:"orphans"`
	Predicted *ScalerPredictionView `json:"predicted"`
	Routers   []ScalerRouterView    `json:"routers,omitempty"` // of a scaler that runs alone
}

// ScalerRouterView is a router that a scaler that runs alone scales for.
type ScalerRouterView struct {
	URL   string `json:"url"`
	OK    bool   `json:"ok"`
	Error string `json:"error"` // why nothing is changed; "" = it is well
	Nodes int    `json:"nodes"` // of the scaler, that it has
}

// ScalerDecisionView is one decision.
type ScalerDecisionView struct {
	At      time.Time      `json:"at"`
	Action  string         `json:"action"`
	Reason  string         `json:"reason"`
	Why     string         `json:"why"`
	Target  int            `json:"target"`
	Start   []scaler.Start `json:"start"`
	Undrain []string       `json:"undrain"`
	Drain   []string       `json:"drain"`
	Unmet   string         `json:"unmet,omitempty"`
}

// ScalerPredictionView is what the latest decision expects.
type ScalerPredictionView struct {
	LoadNow      float64  `json:"load_now"`      // in nodes' work
	LoadExpected float64  `json:"load_expected"` // until nodes asked for now would serve
	Utilisation  float64  `json:"utilisation"`   // of the target's nodes, under the load expected
	TTFTSeconds  *float64 `json:"ttft_seconds"`  // that the wanted share has; null = the queue would grow
	Late         float64  `json:"late"`          // share of first tokens after the target
}

// OwnedView is one node that the scaler asked for.
type OwnedView struct {
	Name       string  `json:"name"`
	Offer      string  `json:"offer"`
	ID         string  `json:"id"`
	URL        string  `json:"url"`
	Stage      string  `json:"stage"`
	Why        string  `json:"why"`
	Detail     string  `json:"detail"` // in its provider's words
	ForSeconds float64 `json:"for_seconds"`
}

// OrphanView is a node that carries the fleet's mark and that nobody asked for.
type OrphanView struct {
	Offer string `json:"offer"`
	ID    string `json:"id"`
	Key   string `json:"key"`
	URL   string `json:"url"`
	Phase string `json:"phase"`
}

func (s *Server) scaler(w http.ResponseWriter, _ *http.Request) {
	v := scalerView(s.opt.Control.Scaler())
	v.Refused = s.opt.Control.ScalerRefused()
	reply(w, http.StatusOK, v)
}

func scalerView(status *scaler.Status, waits string) ScalerView {
	v := ScalerView{
		Enabled: status != nil || waits != "", Waits: waits,
		Decisions: []ScalerDecisionView{}, Nodes: []OwnedView{}, Offers: []scaler.OfferStatus{}, Orphans: []OrphanView{},
	}
	if status == nil {
		return v
	}
	if !status.Last.At.IsZero() {
		last := decisionView(&status.Last)
		v.Last, v.Predicted = &last, predictionView(&status.Last)
	}
	for i := len(status.Decided) - 1; i >= 0; i-- {
		v.Decisions = append(v.Decisions, decisionView(&status.Decided[i]))
	}
	for i := range status.Nodes {
		n := &status.Nodes[i]
		v.Nodes = append(v.Nodes, OwnedView{n.Key, n.Offer, n.ID, n.URL, string(n.Stage), n.Why, n.Detail, float64(status.NowNs-n.StageNs) / 1e9})
	}
	v.Offers = append(v.Offers, status.Offers...)
	for _, o := range status.Orphans {
		v.Orphans = append(v.Orphans, OrphanView{o.Offer, o.Instance.ID, o.Instance.Key, o.Instance.URL, o.Instance.Phase.String()})
	}
	return v
}

func decisionView(d *scaler.Decided) ScalerDecisionView {
	return ScalerDecisionView{
		At: d.At.UTC(), Action: string(d.Action), Reason: d.Reason, Why: d.Words, Target: d.Target,
		Start: append([]scaler.Start{}, d.Start...), Undrain: append([]string{}, d.Undrain...), Drain: append([]string{}, d.Drain...), Unmet: d.Unmet,
	}
}

func predictionView(d *scaler.Decided) *ScalerPredictionView {
	if !d.Known {
		return nil
	}
	v := &ScalerPredictionView{LoadNow: d.LoadNow, LoadExpected: d.LoadExpected, Utilisation: d.Then.Utilisation, Late: d.Then.Late}
	if ttft := d.Then.TTFTSeconds; !math.IsInf(ttft, 0) {
		v.TTFTSeconds = &ttft
	}
	return v
}

// scalerReading is for a scaler that runs alone.
func (s *Server) scalerReading(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, s.opt.Control.Reading(r.URL.Query().Get("model")))
}

// scalerClaim is for a scaler that runs alone: it says so, and others may not.
func (s *Server) scalerClaim(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r, maxNodeBytes)
	if !ok {
		return
	}
	var claim scaler.Claim
	if err := json.Unmarshal(body, &claim); err != nil {
		refuse(w, http.StatusBadRequest, "bad_claim", "read claim: "+err.Error()+`; send {"id":…,"process":…,"fleet":…,"model":…,"may":…}`)
		return
	}
	switch err := s.opt.Control.ClaimNodes(claim); {
	case errors.Is(err, controlplane.ErrTwin): // if it was killed, this will do before long
		w.Header().Set("Retry-After", strconv.Itoa(scaler.TwinSeconds))
		refuse(w, http.StatusConflict, "claimed", err.Error())
	case errors.Is(err, controlplane.ErrClaimed):
		refuse(w, http.StatusConflict, "claimed", err.Error())
	case err != nil:
		refuse(w, http.StatusBadRequest, "bad_claim", err.Error())
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// callbackPath begins the routes on which providers tell of nodes. What they send is
// signed, and checked by the offer's actuator: the admin token is not asked for.
const callbackPath = "/api/scaler/callback/"

func (s *Server) scalerCallback(w http.ResponseWriter, r *http.Request) {
	offer := r.PathValue("offer")
	called(w, r, offer, s.opt.Control.ScalerCallback(offer))
}

func called(w http.ResponseWriter, r *http.Request, offer string, h http.Handler) {
	if h == nil {
		refuse(w, http.StatusNotFound, "not_found", "no offer takes callbacks by that name: "+offer)
		return
	}
	h.ServeHTTP(w, r)
}

func isCallback(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, callbackPath)
}

var (
	descScalerTarget   = desc("scaler_target", "Nodes that the scaler wants.")
	descScalerActions  = desc("scaler_actions_total", "Decisions of the scaler.", "action", "reason")
	descScalerNodes    = desc("scaler_nodes", "Nodes that the scaler owns, by how far they are.", "offer", "stage")
	descScalerWithheld = desc("scaler_offer_withheld", "1 if nothing is asked of the offer for now.", "offer")
	descScalerOrphans  = desc("scaler_orphans", "Nodes with the fleet's mark that nobody asked for.")
	descScalerLoad     = desc("scaler_load", "Load in nodes' work: now, and the most that is expected until nodes asked for now would serve.", "when")
)

var ownedStages = []scaler.Stage{scaler.StageAsked, scaler.StageComing, scaler.StageServing, scaler.StageLeaving, scaler.StageEnding}

func (c *collector) scaler(m maker) {
	if s, _ := c.opt.Control.Scaler(); s != nil {
		m.scaler(s)
	}
}

func (m maker) scaler(s *scaler.Status) {
	if !s.Last.At.IsZero() {
		m.gauge(descScalerTarget, float64(s.Last.Target))
	}
	if s.Last.Known {
		m.gauge(descScalerLoad, s.Last.LoadNow, "now")
		m.gauge(descScalerLoad, s.Last.LoadExpected, "expected")
	}
	for key, n := range s.Actions {
		m.counter(descScalerActions, float64(n), key[0], key[1])
	}
	count := map[[2]string]int{}
	for i := range s.Nodes {
		count[[2]string{s.Nodes[i].Offer, string(s.Nodes[i].Stage)}]++
	}
	for i := range s.Offers {
		name := s.Offers[i].Name
		for _, stage := range ownedStages {
			m.gauge(descScalerNodes, float64(count[[2]string{name, string(stage)}]), name, string(stage))
		}
		m.gauge(descScalerWithheld, flag(s.Offers[i].Withheld != ""), name)
	}
	m.gauge(descScalerOrphans, float64(len(s.Orphans)))
}
