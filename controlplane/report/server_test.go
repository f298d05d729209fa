package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/controlplane/report/message"
	"warmpath/dataplane/fleet"
)

const (
	tokenA = "token-of-worker-a"
	tokenB = "token-of-worker-b"
)

// fakeFleet is a Directory and an Index in one.
type fakeFleet struct {
	mu      sync.Mutex
	targets map[string]Target
	notYet  bool
	placer  *Placer
	index   *twin
	err     error         // of Apply, in place of its work
	entered chan struct{} // told when Apply begins, if set
	hold    chan struct{} // Apply waits for it, if set
	trusted []string
}

func newFleet() *fakeFleet {
	x := newTwin()
	return &fakeFleet{
		targets: map[string]Target{"a": {Slot: 0, Generation: 1, Ranks: 1, Model: "m"}, "b": {Slot: 1, Generation: 1, Ranks: 1, Model: "m"}},
		index:   x, placer: NewPlacer(x, func(string) (uint64, int) { return 7, 16 }),
	}
}

func (f *fakeFleet) Find(worker, model string) (Target, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.targets[worker]
	switch {
	case f.notYet:
		return Target{}, fmt.Errorf("its models are %w", ErrNotYet)
	case !ok:
		return Target{}, fmt.Errorf("look it up: %w", ErrUnknownWorker)
	case model != "" && model != "m":
		return Target{}, fmt.Errorf("model %q: %w", model, ErrUnknownModel)
	}
	return t, nil
}

func (f *fakeFleet) Apply(ctx context.Context, b *Batch) (Result, error) {
	if f.entered != nil {
		f.entered <- struct{}{}
	}
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return Result{}, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return Result{}, f.err
	}
	return f.placer.Apply(b), nil
}

func (f *fakeFleet) trust(worker string, rank int, _ Target, t fleet.Trust) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trusted = append(f.trusted, fmt.Sprintf("%s/%d %s", worker, rank, t))
}

func tokensFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func newTestServer(t *testing.T, f *fakeFleet) *Server {
	t.Helper()
	tokens, err := OpenTokens(tokensFile(t, "a: "+tokenA+"\nb: "+tokenB+"\n"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	return New(Options{
		Tokens: tokens, Directory: f, Index: f, NowNs: func() int64 { return int64(time.Since(start)) + 1 },
		Log: slog.New(slog.DiscardHandler), Trusted: f.trust,
	})
}

// ask sends one report to the handler, without a network.
func ask(s *Server, path, token, contentType string, body []byte) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	r.RemoteAddr = "127.0.0.1:5000"
	r.Header.Set("Content-Type", contentType)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w
}

func faultOf(t *testing.T, w *httptest.ResponseRecorder) (code, param string) {
	t.Helper()
	var e struct {
		Error struct {
			Message, Type, Code string
			Param               *string
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Error.Message == "" || e.Error.Type != "report_error" {
		t.Fatalf("answer %q: %v", w.Body, err)
	}
	if e.Error.Param != nil {
		param = *e.Error.Param
	}
	return e.Error.Code, param
}

const jsonType = "application/json"

func TestTaken(t *testing.T) {
	f := newFleet()
	s := newTestServer(t, f)
	stored := &message.Report{WorkerID: "a", Epoch: "e", Seq: 1, Blocks: []message.Block{{Hash: 1, Tokens: make([]uint32, 16), BlockTokens: 16}}}
	if w := ask(s, "/internal/stored", tokenA, "application/json; charset=utf-8", stored.AppendJSON(nil)); w.Code != 200 || w.Body.String() != "{\"seq\":1}\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	digest := &message.Report{Route: message.Sync, WorkerID: "a", Epoch: "e", Seq: 2, HasDigest: true}
	w := ask(s, "/internal/sync", tokenA, "application/msgpack", digest.AppendMsgpack(nil))
	if a, err := message.DecodeAnswerMsgpack(w.Body.Bytes()); err != nil || w.Header().Get("Content-Type") != "application/msgpack" || a.Seq != 2 || a.Want != "full" {
		t.Errorf("%d %v %v", w.Code, a, err)
	}
	if w := ask(s, "/internal/sync", tokenA, jsonType, []byte(`{"worker_id":"a","epoch":"e","seq":3,"full":true,"active_hashes":["0000000000000005"]}`)); w.Body.String() != "{\"seq\":3,\"want_blocks\":[\"0000000000000005\"]}\n" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(s, "/internal/eviction", tokenA, jsonType, []byte(`{"worker_id":"a","epoch":"e","seq":4,"evicted_hashes":["0000000000000005"]}`)); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if got := strings.Join(f.trusted, ", "); got != "a/0 live, a/0 gapped, a/0 live" {
		t.Errorf("trust: %s", got)
	}
}

func TestRefused(t *testing.T) {
	f := newFleet()
	s := newTestServer(t, f)
	good := func(worker string) []byte {
		return []byte(`{"worker_id":"` + worker + `","epoch":"e","seq":1,"blocks":[]}`)
	}
	for _, c := range []struct {
		name, path, token, kind string
		body                    []byte
		status                  int
		code, param             string
	}{
		{"no token", "/internal/stored", "", jsonType, good("a"), 401, "unauthorized", ""},
		{"unknown token", "/internal/stored", "token-of-nobody-at-all", jsonType, good("a"), 401, "unauthorized", ""},
		{"other worker's token", "/internal/stored", tokenB, jsonType, good("a"), 401, "unauthorized", "worker_id"},
		{"no content type", "/internal/stored", tokenA, "", good("a"), 400, "bad_report", "Content-Type"},
		{"wrong content type", "/internal/stored", tokenA, "text/json", good("a"), 400, "bad_report", "Content-Type"},
		{"no JSON", "/internal/stored", tokenA, jsonType, []byte("{"), 400, "bad_report", "body"},
		{"wrong field", "/internal/stored", tokenA, jsonType, []byte(`{"worker_id":"a","epoch":"e","seq":1,"tier":"gpu"}`), 400, "bad_report", "tier"},
		{"unknown model", "/internal/stored", tokenA, jsonType, []byte(`{"worker_id":"a","model":"x","epoch":"e","seq":1,"blocks":[]}`), 400, "bad_report", "model"},
		{"rank", "/internal/stored", tokenA, jsonType, []byte(`{"worker_id":"a","rank":1,"epoch":"e","seq":1,"blocks":[]}`), 400, "bad_report", "rank"},
		{"too large", "/internal/stored", tokenA, jsonType, make([]byte, message.MaxBodyBytes+1), 413, "too_large", ""},
		{"route", "/internal/other", tokenA, jsonType, good("a"), 404, "not_found", ""},
		{"admin", "/metrics", tokenA, jsonType, good("a"), 404, "not_found", ""},
	} {
		w := ask(s, c.path, c.token, c.kind, c.body)
		if code, param := faultOf(t, w); w.Code != c.status || code != c.code || param != c.param {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
	}
	f.notYet = true
	if w := ask(s, "/internal/stored", tokenA, jsonType, good("a")); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("a worker that is not known yet: %d %s", w.Code, w.Body)
	}
	f.notYet, f.targets = false, nil
	if w := ask(s, "/internal/stored", tokenA, jsonType, good("a")); w.Code != 404 {
		t.Errorf("unknown worker: %d %s", w.Code, w.Body)
	}
	f.targets = newFleet().targets
	for _, seq := range []string{`"e","seq":1`, `"f","seq":1`} {
		ask(s, "/internal/stored", tokenA, jsonType, []byte(`{"worker_id":"a","epoch":`+seq+`,"blocks":[]}`))
	}
	if w := ask(s, "/internal/stored", tokenA, jsonType, []byte(`{"worker_id":"a","epoch":"e","seq":2,"blocks":[]}`)); w.Code != 409 {
		t.Errorf("old epoch: %d %s", w.Code, w.Body)
	}
	// Another tenant of the slot: its trust is told anew, even if it is the same.
	f.trusted = nil
	for _, generation := range []uint32{2, 3} {
		target := f.targets["a"]
		target.Generation = generation
		f.targets["a"] = target
		if w := ask(s, "/internal/stored", tokenA, jsonType, fmt.Appendf(nil, `{"worker_id":"a","epoch":"f%d","seq":1,"blocks":[]}`, generation)); w.Code != 200 {
			t.Errorf("new tenant: %d %s", w.Code, w.Body)
		}
	}
	if got := strings.Join(f.trusted, ", "); got != "a/0 live, a/0 live" {
		t.Errorf("trust: %s", got)
	}
	f.err = ErrGone
	if w := ask(s, "/internal/stored", tokenA, jsonType, []byte(`{"worker_id":"a","epoch":"f","seq":2,"blocks":[]}`)); w.Code != 404 {
		t.Errorf("gone: %d %s", w.Code, w.Body)
	}
	f.err = errors.New("stuck")
	w := ask(s, "/internal/stored", tokenA, jsonType, []byte(`{"worker_id":"a","epoch":"f","seq":2,"blocks":[]}`))
	if w.Code != 503 || w.Header().Get("Retry-After") != "1" {
		t.Errorf("stuck: %d %s", w.Code, w.Body)
	}
	if s.bodies != 0 || s.parts != 0 || s.workers["a"].open != 0 {
		t.Errorf("%d bytes of bodies, %d of parts, %d requests are still counted", s.bodies, s.parts, s.workers["a"].open)
	}
}

func TestPrivateOnly(t *testing.T) {
	s := newTestServer(t, newFleet())
	for _, c := range []struct {
		remote, local string
		taken         bool
	}{
		{"127.0.0.1:1", "127.0.0.1:2", true},
		{"[::1]:1", "[::1]:2", true},
		{"10.1.2.3:1", "192.168.0.1:2", true},
		{"172.31.255.255:1", "172.16.0.1:2", true},
		{"[fd00::1]:1", "[fd00::2]:2", true},
		{"[fe80::1%eth0]:1", "[fe80::2%eth0]:2", true},
		{"[::ffff:10.0.0.1]:1", "10.0.0.2:2", true},
		{"8.8.8.8:1", "10.0.0.2:2", false},
		{"10.0.0.1:1", "8.8.8.8:2", false},
		{"172.32.0.1:1", "10.0.0.2:2", false},
		{"[2001:db8::1]:1", "[fd00::2]:2", false},
		{"@", "", false},
	} {
		r := httptest.NewRequest(http.MethodPost, "/internal/stored", strings.NewReader(`{"worker_id":"a","epoch":"e","seq":1,"blocks":[]}`))
		r.RemoteAddr = c.remote
		r.Header.Set("Authorization", "Bearer "+tokenA)
		r.Header.Set("Content-Type", jsonType)
		if c.local != "" {
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.TCPAddrFromAddrPort(mustAddrPort(t, c.local))))
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		if (w.Code == 200) != c.taken || !c.taken && w.Code != 403 {
			t.Errorf("%s to %s: %d %s", c.remote, c.local, w.Code, w.Body)
		}
	}
}

// A whole report of a million hashes, in parts, and its blocks asked for bit by
// bit.
func TestMillionHashesBound(t *testing.T) {
	n := 1_000_000
	if raceEnabled {
		n = 100_000
	}
	s := newTestServer(t, newFleet())
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = uint64(i) * 0x9e3779b97f4a7c15
	}
	const parts = 2
	var w *httptest.ResponseRecorder
	for part := 1; part <= parts; part++ {
		r := message.Report{
			Route: message.Sync, WorkerID: "a", Epoch: "e", Seq: 1, Part: part, Parts: parts, Full: true,
			Active: message.Hashes{Short: hashes[(part-1)*n/parts : part*n/parts]},
		}
		w = ask(s, "/internal/sync", tokenA, jsonType, r.AppendJSON(nil))
		if w.Code != 200 {
			t.Fatal(w.Code, w.Body)
		}
		if part < parts && (s.parts == 0 || strings.Contains(w.Body.String(), "want")) {
			t.Errorf("part %d: %d bytes held, %s", part, s.parts, w.Body)
		}
	}
	a, err := message.DecodeAnswerJSON(w.Body.Bytes())
	if err != nil || len(a.WantBlocks) != wantedMax || s.parts != 0 {
		t.Fatalf("%d wanted, %d bytes of parts held: %v", len(a.WantBlocks), s.parts, err)
	}
	var d message.Digest
	for _, h := range hashes {
		d.Add(h)
	}
	r := message.Report{Route: message.Sync, WorkerID: "a", Epoch: "e", Seq: 2, HasDigest: true, Digest: d}
	w = ask(s, "/internal/sync", tokenA, "application/msgpack", r.AppendMsgpack(nil))
	if a, err := message.DecodeAnswerMsgpack(w.Body.Bytes()); err != nil || a.Want != "" || len(a.WantBlocks) == 0 {
		t.Errorf("%+v %v", a.Want, err)
	}
}

// What all share is bounded, and given back.
func TestBudgets(t *testing.T) {
	f := newFleet()
	s := newTestServer(t, f)
	s.bodies = bodyBudget - 10
	if w := ask(s, "/internal/stored", tokenA, jsonType, []byte(`{"worker_id":"a"}`)); w.Code != 503 {
		t.Errorf("no room for bodies: %d %s", w.Code, w.Body)
	}
	s.bodies = 0
	s.parts = partsBudget
	part := []byte(`{"worker_id":"a","epoch":"e","seq":1,"part":1,"parts":2,"full":true,"active_hashes":[]}`)
	if w := ask(s, "/internal/sync", tokenA, jsonType, part); w.Code != 503 {
		t.Errorf("no room for parts: %d %s", w.Code, w.Body)
	}
	s.parts = 0
	if w := ask(s, "/internal/sync", tokenA, jsonType, part); w.Code != 200 || s.parts != int64(len(part)) {
		t.Errorf("%d %s, %d bytes held", w.Code, w.Body, s.parts)
	}
	if w := ask(s, "/internal/stored", tokenA, jsonType, []byte(`{"worker_id":"a","epoch":"e","seq":2,"blocks":[]}`)); w.Code != 200 || s.parts != 0 {
		t.Errorf("%d %s, %d bytes held", w.Code, w.Body, s.parts)
	}
	// A worker with as many requests as it may have is turned away.
	f.hold, f.entered = make(chan struct{}), make(chan struct{}, workerAtOnce)
	answers := make(chan int, workerAtOnce)
	for i := range workerAtOnce {
		go func() {
			answers <- ask(s, "/internal/stored", tokenA, jsonType, fmt.Appendf(nil, `{"worker_id":"a","epoch":"g","seq":%d,"blocks":[]}`, i+1)).Code
		}()
	}
	<-f.entered
	for s.openOf("a") < workerAtOnce { // the others wait for the first
	}
	if w := ask(s, "/internal/stored", tokenA, jsonType, []byte(`{"worker_id":"a"}`)); w.Code != 503 {
		t.Errorf("one too many: %d %s", w.Code, w.Body)
	}
	close(f.hold)
	for range workerAtOnce {
		if code := <-answers; code != 200 {
			t.Errorf("status %d", code)
		}
	}
}

func (s *Server) openOf(name string) int64 {
	w := s.workerOf(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.open
}

// A real listener: a body that stops coming does not hold up other workers, and
// a client that leaves does not undo its report.
func TestSlowBody(t *testing.T) {
	f := newFleet()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newTestServer(t, f)
	s.Serve(l)
	slow, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(slow, "POST /internal/stored HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", tokenA)
	post := func(worker, token string) int {
		req, _ := http.NewRequest(http.MethodPost, "http://"+l.Addr().String()+"/internal/stored", strings.NewReader(`{"worker_id":"`+worker+`","epoch":"e","seq":1,"blocks":[]}`))
		req.Header.Set("Authorization", "bearer "+token)
		req.Header.Set("Content-Type", jsonType)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if code := post("b", tokenB); code != 200 {
		t.Errorf("another worker: %d", code)
	}
	if code := post("a", tokenA); code != 200 {
		t.Errorf("the same worker: %d", code)
	}
	_ = slow.Close()
	http.DefaultClient.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	s.Stop(ctx)
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("the listener is open after Stop")
	}
}

// Silence is noticed, parts that stop coming are dropped, a changed file of
// tokens counts: all by themselves.
func TestTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		s := newTestServer(t, f)
		ctx, cancel := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		wait.Go(func() { s.watch(ctx) })
		wait.Go(func() { s.opt.Tokens.Watch(ctx) })
		if w := ask(s, "/internal/stored", tokenA, jsonType, []byte(`{"worker_id":"a","epoch":"e","seq":1,"blocks":[]}`)); w.Code != 200 {
			t.Fatal(w.Body)
		}
		ask(s, "/internal/sync", tokenA, jsonType, []byte(`{"worker_id":"a","epoch":"e","seq":2,"part":1,"parts":2,"full":true,"active_hashes":[]}`))
		if s.heldParts() == 0 {
			t.Error("no part is held")
		}
		pass(14 * time.Second)
		if held, trusted := s.heldParts(), f.said(); held == 0 || len(trusted) != 15 || trusted[14] != "a/0 live" { // the change, and once a second
			t.Errorf("after 14 s: %d bytes, %v", held, trusted)
		}
		pass(3 * time.Second)
		if held, trusted := s.heldParts(), f.said(); held != 0 || trusted[len(trusted)-1] != "a/0 stale" {
			t.Errorf("after 17 s: %d bytes, %v", held, trusted)
		}
		if err := os.WriteFile(s.opt.Tokens.path, []byte("a: another-token-of-a\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		pass(tokensEvery)
		if w := ask(s, "/internal/stored", tokenA, jsonType, []byte(`{}`)); w.Code != 401 {
			t.Errorf("the old token: %d", w.Code)
		}
		if w := ask(s, "/internal/stored", "another-token-of-a", jsonType, []byte(`{"worker_id":"a","epoch":"e","seq":2,"blocks":[]}`)); w.Code != 200 {
			t.Errorf("the new token: %d %s", w.Code, w.Body)
		}
		cancel()
		wait.Wait()
	})
}

// pass lets time pass in a bubble of synctest, and what it brings about.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (s *Server) heldParts() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts
}

func (f *fakeFleet) said() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.trusted)
}

// The index answers too late: the report may count or not, which the next answer
// admits.
func TestIndexStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		s := newTestServer(t, f)
		f.hold = make(chan struct{})
		body := []byte(`{"worker_id":"a","epoch":"e","seq":1,"blocks":[]}`)
		began := time.Now()
		if w := ask(s, "/internal/stored", tokenA, jsonType, body); w.Code != 503 || time.Since(began) != applyWithin {
			t.Errorf("%d after %v", w.Code, time.Since(began))
		}
		if w := ask(s, "/internal/stored", tokenA, jsonType, body); w.Body.String() != "{\"seq\":1,\"want\":\"full\"}\n" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
