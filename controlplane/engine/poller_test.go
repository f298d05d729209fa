package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/dataplane/fleet"
)

// fakeNet answers questions without sockets, so that a synctest bubble can
// run its clock.
type fakeNet struct {
	mu     sync.Mutex
	answer func(r *http.Request) (status int, body string, after time.Duration)
	asked  map[string]int // URL → questions
	open   map[string]int // URL → questions under way
	most   map[string]int // URL → most at once
}

func newFakeNet(answer func(*http.Request) (int, string, time.Duration)) *fakeNet {
	return &fakeNet{answer: answer, asked: map[string]int{}, open: map[string]int{}, most: map[string]int{}}
}

func (f *fakeNet) RoundTrip(r *http.Request) (*http.Response, error) {
	url := r.URL.String()
	f.mu.Lock()
	f.asked[url]++
	f.open[url]++
	f.most[url] = max(f.most[url], f.open[url])
	status, body, after := f.answer(r)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.open[url]--
		f.mu.Unlock()
	}()
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-timer.C:
	}
	return &http.Response{
		StatusCode: status, Request: r, Header: http.Header{},
		Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

func (f *fakeNet) count(url string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[url]
}

func (f *fakeNet) prober() *Prober {
	p := NewProber()
	p.HTTP = &http.Client{Transport: f, CheckRedirect: noRedirects}
	return p
}

func wellAnswered(r *http.Request) (int, string, time.Duration) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/v1/models"):
		return 200, `{"data":[{"id":"m","owned_by":"vllm"}]}`, time.Millisecond
	case strings.HasSuffix(r.URL.Path, "/metrics"):
		return 200, vllmText, time.Millisecond
	}
	return 200, "", time.Millisecond
}

// advance lets the bubble's clock run by d and everything due settle.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// log gathers events.
type log struct {
	mu     sync.Mutex
	events []Event
}

func (l *log) deliver(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *log) of(kind Kind, node string) (out []Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.events {
		if e.Kind == kind && e.Node == node {
			out = append(out, e)
		}
	}
	return out
}

func (l *log) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

func TestPollerPeriods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		net, seen := newFakeNet(wellAnswered), &log{}
		p := NewPoller(net.prober(), PollerConfig{Deliver: seen.deliver})
		if err := p.Set([]Target{{Name: "a", Key: "a/1", URL: "http://a"}, {Name: "b", URL: "http://b"}}); err != nil {
			t.Fatal(err)
		}
		advance(10 * time.Minute)
		p.Stop()
		for _, node := range []string{"a", "b"} {
			if n := len(seen.of(MetricsEvent, node)); n < 570 || n > 630 {
				t.Errorf("%s: %d metrics in 600 s", node, n)
			}
			if n := len(seen.of(ModelsEvent, node)); n < 10 || n > 12 {
				t.Errorf("%s: %d model lists in 600 s", node, n)
			}
			if n := len(seen.of(HealthEvent, node)); n != 0 {
				t.Errorf("%s: %d unasked health questions", node, n)
			}
		}
		first := seen.of(ModelsEvent, "a")[0]
		if first.AtNs-began.UnixNano() > int64(10*time.Millisecond) || first.Models.Models[0].ID != "m" || first.Key != "a/1" || first.TookSeconds != 0.001 {
			t.Errorf("first models: %+v", first)
		}
		metrics := seen.of(MetricsEvent, "a")
		gaps := map[time.Duration]bool{}
		for i := 1; i < len(metrics); i++ {
			gap := time.Duration(metrics[i].AtNs - metrics[i-1].AtNs)
			if gap < 890*time.Millisecond || gap > 1126*time.Millisecond {
				t.Errorf("a gap of %v", gap)
			}
			gaps[gap] = true
		}
		if len(gaps) < 8 { // as nodes are asked in so many moments of a period
			t.Errorf("only %d different gaps: no jitter", len(gaps))
		}
		if e := metrics[0]; e.Sample.Running.Value != 2 || e.Sample.AtNs != e.AtNs {
			t.Errorf("%+v", e)
		}
		after := seen.len()
		advance(time.Minute)
		if seen.len() != after {
			t.Error("events after Stop")
		}
		p.Stop()
		if err := p.Set([]Target{{Name: "c", URL: "http://c"}}); err != nil || p.AskHealth("c", 0) {
			t.Error("a stopped poller takes nodes")
		}
	})
}

func TestPollerHealthOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, seen := newFakeNet(func(r *http.Request) (int, string, time.Duration) {
			if r.URL.Path == "/ready" {
				return 503, "dead", 3 * time.Second
			}
			return wellAnswered(r)
		}), &log{}
		p := NewPoller(net.prober(), PollerConfig{Deliver: seen.deliver})
		defer p.Stop()
		_ = p.Set([]Target{{Name: "a", URL: "http://a", HealthPath: "/ready"}})
		if p.AskHealth("b", 0) {
			t.Error("asked a node that is not there")
		}
		for range 10 { // one question, however often it is wanted
			if !p.AskHealth("a", 0) {
				t.Error("the node is there")
			}
			advance(200 * time.Millisecond)
		}
		advance(2 * time.Second)
		events := seen.of(HealthEvent, "a")
		if len(events) != 1 || net.count("http://a/ready") != 1 || events[0].Err == nil || events[0].TookSeconds != 3 {
			t.Errorf("%+v", events)
		}
		if n := len(seen.of(MetricsEvent, "a")); n < 2 {
			t.Errorf("a slow health question delayed the metrics: %d", n)
		}
		p.AskHealth("a", 0)
		advance(4 * time.Second)
		if n := len(seen.of(HealthEvent, "a")); n != 2 {
			t.Errorf("%d health events after a second question", n)
		}
		_ = p.Set([]Target{{Name: "a", URL: "http://a", HealthPath: "/ready", HealthTimeout: time.Second}})
		p.AskHealth("a", 0)
		advance(2 * time.Second)
		if events := seen.of(HealthEvent, "a"); len(events) != 3 || !errors.Is(events[2].Err, context.DeadlineExceeded) || events[2].TookSeconds != 1 {
			t.Errorf("%+v", events)
		}
	})
}

// Asking while the timer fires must neither block nor double.
func TestPollerAskModelsRace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, seen := newFakeNet(wellAnswered), &log{}
		p := NewPoller(net.prober(), PollerConfig{ModelsEvery: 10 * time.Millisecond, Rand: func() float64 { return 0.5 }, Deliver: seen.deliver})
		defer p.Stop()
		_ = p.Set([]Target{{Name: "a", URL: "http://a"}})
		for range 2000 {
			p.AskModels("a")
			advance(time.Millisecond / 2)
		}
		p.Stop()
		if net.most["http://a/v1/models"] != 1 {
			t.Errorf("%d model questions at once", net.most["http://a/v1/models"])
		}
	})
}

func TestPollerModelsRetryAndRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var up, start float64 = 0, 100
		net, seen := newFakeNet(nil), &log{}
		net.answer = func(r *http.Request) (int, string, time.Duration) {
			if up == 0 {
				return 502, "", 0
			}
			if r.URL.Path == "/metrics" {
				return 200, fmt.Sprintf("%sprocess_start_time_seconds %g\n", vllmText, start), 0
			}
			return wellAnswered(r)
		}
		set := func(to *float64, v float64) { net.mu.Lock(); *to = v; net.mu.Unlock() }
		p := NewPoller(net.prober(), PollerConfig{Deliver: seen.deliver})
		defer p.Stop()
		_ = p.Set([]Target{{Name: "a", URL: "http://a"}})
		models := func() int { return len(seen.of(ModelsEvent, "a")) }
		advance(20 * time.Second)
		if n := models(); n < 9 || n > 12 {
			t.Errorf("%d model questions in 20 s to a node that fails", n)
		}
		set(&up, 1)
		advance(5 * time.Second)
		answered := models()
		advance(20 * time.Second)
		if n := models(); n != answered {
			t.Errorf("models asked again within 60 s: %d, %d", answered, n)
		}
		set(&start, 200) // the engine came again between two questions
		advance(2 * time.Second)
		if n := models(); n != answered+1 {
			t.Errorf("%d model questions after a restart, before %d", n, answered)
		}
	})
}

func TestPollerWithoutMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := true // guarded by net.mu
		net, seen := newFakeNet(func(r *http.Request) (int, string, time.Duration) {
			switch {
			case strings.HasSuffix(r.URL.Path, "/v1/models"):
				return 200, `{"data":[{"id":"m","owned_by":"tensorrt_llm"}]}`, 0
			case r.URL.Host == "late" && strings.HasSuffix(r.URL.Path, "/metrics"):
				if late {
					return 200, "# HELP python_info x\n", 0
				}
				return 200, vllmText, 0
			case r.URL.Host == "trt" && r.URL.Path == "/prometheus/metrics":
				return 200, "trtllm_num_requests_running 1\n", 0
			}
			return 404, "", 0
		}), &log{}
		p := NewPoller(net.prober(), PollerConfig{Deliver: seen.deliver, Rand: func() float64 { return 0.5 }})
		defer p.Stop()
		_ = p.Set([]Target{{Name: "none", URL: "http://none"}, {Name: "trt", URL: "http://trt"}, {Name: "off", URL: "http://off", Engine: OpenAI}, {Name: "late", URL: "http://late", Engine: VLLM}})
		advance(5 * time.Minute)
		for _, node := range []string{"none", "off"} {
			if n := len(seen.of(MetricsEvent, node)); n < 4 || n > 6 {
				t.Errorf("%s: %d metrics questions in 300 s to an engine without metrics", node, n)
			}
		}
		if n := net.count("http://off/metrics"); n != 0 {
			t.Errorf("%d metrics questions to an engine said to have none", n)
		}
		if e := seen.of(MetricsEvent, "none"); !errors.Is(e[0].Err, ErrNoMetrics) {
			t.Errorf("404 is not ErrNoMetrics: %v", e[0].Err)
		}
		early := len(seen.of(MetricsEvent, "late"))
		if early < 50 || early > 70 {
			t.Errorf("%d metrics questions in 300 s to an engine that names none yet", early)
		}
		net.mu.Lock()
		late = false
		net.mu.Unlock()
		advance(16 * time.Second)
		if e := seen.of(MetricsEvent, "late"); len(e) < early+10 || e[len(e)-1].Err != nil {
			t.Errorf("metrics that came late were not found: %d questions more", len(e)-early)
		}
		trt := seen.of(MetricsEvent, "trt")
		if len(trt) < 250 || trt[len(trt)-1].Sample.Running.Value != 1 {
			t.Errorf("the path that the model list told was not used: %d events", len(trt))
		}
	})
}

func TestPollerSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, seen := newFakeNet(func(r *http.Request) (int, string, time.Duration) {
			if r.URL.Host == "hung" {
				return 200, "", time.Hour
			}
			return wellAnswered(r)
		}), &log{}
		p := NewPoller(net.prober(), PollerConfig{Deliver: seen.deliver})
		a, hung := Target{Name: "a", Key: "1", URL: "http://a"}, Target{Name: "h", URL: "http://hung"}
		_ = p.Set([]Target{a, hung})
		p.AskHealth("h", 0)
		advance(10 * time.Second)
		events := seen.of(HealthEvent, "h")
		if len(events) != 1 || events[0].TookSeconds != DefaultHealthTimeout.Seconds() || context.Cause(t.Context()) != nil {
			t.Errorf("a hung health route: %+v", events)
		}
		before := net.count("http://a/v1/models")
		_ = p.Set([]Target{a}) // a is unchanged and goes on
		advance(10 * time.Second)
		if n := net.count("http://a/v1/models"); n != before {
			t.Error("an unchanged node was asked anew")
		}
		left := len(seen.of(MetricsEvent, "h"))
		a.Key = "2"
		_ = p.Set([]Target{a})
		advance(10 * time.Second)
		if n := net.count("http://a/v1/models"); n != before+1 {
			t.Errorf("a changed node was asked for its models %d times", n-before)
		}
		if last := seen.of(MetricsEvent, "a"); last[len(last)-1].Key != "2" {
			t.Error("events carry the old key")
		}
		if n := len(seen.of(MetricsEvent, "h")); n != left {
			t.Error("events of a node that left the set")
		}
		if err := p.Set([]Target{a, a}); err == nil || !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("two of one name: %v", err)
		}
		p.Stop()
	})
}

// At the bound every node is asked; beyond it nothing changes.
func TestPollerBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, seen := newFakeNet(wellAnswered), &log{}
		p := NewPoller(net.prober(), PollerConfig{Deliver: seen.deliver})
		targets := make([]Target, fleet.MaxSlots+1)
		for i := range targets {
			targets[i] = Target{Name: fmt.Sprint("n", i), URL: fmt.Sprintf("http://n%d", i)}
		}
		if err := p.Set(targets); err == nil {
			t.Error("more nodes than slots")
		}
		most := fleet.MaxSlots
		if raceEnabled {
			most = 128 // three goroutines a node are more than the detector itself stands in one bubble
		}
		if err := p.Set(targets[:most]); err != nil {
			t.Error(err)
		}
		advance(1100 * time.Millisecond)
		p.Stop()
		for i := range most {
			if net.count(fmt.Sprintf("http://n%d/metrics", i)) == 0 || net.count(fmt.Sprintf("http://n%d/v1/models", i)) != 1 {
				t.Fatalf("node %d was not asked", i)
			}
		}
	})
}

// The poller on real sockets: nothing is left running after Stop.
func TestPollerSockets(t *testing.T) {
	base := fakeEngine(t, nil)
	got := make(chan Event, 64)
	p := NewPoller(NewProber(), PollerConfig{MetricsEvery: 10 * time.Millisecond, Deliver: func(e Event) {
		select {
		case got <- e:
		default:
		}
	}})
	if err := p.Set([]Target{{Name: "a", URL: base}}); err != nil {
		t.Fatal(err)
	}
	p.AskHealth("a", 0)
	seen := map[Kind]bool{}
	deadline := time.After(10 * time.Second)
	for len(seen) < 3 {
		select {
		case e := <-got:
			if e.Err != nil {
				t.Fatalf("%v: %v", e.Kind, e.Err)
			}
			seen[e.Kind] = true
		case <-deadline:
			t.Fatalf("only %v", seen)
		}
	}
	p.Stop()
}
