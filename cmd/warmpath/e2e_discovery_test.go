package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"warmpath/controlplane/admin"
)

// sources returns what /api/discovery shows, by source.
func (r *serving) sources(t *testing.T) map[string]admin.SourceView {
	t.Helper()
	_, text := r.adminDo(t, http.MethodGet, "/api/discovery", "")
	var list []admin.SourceView
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	views := map[string]admin.SourceView{}
	for _, v := range list {
		views[v.Source] = v
	}
	return views
}

// TestDiscoveryByFile adds, breaks, mends and removes nodes in a file under load: no
// request fails, and a file that cannot be read takes no node away.
func TestDiscoveryByFile(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 2, "--time-scale", "0.1")
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	write(nodeList(sim.urls[0]))
	r := launchRouter(t, configure(t, settings, nodeList(), fmt.Sprintf("discovery: {file: %q}\n", path)))
	ready := func(names ...string) {
		t.Helper()
		eventually(t, 10*time.Second, fmt.Sprint("ready nodes: ", names), func() bool {
			nodes := r.nodes(t)
			for i, n := range nodes {
				if len(nodes) != len(names) || n.Name != names[i] || n.State != "ready" || n.SourceOfNode != "file" {
					return false
				}
			}
			return len(nodes) == len(names)
		})
	}
	ready("sim-0")
	l := startLoad(t, r, 4)
	l.more(t, 20)
	write(nodeList(sim.urls...))
	ready("sim-0", "sim-1")
	l.more(t, 20)
	write("nodes: [{name: sim-0}]\n")
	eventually(t, 5*time.Second, "the broken file to be seen", func() bool { return !r.sources(t)["file"].OK })
	v := r.sources(t)["file"]
	if !strings.Contains(v.Error, path) || !strings.Contains(v.Error, "the node has no url") || v.Nodes != 2 || v.FailingSince == nil {
		t.Errorf("of the broken file it is said: %+v", v)
	}
	if out, _, _ := r.cli(t, "status"); !strings.Contains(out, "source file: its last 2 nodes stand") {
		t.Errorf("warmpath status does not tell of it:\n%s", out)
	}
	if r.metric(t, `discovery_ok{source="file"}`) != 0 || r.metric(t, `discovery_nodes{source="file"}`) != 2 {
		t.Error("metrics do not tell of it")
	}
	l.more(t, 20)
	ready("sim-0", "sim-1")
	write(nodeList(sim.urls[0]))
	ready("sim-0")
	l.more(t, 20)
	if v := r.sources(t)["file"]; !v.OK || v.Nodes != 1 {
		t.Errorf("of the mended file it is said: %+v", v)
	}
	l.end(t)
	r.settled(t)
}

