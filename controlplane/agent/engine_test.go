package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"warmpath/bench/engine"
	"warmpath/controlplane/kvevent"
)

// TestFollowsAnEngine: a simulated engine's events, over its port, through the
// agent and HTTP, into a router's index, which has as many blocks as the engine's
// cache after evictions, a reset, lost batches and a restart.
func TestFollowsAnEngine(t *testing.T) {
	e, err := engine.New(engine.Config{
		Name: "gpu", Model: "sim", Blocks: 65, MaxModelLen: 1024, AsFastAsPossible: true,
		EventsEndpoint: "tcp://127.0.0.1:0", ReplayEndpoint: "tcp://127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	ask := func(path, body string) {
		t.Helper()
		w := httptest.NewRecorder()
		e.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	prompt := func(name string, blocks int) {
		t.Helper()
		ask("/v1/completions", fmt.Sprintf(`{"prompt":"%-8s%s","max_tokens":2}`, name, strings.Repeat("abcdefgh", 8*blocks-1)))
	}
	router := &lockedRouter{testRouter: newTestRouter(t), now: time.Now()}
	srv := httptest.NewServer(router)
	defer srv.Close()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			WorkerID: "gpu", Routers: []string{srv.URL}, Ranks: 1, Token: tokenFile(t, testToken), Interval: 10 * time.Millisecond, Sync: 500 * time.Millisecond,
			Log:    slog.New(slog.DiscardHandler),
			Source: FromEngine(kvevent.Source{Node: "gpu", Endpoint: e.EventsEndpoint(), Replay: e.ReplayEndpoint()}),
		})
	}()
	agrees := func() bool { return router.held() == e.State().BlocksCached && router.held() > 0 }
	prompt("first", 10)
	eventually(t, "the first prompt", agrees)
	for i := range 30 { // more than the cache holds
		prompt(fmt.Sprint("p", i%9), 3+i%11)
	}
	eventually(t, "evictions", agrees)
	ask("/reset_prefix_cache", "")
	prompt("after", 4)
	eventually(t, "a reset", func() bool { return router.held() == 4 })
	if err := e.SetFault(engine.Fault{Kind: engine.FaultDropEvents, Count: 3}); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		prompt(fmt.Sprint("q", i), 5)
	}
	eventually(t, "lost batches", agrees)
	if err := e.Restart(); err != nil {
		t.Fatal(err)
	}
	prompt("again", 7)
	eventually(t, "a restart", func() bool { return agrees() && router.held() == 7 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
