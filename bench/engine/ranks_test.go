package engine

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/go-zeromq/zmq4"
)

// askRank sends a chat to the rank that the header names.
func askRank(t *testing.T, e *Engine, rank, text string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"`+text+`"}],"max_tokens":1}`))
	if rank != "" {
		r.Header.Set(rankHeader, rank)
	}
	e.Handler().ServeHTTP(w, r)
	return w
}

// TestRanksHaveCachesOfTheirOwn: a prompt that one rank holds is new to the
// other, and both count for the engine.
func TestRanksHaveCachesOfTheirOwn(t *testing.T) {
	e := sim(t, Config{Ranks: 2, AsFastAsPossible: true})
	text := strings.Repeat("some text ", 40)
	for _, c := range []struct {
		rank   string
		cached bool
	}{{"1", false}, {"1", true}, {"0", false}, {" 0 ", true}, {"", true}, {"no number", true}} {
		w := askRank(t, e, c.rank, text)
		if w.Code != http.StatusOK || answerOf(t, w).Usage.PromptTokensDetails.CachedTokens > 0 != c.cached {
			t.Errorf("rank %q: %d %s, want cached %v", c.rank, w.Code, w.Body, c.cached)
		}
	}
	for _, rank := range []string{"2", "-1"} {
		if w := askRank(t, e, rank, text); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "[0, 2)") {
			t.Errorf("rank %s: %d %s", rank, w.Code, w.Body)
		}
	}
	s := e.State()
	if s.BlocksTotal != 2*16_383 || s.Finished != 6 || s.Generated != 6 {
		t.Errorf("state %+v", s)
	}
	w := httptest.NewRecorder()
	e.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	for _, want := range []string{
		`vllm:generation_tokens_total{engine="0",model_name="sim"} 4`,
		`vllm:generation_tokens_total{engine="1",model_name="sim"} 2`,
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("metrics lack %s", want)
		}
	}
	blocks := regexp.MustCompile(`cache_config_info\{.*engine="[01]".*num_gpu_blocks="32768"`)
	if found := blocks.FindAllString(w.Body.String(), -1); len(found) != 2 {
		t.Errorf("cache_config_info %q, want the blocks of both ranks twice", found)
	}
}

// TestIdleRankIsPicked: without a header the rank with fewer requests answers.
func TestIdleRankIsPicked(t *testing.T) {
	e := sim(t, Config{Ranks: 3, AsFastAsPossible: true})
	if err := e.SetFault(Fault{Kind: FaultCoreStopped}); err != nil {
		t.Fatal(err)
	}
	p := *e.process.Load()
	for want := range 6 {
		l, fault := p.pick(httptest.NewRequest(http.MethodPost, "/", http.NoBody))
		if fault != nil || l.rank != want%3 {
			t.Fatalf("request %d goes to rank %d", want, l.rank)
		}
		if _, err := l.submit(&Sequence{Prompt: []uint32{1}, Answer: 1}, "stop"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRanksPublishApart: rank r's events come on the port behind, numbered
// from 0, and say their rank.
func TestRanksPublishApart(t *testing.T) {
	e := withEvents(t, Config{Ranks: 2, EventsEndpoint: "tcp://127.0.0.1:0", AsFastAsPossible: true})
	sub := zmq4.NewSub(t.Context())
	t.Cleanup(func() { _ = sub.Close() })
	if err := sub.Dial(behind(e.EventsEndpoint(), 1)); err != nil {
		t.Fatal(err)
	}
	if err := sub.SetOption(zmq4.OptionSubscribe, ""); err != nil {
		t.Fatal(err)
	}
	second := (*e.process.Load())[1].events
	eventually(t, "subscription", func() bool { return len(second.pub.(zmq4.Topics).Topics()) > 0 })
	if w := askRank(t, e, "1", strings.Repeat("y", 400)); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	batch := live(t, sub, "kv@engine@sim", 0)
	if number(t, batch[2]) != 1 {
		t.Errorf("batch of rank %v, want 1", batch[2])
	}
	if n := e.State().NextSequence; n != second.sequence() || n == 0 {
		t.Errorf("%d batches in all, %d of rank 1", n, second.sequence())
	}
	if err := e.Restart(); err != nil {
		t.Fatal(err)
	}
	if second := (*e.process.Load())[1].events; endpoint("tcp://127.0.0.1:0", second.pub) != behind(e.EventsEndpoint(), 1) {
		t.Error("a restart moved the second rank's events")
	}
}

func TestBehind(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		n        int
		want     string
	}{
		{"tcp://127.0.0.1:5557", 0, "tcp://127.0.0.1:5557"},
		{"tcp://127.0.0.1:5557", 2, "tcp://127.0.0.1:5559"},
		{"tcp://[::1]:1", 1, "tcp://[::1]:2"},
		{"", 3, ""},
		{"tcp://*", 3, "tcp://*"},
	} {
		if got := behind(c.endpoint, c.n); got != c.want {
			t.Errorf("behind(%q, %d) = %q, want %q", c.endpoint, c.n, got, c.want)
		}
	}
}
