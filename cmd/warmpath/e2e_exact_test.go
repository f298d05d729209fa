package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"warmpath/controlplane/admin"
)

// tinyModel makes the folder of a model with a small tokenizer.
func tinyModel(t *testing.T) (dir string) {
	t.Helper()
	tiny, err := os.ReadFile("../../dataplane/tokenize/testdata/tiny.json")
	if err != nil {
		t.Fatal(err)
	}
	const template = `{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}{{ '<|im_start|>assistant\n' }}`
	config, err := json.Marshal(map[string]string{"chat_template": template})
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, text := range map[string][]byte{"tokenizer.json": tiny, "tokenizer_config.json": config} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// knowing is the configuration of a router that knows the tokenizer in a folder
// and the events of the engines.
func knowing(sim *engines, dir string) string {
	text := fmt.Sprintf("models: [{name: sim, tokenizer: %q}]\nnodes:\n", filepath.Join(dir, "tokenizer.json"))
	for i, u := range sim.urls {
		text += fmt.Sprintf("  - {name: sim-%d, url: %q, kv_events: {endpoint: %q, replay: %q}}\n", i, u, sim.events[i], sim.replay[i])
	}
	return text
}

// trusted waits until the router relies on the events of all its nodes.
func (r *serving) trusted(t *testing.T) {
	t.Helper()
	eventually(t, 10*time.Second, "all events are trusted", func() bool {
		return !slices.ContainsFunc(r.nodes(t), func(n admin.NodeView) bool { return len(n.Trust) != 1 || n.Trust[0] != "live" })
	})
}

// TestOtherTokens: engines that make other tokens than the configured tokenizer
// are found out; their prompts go by their text, and the reason is told. That
// they publish events does no harm.
func TestOtherTokens(t *testing.T) {
	t.Parallel()
	sim := startEngines(t, 2, "--time-scale", "0.1", "--kv-events-port", "-1", "--replay-port", "-1")
	dir := tinyModel(t)
	r := serve(t, settings, knowing(sim, dir))
	eventually(t, 10*time.Second, "both engines were asked", func() bool {
		log := r.err.String()
		return strings.Contains(log, `"node":"sim-0","model":"sim","classes":"plain`) && strings.Contains(log, `"node":"sim-1","model":"sim","classes":"plain`)
	})
	r.trusted(t)
	for _, n := range r.nodes(t) {
		if len(n.Exact) != 0 || n.EngineVersion == "" {
			t.Errorf("%s is exact for %q, version %q", n.Name, n.Exact, n.EngineVersion)
		}
	}
	body := chatBody(strings.Repeat("What is said twice is held once. ", 40), `,"max_tokens":4`)
	first := r.ask(t, body)
	again := r.ask(t, body)
	record := r.record(t, again.id())
	const why = "no node is proved to make the same tokens"
	if again.node() != first.node() || again.cached == 0 || record.Exactness != "text" || record.Reason != "prefix" || !strings.Contains(record.Inexact, why) {
		t.Errorf("the same again went from %s to %s, %d cached: %+v", first.node(), again.node(), again.cached, record)
	}
	file := filepath.Join(t.TempDir(), "body.json")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{again.id(), file} {
		if out, errs, code := r.cli(t, "explain", what); code != 0 || !strings.Contains(out, "exactness text") || !strings.Contains(out, why) {
			t.Errorf("explain %s: code %d: %s%s", what, code, out, errs)
		}
	}
	if wrong := r.metric(t, `prompt_length_checks_total{result="different"}`); wrong != 0 {
		t.Errorf("%v counts were compared although nothing is exact", wrong)
	}
	r.sameTokens(t, dir, file)
	r.settled(t)
}

// sameTokens asks for a prompt's tokens in every form: of the router, and of the
// model's folder alone.
func (r *serving) sameTokens(t *testing.T, dir, file string) admin.TokensView {
	t.Helper()
	var views []admin.TokensView
	for _, args := range [][]string{{"tokens", file}, {"tokens", file, "--model-dir", dir}} {
		run := r.cli
		if len(args) > 2 {
			run = func(t *testing.T, args ...string) (string, string, int) { t.Helper(); return warmpath(t, args...) }
		}
		out, errs, code := run(t, append(args, "--output", "json")...)
		if code != 0 || errs != "" {
			t.Fatalf("warmpath %q: code %d: %s", args, code, errs)
		}
		var v admin.TokensView
		parse(t, out, &v)
		views = append(views, v)
		text, errs, code := run(t, args...)
		for _, want := range []string{"exactness", v.Exactness, "class", v.Class, fmt.Sprint(len(v.IDs)), v.Text, fmt.Sprint(v.IDs)} {
			if code != 0 || !strings.Contains(text, want) {
				t.Errorf("warmpath %q does not print %q (code %d, %s)", args, want, code, errs)
			}
		}
	}
	if v := views[0]; v.Exactness != "exact" || v.Text == "" || len(v.IDs) == 0 || v.Text != views[1].Text || !slices.Equal(v.IDs, views[1].IDs) {
		t.Errorf("the router says %+v, the folder %+v", views[0], views[1])
	}
	return views[0]
}

// TestTokensRefuses: what cannot be told is said, with a code for the shell.
func TestTokensRefuses(t *testing.T) {
	t.Parallel()
	dir := tinyModel(t)
	body := filepath.Join(dir, "body.json")
	if err := os.WriteFile(body, chatBody("Hi", ""), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		code  int
		words string
	}{
		{[]string{body, "--model-dir", dir, "--engine", "tgi"}, 2, "--engine"},
		{[]string{body, "--model-dir", dir, "--path", "/v1/models"}, 2, "--path"},
		{[]string{body, "--model-dir", filepath.Join(dir, "none")}, 1, "none"},
		{[]string{"no-such-file", "--model-dir", dir}, 1, "no-such-file"},
		{[]string{filepath.Join(dir, "tokenizer_config.json"), "--model-dir", dir, "--path", "/v1/completions"}, 0, ""},
		{[]string{body, "--admin", "127.0.0.1:1"}, 1, "127.0.0.1:1"},
	} {
		out, errs, code := warmpath(t, append([]string{"tokens"}, c.args...)...)
		if code != c.code || !strings.Contains(errs, c.words) || code == 0 && !strings.Contains(out, "reason") {
			t.Errorf("tokens %q: code %d: %s%s", c.args, code, out, errs)
		}
	}
}
