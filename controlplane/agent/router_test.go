package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"warmpath/controlplane/report"
	"warmpath/controlplane/report/message"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
)

const (
	testToken = "token-of-the-test"
	testUnit  = 16
	testSeed  = 7
)

// testRouter is a router's end: the real server of reports, without a network,
// over a real index.
type testRouter struct {
	server *report.Server
	path   string // of the tokens
	writer *index.Writer
	placer *report.Placer
	nowNs  int64
	broken bool // the indexer does not answer
	lost   bool // the index takes batches but its answer is too late
}

func newTestRouter(t testing.TB) *testRouter {
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte("gpu: "+testToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &testRouter{path: path, nowNs: 1}
	r.restart(t)
	return r
}

// restart begins with nothing known.
func (r *testRouter) restart(t testing.TB) {
	tokens, err := report.OpenTokens(r.path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	r.writer = index.New(index.Options{MemoryBytes: index.MinMemoryBytes}).Writer()
	r.placer = report.NewPlacer(r.writer, func(string) (uint64, int) { return testSeed, testUnit })
	r.server = report.New(report.Options{
		Tokens: tokens, Directory: r, Index: r, NowNs: func() int64 { return r.nowNs }, Log: slog.New(slog.DiscardHandler),
		Trusted: func(string, int, report.Target, fleet.Trust) {},
	})
}

func (r *testRouter) Find(worker, _ string) (report.Target, error) {
	if worker != "gpu" {
		return report.Target{}, report.ErrUnknownWorker
	}
	return report.Target{Slot: 3, Generation: 1, Ranks: 2, Model: "m"}, nil
}

func (r *testRouter) Apply(_ context.Context, b *report.Batch) (report.Result, error) {
	if r.broken {
		return report.Result{}, errors.New("no answer")
	}
	got := r.placer.Apply(b)
	if r.lost {
		return report.Result{}, errors.New("too late")
	}
	return got, nil
}

// post is what sender.post does, without a network.
func (r *testRouter) post(m *message.Report, e Encoding) (*message.Answer, Failure, error) {
	req := httptest.NewRequest(http.MethodPost, m.Route.Path(), bytes.NewReader(e.encode(nil, m)))
	req.RemoteAddr = "127.0.0.1:1"
	req.Header.Set("Content-Type", e.contentType())
	req.Header.Set("Authorization", "Bearer "+testToken)
	w := httptest.NewRecorder()
	r.server.Handler().ServeHTTP(w, req)
	switch {
	case w.Code == http.StatusConflict:
		return nil, WrongEpoch, errors.New(w.Body.String())
	case w.Code >= 500:
		return nil, Unanswered, errors.New(w.Body.String())
	case w.Code != http.StatusOK:
		return nil, Refused, errors.New(w.Body.String())
	}
	a, err := e.answer(w.Body.Bytes())
	return a, Unanswered, err
}

// blocks is the set that the index has, of one rank's tier.
func (r *testRouter) blocks(rank int, tier index.Tier) map[uint64]bool {
	set := map[uint64]bool{}
	r.writer.Blocks(3+rank, tier, func(block uint64) bool {
		set[block] = true
		return true
	})
	return set
}
