package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// load is steady traffic: a few clients that send one request after the other.
type load struct {
	stop    chan struct{}
	wait    sync.WaitGroup
	answers atomic.Int64
	mu      sync.Mutex
	failed  []string // at most a few
}

func startLoad(t *testing.T, r *serving, clients int) *load {
	t.Helper()
	l := &load{stop: make(chan struct{})}
	for i := range clients {
		l.wait.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				default:
				}
				more := `,"max_tokens":8`
				if n%2 == 1 {
					more += streaming
				}
				l.note(r.try(t, chatPath, chatBody(fmt.Sprintf("Client %d asks %d. %s", i, n, strings.Repeat("Go on. ", 20)), more)))
			}
		})
	}
	t.Cleanup(func() { l.end(t) })
	return l
}

func (l *load) note(a *reply) {
	l.answers.Add(1)
	if a.err == nil && a.status == http.StatusOK && a.text != "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.failed) < 5 {
		l.failed = append(l.failed, fmt.Sprintf("status %d from %q, error %v, body %.200s", a.status, a.node(), a.err, a.body))
	}
}

// more waits until the load has got n further answers.
func (l *load) more(t *testing.T, n int64) {
	t.Helper()
	from := l.answers.Load()
	eventually(t, 15*time.Second, "the load goes on", func() bool { return l.answers.Load() >= from+n })
}

// end stops the load; not one of its requests may have failed.
func (l *load) end(t *testing.T) {
	t.Helper()
	select {
	case <-l.stop:
		return
	default:
	}
	close(l.stop)
	l.wait.Wait()
	if len(l.failed) > 0 {
		t.Errorf("of %d requests under load some failed:\n%s", l.answers.Load(), strings.Join(l.failed, "\n"))
	}
}

// TestReload changes the configuration of a router under load, by signal and
// by request, for better and for worse.
func TestReload(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 3, "--time-scale", "0.1")
	nodes := nodeList(sim.urls...)
	r := serve(t, settings, nodes)
	l := startLoad(t, r, 6)
	l.more(t, 50)
	policy := func(name string) {
		t.Helper()
		eventually(t, 5*time.Second, "policy "+name+" decides", func() bool {
			out, _, _ := r.cli(t, "status", "--output", "json")
			return strings.Contains(out, `"policy":"`+name+`"`) &&
				r.record(t, r.ask(t, chatBody("Which policy?", "")).id()).Policy == name
		})
		l.more(t, 50)
	}
	rewrite(t, r.config, settings, nodes, "policy: {name: round_robin}\n")
	r.signal(t, syscall.SIGHUP)
	policy("round_robin")

	rewrite(t, r.config, settings, nodes, "policy: {name: round_robbin}\ntimeouts: {connect: never}\n")
	lines := strings.Count(settings+nodes, "\n")
	status, said := r.adminDo(t, http.MethodPost, "/api/reload", "")
	for _, want := range []string{fmt.Sprintf("%s:%d:", r.config, lines+1), "policy.name", fmt.Sprintf("%s:%d:", r.config, lines+2), "timeouts.connect"} {
		if status != http.StatusUnprocessableEntity || !strings.Contains(said, want) {
			t.Errorf("reload of a bad file: %d, %s; want 422 with %q", status, said, want)
		}
	}
	if _, errs, code := r.cli(t, "reload"); code != 1 || !strings.Contains(errs, "policy.name") {
		t.Errorf("warmpath reload of a bad file: code %d: %s", code, errs)
	}
	if v := r.metric(t, "config_reload_success"); v != 0 {
		t.Errorf("config_reload_success is %v after a failure", v)
	}
	policy("round_robin")

	rewrite(t, r.config, settings, nodeList(sim.urls[:2]...), "policy: {name: least_requests}\n")
	if out, errs, code := r.cli(t, "reload"); code != 0 || !strings.Contains(out, "needs_restart") {
		t.Errorf("warmpath reload: code %d: %s%s", code, out, errs)
	}
	policy("least_requests")
	if v := r.metric(t, "config_reload_success"); v != 1 {
		t.Errorf("config_reload_success is %v after a success", v)
	}
	eventually(t, 10*time.Second, "the node that left the file is gone", func() bool { return r.node(t, "sim-2") == nil })
	l.end(t)
	r.settled(t)
}

