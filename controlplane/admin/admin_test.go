package admin_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"warmpath/controlplane/admin"
	ct "warmpath/controlplane/controltest"
)

// surface is an admin side before a router.
type surface struct {
	*ct.Router
	t     *testing.T
	base  string
	token string
}

func serve(t *testing.T, token, text string) *surface {
	t.Helper()
	r := ct.Start(t, text)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := admin.Serve(l, admin.Options{
		Control: r.Control, Dataplane: r.Data, Fleet: r.Fleet, Index: r.Index, Token: token, Version: "v<1>", Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() { s.Stop(t.Context()) }) // t.Context is done by then: it cuts what is open
	return &surface{Router: r, t: t, base: "http://" + l.Addr().String(), token: token}
}

// call sends one request and returns status and body.
func (s *surface) call(method, path, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// get reads JSON of exactly the shape of v.
func (s *surface) get(path string, v any) {
	s.t.Helper()
	status, body := s.call(http.MethodGet, path, "")
	s.decode(path, status, http.StatusOK, body, v)
}

func (s *surface) decode(path string, status, want int, body string, v any) {
	s.t.Helper()
	d := json.NewDecoder(strings.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil || status != want {
		s.t.Fatalf("%s: %d %s: %v", path, status, body, err)
	}
}

// refused wants an error of the shape that clients get too.
func (s *surface) refused(method, path, body string, status int, code, words string) {
	s.t.Helper()
	got, text := s.call(method, path, body)
	var e struct {
		Error struct {
			Message, Type, Code string
			Param               *string
		}
	}
	s.decode(path, got, status, text, &e)
	if e.Error.Code != code || e.Error.Type == "" || !strings.Contains(e.Error.Message, words) {
		s.t.Errorf("%s %s: %s", method, path, text)
	}
}

func TestReadiness(t *testing.T) {
	e := ct.StartEngine(t, "m")
	s := serve(t, "", "node_urls_allowed: [127.0.0.1]\nnodes: []\n")
	s.refused("GET", "/readyz", "", 503, "not_ready", "no node")
	if status, body := s.call("GET", "/healthz", ""); status != 200 || body != "ok\n" {
		t.Errorf("healthz: %d %q", status, body)
	}
	if status, body := s.call("POST", "/api/nodes", fmt.Sprintf(`{"name":"a","url":%q}`, e.URL())); status != 201 || body != fmt.Sprintf(`{"name":"a","url":%q,"weight":1}`+"\n", e.URL()) {
		t.Errorf("add: %d %s", status, body)
	}
	s.WaitState(t, "a", "ready")
	if status, body := s.call("GET", "/readyz", ""); status != 200 || body != "ready\n" {
		t.Errorf("readyz: %d %q", status, body)
	}
}

func TestToken(t *testing.T) {
	s := serve(t, "s3cret", "nodes: []\n")
	if status, _ := s.call("GET", "/api/nodes", ""); status != 200 {
		t.Errorf("with the token: %d", status)
	}
	for _, wrong := range []string{"", "s3cre", "s3cret2"} {
		s.token = wrong
		for _, path := range []string{"/", "/metrics", "/readyz", "/api/nodes", "/debug/pprof/", "/nowhere"} {
			s.refused("GET", path, "", 401, "unauthorized", "admin.token")
		}
		if status, _ := s.call("GET", "/healthz", ""); status != 200 {
			t.Errorf("healthz: %d", status)
		}
	}
}

func TestNodes(t *testing.T) {
	a, b := ct.StartEngine(t, "m"), ct.StartEngine(t, "n")
	s := serve(t, "", fmt.Sprintf("node_urls_allowed: [127.0.0.1]\nnodes: [{name: a, url: %q, island: i, region: r, weight: 2, max_in_flight: 9}]\n", a.URL()))
	s.WaitServed(t, "a", "m")
	ct.Eventually(t, "its metrics are read", func() bool { return s.Node("a").KVUse.Known })
	var nodes []admin.NodeView
	s.get("/api/nodes", &nodes)
	if len(nodes) != 1 {
		t.Fatalf("%+v", nodes)
	}
	n := nodes[0]
	if n.Name != "a" || n.URL != a.URL() || n.State != "ready" || n.Breaker != "closed" || n.Engine != "vllm" || !slices.Equal(n.Models, []string{"m"}) ||
		n.Island != "i" || n.Region != "r" || n.CapacityClass != 2 || n.Weight != 1 || n.MaxInFlight != 9 || n.MaxModelLen != 4096 || n.CacheTokens != 16000 ||
		n.KVUse == nil || *n.KVUse != 0.25 || n.Queued == nil || *n.Queued != 0 || n.PrefillRate != nil || n.SourceOfNode != "static" {
		t.Errorf("%+v", n)
	}
	if _, raw := s.call("GET", "/api/nodes", ""); !strings.Contains(raw, `"prefill_tokens_per_second":null`) || !strings.Contains(raw, `"in_flight":0`) {
		t.Errorf("unknown is not null, or zero is missing: %s", raw)
	}

	s.refused("POST", "/api/nodes", `{"name":"b"`, 400, "bad_node", "send {")
	s.refused("POST", "/api/nodes", `{"name":"b","url":"http://127.0.0.1:1","colour":1}`, 400, "bad_node", "colour")
	s.refused("POST", "/api/nodes", `{"name":"b","url":"http://127.0.0.1:1"} {}`, 400, "bad_node", "more than one")
	s.refused("POST", "/api/nodes", `{"name":"b b","url":"http://127.0.0.1:1"}`, 400, "bad_node", "letters, digits")
	s.refused("POST", "/api/nodes", `{"name":"b","url":"http://10.0.0.1:1"}`, 400, "bad_node", "node_urls_allowed")
	s.refused("POST", "/api/nodes", `{"name":"b","url":"http://127.0.0.1:1","engine":"vlm"}`, 400, "bad_node", "vllm")
	s.refused("POST", "/api/nodes", `{"name":"a","url":"http://127.0.0.1:1"}`, 409, "exists", "static")
	s.refused("POST", "/api/nodes", fmt.Sprintf(`{"name":"b","url":"%s/"}`, a.URL()), 409, "exists", "static")
	s.refused("POST", "/api/nodes", strings.Repeat(" ", 1<<20+1), 413, "body_too_large", "bytes")
	add := fmt.Sprintf(`{"name":"b","url":%q}`, b.URL())
	for range 2 { // the same again is no error
		if status, body := s.call("POST", "/api/nodes", add); status != 201 {
			t.Errorf("add: %d %s", status, body)
		}
	}
	s.refused("POST", "/api/nodes", fmt.Sprintf(`{"name":"b","url":%q,"weight":3}`, b.URL()), 409, "exists", "remove it first")
	s.WaitServed(t, "b", "n")

	for _, verb := range []struct{ path, state string }{{"drain", "draining"}, {"undrain", "ready"}} {
		if status, _ := s.call("POST", "/api/nodes/b/"+verb.path, ""); status != 202 {
			t.Errorf("%s: %d", verb.path, status)
		}
		s.WaitState(t, "b", verb.state)
	}
	s.refused("POST", "/api/nodes/c/drain", "", 404, "unknown_node", "a, b")
	s.refused("POST", "/api/nodes/c/undrain", "", 404, "unknown_node", "a, b")
	s.refused("DELETE", "/api/nodes/c", "", 404, "unknown_node", "a, b")

	for _, path := range []string{"/api/nodes/b", "/api/nodes/a?force=true"} {
		if status, _ := s.call("DELETE", path, ""); status != 202 {
			t.Errorf("%s: %d", path, status)
		}
	}
	s.WaitState(t, "a", "")
	s.WaitState(t, "b", "")
	s.refused("GET", "/api/nodes/c", "", 404, "unknown_node", "GET /api/nodes")
	var was admin.OneNodeView
	s.get("/api/nodes/b", &was)
	var steps []string
	for i, e := range was.Events {
		if steps = append(steps, e.To); e.Reason == "" || time.Since(e.At) > time.Minute || i > 0 && e.At.Before(was.Events[i-1].At) {
			t.Errorf("an event of a node that is gone: %+v", e)
		}
	}
	if got := strings.Join(steps, " · "); was.Node != nil || got != "joining · ready · draining · draining no longer · draining · gone" {
		t.Errorf("of a node that is gone: %+v, %s", was.Node, got)
	}
	// A node of the configuration that was removed can be added by hand.
	if status, body := s.call("POST", "/api/nodes", fmt.Sprintf(`{"name":"a","url":%q}`, a.URL())); status != 201 {
		t.Errorf("add: %d %s", status, body)
	}
	s.WaitState(t, "a", "ready")
	s.get("/api/nodes", &nodes)
	if len(nodes) != 1 || nodes[0].SourceOfNode != "api" || nodes[0].Down != "" {
		t.Errorf("%+v", nodes)
	}
	a.Sick.Store(true)
	s.WaitState(t, "a", "down")
	if s.get("/api/nodes", &nodes); nodes[0].Down != "unhealthy" {
		t.Errorf("a node whose health route answers 503 is down for being %q", nodes[0].Down)
	}
}

func TestDecisions(t *testing.T) {
	a, b := ct.StartEngine(t, "m"), ct.StartEngine(t, "m")
	s := serve(t, "", fmt.Sprintf("nodes: [{name: a, url: %q}, {name: b, url: %q}]\n", a.URL(), b.URL()))
	var list []admin.DecisionView
	if s.get("/api/decisions", &list); len(list) != 0 {
		t.Errorf("%+v", list)
	}
	s.WaitServed(t, "a", "m")
	s.WaitServed(t, "b", "m")
	body := ct.Chat("m", 8000)
	_, node := s.Ask(t, body, "first")
	ct.Eventually(t, "the prompt is in the index", func() bool { return s.Index.SlotUnits(s.Node(node).Slot) > 0 })
	if _, again := s.Ask(t, body, "second"); again != node {
		t.Errorf("first %s, then %s", node, again)
	}
	var d admin.DecisionView
	s.get("/api/decisions/second", &d)
	if d.RequestID != "second" || d.Model != "m" || d.Node != node || d.Reason != "prefix" || d.FirstReason != "prefix" || d.Policy != "cost" || d.Exactness != "text" ||
		d.PromptTokens < 1500 || d.OutputTokens == nil || *d.OutputTokens != 16 || d.AffinityKey == "" || len(d.Candidates) != 2 || d.Considered != 2 ||
		d.Candidates[0].Node != node || d.Candidates[0].MatchedTokens < 1500 || d.Candidates[0].Score > d.Candidates[1].Score ||
		len(d.Tries) != 1 || d.Tries[0].Node != node || !strings.Contains(d.Why, node+" holds about") {
		t.Errorf("%+v", d)
	}
	ct.Eventually(t, "the outcome is recorded", func() bool { s.get("/api/decisions/second", &d); return d.Outcome != nil })
	if o := d.Outcome; o.Status != 200 || o.Outcome == "" || o.CachedTokens == nil || *o.CachedTokens != 64 || o.PromptTokens == nil || *o.PromptTokens != 100 || o.DurationSeconds <= 0 {
		t.Errorf("%+v", o)
	}
	if s.get("/api/decisions", &list); len(list) != 2 || list[0].RequestID != "second" {
		t.Errorf("%+v", list)
	}
	if s.get("/api/decisions?n=1", &list); len(list) != 1 {
		t.Errorf("%+v", list)
	}
	for _, n := range []string{"0", "-1", "x", "10001"} {
		s.refused("GET", "/api/decisions?n="+n, "", 400, "bad_n", n)
	}
	s.refused("GET", "/api/decisions/never", "", 404, "unknown_request", "never")

	// The holder drains: the other one answers, and the decision says both.
	if status, _ := s.call("POST", "/api/nodes/"+node+"/drain", ""); status != 202 {
		t.Error(status)
	}
	s.WaitState(t, node, "draining")
	s.Ask(t, body, "third")
	s.get("/api/decisions/third", &d)
	if d.Node == node || len(d.PassedOver) != 1 || d.PassedOver[0].Node != node || d.PassedOver[0].Why != "draining" || !strings.Contains(d.Why, "is out: draining") {
		t.Errorf("%+v", d)
	}
}

func TestExplain(t *testing.T) {
	e := ct.StartEngine(t, "m")
	s := serve(t, "", fmt.Sprintf("nodes: [{name: a, url: %q}]\n", e.URL()))
	s.WaitServed(t, "a", "m")
	var d admin.DecisionView
	explain := func(path, body string) {
		t.Helper()
		status, text := s.call("POST", path, body)
		s.decode(path, status, 200, text, &d)
	}
	explain("/api/explain", string(ct.Chat("m", 100)))
	if d.Node != "a" || d.Reason != "only" && d.Reason != "load" && d.Reason != "affinity" || d.Policy != "cost" || d.PromptTokens == 0 || len(d.Candidates) != 1 || d.Outcome != nil || len(d.Tries) != 0 {
		t.Errorf("%+v", d)
	}
	explain("/api/explain?path=/v1/completions", `{"model":"m","prompt":"hello there"}`)
	if d.Node != "a" {
		t.Errorf("%+v", d)
	}
	if e.Prompts.Load() != 0 {
		t.Error("a request was sent")
	}
	s.refused("POST", "/api/explain", `{"model":"no","messages":[]}`, 404, "model_not_found", "no")
	s.refused("POST", "/api/explain", `{"model":"m","messages":`, 400, "invalid_json", "")
	s.refused("POST", "/api/explain?path=/v1/models", `{}`, 405, "method_not_allowed", "GET")
	s.refused("POST", "/api/explain?path=/nowhere", `{}`, 404, "not_found", "")
	s.refused("POST", "/api/explain?path=no+path", `{}`, 400, "cannot_explain", "")
	e.Sick.Store(true)
	s.WaitState(t, "a", "down")
	s.refused("POST", "/api/explain", string(ct.Chat("m", 100)), 503, "no_node_available", "")
}

func TestIndexAndStatus(t *testing.T) {
	e := ct.StartEngine(t, "m")
	s := serve(t, "", fmt.Sprintf("nodes: [{name: a, url: %q}, {name: gone, url: \"http://127.0.0.1:1\"}]\n", e.URL()))
	s.WaitServed(t, "a", "m")
	s.WaitState(t, "gone", "warming")
	s.Ask(t, ct.Chat("m", 8000), "one")
	var v admin.IndexView
	ct.Eventually(t, "the prompt is in the index", func() bool { s.get("/api/index", &v); return v.Units > 0 })
	if v.HolderUnits != v.Units || v.Nodes["a"] != v.Units || v.Nodes["gone"] != 0 || len(v.Nodes) != 2 || v.Bytes <= 0 || v.MemoryBytes != 16<<20 || v.Capacity <= 0 || v.Learned != 1 {
		t.Errorf("%+v", v)
	}
	_, raw := s.call("GET", "/api/index", "")
	var keys map[string]any
	if err := json.Unmarshal([]byte(raw), &keys); err != nil || len(keys) != 14 {
		t.Errorf("%d keys: %s", len(keys), raw)
	}
	for key := range keys {
		if key != strings.ToLower(key) {
			t.Errorf("key %q", key)
		}
	}
	var st admin.StatusView
	ct.Eventually(t, "the request is counted", func() bool { s.get("/api/status", &st); return st.Requests == 1 })
	if st.Version != "v<1>" || st.Listen != s.Data.Addr().String() || st.Policy != "cost" || st.Nodes != 2 || st.NodesReady != 1 || len(st.Unwell) != 1 ||
		!strings.HasPrefix(st.Unwell[0], "gone: warming, ") || !slices.Equal(st.Models, []string{"m"}) || st.ServerErrors != 0 || st.Retries != 0 ||
		st.IndexUnits != v.Units || st.IndexLimitBytes != 16<<20 || !st.ReloadOK {
		t.Errorf("%+v", st)
	}
	e.Status.Store(500)
	s.Ask(t, ct.Chat("m", 80), "bad")
	ct.Eventually(t, "the failure is counted", func() bool { s.get("/api/status", &st); return st.ServerErrors == 1 })
}

func TestReload(t *testing.T) {
	s := serve(t, "", "nodes: []\n")
	var v struct {
		NeedsRestart []string `json:"needs_restart"`
	}
	reload := func() {
		t.Helper()
		status, body := s.call("POST", "/api/reload", "")
		s.decode("/api/reload", status, 200, body, &v)
	}
	if reload(); v.NeedsRestart == nil || len(v.NeedsRestart) != 0 {
		t.Errorf("%q", v.NeedsRestart)
	}
	s.Rewrite("nodes: []\nlisten: 127.0.0.1:1\n")
	if reload(); !slices.Equal(v.NeedsRestart, []string{"listen"}) {
		t.Errorf("%q", v.NeedsRestart)
	}
	s.Rewrite("nodes: nowhere\n")
	s.refused("POST", "/api/reload", "", 422, "bad_configuration", "nodes")
	if text := s.metrics()["warmpath_config_reload_success"]; text.GetMetric()[0].GetGauge().GetValue() != 0 {
		t.Error("the metric says that the reload succeeded")
	}
}

// A page elsewhere in the operator's browser can change nothing.
func TestCrossOrigin(t *testing.T) {
	s := serve(t, "", "nodes: []\n")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+"/api/reload", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "http://elsewhere.example")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("status %d", resp.StatusCode)
	}
}

func TestRoutes(t *testing.T) {
	s := serve(t, "", "nodes: []\n")
	for _, path := range []string{"/nowhere", "/api/", "/api/reload"} {
		s.refused("GET", path, "", 404, "not_found", path)
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=1"} {
		if status, body := s.call("GET", path, ""); status != 200 || body == "" {
			t.Errorf("%s: %d", path, status)
		}
	}
}

// The page shows nodes and decisions, and what they call themselves as text.
func TestPage(t *testing.T) {
	e := ct.StartEngine(t, "<script>alert('m')</script>")
	s := serve(t, "", fmt.Sprintf("nodes: [{name: gpu-a, url: %q}]\n", e.URL()))
	s.WaitServed(t, "gpu-a", e.Model)
	s.Ask(t, ct.Chat(e.Model, 8000), "shown-here")
	ct.Eventually(t, "its outcome is shown", func() bool {
		status, body := s.call("GET", "/", "")
		return status == 200 && strings.Contains(body, "shown-here") && strings.Contains(body, "<td>200</td>")
	})
	_, body := s.call("GET", "/", "")
	for _, want := range []string{"gpu-a", "&lt;script&gt;", "v&lt;1&gt;", "policy <code>cost</code>", `class="ready"`, s.Data.Addr().String()} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(body, "<script") {
		t.Error("the page has a script")
	}
	if empty := serve(t, "", "nodes: []\n"); true {
		if status, body := empty.call("GET", "/", ""); status != 200 || !strings.Contains(body, "No nodes.") || !strings.Contains(body, "None yet.") {
			t.Errorf("%d %s", status, body)
		}
	}
}

// Without a token a page whose name was made to resolve to loopback must not get
// in: it names itself in Host.
func TestForeignHost(t *testing.T) {
	open, closed := serve(t, "", "nodes: []\n"), serve(t, "secret", "nodes: []\n")
	for _, c := range []struct {
		s      *surface
		host   string
		status int
	}{
		{open, "127.0.0.1:8081", 200},
		{open, "[::1]:8081", 200},
		{open, "localhost", 200},
		{open, "evil.example:8081", 403},
		{open, "10.0.0.1:8081", 403},
		{closed, "router.example:8081", 200},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", c.s.base+"/api/nodes", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		req.Header.Set("Authorization", "Bearer "+c.s.token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.status {
			t.Errorf("Host %q: %d, want %d", c.host, resp.StatusCode, c.status)
		}
	}
}
