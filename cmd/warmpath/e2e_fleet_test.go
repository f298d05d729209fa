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
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"warmpath/controlplane/admin"
)

// engines is one enginesim process.
type engines struct {
	*process
	urls   []string // of the engines
	events []string // their event ports, "" without
	replay []string // the replay ports of these
	admin  string   // URL of the admin API
	tokens string   // what token ids are
}

// startEngines starts n simulated engines in one process.
func startEngines(t *testing.T, n int, args ...string) *engines {
	t.Helper()
	return startEnginesAt(t, nil, "127.0.0.1", n, args...)
}

// startEnginesAt starts them on an address, by a command line that runs others.
func startEnginesAt(t *testing.T, by []string, host string, n int, args ...string) *engines {
	t.Helper()
	line := append(slices.Clone(by), program("enginesim"), "--engines", strconv.Itoa(n), "--output", "json", "--with-parent", "--host", host, "--admin", host+":0")
	line = append(line, args...)
	e := &engines{process: launch(t, "enginesim", exec.Command(line[0], line[1:]...))}
	eventually(t, startWithin, "enginesim says where it listens", func() bool {
		if !e.running() {
			t.Fatalf("enginesim ended: %s", e.err.String())
		}
		return strings.Contains(e.out.String(), "\n")
	})
	var started struct {
		Engines []struct {
			URL    string
			Events string `json:"kv_events"`
			Replay string
		}
		Admin, Tokens string
	}
	if err := json.Unmarshal([]byte(e.out.String()), &started); err != nil {
		t.Fatalf("enginesim printed %q: %v", e.out.String(), err)
	}
	for _, a := range started.Engines {
		e.urls, e.events, e.replay = append(e.urls, a.URL), append(e.events, a.Events), append(e.replay, a.Replay)
	}
	e.admin, e.tokens = started.Admin, started.Tokens
	return e
}

// fault puts a fault of engine i into force, in JSON.
func (e *engines) fault(t *testing.T, i int, fault string) {
	t.Helper()
	e.post(t, fmt.Sprintf("/engines/%d/fault", i), fault)
}

// clear ends all faults of engine i.
func (e *engines) clear(t *testing.T, i int) {
	t.Helper()
	e.post(t, fmt.Sprintf("/engines/%d/clear", i), "")
}

func (e *engines) post(t *testing.T, path, body string) {
	t.Helper()
	resp, err := http.Post(e.admin+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if said, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		t.Fatalf("enginesim %s: %s: %s", path, resp.Status, said)
	}
}

// engineState is what an engine says of itself.
type engineState struct {
	Running  int
	Aborted  int64
	Received int64
	Restarts int
	Batches  int64 `json:"next_event_sequence"` // of events, since its last restart
}

func (e *engines) states(t *testing.T) []engineState {
	t.Helper()
	var states []engineState
	getJSON(t, e.admin+"/engines", &states)
	return states
}

// serving is a running `warmpath serve`.
type serving struct {
	*process
	config string // path of its configuration
	url    string // of the client side
	admin  string // host:port
	client *http.Client
}

// settings of a router that tests use: no second is spent on waiting for a
// probe, and the descriptors of any host suffice.
const settings = `listen: 127.0.0.1:0
limits: {connections: 1000, body_bytes: 4MiB}
health: {interval: 1s, interval_down: 200ms}
log: {format: json}
`

// nodeList is the key nodes for these URLs, named sim-0, sim-1 …
func nodeList(urls ...string) string {
	text := "nodes:\n"
	if len(urls) == 0 {
		text = "nodes: []\n"
	}
	for i, u := range urls {
		text += fmt.Sprintf("  - {name: sim-%d, url: %q}\n", i, u)
	}
	return text
}

// configure writes a configuration; later texts must not repeat keys.
func configure(t *testing.T, texts ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "warmpath.yaml")
	rewrite(t, path, texts...)
	return path
}

func rewrite(t *testing.T, path string, texts ...string) {
	t.Helper()
	text := strings.Join(texts, "")
	if !strings.Contains(text, "\nadmin:") {
		text += "admin: {listen: \"127.0.0.1:0\"}\n"
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// serve starts a router and waits until every one of its nodes is ready.
func serve(t *testing.T, texts ...string) *serving {
	t.Helper()
	return launchRouter(t, configure(t, texts...)).allReady(t)
}

// allReady waits until every node of the router is ready.
func (r *serving) allReady(t *testing.T) *serving {
	t.Helper()
	eventually(t, startWithin, "every node is ready", func() bool {
		for _, n := range r.nodes(t) {
			if n.State != "ready" || len(n.Models) == 0 {
				return false
			}
		}
		return r.status(t, "/readyz") == http.StatusOK
	})
	return r
}

// launchRouter starts a router and waits until it serves.
func launchRouter(t *testing.T, config string, args ...string) *serving {
	t.Helper()
	return launchProgram(t, program("warmpath"), config, args...)
}

// launchProgram does so with a router that was built elsewhere.
func launchProgram(t *testing.T, path, config string, args ...string) *serving {
	t.Helper()
	r := &serving{config: config}
	r.process = launch(t, "warmpath", exec.Command(path, append([]string{"serve", "--config", config}, args...)...))
	var said struct{ Msg, Clients, Admin string }
	eventually(t, startWithin, "warmpath serves", func() bool {
		if !r.running() {
			t.Fatalf("warmpath ended with code %d: %s", r.code, r.err.String())
		}
		for line := range strings.Lines(r.err.String()) {
			if json.Unmarshal([]byte(line), &said) == nil && said.Msg == "serving" {
				return true
			}
		}
		return false
	})
	r.url, r.admin = "http://"+said.Clients, said.Admin
	r.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}}
	t.Cleanup(r.client.CloseIdleConnections)
	return r
}

