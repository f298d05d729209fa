package controltest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Engine is an engine that can be killed and brought back at its address. Its
// fields may be changed at any time.
type Engine struct {
	Model   string       // what it serves
	Status  atomic.Int64 // of its answers to prompts; 0 = 200
	Sick    atomic.Bool  // its health route answers 503
	Hangs   atomic.Bool  // prompts get no answer before their clients leave
	NoText  atomic.Bool  // it has no metrics: 404
	Mute    atomic.Bool  // it has, and does not tell them: 500
	Block   atomic.Int64 // tokens of a block, as its metrics say; 0 = 16
	Asked   atomic.Int64 // questions for metrics
	Prompts atomic.Int64

	tokens  *Tokens // nil = it does not say what prompts are
	address string
	mu      sync.Mutex
	server  *httptest.Server // guarded by mu; nil while it is killed
}

// StartEngine runs an engine until the test ends.
func StartEngine(t testing.TB, model string) *Engine {
	t.Helper()
	return startEngine(t, &Engine{Model: model})
}

// StartExact runs an engine that says which tokens prompts have.
func StartExact(t testing.TB, model string, tokens *Tokens) *Engine {
	t.Helper()
	return startEngine(t, &Engine{Model: model, tokens: tokens})
}

func startEngine(t testing.TB, e *Engine) *Engine {
	t.Helper()
	e.address = "127.0.0.1:0"
	e.Start(t)
	t.Cleanup(e.Kill)
	return e
}

// URL is the engine's address.
func (e *Engine) URL() string { return "http://" + e.address }

// Start brings a killed engine back.
func (e *Engine) Start(t testing.TB) {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	l, err := net.Listen("tcp", e.address)
	if err != nil {
		t.Fatal(err)
	}
	e.address = l.Addr().String()
	e.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: e.routes()}}
	e.server.Start()
}

// Kill ends the engine as a crash would.
func (e *Engine) Kill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.server != nil {
		e.server.CloseClientConnections()
		e.server.Close()
		e.server = nil
	}
}

func (e *Engine) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		if e.Sick.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, `{"object":"list","data":[{"id":%q,"object":"model","owned_by":"vllm","max_model_len":4096}]}`, e.Model)
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		e.Asked.Add(1)
		if e.Mute.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		if e.NoText.Load() {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprintf(w, "vllm:num_requests_running 0\nvllm:num_requests_waiting 0\nvllm:kv_cache_usage_perc 0.25\n"+
			"vllm:cache_config_info{block_size=\"%d\",num_gpu_blocks=\"1000\"} 1\n", max(e.Block.Load(), 16))
	})
	if e.tokens != nil {
		mux.HandleFunc("POST /tokenize", func(w http.ResponseWriter, r *http.Request) {
			if body, err := io.ReadAll(r.Body); err == nil {
				e.tokens.Answer(w, body)
			}
		})
	}
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		e.Prompts.Add(1)
		if status := int(e.Status.Load()); status != 0 {
			w.WriteHeader(status)
			return
		}
		if e.Hangs.Load() {
			_, _ = io.Copy(io.Discard, r.Body) // the server sees a client leave only behind the body
			<-r.Context().Done()
			return
		}
		count := 100
		if body, err := io.ReadAll(r.Body); err == nil && e.tokens != nil {
			count = len(e.tokens.Chat(body))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"model":%q,"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":%d,"completion_tokens":7,"prompt_tokens_details":{"cached_tokens":64}}}`, e.Model, count)
	})
	return mux
}

// Eventually waits until ok holds, and fails the test if it does not within
// ten seconds.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		case <-look.C:
		}
	}
}
