package admin

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"warmpath/scaler"
)

// ScalerOptions are what the surface of a scaler that runs alone shows. Its functions
// may be called by any goroutine.
type ScalerOptions struct {
	Status   func() *scaler.Status
	Routers  func() []ScalerRouterView
	Refused  func() string                   // which nodes the routers do not take, and why; "" = none
	Callback func(offer string) http.Handler // nil = nobody takes what that offer's provider tells
	Token    string                          // "" = none is asked for
	Version  string
	Log      *slog.Logger
}

// ScalerServer is the running surface of a scaler that runs alone: what it does, its
// metrics, its health, and the routes for providers.
type ScalerServer struct {
	opt  ScalerOptions
	http *http.Server
}

// ServeScaler answers on listener until Stop.
func ServeScaler(listener net.Listener, opt ScalerOptions) *ScalerServer {
	s := &ScalerServer{opt: opt}
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", healthy)
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /api/scaler", func(w http.ResponseWriter, _ *http.Request) {
		v := scalerView(opt.Status(), "")
		v.Routers, v.Refused = opt.Routers(), opt.Refused()
		reply(w, http.StatusOK, v)
	})
	mux.HandleFunc("POST "+callbackPath+"{offer}", func(w http.ResponseWriter, r *http.Request) {
		offer := r.PathValue("offer")
		called(w, r, offer, opt.Callback(offer))
	})
	common(mux)
	s.http = answer(listener, authorized(opt.Token, sameOrigin(mux)), opt.Log)
	return s
}

// Stop ends the surface; requests under way have until ctx ends.
func (s *ScalerServer) Stop(ctx context.Context) {
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
}

// ready says whether the scaler can act.
func (s *ScalerServer) ready(w http.ResponseWriter, _ *http.Request) {
	var why []string
	for _, r := range s.opt.Routers() {
		if !r.OK {
			why = append(why, r.Error)
		}
	}
	if len(why) > 0 {
		refuse(w, http.StatusServiceUnavailable, "not_ready", strings.Join(why, "; "))
		return
	}
	_, _ = w.Write([]byte("ready\n"))
}

var (
	descScalerRouterUp    = desc("scaler_router_up", "1 if the router answers the scaler, which changes nothing unless all do.", "router")
	descScalerRouterNodes = desc("scaler_router_nodes", "The scaler's nodes that the router has.", "router")
)

// Describe sends nothing: see collector.
func (s *ScalerServer) Describe(chan<- *prometheus.Desc) {}

// Collect makes all series.
func (s *ScalerServer) Collect(out chan<- prometheus.Metric) {
	m := maker{out}
	m.gauge(descBuild, 1, s.opt.Version)
	m.scaler(s.opt.Status())
	for _, r := range s.opt.Routers() {
		m.gauge(descScalerRouterUp, flag(r.OK), r.URL)
		m.gauge(descScalerRouterNodes, float64(r.Nodes), r.URL)
	}
}