// getJSON reads a JSON answer of 200.
func getJSON(t *testing.T, url string, v any) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v: %s", url, resp.Status, err, body)
	}
	if err := json.Unmarshal(body, v); err != nil {
		t.Fatalf("GET %s: %v: %s", url, err, body)
	}
}

// status asks the admin side and returns the status alone.
func (r *serving) status(t *testing.T, path string) int {
	t.Helper()
	status, _ := r.adminDo(t, http.MethodGet, path, "")
	return status
}

// adminDo sends one request to the admin side.
func (r *serving) adminDo(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+r.admin+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(said)
}

func (r *serving) nodes(t *testing.T) []admin.NodeView {
	t.Helper()
	var nodes []admin.NodeView
	getJSON(t, "http://"+r.admin+"/api/nodes", &nodes)
	return nodes
}

// node returns one node, nil if the router has none of that name.
func (r *serving) node(t *testing.T, name string) *admin.NodeView {
	t.Helper()
	for _, n := range r.nodes(t) {
		if n.Name == name {
			return &n
		}
	}
	return nil
}

// usable reports whether a node takes requests for models that are known.
func usable(n *admin.NodeView) bool {
	return n != nil && n.State == "ready" && n.Breaker == "closed" && len(n.Models) > 0
}

// usable waits until a node takes requests.
func (r *serving) usable(t *testing.T, name string) {
	t.Helper()
	eventually(t, 15*time.Second, name+" is ready again", func() bool {
		return usable(r.node(t, name))
	})
}

// calm waits until a node has been usable for longer than the control plane
// takes to hear of failures, so that none of the past comes in between.
func (r *serving) calm(t *testing.T, name string) {
	t.Helper()
	const looks = 12 // 20 ms apart; failures are reported each 100 ms
	seen := 0
	eventually(t, 15*time.Second, name+" stays ready", func() bool {
		seen++
		if !usable(r.node(t, name)) {
			seen = 0
		}
		return seen >= looks
	})
}

// settled waits until no request is in flight and, once this test's idle
// connections are closed, no client is connected.
func (r *serving) settled(t *testing.T) {
	t.Helper()
	r.client.CloseIdleConnections()
	eventually(t, 10*time.Second, "in_flight and connections are zero", func() bool {
		for _, n := range r.nodes(t) {
			if n.InFlight != 0 || n.InFlightTokens != 0 || n.InFlightPrefill != 0 {
				return false
			}
		}
		return r.metric(t, `connections{side="client"}`) == 0
	})
	for _, n := range r.nodes(t) {
		if times := r.metric(t, fmt.Sprintf("in_flight_healed_total{node=%q}", n.Name)); times != 0 {
			t.Errorf("%s: counts of what is in flight were corrected %v times", n.Name, times)
		}
	}
}

// record is the decision record of a request.
func (r *serving) record(t *testing.T, id string) admin.DecisionView {
	t.Helper()
	var v admin.DecisionView
	getJSON(t, "http://"+r.admin+"/api/decisions/"+id, &v)
	return v
}

// metric returns one series by name and labels as they are printed, without
// the prefix warmpath_; 0 if it is absent.
func (r *serving) metric(t *testing.T, series string) float64 {
	t.Helper()
	_, text := r.adminDo(t, http.MethodGet, "/metrics", "")
	return metricOf(t, text, series)
}

func metricOf(t *testing.T, text, series string) float64 {
	t.Helper()
	v, _ := seriesOf(t, text, "warmpath_"+series)
	return v
}

// seriesOf finds a series in the text of /metrics, by its whole name and labels.
func seriesOf(t *testing.T, text, series string) (v float64, found bool) {
	t.Helper()
	for line := range strings.Lines(text) {
		value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" ")
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metric %s: %v", line, err)
		}
		return v, true
	}
	return 0, false
}

// cli runs a subcommand against this router.
func (r *serving) cli(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return warmpath(t, append(args, "--admin", r.admin)...)
}

// bodies numbers the bodies that tests make, so that no two share a prefix.
var bodies atomic.Int64

// bodyFor returns a chat body that no node has seen and that the router would
// send to the node now.
func (r *serving) bodyFor(t *testing.T, node string, more string) []byte {
	t.Helper()
	return r.find(t, node, chatPath, func(n int64) []byte {
		return chatBody(fmt.Sprintf("Body %d. %s", n, strings.Repeat("Words that fill blocks. ", 40)), more)
	})
}

// completionFor is bodyFor of a text completion.
func (r *serving) completionFor(t *testing.T, node string) []byte {
	t.Helper()
	return r.find(t, node, "/v1/completions", func(n int64) []byte {
		return fmt.Appendf(nil, `{"model":"sim","max_tokens":4,"prompt":"Story %d. Once upon a time"}`, n)
	})
}

// find makes bodies until the router would send one to the node. It takes its
// time: what the engine's metrics said a second ago may speak against the node.
func (r *serving) find(t *testing.T, node, path string, body func(n int64) []byte) (found []byte) {
	t.Helper()
	eventually(t, 10*time.Second, "a body goes to "+node, func() bool {
		for range 10 {
			found = body(bodies.Add(1))
			status, said := r.adminDo(t, http.MethodPost, "/api/explain?path="+path, string(found))
			var v admin.DecisionView
			if status != http.StatusOK || json.Unmarshal([]byte(said), &v) != nil {
				t.Fatalf("explain: %d %s", status, said)
			}
			if v.Node == node {
				return true
			}
		}
		return false
	})
	return found
}