// TestShutdown ends a router by SIGTERM while streams run: they finish.
func TestShutdown(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 2, "--decode-base-ms", "30")
	r := serve(t, settings, nodeList(sim.urls...))
	idle := r.dial(t)
	b := startBurst(t, r, "term", 20, 40)
	eventually(t, 10*time.Second, "all streams have begun", func() bool { return b.begun.Load() >= 10 && r.inFlight(t) == 20 })
	r.signal(t, syscall.SIGTERM)
	eventually(t, 5*time.Second, "no new client is accepted", func() bool {
		_, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(r.url + "/health")
		return err != nil
	})
	b.wait.Wait()
	for i, a := range b.answers {
		if a.err != nil || a.status != http.StatusOK || a.text == "" {
			t.Errorf("request %d: status %d, error %v", i, a.status, a.err)
		}
	}
	if code := r.wait(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if !closedBy(idle) {
		t.Error("an idle client is still connected")
	}
}

// TestShutdownUnderLoad ends a router by SIGTERM while clients send one short
// request after the other over connections that they keep: each is answered
// whole, or finds nobody listening.
func TestShutdownUnderLoad(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 2, "--time-scale", "0")
	r := serve(t, settings, nodeList(sim.urls...))
	var wait sync.WaitGroup
	var answers atomic.Int64
	broken := make(chan string, 64)
	for i := range 32 {
		wait.Go(func() {
			for n := 0; ; n++ {
				a := r.try(t, chatPath, chatBody(fmt.Sprintf("Client %d asks %d.", i, n), `,"max_tokens":2`))
				switch {
				case a.err == nil && a.status == http.StatusOK:
					answers.Add(1)
				case errors.Is(a.err, syscall.ECONNREFUSED):
					return
				default:
					broken <- fmt.Sprintf("status %d, error %v", a.status, a.err)
					return
				}
			}
		})
	}
	eventually(t, 10*time.Second, "the load runs", func() bool { return answers.Load() > 500 })
	r.signal(t, syscall.SIGTERM)
	wait.Wait()
	close(broken)
	for b := range broken {
		t.Errorf("a request was broken: %s", b)
	}
	if code := r.wait(t, 10*time.Second); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestShutdownCut ends a router twice: the second signal does not wait.
func TestShutdownCut(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 1, "--decode-base-ms", "50")
	r := serve(t, settings, nodeList(sim.urls...))
	b := startBurst(t, r, "cut", 2, 2000)
	eventually(t, 10*time.Second, "the stream has begun", func() bool { return b.begun.Load() > 0 && r.inFlight(t) == 2 })
	r.signal(t, syscall.SIGTERM)
	eventually(t, 5*time.Second, "it drains", func() bool { return strings.Contains(r.err.String(), `"msg":"draining"`) })
	r.signal(t, syscall.SIGTERM)
	if code := r.wait(t, 10*time.Second); code != 1 {
		t.Errorf("exit code %d, want 1: requests were cut", code)
	}
	b.wait.Wait()
	for i, a := range b.answers {
		if a.err == nil && a.status == http.StatusOK {
			t.Errorf("request %d ended as if it were whole", i)
		}
	}
}

func (r *serving) inFlight(t *testing.T) (n int64) {
	t.Helper()
	for _, node := range r.nodes(t) {
		n += node.InFlight
	}
	return n
}

