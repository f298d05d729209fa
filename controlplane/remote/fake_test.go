package remote

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/controlplane/state"
	"warmpath/scaler"
)

const epoch = "ab12cd"

// fake is a router's admin side, in memory.
type fake struct {
	mu      sync.Mutex
	nodes   map[string]*node // guarded by mu, as all
	specs   map[string]state.Spec
	token   string
	claims  []scaler.Claim
	other   bool      // another scaler has the nodes
	twin    time.Time // until when another process with the journal is heard
	silent  bool
	former  bool
	slow    bool // nodes stay joining
	started time.Time
	asked   float64 // requests since the start
	calls   []string
}

func newFake() *fake {
	f := &fake{}
	f.restart()
	return f
}

// restart forgets everything, as a router does that is started again.
func (f *fake) restart() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nodes, f.specs, f.started, f.asked, f.calls = map[string]*node{}, map[string]state.Spec{}, time.Now(), 0, nil
}

func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// did returns the changes that were asked for since the last call.
func (f *fake) did() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls := f.calls
	f.calls = nil
	return calls
}

func (f *fake) names() (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.nodes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func answer(w http.ResponseWriter, status int, v any) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, status int, message string) {
	answer(w, status, map[string]any{"error": map[string]string{"message": message}})
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.token != "" && r.Header.Get("Authorization") != "Bearer "+f.token {
		refuse(w, http.StatusUnauthorized, "send the token of admin.token as Authorization: Bearer")
		return
	}
	if name, ok := strings.CutPrefix(r.URL.Path, "/api/nodes/"); ok {
		f.change(w, r.Method, name)
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "POST /api/scaler/claim":
		var c scaler.Claim
		_ = json.NewDecoder(r.Body).Decode(&c)
		if f.claims = append(f.claims, c); f.other {
			refuse(w, http.StatusConflict, "another scaler scales these nodes")
		} else if time.Now().Before(f.twin) {
			w.Header().Set("Retry-After", "5")
			refuse(w, http.StatusConflict, "another process with this journal scales these nodes")
		}
	case "GET /api/nodes":
		list := []*node{}
		for _, n := range f.nodes {
			list = append(list, n)
		}
		answer(w, http.StatusOK, list)
	case "GET /api/scaler/reading":
		answer(w, http.StatusOK, f.reading())
	case "POST /api/nodes":
		var s state.Spec
		_ = json.NewDecoder(r.Body).Decode(&s)
		f.calls = append(f.calls, "add "+s.Name)
		if n := f.nodes[s.Name]; n != nil && !f.specs[s.Name].Equal(s) {
			refuse(w, http.StatusConflict, "a node of that name exists already: remove it first")
			return
		}
		f.specs[s.Name] = s
		f.nodes[s.Name] = &node{Name: s.Name, URL: s.URL, State: map[bool]string{false: "ready", true: "joining"}[f.slow], Source: state.APISource}
		answer(w, http.StatusCreated, s)
	default:
		refuse(w, http.StatusNotFound, "no such route: "+r.Method+" "+r.URL.Path)
	}
}

func (f *fake) reading() scaler.Reading {
	since := time.Since(f.started)
	r := scaler.Reading{NowNs: int64(since) + 1, Nodes: []scaler.Node{}, Former: f.former}
	r.Totals = scaler.Traffic{SpanSeconds: since.Seconds(), Requests: f.asked}
	for _, n := range f.nodes {
		r.Nodes = append(r.Nodes, scaler.Node{Name: n.Name, Phase: n.phase(), InFlight: n.InFlight, SinceNs: int64(since)})
	}
	return r
}

func (f *fake) change(w http.ResponseWriter, method, name string) {
	name, verb, _ := strings.Cut(name, "/")
	if method == http.MethodDelete {
		verb = "remove"
	}
	f.calls = append(f.calls, verb+" "+name)
	n := f.nodes[name]
	switch {
	case n == nil:
		refuse(w, http.StatusNotFound, "no node "+name)
		return
	case verb == "remove":
		delete(f.nodes, name)
		delete(f.specs, name)
	case verb == "drain":
		n.Drain, n.State = true, "draining"
	case verb == "undrain":
		n.Drain, n.State = false, "ready"
	}
	w.WriteHeader(http.StatusAccepted)
}

// network leads to fakes by host. It has no sockets, so that time can be virtual.
type network map[string]*fake

// RoundTrip implements http.RoundTripper.
func (n network) RoundTrip(r *http.Request) (*http.Response, error) {
	f := n[r.URL.Host]
	f.mu.Lock()
	silent := f.silent
	f.mu.Unlock()
	if silent {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w.Result(), nil
}

// world is two routers and what asks them, in virtual time.
type world struct {
	*Routers
	t     *testing.T
	began time.Time
	a, b  *fake
}

// inWorld runs a test with two routers that were asked once.
func inWorld(t *testing.T, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		// The scaler's clock has run for an hour.
		w := &world{t: t, began: time.Now().Add(-time.Hour), a: newFake(), b: newFake()}
		w.Routers = New(options(w))
		go w.Run(t.Context())
		synctest.Wait()
		test(w)
	})
}

func options(w *world) Options {
	return Options{
		Routers: []string{"http://a", "http://b"}, ID: epoch, Fleet: "f", Model: "m", Transport: network{"a": w.a, "b": w.b},
		Spec:   func(n *scaler.Owned) state.Spec { return state.Spec{Name: n.Key, URL: n.URL} },
		Status: func() *scaler.Status { return nil }, Log: slog.New(slog.DiscardHandler),
	}
}

// pass lets time pass, and all that follows come about. The fraction keeps this apart
// from the second's own work.
func (w *world) pass(seconds int) {
	w.t.Helper()
	timer := time.NewTimer(time.Duration(seconds)*time.Second + time.Millisecond)
	<-timer.C
	synctest.Wait()
}

func (w *world) signals() scaler.Signals { return w.Signals(int64(time.Since(w.began)) + 1) }

// watched is what Watch says of a node; it must be ok.
func (w *world) watched(name string) scaler.Watch {
	w.t.Helper()
	nodes, ok := w.Watch()
	if !ok {
		w.t.Fatalf("Watch is not ok: %+v", w.Status())
	}
	for _, n := range nodes {
		if n.Key == name {
			return n
		}
	}
	return scaler.Watch{}
}

func owned(number string, stage scaler.Stage) scaler.Owned {
	return scaler.Owned{Key: "o-" + epoch + number, Offer: "o", URL: "http://10.0.0.1:800" + number, Stage: stage}
}