// TestHotRestartWithDiscoveredNodes: a successor knows the nodes of a file by the
// time it takes over, and what they hold.
func TestHotRestartWithDiscoveredNodes(t *testing.T) {
	sim := startEngines(t, 3, "--decode-base-ms", "1", "--kv-events-port", "-1", "--replay-port", "-1")
	path := filepath.Join(t.TempDir(), "fleet.yaml")
	if err := os.WriteFile(path, []byte(eventNodes(sim)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := launchRouter(t, configure(t, hotSettings(t), nodeList(), "policy: {name: overlap}\n", fmt.Sprintf("discovery: {file: %q}\n", path))).allReady(t)
	eventually(t, 10*time.Second, "all nodes", func() bool { return len(r.nodes(t)) == 3 })
	r.allReady(t).trusted(t)
	fresh := &serving{url: r.url, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	talk := "A conversation. " + strings.Repeat("Answer in full sentences. ", 30)
	first := fresh.ask(t, chatBody(talk, `,"max_tokens":2`))
	next := r.again(t)
	second := fresh.ask(t, talkBody([]turn{{"user", talk}, {"assistant", first.text}, {"user", "And then?"}}, `,"max_tokens":2`))
	if record := next.record(t, second.id()); second.node() != first.node() || record.Reason != "prefix" {
		t.Errorf("the next turn went from %s to %s (%s): %+v", first.node(), second.node(), record.Reason, record.Candidates)
	}
	if strings.Contains(next.err.String(), `"level":"WARN"`) {
		t.Errorf("the successor complains: %s", tail(next.err.String()))
	}
	if err := os.WriteFile(path, []byte("nodes: [{name: x}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the broken file to be seen", func() bool { return !next.sources(t)["file"].OK })
	last := next.again(t) // which cannot read it at all
	third := fresh.ask(t, talkBody([]turn{{"user", talk}, {"assistant", first.text}, {"user", "And then?"}}, `,"max_tokens":2`))
	if third.node() != first.node() || len(last.nodes(t)) != 3 {
		t.Errorf("with a file that is broken the turn goes to %s, of %d nodes", third.node(), len(last.nodes(t)))
	}
	if v := last.sources(t)["file"]; v.OK || v.Nodes != 3 || v.Seen != nil {
		t.Errorf("of the broken file it is said: %+v", v)
	}
}

// TestNodesRegister: agents register their engines, one is stopped and takes its
// node away, one is killed and its lease ends, and comes back; no request fails.
func TestNodesRegister(t *testing.T) {
	t.Parallel()
	const token = "register-me-please-1"
	sim := startEngines(t, 2, "--time-scale", "0.1")
	r := launchRouter(t, configure(t, hotSettings(t), nodeList(), "discovery: {register: {enabled: true, lease: 1s, token: "+token+"}}\n"))
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	agent := func(i int) *process {
		return launch(t, fmt.Sprint("agent ", i), exec.Command(program("warmpath"), "agent", "--register", "http://"+r.admin, "--register-token-file", tokenFile,
			"--worker-id", fmt.Sprint("gpu-", i), "--node-url", sim.urls[i], "--node-options", `{"island":"here"}`))
	}
	names := func(want ...string) {
		t.Helper()
		eventually(t, 10*time.Second, fmt.Sprint("registered nodes: ", want), func() bool {
			var names []string
			for _, n := range r.nodes(t) {
				if n.State == "ready" && n.SourceOfNode == "register" && n.Island == "here" {
					names = append(names, n.Name)
				}
			}
			return slices.Equal(names, want)
		})
	}
	a, b := agent(0), agent(1)
	names("gpu-0", "gpu-1")
	l := startLoad(t, r, 4)
	l.more(t, 50)
	a.signal(t, syscall.SIGTERM)
	if code := a.wait(t, 10*time.Second); code != 0 {
		t.Errorf("the agent ended with code %d", code)
	}
	names("gpu-1")
	l.more(t, 20)
	c := agent(0)
	names("gpu-0", "gpu-1")
	b.signal(t, syscall.SIGKILL)
	_ = b.wait(t, 10*time.Second)
	names("gpu-0")
	l.more(t, 20)
	_ = agent(1)
	names("gpu-0", "gpu-1")
	l.more(t, 20)
	if !strings.Contains(c.err.String(), "registered") {
		t.Errorf("the agent says nothing of it: %s", c.err.String())
	}
	next := r.again(t) // a successor has the leases too
	names("gpu-0", "gpu-1")
	if out, _, _ := next.cli(t, "nodes"); !strings.Contains(out, "gpu-0") {
		t.Errorf("the successor knows: %s", out)
	}
	l.end(t)
}

// TestTheRegisterTokenOpensNothingElse asks for all else with it.
func TestTheRegisterTokenOpensNothingElse(t *testing.T) {
	t.Parallel()
	const token, admin = "register-me-please-1", "open-everything-please-1"
	sim := startEngines(t, 1, "--time-scale", "0.1")
	r := launchRouter(t, configure(t, settings, nodeList(sim.urls...), "admin: {listen: \"127.0.0.1:0\", token: "+admin+"}\ndiscovery: {register: {enabled: true, token: "+token+"}}\n"))
	do := func(method, path, bearer, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequest(method, "http://"+r.admin+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+bearer)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	const node = `{"name":"new","url":"http://127.0.0.1:9"}`
	for _, c := range []struct {
		method, path, bearer, body string
		status                     int
		says                       string
	}{
		{"GET", "/api/nodes", token, "", 403, "discovery.register.token opens"},
		{"GET", "/metrics", token, "", 403, "discovery.register.token opens"},
		{"POST", "/api/reload", token, "", 403, "discovery.register.token opens"},
		{"POST", "/api/nodes/sim-0/drain", token, "", 403, "discovery.register.token opens"},
		{"POST", "/api/nodes", "another", node, 401, "admin.token"},
		{"POST", "/api/nodes", token, `{"name":"sim-0","url":"http://127.0.0.1:9"}`, 409, `comes from source \"static\"`},
		{"POST", "/api/nodes", token, `{"name":"x","url":"` + sim.urls[0] + `"}`, 409, `comes from source \"static\"`},
		{"POST", "/api/nodes", token, `{"name":"x"}`, 400, "url"},
		{"DELETE", "/api/nodes/sim-0", token, "", 404, "has a lease"},
		{"POST", "/api/nodes", token, node, 201, `"lease_seconds":30`},
		{"POST", "/api/nodes", admin, node, 409, `comes from source \"register\"`},
		{"DELETE", "/api/nodes/new", token, "", 202, ""},
	} {
		if status, text := do(c.method, c.path, c.bearer, c.body); status != c.status || !strings.Contains(text, c.says) {
			t.Errorf("%s %s %s: %d %s; want %d and %q", c.method, c.path, c.body, status, text, c.status, c.says)
		}
	}
}
