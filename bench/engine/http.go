package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// routes are the paths that an engine serves, vLLM's and the simulator's own.
func (e *Engine) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) { e.serveInference(w, r, true) })
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) { e.serveInference(w, r, false) })
	mux.HandleFunc("POST /tokenize", e.serveTokenize)
	mux.HandleFunc("GET /v1/models", e.serveModels)
	mux.HandleFunc("GET /health", e.serveHealth)
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		promhttp.HandlerFor(e.process.Load().gatherer(), promhttp.HandlerOpts{}).ServeHTTP(w, r)
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": "0.32.0"})
	})
	mux.HandleFunc("GET /load", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]int64{"server_load": e.inFlight.Load()})
	})
	mux.HandleFunc("POST /reset_prefix_cache", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]bool{"success": e.process.Load().clearCache()})
	})
	mux.HandleFunc("POST /sim/fault", e.serveFault)
	mux.HandleFunc("POST /sim/clear", e.serveClear)
	mux.HandleFunc("GET /sim/state", e.serveState)
	return mux
}

// serveHealth answers 200 with an empty body, also when the engine core has
// stopped: vLLM's health check does not notice that.
func (e *Engine) serveHealth(w http.ResponseWriter, _ *http.Request) {
	code := http.StatusOK
	if e.faults.on(FaultLoading) != nil {
		code = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(code)
}

// serveTokenize counts the tokens of a chat or of a text.
func (e *Engine) serveTokenize(w http.ResponseWriter, r *http.Request) {
	req, fault := readRequest(w, r)
	if fault == nil {
		_, fault = e.adapter(req.Model)
	}
	var ids []uint32
	if fault == nil {
		ids, fault = e.prompt(req, len(req.Prompt) == 0, routeTokenize)
	}
	if fault != nil {
		fault.write(w)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Count       int      `json:"count"`
		MaxModelLen int      `json:"max_model_len"`
		Tokens      []uint32 `json:"tokens"`
		TokenStrs   []string `json:"token_strs"`
	}{len(ids), e.cfg.MaxModelLen, ids, nil})
}

// serveInference answers one chat or text completion.
func (e *Engine) serveInference(w http.ResponseWriter, r *http.Request, chat bool) {
	e.inFlight.Add(1)
	defer e.inFlight.Add(-1)
	l, wrongRank := e.process.Load().pick(r)
	req, fault := readRequest(w, r)
	if fault == nil {
		fault = wrongRank
	}
	id := r.Header.Get("X-Request-Id")
	if id == "" {
		id = e.newID()
	}
	e.note(id)
	if f := e.faults.use(FaultLoading, FaultReset, FaultHangBeforeHeaders, Fault500, Fault503); f != nil {
		e.misbehave(w, r, f, l)
		return
	}
	var j *job
	if fault == nil {
		j, fault = e.parse(req, chat)
	}
	if fault != nil {
		fault.write(w)
		return
	}
	prefix := "cmpl-"
	if chat {
		prefix = "chatcmpl-"
	}
	x := &exchange{
		e: e, l: l, w: w, r: r, job: j, id: prefix + id, created: time.Now().Unix(),
		fault: e.faults.use(FaultHangAfterHeaders, FaultCutMidStream, FaultErrorEvent),
	}
	if req.Stream {
		x.stream()
	} else {
		x.whole()
	}
}

// misbehave carries out the faults that come before an answer.
func (e *Engine) misbehave(w http.ResponseWriter, r *http.Request, f *activeFault, l *life) {
	switch f.Kind {
	case FaultHangBeforeHeaders:
		hang(r, f, l)
		panic(http.ErrAbortHandler) // released: drop the connection
	case FaultReset:
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			resetConn(c)
			return
		}
		panic(http.ErrAbortHandler) // no connection to reset: only drop the answer
	case Fault500:
		engineDead().write(w)
	default:
		(&apiError{Message: "The engine is not ready to serve requests.", Type: "ServiceUnavailableError", Code: http.StatusServiceUnavailable}).write(w)
	}
}

// engineDead is the error of a vLLM server whose engine process has died.
func engineDead() *apiError {
	return &apiError{
		Message: "EngineCore encountered an issue. See stack trace (above) for the root cause.",
		Type:    "InternalServerError", Code: http.StatusInternalServerError,
	}
}

// hang waits until the client goes, the fault is cleared or the life ends.
func hang(r *http.Request, f *activeFault, l *life) {
	select {
	case <-r.Context().Done():
	case <-f.cleared:
	case <-l.ended.Done():
	}
}

// newID makes the sixteen digits of a generated identifier; the sequence of
// them depends on the seed and the name alone.
func (e *Engine) newID() string {
	return fmt.Sprintf("%016x", rootHash(e.cfg.Seed, e.cfg.Name, fmt.Sprint(e.ids.Add(1))))
}