// TestNodesAtRunTime adds and removes nodes while requests run.
func TestNodesAtRunTime(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 2, "--decode-base-ms", "30")
	r := serve(t, settings, "node_urls_allowed: [127.0.0.0/8]\n", nodeList(sim.urls[0]))
	status, said := r.adminDo(t, http.MethodPost, "/api/nodes", fmt.Sprintf(`{"name":"late","url":%q}`, sim.urls[1]))
	if status != http.StatusCreated || !strings.Contains(said, `"late"`) {
		t.Fatalf("add: %d %s", status, said)
	}
	r.usable(t, "late")
	if a := r.ask(t, r.bodyFor(t, "late", `,"max_tokens":2`)); a.node() != "late" {
		t.Errorf("went to %s", a.node())
	}
	for body, want := range map[string]struct {
		status int
		says   string
	}{
		fmt.Sprintf(`{"name":"late","url":%q}`, sim.urls[1]):     {201, "late"}, // again the same: nothing to do
		`{"name":"late","url":"http://127.0.0.1:1"}`:             {409, "late"},
		fmt.Sprintf(`{"name":"twin","url":%q}`, sim.urls[1]):     {409, "late"},
		fmt.Sprintf(`{"name":"sim-0","url":%q}`, sim.urls[1]):    {409, "static"},
		`{"name":"x","url":"http://192.0.2.1:80"}`:               {400, "node_urls_allowed"},
		`{"name":"x y","url":"http://127.0.0.1:1"}`:              {400, "name"},
		`{"name":"x","url":"ftp://127.0.0.1:1"}`:                 {400, "http://"},
		`{"name":"x","url":"http://127.0.0.1:1","wieght":2}`:     {400, "wieght"},
		`{"name":"x","url":"http://127.0.0.1:1","engine":"gpt"}`: {400, "engine"},
		`{"name":`: {400, "read node"},
	} {
		if status, said := r.adminDo(t, http.MethodPost, "/api/nodes", body); status != want.status || !strings.Contains(said, want.says) {
			t.Errorf("add %s: %d %s; want %d with %q", body, status, said, want.status, want.says)
		}
	}
	removeWhileServing(t, r)
	if status, said := r.adminDo(t, http.MethodDelete, "/api/nodes/late", ""); status != http.StatusNotFound || !strings.Contains(said, "sim-0") {
		t.Errorf("remove twice: %d %s", status, said)
	}
	if a := r.ask(t, chatBody("Still there?", `,"max_tokens":2`)); a.node() != "sim-0" || r.record(t, a.id()).Reason != "only" {
		t.Errorf("went to %s: %+v", a.node(), r.record(t, a.id()))
	}
	r.settled(t)
}

// removeWhileServing removes the node late while a stream runs on it: the
// stream finishes, nothing new goes there, then it is gone.
func removeWhileServing(t *testing.T, r *serving) {
	t.Helper()
	body := r.bodyFor(t, "late", `,"max_tokens":50`+streaming)
	begun, whole := make(chan struct{}), make(chan *reply, 1)
	go func() { whole <- r.send(t.Context(), chatPath, "", body, func() { close(begun) }) }()
	select {
	case <-begun:
	case <-time.After(10 * time.Second):
		t.Fatal("no stream began")
	}
	if status, said := r.adminDo(t, http.MethodDelete, "/api/nodes/late", ""); status != http.StatusAccepted {
		t.Fatalf("remove: %d %s", status, said)
	}
	eventually(t, 5*time.Second, "the node drains", func() bool {
		n := r.node(t, "late")
		return n == nil || n.State == "draining"
	})
	if a := r.ask(t, chatBody("Meanwhile?", `,"max_tokens":2`)); a.node() != "sim-0" {
		t.Errorf("a new request went to %s", a.node())
	}
	if a := <-whole; a.err != nil || a.status != http.StatusOK || a.node() != "late" {
		t.Errorf("the stream on the node that leaves: status %d from %s, error %v", a.status, a.node(), a.err)
	}
	eventually(t, 10*time.Second, "the node is gone", func() bool { return r.node(t, "late") == nil })
}
