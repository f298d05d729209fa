package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"warmpath/controlplane/kvevent"
	"warmpath/controlplane/report/message"
)

func tokenFile(t *testing.T, text string) *Token {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	token, err := OpenToken(path)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// lockedRouter lets a testRouter be asked from several goroutines.
type lockedRouter struct {
	mu sync.Mutex
	*testRouter
	now time.Time
}

func (l *lockedRouter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nowNs = int64(time.Since(l.now)) + 1
	l.server.Handler().ServeHTTP(w, r)
}

func (l *lockedRouter) held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.blocks(0, 0))
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	look := time.NewTicker(2 * time.Millisecond)
	defer look.Stop()
	for !is() {
		select {
		case <-deadline:
			t.Fatal("not in time: " + what)
		case <-look.C:
		}
	}
}

// TestRun runs the agent before two routers over real connections: both learn
// what the engine holds, one of them after it was away.
func TestRun(t *testing.T) {
	for _, encoding := range []Encoding{Msgpack, JSON} {
		var routers []*lockedRouter
		var urls []string
		for range 2 {
			r := &lockedRouter{testRouter: newTestRouter(t), now: time.Now()}
			srv := httptest.NewServer(r)
			defer srv.Close()
			routers, urls = append(routers, r), append(urls, srv.URL)
		}
		events := make(chan func(Sink))
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() {
			ended <- Run(ctx, Options{
				WorkerID: "gpu", Routers: urls, Ranks: 1, Token: tokenFile(t, testToken+"\n"), Interval: 10 * time.Millisecond, Sync: 500 * time.Millisecond,
				Encoding: encoding, Log: slog.New(slog.DiscardHandler),
				Source: func(ctx context.Context, _ int, to Sink) error {
					for {
						select {
						case <-ctx.Done():
							return nil
						case f := <-events:
							f(to)
						}
					}
				},
			})
		}()
		e := newEngine()
		var letters []uint8
		for i := range uint8(50) {
			letters = append(letters, i+1)
		}
		hold := func(n int) func() bool {
			return func() bool { return routers[0].held() == n && routers[1].held() == n }
		}
		events <- func(to Sink) { to.Events(&kvevent.Batch{Events: []kvevent.Event{e.store(0, 0, letters)}}) }
		eventually(t, "both hold 50 blocks", hold(50))
		routers[1].mu.Lock()
		routers[1].restart(t)
		routers[1].mu.Unlock()
		eventually(t, "the router that began anew holds them again", hold(50))
		events <- func(to Sink) { to.Restarted() }
		eventually(t, "the engine has restarted", hold(0))
		events <- func(to Sink) {
			to.Trust(kvevent.Live)
			to.Events(&kvevent.Batch{Events: []kvevent.Event{e.store(0, 0, letters[:7])}})
		}
		eventually(t, "both hold 7 blocks", hold(7))
		events <- func(to Sink) { to.Void() }
		eventually(t, "events are missing", hold(0))
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestRunEndsWithItsSource(t *testing.T) {
	away := errors.New("no such endpoint")
	err := Run(t.Context(), Options{
		WorkerID: "gpu", Routers: []string{"http://127.0.0.1:1"}, Ranks: 2, Token: tokenFile(t, testToken), Interval: time.Second, Sync: 5 * time.Second,
		Log: slog.New(slog.DiscardHandler), Source: func(ctx context.Context, rank int, _ Sink) error {
			if rank == 1 {
				return away
			}
			<-ctx.Done()
			return nil
		},
	})
	if !errors.Is(err, away) || !strings.Contains(err.Error(), "rank 1") {
		t.Error(err)
	}
}

func TestOptions(t *testing.T) {
	err := (&Options{}).Check()
	for _, word := range []string{"worker id", "routers", "ranks", "interval", "sync"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v does not name %s", err, word)
		}
	}
	good := Options{WorkerID: "w", Routers: []string{"x"}, Ranks: 1, Interval: MinInterval, Sync: MinSync}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for _, change := range []func(*Options){
		func(o *Options) { o.Ranks = MaxRanks + 1 },
		func(o *Options) { o.Routers = make([]string, MaxRouters+1) },
		func(o *Options) { o.Interval-- },
		func(o *Options) { o.Interval = o.Sync + 1 },
		func(o *Options) { o.Sync = MaxSync + 1 },
	} {
		o := good
		change(&o)
		if o.Check() == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

func TestParseRouter(t *testing.T) {
	for _, c := range []struct{ raw, base string }{
		{"http://10.0.0.1:8082", "http://10.0.0.1:8082"},
		{"https://router.example/reports/", "https://router.example/reports"},
		{"10.0.0.1:8082", ""},
		{"ftp://x", ""},
		{"http://", ""},
		{"http://u:secret@x", ""},
		{"http://x?y=1", ""},
		{"http://x\x7f", ""},
	} {
		base, err := ParseRouter(c.raw)
		if base != c.base || (err == nil) != (c.base != "") || err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %q %v", c.raw, base, err)
		}
	}
	if _, err := ParseEncoding("xml"); err == nil {
		t.Error("xml was taken")
	}
}

// TestPost says what follows from each answer.
func TestPost(t *testing.T) {
	var status int
	var body, seen string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Method + " " + r.URL.Path + " " + r.Header.Get("Authorization") + " " + r.Header.Get("Content-Type")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer srv.Close()
	token := tokenFile(t, "first-token\n")
	s := &sender{base: srv.URL + "/x", encoding: JSON, token: token, client: srv.Client()}
	r := &message.Report{Route: message.Eviction, WorkerID: "gpu", Epoch: "e", Seq: 1}
	for _, c := range []struct {
		status  int
		body    string
		failure Failure
		ok      bool
	}{
		{200, `{"seq":1}`, 0, true},
		{200, `nonsense`, Unanswered, false},
		{409, `{}`, WrongEpoch, false},
		{400, `{}`, Refused, false},
		{401, `{}`, Refused, false},
		{404, `{}`, Refused, false},
		{413, `{}`, Refused, false},
		{302, ``, Refused, false},
		{408, ``, Unanswered, false},
		{429, ``, Unanswered, false},
		{503, ``, Unanswered, false},
	} {
		status, body = c.status, c.body
		a, failure, err := s.post(t.Context(), r)
		if (err == nil) != c.ok || failure != c.failure || c.ok && a.Seq != 1 {
			t.Errorf("%d %s: %v %v %v", c.status, c.body, a, failure, err)
		}
	}
	if seen != "POST /x/internal/eviction Bearer first-token application/json" {
		t.Error(seen)
	}
	// A refused token is read again.
	if err := os.WriteFile(token.path, []byte("second-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	status = 401
	_, _, _ = s.post(t.Context(), r)
	status, body = 200, `{"seq":1}`
	if _, _, err := s.post(t.Context(), r); err != nil || !strings.Contains(seen, "second-token") {
		t.Errorf("%v %s", err, seen)
	}
	srv.Close()
	if _, failure, err := s.post(t.Context(), r); err == nil || failure != Unanswered {
		t.Errorf("%v %v", failure, err)
	}
}

func TestTokenFile(t *testing.T) {
	for _, text := range []string{"", "\n", "two tokens", "two\ntokens", "tök", strings.Repeat("x", tokenBytes+1)} {
		path := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenToken(path); err == nil || len(text) > 3 && strings.Contains(err.Error(), text) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	if _, err := OpenToken(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no file is no token")
	}
}

// TestFollower: what a subscriber delivers, in the agent's words.
func TestFollower(t *testing.T) {
	var said recorder
	f := &follower{to: &said}
	batch := []byte{0x92, 0xcb, 0, 0, 0, 0, 0, 0, 0, 0, 0x90} // [0.0, []]
	for _, d := range []kvevent.Delivery{
		{Trust: kvevent.Live},
		{Trust: kvevent.Live, Payload: batch, Seq: 0},
		{Trust: kvevent.Live, Payload: batch, Seq: 1},
		{Trust: kvevent.Live, Payload: batch[:1], Seq: 2}, // is none
		{Trust: kvevent.Gapped, Clear: true},              // events are missing
		{Trust: kvevent.Live, Payload: batch, Seq: 7},
		{Trust: kvevent.Live, Clear: true}, // and this is a restart, as the next batch shows
		{Trust: kvevent.Live, Payload: batch, Seq: 0},
	} {
		if !f.deliver(d) {
			t.Error("no room")
		}
	}
	if got := strings.Join(said, " "); got != "live batch batch void gapped batch live void restarted batch" {
		t.Error(got)
	}
}

type recorder []string

func (r *recorder) Events(*kvevent.Batch) { *r = append(*r, "batch") }
func (r *recorder) Restarted()            { *r = append(*r, "restarted") }
func (r *recorder) Void()                 { *r = append(*r, "void") }
func (r *recorder) Trust(t kvevent.Trust) { *r = append(*r, t.String()) }
