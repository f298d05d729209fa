package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const vllmText = `vllm:num_requests_running{engine="0"} 2
vllm:num_requests_waiting{engine="0"} 1
vllm:kv_cache_usage_perc{engine="0"} 0.5
`

// fakeEngine answers as an engine does; what a test changes, it changes by
// its own handlers.
func fakeEngine(t *testing.T, extra map[string]http.HandlerFunc) string {
	t.Helper()
	mux := http.NewServeMux()
	routes := map[string]http.HandlerFunc{
		"/health":  func(http.ResponseWriter, *http.Request) {},
		"/metrics": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, vllmText) },
		"/v1/models": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"data":[{"id":"m","owned_by":"vllm","max_model_len":2048}]}`)
		},
	}
	for path, h := range extra {
		routes[path] = h
	}
	for path, h := range routes {
		mux.HandleFunc(path, h)
	}
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func newTestProber(t *testing.T) *Prober {
	p := NewProber()
	p.HealthTimeout, p.ModelsTimeout = time.Minute, time.Minute
	t.Cleanup(p.HTTP.CloseIdleConnections)
	return p
}

func TestProber(t *testing.T) {
	base := fakeEngine(t, map[string]http.HandlerFunc{
		"/prometheus/metrics": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "trtllm_num_requests_running 3\n") },
	})
	p := newTestProber(t)
	ctx := t.Context()
	if err := p.Health(ctx, base, "", 0); err != nil {
		t.Error(err)
	}
	list, err := p.Models(ctx, base)
	if err != nil || list.Engine != VLLM || len(list.Models) != 1 || list.Models[0].MaxModelLen != 2048 {
		t.Errorf("%+v, %v", list, err)
	}
	before := time.Now().UnixNano()
	s, err := p.Metrics(ctx, Auto, base)
	if err != nil || s.Queued.Value != 1 || s.Running.Value != 2 || s.AtNs < before {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err = p.Metrics(ctx, TRTLLM, base); err != nil || s.Running.Value != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err = p.Metrics(ctx, OpenAI, base); !errors.Is(err, ErrNoMetrics) {
		t.Errorf("metrics of an engine without any: %v", err)
	}
}

func TestProberServerHeader(t *testing.T) {
	base := fakeEngine(t, map[string]http.HandlerFunc{"/v1/models": func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "llama.cpp")
		fmt.Fprint(w, `{"data":[{"id":"m","owned_by":"me"}]}`)
	}})
	p := newTestProber(t)
	for range 2 { // the second time on a page that was used before
		list, err := p.Models(t.Context(), base)
		own, ownErr := newScraper(p, base).models(t.Context())
		if err != nil || ownErr != nil || list.Engine != LlamaCPP || !reflect.DeepEqual(list, own) {
			t.Errorf("%+v, %v; %+v, %v", list, err, own, ownErr)
		}
	}
}

// An error names the URL and the cause, so that a log line alone is enough.
func TestProberErrors(t *testing.T) {
	var hits atomic.Int64
	other := fakeEngine(t, map[string]http.HandlerFunc{"/stolen": func(http.ResponseWriter, *http.Request) { hits.Add(1) }})
	release := make(chan struct{})
	base := fakeEngine(t, map[string]http.HandlerFunc{
		"/health": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "engine core is dead "+strings.Repeat("x", 4000), http.StatusServiceUnavailable)
		},
		"/moved": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other+"/stolen", http.StatusFound) },
		"/slow":  func(http.ResponseWriter, *http.Request) { <-release },
		"/metrics": func(w http.ResponseWriter, _ *http.Request) { // begins well, then hangs
			fmt.Fprint(w, vllmText)
			w.(http.Flusher).Flush()
			<-release
		},
		"/v1/models": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) },
	})
	t.Cleanup(func() { close(release) }) // before the server's own Close, which waits for handlers
	p := newTestProber(t)
	p.HealthTimeout, p.MetricsTimeout = time.Minute, 50*time.Millisecond
	ctx := t.Context()

	_, modelsErr := p.Models(ctx, base)
	_, ownModelsErr := newScraper(p, base).models(ctx)
	_, noModels := newScraper(p, base+"/none").models(ctx)
	_, metricsErr := p.Metrics(ctx, Auto, base)
	dead := p.Health(ctx, base, "", 0)
	moved := p.Health(ctx, base, "/moved", 0)
	slow := p.Health(ctx, base, "/slow", 50*time.Millisecond)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := "http://" + listener.Addr().String()
	listener.Close()
	refused := p.Health(ctx, closed, "", 0)
	own := func(base, path string, timeout time.Duration) error {
		return newScraper(p, base).health(ctx, path, timeout)
	}
	for _, c := range []struct {
		err   error
		words []string
	}{
		{modelsErr, []string{"ask models", base + "/v1/models", "no key"}},
		{ownModelsErr, []string{"ask models", base + "/v1/models", "no key"}},
		{noModels, []string{"ask models", base + "/none/v1/models", "404"}},
		{metricsErr, []string{"ask metrics", base + "/metrics", "deadline"}},
		{dead, []string{"ask health", base + "/health", "503 Service Unavailable", "engine core is dead"}},
		{moved, []string{"ask health", base + "/moved", "302"}},
		{slow, []string{"ask health", base + "/slow", "deadline"}},
		{refused, []string{"ask health", closed + "/health", "refused"}},
		{own(base, "", 0), []string{"ask health", base + "/health", "503 Service Unavailable", "engine core is dead"}},
		{own(base, "/moved", 0), []string{"ask health", base + "/moved", "302"}},
		{own(base, "/none", 0), []string{"ask health", base + "/none", "404"}},
		{own(base, "/slow", 50*time.Millisecond), []string{"ask health", base + "/slow", "timeout"}},
		{own(closed, "", 0), []string{"ask health", closed + "/health", "refused"}},
	} {
		for _, word := range c.words {
			if c.err == nil || !strings.Contains(c.err.Error(), word) {
				t.Errorf("want %q in: %v", word, c.err)
			}
		}
	}
	if err := own(base, "/none", 0); errors.Is(err, ErrNoMetrics) {
		t.Errorf("a health route that is not there tells of metrics: %v", err)
	}
	if err := own(other, "/stolen", 0); err != nil {
		t.Errorf("a node that is well: %v", err)
	}
	hits.Store(0)
	if n := len(dead.Error()); n > 2*maxErrorBytes+200 {
		t.Errorf("an error of %d bytes", n)
	}
	var status *StatusError
	if !errors.As(dead, &status) || status.Status != 503 {
		t.Errorf("%v is no StatusError 503", dead)
	}
	if !errors.Is(slow, context.DeadlineExceeded) || !errors.Is(metricsErr, context.DeadlineExceeded) {
		t.Errorf("time-outs are not DeadlineExceeded: %v; %v", slow, metricsErr)
	}
	if hits.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// Connections are kept between questions, and given up before engines do.
func TestProberReuse(t *testing.T) {
	var opened atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/health" {
			http.Error(w, strings.Repeat("no", 2000), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, vllmText)
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	p := newTestProber(t)
	for range 20 {
		if _, err := p.Metrics(t.Context(), VLLM, server.URL); err != nil {
			t.Fatal(err)
		}
		if err := p.Health(t.Context(), server.URL, "", 0); err == nil {
			t.Fatal("503 is healthy")
		}
	}
	if opened.Load() != 1 {
		t.Errorf("%d connections for 40 questions in a row", opened.Load())
	}
	if idle := p.HTTP.Transport.(*http.Transport).IdleConnTimeout; idle <= 0 || idle >= 4*time.Second {
		t.Errorf("idle time-out %v", idle)
	}
}

func TestProberCap(t *testing.T) {
	base := fakeEngine(t, map[string]http.HandlerFunc{"/metrics": func(w http.ResponseWriter, _ *http.Request) {
		chunk := []byte(strings.Repeat("#\n", 1<<15))
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}})
	p := newTestProber(t)
	p.MetricsTimeout = time.Minute // 8 MiB take their time on a busy machine
	if _, err := p.Metrics(t.Context(), Auto, base); !errors.Is(err, ErrTooLarge) {
		t.Errorf("endless metrics: %v", err)
	}
}