// modelCard is one entry of /v1/models.
type modelCard struct {
	ID          string       `json:"id"`
	Object      string       `json:"object"`
	Created     int64        `json:"created"`
	OwnedBy     string       `json:"owned_by"`
	Root        string       `json:"root"`
	Parent      *string      `json:"parent"`
	MaxModelLen *int         `json:"max_model_len"`
	Permission  []permission `json:"permission"`
}

type permission struct {
	ID                 string  `json:"id"`
	Object             string  `json:"object"`
	Created            int64   `json:"created"`
	AllowCreateEngine  bool    `json:"allow_create_engine"`
	AllowSampling      bool    `json:"allow_sampling"`
	AllowLogprobs      bool    `json:"allow_logprobs"`
	AllowSearchIndices bool    `json:"allow_search_indices"`
	AllowView          bool    `json:"allow_view"`
	AllowFineTuning    bool    `json:"allow_fine_tuning"`
	Organization       string  `json:"organization"`
	Group              *string `json:"group"`
	IsBlocking         bool    `json:"is_blocking"`
}

// serveModels lists the model and its adapters; an adapter's parent is the
// base model, and it has no length of its own.
func (e *Engine) serveModels(w http.ResponseWriter, _ *http.Request) {
	card := func(id string, parent *string, length *int) modelCard {
		return modelCard{
			ID: id, Object: "model", Created: e.started, OwnedBy: "vllm", Root: id, Parent: parent, MaxModelLen: length,
			Permission: []permission{{
				ID:     fmt.Sprintf("modelperm-%016x", rootHash(e.cfg.Seed, e.cfg.Name, id)),
				Object: "model_permission", Created: e.started, AllowSampling: true, AllowLogprobs: true, AllowView: true, Organization: "*",
			}},
		}
	}
	cards := []modelCard{card(e.cfg.Model, nil, &e.cfg.MaxModelLen)}
	for _, a := range e.cfg.Adapters {
		cards = append(cards, card(a, &e.cfg.Model, nil))
	}
	writeJSON(w, http.StatusOK, struct {
		Object string      `json:"object"`
		Data   []modelCard `json:"data"`
	}{"list", cards})
}

// serveFault sets the fault in the body.
func (e *Engine) serveFault(w http.ResponseWriter, r *http.Request) {
	var f Fault
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		badRequest("", "decode fault: %v", err).write(w)
		return
	}
	asker, _ := r.Context().Value(connKey{}).(net.Conn) // of the admin listener: not ours, nothing to spare
	if err := e.setFault(f, asker); err != nil {
		badRequest("kind", "%v", err).write(w)
		return
	}
	e.serveState(w, r)
}

// serveClear ends all faults.
func (e *Engine) serveClear(w http.ResponseWriter, r *http.Request) {
	if err := e.ClearFaults(); err != nil {
		(&apiError{Message: err.Error(), Type: "InternalServerError", Code: http.StatusInternalServerError}).write(w)
		return
	}
	e.serveState(w, r)
}

func (e *Engine) serveState(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, e.State())
}

// AdminHandler serves all engines' faults and states under one address, which
// stays reachable when an engine's port is closed: GET /engines lists their
// states; GET /engines/{i}/state, POST /engines/{i}/fault and
// POST /engines/{i}/clear do for engine i, from 0, what /sim/… does on its port.
func AdminHandler(engines []*Engine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /engines", func(w http.ResponseWriter, _ *http.Request) {
		states := make([]State, len(engines))
		for i, e := range engines {
			states[i] = e.State()
		}
		writeJSON(w, http.StatusOK, states)
	})
	one := func(pattern string, serve func(*Engine, http.ResponseWriter, *http.Request)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			e, err := pick(engines, r.PathValue("i"))
			if err != nil {
				(&apiError{Message: err.Error(), Type: "NotFoundError", Code: http.StatusNotFound}).write(w)
				return
			}
			serve(e, w, r)
		})
	}
	one("GET /engines/{i}/state", (*Engine).serveState)
	one("POST /engines/{i}/fault", (*Engine).serveFault)
	one("POST /engines/{i}/clear", (*Engine).serveClear)
	return mux
}

// errNoEngine is why an admin path names nothing.
var errNoEngine = errors.New("no such engine")

// pick finds an engine by its position in decimal digits.
func pick(engines []*Engine, position string) (*Engine, error) {
	for i, e := range engines {
		if fmt.Sprint(i) == position {
			return e, nil
		}
	}
	return nil, fmt.Errorf("find engine %q of %d: %w", position, len(engines), errNoEngine)
}
