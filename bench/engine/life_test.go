package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// sim makes an engine without sockets and closes it with the test.
func sim(t testing.TB, cfg Config) *Engine {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// within runs a test in a bubble of virtual time; the engine ends inside it.
func within(t *testing.T, cfg Config, f func(t *testing.T, e *Engine)) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(t, e)
	})
}

// ask sends a request to the handler, without a network.
func ask(ctx context.Context, e *Engine, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)).WithContext(ctx)
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panic(p)
		}
	}()
	e.Handler().ServeHTTP(w, r)
	return w
}

// chatBody is a request with a user text of n bytes.
func chatBody(n, maxTokens int, more string) string {
	return fmt.Sprintf(`{"messages":[{"role":"user","content":"%s"}],"max_tokens":%d%s}`, strings.Repeat("x", n), maxTokens, more)
}

// noContext is physics whose times are easy to compute by hand.
var noContext = Physics{ContextTokens: -1}

func TestTimeOfAnAnswer(t *testing.T) {
	// 3,976 bytes of text and 56 of template are 1,008 tokens: 126 ms; each of
	// the ten steps costs 6.35 ms.
	const want = 126*time.Millisecond + 10*6350*time.Microsecond
	for name, c := range map[string]struct {
		scale  float64
		factor float64
		want   time.Duration
	}{
		"real time":     {1, 0, want},
		"ten times":     {0.1, 0, want / 10},
		"slow by three": {1, 3, 3 * want},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, Config{Physics: noContext, TimeScale: c.scale}, func(t *testing.T, e *Engine) {
				if c.factor > 0 {
					if err := e.SetFault(Fault{Kind: FaultSlow, Factor: c.factor}); err != nil {
						t.Fatal(err)
					}
				}
				begin := time.Now()
				w := ask(t.Context(), e, "/v1/chat/completions", chatBody(3976, 10, ""))
				took := time.Since(begin)
				if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"prompt_tokens":1008,`) {
					t.Fatalf("answer %d %s", w.Code, w.Body)
				}
				if d := took - c.want; d < -time.Microsecond || d > time.Microsecond {
					t.Errorf("took %v, want %v", took, c.want)
				}
			})
		})
	}
}

func TestCachedPromptIsFaster(t *testing.T) {
	within(t, Config{Physics: noContext}, func(t *testing.T, e *Engine) {
		var took [2]time.Duration
		for i := range took {
			begin := time.Now()
			ask(t.Context(), e, "/v1/chat/completions", chatBody(32_000, 1, ""))
			took[i] = time.Since(begin)
		}
		if took[0] < time.Second || took[1] > 10*time.Millisecond {
			t.Errorf("cold %v, cached %v", took[0], took[1])
		}
	})
}

func TestConcurrentRequestsShareSteps(t *testing.T) {
	within(t, Config{Physics: noContext}, func(t *testing.T, e *Engine) {
		begin := time.Now()
		for range 20 {
			go ask(t.Context(), e, "/v1/completions", `{"prompt":"abcd","max_tokens":100}`)
		}
		synctest.Wait()
		for e.State().Finished < 20 {
			<-time.After(10 * time.Millisecond)
		}
		// 100 steps of 6 ms + 20 × 0.35 ms, not 20 × 100 steps of 6.35 ms.
		if took := time.Since(begin); took < 1200*time.Millisecond || took > 1400*time.Millisecond {
			t.Errorf("20 answers of 100 tokens took %v, want about 1.3 s", took)
		}
	})
}

func TestClientThatLeavesFreesBlocksAtOnce(t *testing.T) {
	within(t, Config{}, func(t *testing.T, e *Engine) {
		for _, more := range []string{"", `,"stream":true`} {
			before := e.State().Aborted
			ctx, leave := context.WithCancel(t.Context())
			over := make(chan struct{})
			go func() {
				defer close(over)
				ask(ctx, e, "/v1/chat/completions", chatBody(4000, 100_000, more))
			}()
			<-time.After(500 * time.Millisecond)
			if s := e.State(); s.Running != 1 || s.BlocksUsed < 60 {
				t.Fatalf("before: %+v", s)
			}
			at := time.Now()
			leave()
			<-over
			if s := e.State(); s.Running != 0 || s.BlocksUsed != 0 || s.Aborted != before+1 || s.BlocksCached == 0 || time.Since(at) != 0 {
				t.Errorf("after %v: %+v", time.Since(at), s)
			}
		}
	})
}

func TestStoppedCoreGoesOnWhenCleared(t *testing.T) {
	within(t, Config{}, func(t *testing.T, e *Engine) {
		over := make(chan int)
		go func() { over <- ask(t.Context(), e, "/v1/chat/completions", chatBody(40, 50, "")).Code }()
		<-time.After(100 * time.Millisecond)
		if err := e.SetFault(Fault{Kind: FaultCoreStopped}); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		health := httptest.NewRecorder()
		e.Handler().ServeHTTP(health, httptest.NewRequest(http.MethodGet, "/health", nil))
		if s := e.State(); s.Running != 1 || s.Generated == 0 || s.Generated == 50 || health.Code != http.StatusOK {
			t.Errorf("stopped: health %d, %+v", health.Code, s)
		}
		if err := e.ClearFaults(); err != nil {
			t.Fatal(err)
		}
		if code := <-over; code != http.StatusOK {
			t.Errorf("answered %d", code)
		}
	})
}

func TestQueueBound(t *testing.T) {
	within(t, Config{MaxWaiting: 2, Physics: Physics{MaxRunning: 1}}, func(t *testing.T, e *Engine) {
		for range 3 {
			go ask(t.Context(), e, "/v1/completions", `{"prompt":"abcd","max_tokens":1000}`)
			synctest.Wait()
		}
		if s := e.State(); s.Running != 1 || s.Waiting != 2 {
			t.Fatalf("%+v", s)
		}
		for _, stream := range []string{"false", "true"} {
			w := ask(t.Context(), e, "/v1/completions", `{"prompt":"abcd","stream":`+stream+`}`)
			if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "queue is full") {
				t.Errorf("stream %s beyond the bound: %d %s", stream, w.Code, w.Body)
			}
		}
	})
}

func TestServedIDsAreBounded(t *testing.T) {
	e := sim(t, Config{})
	for i := range maxServedIDs + 3 {
		e.note(fmt.Sprint(i))
	}
	ids := e.State().RequestIDs
	if len(ids) != maxServedIDs || ids[0] != "3" || ids[len(ids)-1] != fmt.Sprint(maxServedIDs+2) {
		t.Errorf("%d ids from %s to %s", len(ids), ids[0], ids[len(ids)-1])
	}
}

func TestConfigErrors(t *testing.T) {
	for want, cfg := range map[string]Config{
		"cannot hold MaxModelLen": {Blocks: 65, BlockTokens: 32, MaxModelLen: 2080},
		"TimeScale":               {TimeScale: -1},
		"tcp://":                  {EventsEndpoint: "ipc:///x"},
		"ReplayEndpoint":          {ReplayEndpoint: "tcp://127.0.0.1:0"},
		"decode times":            {Physics: Physics{DecodeBaseMs: -1}},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New(%+v) = %v, want %q", cfg, err, want)
		}
	}
	e, err := New(Config{Blocks: 65, BlockTokens: 32, MaxModelLen: 2048})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Errorf("closing twice: %v", err)
	}
}
