package admin

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"warmpath/controlplane"
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
)

// Bounds of what is read.
const (
	maxExplainBytes = 64 << 20 // a request body
	maxNodeBytes    = 1 << 20  // the description of a node
)

// Options are what the surface shows.
type Options struct {
	Control   *controlplane.ControlPlane
	Dataplane *dataplane.Dataplane
	Fleet     *fleet.Holder
	Index     *index.Index
	Token     string // "" = none is asked for
	// RegisterToken is sent by nodes that register themselves; "" = none may.
	RegisterToken string
	Version       string
	Log           *slog.Logger
	// TakeoverSeconds is what it took to take over from another process; 0 = none.
	TakeoverSeconds float64
}

// Server is the running surface.
type Server struct {
	opt  Options
	http *http.Server
}

// Serve answers on listener until Stop.
func Serve(listener net.Listener, opt Options) *Server {
	s := &Server{opt: opt}
	s.http = answer(listener, s.authorized(sameOrigin(s.routes())), opt.Log)
	return s
}

// answer serves on listener.
func answer(listener net.Listener, h http.Handler, log *slog.Logger) *http.Server {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       75 * time.Second,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	go func() {
		if err := s.Serve(listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			log.Error("admin listener ended", "err", err)
		}
	}()
	return s
}

// Stop ends the surface; requests under way have until ctx ends.
func (s *Server) Stop(ctx context.Context) {
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
}

func (s *Server) routes() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(s.opt))
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", healthy)
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /api/status", s.status)
	mux.HandleFunc("GET /api/nodes", s.listNodes)
	mux.HandleFunc("POST /api/nodes", s.addNode)
	mux.HandleFunc("GET /api/discovery", s.discovery)
	mux.HandleFunc("GET /api/nodes/{name}", s.oneNode)
	mux.HandleFunc("DELETE /api/nodes/{name}", s.removeNode)
	mux.HandleFunc("POST /api/nodes/{name}/drain", s.drain)
	mux.HandleFunc("POST /api/nodes/{name}/undrain", s.undrain)
	mux.HandleFunc("GET /api/scaler", s.scaler)
	mux.HandleFunc("GET /api/scaler/reading", s.scalerReading)
	mux.HandleFunc("POST /api/scaler/claim", s.scalerClaim)
	mux.HandleFunc("POST "+callbackPath+"{offer}", s.scalerCallback)
	mux.HandleFunc("GET /api/decisions", s.listDecisions)
	mux.HandleFunc("GET /api/decisions/{id}", s.decision)
	mux.HandleFunc("POST /api/explain", s.explain)
	mux.HandleFunc("POST /api/tokens", s.tokens)
	mux.HandleFunc("GET /api/index", s.index)
	mux.HandleFunc("GET /api/kernel", s.kernel)
	mux.HandleFunc("GET /api/guard/lists/{list}", s.guardList)
	mux.HandleFunc("PUT /api/guard/lists/{list}", s.changeGuardList)
	mux.HandleFunc("POST /api/guard/lists/{list}", s.changeGuardList)
	mux.HandleFunc("DELETE /api/guard/lists/{list}", s.changeGuardList)
	mux.HandleFunc("PUT /api/guard/limits", s.setGuardLimits)
	mux.HandleFunc("PUT /api/guard/shed", s.setGuardShed)
	mux.HandleFunc("POST /api/reload", s.reload)
	common(mux)
	return mux
}

func healthy(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") }

// common adds what every admin side has.
func common(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "not_found", "no such route: "+r.Method+" "+r.URL.Path)
	})
}

// authorized asks for the token, except for the health of the process. A node that
// registers itself has another one, for that alone.
func (s *Server) authorized(next http.Handler) http.Handler {
	others, leases := authorized(s.opt.Token, next), s.leases()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.opt.RegisterToken != "" && bears(r, s.opt.RegisterToken) {
			leases.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}

// authorized asks for a token, if there is one, and else for a caller of this host.
func authorized(token string, next http.Handler) http.Handler {
	open := next
	if token == "" {
		open = loopbackHost(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case isCallback(r): // signed: it may come from anywhere, by any name, as through a proxy
			next.ServeHTTP(w, r)
		case token == "", r.URL.Path == "/healthz", bears(r, token):
			open.ServeHTTP(w, r)
		default:
			w.Header().Set("WWW-Authenticate", "Bearer")
			refuse(w, http.StatusUnauthorized, "unauthorized", "send the token of admin.token as Authorization: Bearer")
		}
	})
}

