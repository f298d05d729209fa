package main

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"warmpath/controlplane/admin"
)

func TestCheckSaysAll(t *testing.T) {
	t.Parallel()
	good := configure(t, settings, nodeList("http://127.0.0.1:9"))
	if out, errs, code := warmpath(t, "check", "--config", good); code != 0 || !strings.Contains(out, "ok, 1 nodes, policy cost") {
		t.Errorf("a good file: code %d: %s%s", code, out, errs)
	}
	bad := configure(t, `listen: nowhere
timeouts: {conect: 1s, head: 3}
policy: {name: costs}
nodes:
  - {name: a, url: "ftp://127.0.0.1"}
  - {name: a, url: "http://127.0.0.1:9"}
`)
	out, errs, code := warmpath(t, "check", "--config", bad)
	if code != 1 || out != "" {
		t.Errorf("a bad file: code %d, printed %q", code, out)
	}
	for _, want := range []string{
		bad + ":1:", "listen = ", bad + ":2:", "timeouts.conect", "did you mean", "timeouts.head", bad + ":3:", "policy.name", "cost",
		bad + ":5:", "nodes[0].url", bad + ":6:", "nodes[1].name",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("check does not say %q: %s", want, errs)
		}
	}
	if out, errs, code := warmpath(t, "check", "--config", good, "--timeouts.connect", "soon"); code != 1 || !strings.Contains(errs, "timeouts.connect") {
		t.Errorf("a bad flag: code %d: %s%s", code, out, errs)
	}
	missing := filepath.Join(t.TempDir(), "none.yaml")
	if _, errs, code := warmpath(t, "check", "--config", missing); code != 1 || !strings.Contains(errs, missing) {
		t.Errorf("no file: code %d: %s", code, errs)
	}
}

func TestWrongUsage(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--no-such-flag"},
		{"no-such-command"},
		{"serve"},
		{"serve", "--config"},
		{"check", "--config", "a.yaml", "extra"},
		{"drain"},
		{"explain"},
		{"nodes", "--output", "xml"},
		{"demo", "--nodes", "0"},
	} {
		if out, errs, code := warmpath(t, args...); code != 2 || !strings.HasPrefix(errs, "warmpath: ") || out != "" {
			t.Errorf("warmpath %s: code %d, printed %q and %q; want 2", strings.Join(args, " "), code, out, errs)
		}
	}
	if out, _, code := warmpath(t, "version"); code != 0 || !strings.HasPrefix(out, "warmpath "+testVersion+" go") {
		t.Errorf("version: code %d: %s", code, out)
	}
	if out, _, code := warmpath(t, "help"); code != 0 || !strings.Contains(out, "serve") || !strings.Contains(out, "demo") {
		t.Errorf("help: code %d: %s", code, out)
	}
	if _, errs, code := warmpath(t, "nodes", "--admin", "127.0.0.1:1"); code != 1 || !strings.Contains(errs, "127.0.0.1:1") || !strings.Contains(errs, "--admin") {
		t.Errorf("no router: code %d: %s", code, errs)
	}
}

// TestReadingCommands asks a running router in both forms.
func TestReadingCommands(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 2, "--time-scale", "0.1")
	r := serve(t, settings, nodeList(sim.urls...))
	body := chatBody(strings.Repeat("Explain me this. ", 40), `,"max_tokens":4`)
	a := r.ask(t, body)
	ok := func(args ...string) string {
		t.Helper()
		out, errs, code := r.cli(t, args...)
		if code != 0 || errs != "" {
			t.Fatalf("warmpath %s: code %d: %s", strings.Join(args, " "), code, errs)
		}
		return out
	}
	says := func(text string, words ...string) {
		t.Helper()
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%q is not in:\n%s", w, text)
			}
		}
	}
	says(ok("nodes"), "NODE", "sim-0", "sim-1", "ready", "closed", sim.urls[0])
	var nodes []admin.NodeView
	parse(t, ok("nodes", "--output", "json"), &nodes)
	if len(nodes) != 2 || nodes[0].Name != "sim-0" || nodes[0].State != "ready" {
		t.Errorf("nodes: %+v", nodes)
	}
	says(ok("status"), r.url, "cost", "2 of 2 ready", "sim", testVersion)
	var status admin.StatusView
	parse(t, ok("status", "--output", "json"), &status)
	if status.NodesReady != 2 || status.Requests == 0 || !status.ReloadOK || status.Version != testVersion {
		t.Errorf("status: %+v", status)
	}
	says(ok("explain", a.id()), a.node(), "policy", "CANDIDATE", "200 ok")
	var past, coming admin.DecisionView
	parse(t, ok("explain", a.id(), "--output", "json"), &past)
	file := filepath.Join(t.TempDir(), "body.json")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	parse(t, ok("explain", file, "--output", "json"), &coming)
	if past.RequestID != a.id() || past.Outcome == nil || coming.Node != a.node() || coming.Reason != "prefix" || coming.Outcome != nil {
		t.Errorf("past %+v\ncoming %+v", past, coming)
	}
	if out, errs, code := command(t, string(body), program("warmpath"), "explain", "-", "--admin", r.admin); code != 0 || !strings.Contains(out, a.node()) {
		t.Errorf("explain from standard input: code %d: %s%s", code, out, errs)
	}
	for _, args := range [][]string{{"explain", "no-such-request"}, {"drain", "no-such-node"}, {"undrain", "no-such-node"}} {
		if _, errs, code := r.cli(t, args...); code != 1 || !strings.Contains(errs, args[1]) {
			t.Errorf("warmpath %s: code %d: %s", strings.Join(args, " "), code, errs)
		}
	}
	r.settled(t)
}

func parse(t *testing.T, text string, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), v); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// TestAdminToken wants a token beyond loopback, and asks for it everywhere but
// at the health of the process.
func TestAdminToken(t *testing.T) {
	t.Parallel()
	open := configure(t, settings, nodeList(), "admin: {listen: \"0.0.0.0:0\"}\n")
	for _, verb := range []string{"check", "serve"} {
		if _, errs, code := warmpath(t, verb, "--config", open); code != 1 || !strings.Contains(errs, "admin.token") || !strings.Contains(errs, "admin.listen") {
			t.Errorf("%s of an admin side without token: code %d: %s", verb, code, errs)
		}
	}
	closed := configure(t, settings, nodeList(), "admin: {listen: \"127.0.0.1:0\", token: s3cret}\n")
	r := launchRouter(t, closed)
	for path, want := range map[string]int{
		"/healthz": 200, "/metrics": 401, "/readyz": 401, "/": 401, "/api/nodes": 401, "/api/status": 401, "/debug/pprof/": 401, "/no-such": 401,
	} {
		if got := r.status(t, path); got != want {
			t.Errorf("GET %s without a token: %d, want %d", path, got, want)
		}
	}
	for token, want := range map[string]int{"s3cret": http.StatusOK, "s3cre": 401, "s3cret2": 401, "": 401} {
		req, err := http.NewRequest(http.MethodGet, "http://"+r.admin+"/api/nodes", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("token %q: %d, want %d", token, resp.StatusCode, want)
		}
	}
	if _, errs, code := r.cli(t, "nodes"); code != 1 || !strings.Contains(errs, "admin.token") {
		t.Errorf("nodes without a token: code %d: %s", code, errs)
	}
	if _, errs, code := r.cli(t, "nodes", "--token", "s3cret"); code != 0 {
		t.Errorf("nodes with the token: code %d: %s", code, errs)
	}
}
