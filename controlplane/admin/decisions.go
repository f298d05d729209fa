package admin

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"warmpath/dataplane"
)

// DecisionView is one decision record as the API shows it.
type DecisionView struct {
	RequestID    string          `json:"request_id"`
	At           time.Time       `json:"at"`
	Model        string          `json:"model"`
	Node         string          `json:"node"`
	Reason       string          `json:"reason"`
	FirstReason  string          `json:"first_reason"`
	Why          string          `json:"why"` // the same in words
	Policy       string          `json:"policy"`
	Exactness    string          `json:"exactness"`
	Inexact      string          `json:"inexact_because,omitempty"`
	PromptTokens int             `json:"prompt_tokens"`
	OutputTokens *int            `json:"max_tokens"`
	AffinityKey  string          `json:"affinity_key,omitempty"`
	Pressure     float64         `json:"pressure"`
	Candidates   []CandidateView `json:"candidates"`
	Considered   int             `json:"considered"`
	PassedOver   []PassedView    `json:"passed_over"`
	Tries        []TryView       `json:"tries"`
	Hold         string          `json:"hold,omitempty"`         // what became of its wait for a node; absent if it did not wait
	HeldSeconds  *float64        `json:"held_seconds,omitempty"` // how long that took, until now if it still waits
	Outcome      *OutcomeView    `json:"outcome"`                // null while the request is under way, or was only explained
}

// CandidateView is a node that could be sent to, best first.
type CandidateView struct {
	Node          string  `json:"node"`
	MatchedTokens int     `json:"matched_tokens"`
	Score         float64 `json:"score"` // lower is better
	InFlight      int64   `json:"in_flight"`
}

// PassedView is a node that holds a prefix and was no candidate.
type PassedView struct {
	Node          string `json:"node"`
	MatchedTokens int    `json:"matched_tokens"`
	Why           string `json:"why"`
}

// TryView is a node that the request was sent to.
type TryView struct {
	Node    string `json:"node"`
	Outcome string `json:"outcome"`
}

// OutcomeView is what became of the request.
type OutcomeView struct {
	Status          int      `json:"status"`
	Outcome         string   `json:"outcome"`
	RoutingSeconds  float64  `json:"routing_seconds"`
	FirstEventAfter *float64 `json:"first_event_seconds"`
	DurationSeconds float64  `json:"duration_seconds"`
	CachedTokens    *int64   `json:"cached_tokens"`
	PromptTokens    *int64   `json:"prompt_tokens"`
}

func viewOf(r *dataplane.Record) DecisionView {
	v := DecisionView{
		RequestID: r.ID, At: r.At, Model: r.Model, Node: r.Node, Reason: r.Reason.String(), FirstReason: r.First.String(),
		Policy: r.Policy, Exactness: r.Exactness.String(), Inexact: r.Inexact, PromptTokens: r.PromptTokens, Pressure: r.Pressure, Considered: r.Considered,
		Candidates: []CandidateView{}, PassedOver: []PassedView{}, Tries: []TryView{},
	}
	if r.OutputTokens >= 0 {
		v.OutputTokens = &r.OutputTokens
	}
	if r.AffinityKey != 0 {
		v.AffinityKey = fmt.Sprintf("%016x", r.AffinityKey)
	}
	for _, c := range r.Candidates {
		v.Candidates = append(v.Candidates, CandidateView(c))
	}
	for _, p := range r.PassedOver {
		v.PassedOver = append(v.PassedOver, PassedView(p))
	}
	for _, t := range r.Tries {
		v.Tries = append(v.Tries, TryView{t.Node, t.Class.String()})
	}
	if r.Hold != dataplane.HoldNone {
		v.Hold, v.HeldSeconds = r.Hold.String(), &r.HeldSeconds
	}
	if r.Ended {
		v.Outcome = outcomeOf(r)
	}
	v.Why = inWords(&v)
	return v
}

func outcomeOf(r *dataplane.Record) *OutcomeView {
	o := &OutcomeView{Status: r.Status, Outcome: r.Outcome.String(), RoutingSeconds: r.RoutingSeconds, DurationSeconds: r.DurationSeconds}
	if r.FirstEventAfter > 0 {
		o.FirstEventAfter = &r.FirstEventAfter
	}
	if r.CachedTokens >= 0 {
		o.CachedTokens = &r.CachedTokens
	}
	if r.EnginePrompt >= 0 {
		o.PromptTokens = &r.EnginePrompt
	}
	return o
}

// inWords says why the node was chosen, or why none was.
func inWords(v *DecisionView) string {
	if v.Node == "" {
		return "no node could take it" + holdInWords(v)
	}
	matched := 0
	for _, c := range v.Candidates {
		if c.Node == v.Node {
			matched = c.MatchedTokens
		}
	}
	about := "about "
	if v.Exactness == dataplane.ExactTokens.String() {
		about = ""
	}
	what := map[string]string{
		"prefix":   fmt.Sprintf("%s holds %s%d of %d prompt tokens", v.Node, about, matched, v.PromptTokens),
		"load":     fmt.Sprintf("%s had the least to do", v.Node),
		"affinity": fmt.Sprintf("the affinity key points to %s", v.Node),
		"session":  fmt.Sprintf("the session points to %s", v.Node),
		"spill":    fmt.Sprintf("%s took it in place of the node that holds the prefix", v.Node),
		"only":     fmt.Sprintf("%s was the only one that could take it", v.Node),
		"retry":    fmt.Sprintf("%s was next after a failure", v.Node),
	}[v.Reason]
	what += holdInWords(v)
	for _, p := range v.PassedOver {
		what += fmt.Sprintf("; %s holds %d tokens but is out: %s", p.Node, p.MatchedTokens, p.Why)
	}
	return what
}

const (
	decisionsDefault = 100
	decisionsMax     = 10000
)

func (s *Server) listDecisions(w http.ResponseWriter, r *http.Request) {
	n := decisionsDefault
	if text := r.URL.Query().Get("n"); text != "" {
		v, err := strconv.Atoi(text)
		if err != nil || v < 1 || v > decisionsMax {
			refuse(w, http.StatusBadRequest, "bad_n", fmt.Sprintf("n is %q; use 1 to %d", text, decisionsMax))
			return
		}
		n = v
	}
	reply(w, http.StatusOK, s.decisionViews(n))
}

func (s *Server) decisionViews(n int) []DecisionView {
	views := []DecisionView{}
	for _, r := range s.opt.Dataplane.Records(n) {
		views = append(views, viewOf(&r))
	}
	return views
}

func (s *Server) decision(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	rec, ok := s.opt.Dataplane.RecordOf(id)
	if !ok {
		refuse(w, http.StatusNotFound, "unknown_request", fmt.Sprintf("no record of request %q; the latest %d are kept (decisions.keep)", id, s.opt.Control.Config().Decisions.Keep))
		return
	}
	reply(w, http.StatusOK, viewOf(&rec))
}

// explain decides a body without sending it.
func (s *Server) explain(w http.ResponseWriter, r *http.Request) {
	body, ok := readBody(w, r, maxExplainBytes)
	if !ok {
		return
	}
	path := r.URL.Query().Get("path")
	if path == "" {
		path = "/v1/chat/completions"
	}
	rec, err := s.opt.Dataplane.Explain(path, body)
	var bad *dataplane.ExplainError
	switch {
	case errors.As(err, &bad):
		refuse(w, bad.Status, bad.Code, bad.Message)
	case err != nil:
		refuse(w, http.StatusBadRequest, "cannot_explain", err.Error())
	default:
		reply(w, http.StatusOK, viewOf(&rec))
	}
}