func bears(r *http.Request, token string) bool {
	return subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+token)) == 1
}

// loopbackHost takes only requests that name this host as loopback: a page whose
// name was made to resolve to loopback names itself.
func loopbackHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		address, err := netip.ParseAddr(strings.Trim(host, "[]"))
		if host != "localhost" && (err != nil || !address.IsLoopback()) {
			refuse(w, http.StatusForbidden, "bad_host", "without admin.token only a loopback address or localhost may stand in Host")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// sameOrigin keeps a page in an operator's browser from changing anything here:
// on loopback no token stands between the two.
func sameOrigin(next http.Handler) http.Handler {
	p := http.NewCrossOriginProtection()
	p.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusForbidden, "cross_origin", "requests that change something are not taken from pages of another origin")
	}))
	return p.Handler(next)
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if s.opt.Dataplane.Draining() {
		refuse(w, http.StatusServiceUnavailable, "draining", "the router is being stopped")
		return
	}
	if !s.opt.Control.Ready() {
		refuse(w, http.StatusServiceUnavailable, "not_ready", "no node can take requests")
		return
	}
	_, _ = io.WriteString(w, "ready\n")
}

func (s *Server) reload(w http.ResponseWriter, _ *http.Request) {
	restart, err := s.opt.Control.Reload()
	if err != nil {
		refuse(w, http.StatusUnprocessableEntity, "bad_configuration", err.Error())
		return
	}
	if restart == nil {
		restart = []string{}
	}
	reply(w, http.StatusOK, map[string][]string{"needs_restart": restart})
}

// IndexView is what GET /api/index shows; see index.Stats.
type IndexView struct {
	Units           int64            `json:"units"`
	HolderUnits     int64            `json:"holder_units"`
	Rows            int64            `json:"rows"`
	Bytes           int64            `json:"bytes"`
	MemoryBytes     int64            `json:"memory_bytes"`
	Capacity        int64            `json:"capacity_units"`
	Learned         int64            `json:"learned"`
	Evictions       int64            `json:"evictions"`
	MemoryEvictions int64            `json:"memory_evictions"`
	Expired         int64            `json:"expired"`
	Swept           int64            `json:"swept"`
	Refusals        int64            `json:"refusals"`
	Forgotten       int64            `json:"forgotten"`
	Nodes           map[string]int64 `json:"nodes"` // units held by node
}

func indexView(s index.Stats) IndexView {
	return IndexView{
		Units: s.Units, HolderUnits: s.HolderUnits, Rows: s.Rows, Bytes: s.Bytes, MemoryBytes: s.MemoryBytes, Capacity: s.Capacity,
		Learned: s.Learned, Evictions: s.Evictions, MemoryEvictions: s.MemoryEvictions, Expired: s.Expired, Swept: s.Swept,
		Refusals: s.Refusals, Forgotten: s.Forgotten, Nodes: map[string]int64{},
	}
}

func (s *Server) index(w http.ResponseWriter, _ *http.Request) {
	v := indexView(s.opt.Index.Stats())
	for _, n := range s.opt.Fleet.Load().Nodes {
		if n != nil {
			v.Nodes[n.Name] = s.indexUnits(n)
		}
	}
	reply(w, http.StatusOK, v)
}

// reply writes v as JSON.
func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the client may have gone
}

// refuse writes an error in the shape that the client side uses too.
func refuse(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, map[string]any{"error": map[string]any{"message": message, "type": "admin_error", "param": nil, "code": code}})
}

// readBody reads a request's body within the bound.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, bool) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		refuse(w, http.StatusRequestEntityTooLarge, "body_too_large", fmt.Sprintf("the body has more than %d bytes", most))
	case err != nil:
		refuse(w, http.StatusBadRequest, "body_cut", fmt.Sprintf("read body: %v", err))
	default:
		return b, true
	}
	return nil, false
}

// named returns the node that the path names, or refuses.
func (s *Server) named(w http.ResponseWriter, r *http.Request) (string, bool) {
	name := r.PathValue("name")
	var known []string
	for _, n := range s.opt.Control.State().Nodes {
		if n.Spec.Name == name {
			return name, true
		}
		known = append(known, n.Spec.Name)
	}
	refuse(w, http.StatusNotFound, "unknown_node", fmt.Sprintf("no node %q; nodes are: %s", name, strings.Join(known, ", ")))
	return "", false
}
