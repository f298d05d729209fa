package main

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// reporters are two engines with event ports that the router does not know,
// agents beside them, and a router that takes their reports.
type reporters struct {
	*serving
	sim    *engines
	dir    string // of the tokens
	listen string // of the router, for reports
	agents [2]*process
	asked  int
}

func startReporters(t *testing.T) *reporters {
	t.Helper()
	r := &reporters{
		sim: startEngines(t, 2, "--time-scale", "0.02", "--kv-events-port", "-1", "--replay-port", "-1"),
		dir: t.TempDir(), listen: freeAddress(t),
	}
	tokens := ""
	for i := range r.agents {
		token := fmt.Sprintf("token-of-worker-%d", i)
		tokens += fmt.Sprintf("sim-%d: %s\n", i, token)
		r.write(t, fmt.Sprint("token-", i), token+"\n")
	}
	tiny, err := os.ReadFile("../../dataplane/tokenize/testdata/tiny.json")
	if err != nil {
		t.Fatal(err)
	}
	r.serving = serve(t, settings, nodeList(r.sim.urls...),
		fmt.Sprintf("models: [{name: sim, tokenizer: %q}]\n", r.write(t, "tokenizer.json", string(tiny))),
		fmt.Sprintf("reports: {listen: %q, tokens_file: %q}\n", r.listen, r.write(t, "tokens", tokens)))
	if !strings.Contains(r.err.String(), fmt.Sprintf(`"reports":%q`, r.listen)) {
		t.Errorf("the router does not say where it takes reports: %s", r.err.String())
	}
	for i := range r.agents {
		r.startAgent(t, i)
	}
	return r
}

// freeAddress is one of loopback that a router can have again after a restart.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (r *reporters) write(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(r.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (r *reporters) startAgent(t *testing.T, i int) {
	t.Helper()
	r.agents[i] = launch(t, "agent", exec.Command(program("warmpath"), "agent", "--router", "http://"+r.listen, "--worker-id", fmt.Sprint("sim-", i),
		"--token-file", filepath.Join(r.dir, fmt.Sprint("token-", i)), "--engine-events", r.sim.events[i], "--replay", r.sim.replay[i],
		"--interval", "20ms", "--sync", "500ms"))
}

// fill has engine i compute prompts that the router knows nothing of.
func (r *reporters) fill(t *testing.T, i, prompts int) {
	t.Helper()
	for range prompts {
		r.asked++
		body := chatBody(fmt.Sprintf("%d. Of which the router does not hear. %s", r.asked, strings.Repeat("Many words. ", 60)), `,"max_tokens":2`)
		resp, err := http.Post(r.sim.urls[i]+chatPath, "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("engine %d: %s", i, resp.Status)
		}
	}
}

func (r *reporters) units(t *testing.T, i int) int64 {
	t.Helper()
	return r.node(t, fmt.Sprint("sim-", i)).IndexUnits
}

// live waits until both nodes are trusted and have so many units.
func (r *reporters) live(t *testing.T, what string, units ...int64) {
	t.Helper()
	eventually(t, 20*time.Second, fmt.Sprintf("%s: both nodes live, with %v units", what, units), func() bool {
		for i, want := range units {
			if n := r.node(t, fmt.Sprint("sim-", i)); n == nil || fmt.Sprint(n.Trust) != "[live]" || n.IndexUnits != want {
				return false
			}
		}
		return true
	})
}

// TestAgents: what engines behind agents hold is in the router's index, and
// stays right when an agent, the router or an engine starts again.
func TestAgents(t *testing.T) {
	t.Parallel()
	r := startReporters(t)
	r.live(t, "at first", 0, 0)
	r.fill(t, 0, 1)
	eventually(t, 10*time.Second, "a prompt is reported", func() bool { return r.units(t, 0) > 0 })
	each := r.units(t, 0) // of one such prompt; all are of one length
	if each < 10 || each > 20 {
		t.Errorf("%d units of a prompt of 13 blocks or so", each)
	}
	r.fill(t, 0, 3)
	r.fill(t, 1, 2)
	r.live(t, "after five more prompts", 4*each, 2*each)

	// An agent starts again, and has missed something meanwhile.
	r.agents[0].signal(t, syscall.SIGTERM)
	if code := r.agents[0].wait(t, 10*time.Second); code != 0 {
		t.Errorf("an agent that was told to stop: code %d", code)
	}
	r.fill(t, 0, 2)
	r.startAgent(t, 0)
	r.live(t, "after the agent's restart", 6*each, 2*each)

	// The router is killed and starts again: it asks for everything.
	r.kill(t)
	r.fill(t, 1, 1)
	r.serving = launchRouter(t, r.config)
	r.live(t, "after the router's restart", 6*each, 3*each)

	// An engine starts again with an empty cache: a new epoch drops what it held.
	r.sim.fault(t, 0, `{"kind":"restart"}`)
	eventually(t, 10*time.Second, "the engine has restarted", func() bool { return r.sim.states(t)[0].Restarts == 1 })
	r.usable(t, "sim-0")
	r.fill(t, 0, 1)
	r.live(t, "after the engine's restart", each, 3*each)

	for i := range r.agents {
		if n := strings.Count(r.agents[i].err.String(), "level=ERROR"); n != 0 {
			t.Errorf("agent %d logged %d errors", i, n)
		}
	}
	r.settled(t)
}

// TestCheckReports: what is wrong with reports is said before the router
// serves, whole.
func TestCheckReports(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("sim-0: 0123456789abcdef\nsim-0 0123456789abcdeg\nsim-1: short\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	path := configure(t, settings, nodeList("http://127.0.0.1:9"), fmt.Sprintf("reports: {listen: \"127.0.0.1:0\", tokens_file: %q}\n", file))
	for _, verb := range []string{"check", "serve"} {
		out, errs, code := warmpath(t, verb, "--config", path)
		if code != 1 || out != "" {
			t.Errorf("%s: code %d, printed %q", verb, code, out)
		}
		for _, want := range []string{"reports.tokens_file", file, "line 2: there is no colon", "line 3: the token has 5 characters"} {
			if !strings.Contains(errs, want) {
				t.Errorf("%s does not say %q: %s", verb, want, errs)
			}
		}
		if strings.Contains(errs, "0123456789abcdeg") {
			t.Errorf("%s shows a token: %s", verb, errs)
		}
	}
	if err := os.WriteFile(file, []byte("sim-7: 0123456789abcdef\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := warmpath(t, "check", "--config", path); code != 0 || !strings.Contains(out, "ok, 1 nodes") || !strings.Contains(errs, `note: reports.tokens_file has a token for "sim-7"`) {
		t.Errorf("a token too many: code %d: %s%s", code, out, errs)
	}
}
