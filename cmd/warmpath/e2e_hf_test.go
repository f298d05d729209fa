//go:build hf && cgo

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"warmpath/controlplane/admin"
)

// The simulated engines of these tests render with Python's jinja2 and tokenize
// with the library of Hugging Face: they have no code in common with the router.
func init() { simTag = "hf" }

// everyClass is how many classes of requests the router can prove.
const everyClass = 8

// real is a router before engines with a real model.
type real struct {
	*serving
	sim     *engines
	dir     string           // of the model
	batches map[string]int64 // of events that the router had of an engine when that restarted
}

// startReal starts a router before two engines, and waits until it knows all.
func startReal(t *testing.T, model string) *real {
	t.Helper()
	r := beginReal(t, model, 2)
	r.exactAgain(t)
	return r
}

func beginReal(t *testing.T, model string, count int) *real {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", ".cache", "models", model))
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(dir, "tokenizer.json"))
	need(t, err == nil, "the tokenizer of a real model (make models)")
	args := []string{"--time-scale", "0.02", "--kv-events-port", "-1", "--replay-port", "-1", "--model-dir", dir}
	if python, err := filepath.Abs("../../.cache/venv/bin/python"); err == nil {
		if _, err := os.Stat(python); err == nil {
			args = append(args, "--python", python)
		}
	}
	r := &real{sim: startEngines(t, count, args...), dir: dir, batches: map[string]int64{}}
	need(t, strings.HasPrefix(r.sim.tokens, model), "Python with jinja2 (make setup)")
	r.serving = serve(t, settings, knowing(r.sim, dir))
	return r
}

// exactAgain waits until all nodes are live and exact, and are so for longer
// than the router takes to hear of a restart, which takes both away.
func (r *real) exactAgain(t *testing.T) {
	t.Helper()
	const looks = 80 // 20 ms apart; metrics are read each second
	seen := 0
	eventually(t, 20*time.Second, "all nodes are live and exact", func() bool {
		seen++
		if slices.ContainsFunc(r.nodes(t), func(n admin.NodeView) bool {
			return len(n.Trust) != 1 || n.Trust[0] != "live" || len(n.Exact) != everyClass || n.State != "ready"
		}) {
			seen = 0
		}
		return seen >= looks
	})
}

// told waits until the router has all events of all engines.
func (r *real) told(t *testing.T) {
	t.Helper()
	eventually(t, 10*time.Second, "all events have come", func() bool {
		for i, state := range r.sim.states(t) {
			name := fmt.Sprint("sim-", i)
			if r.had(t, name)-r.batches[name] < state.Batches {
				return false
			}
		}
		return true
	})
}

// had is how many batches of events the router had of a node.
func (r *real) had(t *testing.T, node string) int64 {
	t.Helper()
	return int64(r.metric(t, fmt.Sprintf("kv_event_batches_total{node=%q}", node)))
}

// restart restarts engine i.
func (r *real) restart(t *testing.T, i int) {
	t.Helper()
	name := fmt.Sprint("sim-", i)
	restarts := fmt.Sprintf("kv_event_restarts_total{node=%q}", name)
	r.batches[name] = r.had(t, name)
	before := r.metric(t, restarts)
	r.sim.fault(t, i, `{"kind":"restart"}`)
	eventually(t, 10*time.Second, "the restart was seen", func() bool { return r.metric(t, restarts) > before })
	r.exactAgain(t)
}

// exactly sends a request whose tokens must be known: as many as the engine
// counts, and of them in its cache what the router believed.
func (r *real) exactly(t *testing.T, body []byte) *reply {
	t.Helper()
	r.told(t)
	a := r.ask(t, body)
	d := r.record(t, a.id())
	if d.Exactness != "exact" || d.PromptTokens != a.prompt || matchedOn(&d, a.node()) != a.cached {
		t.Errorf("%s: %s (%s), %d tokens, %d matched; the engine counts %d, %d of them cached\n%s",
			a.node(), d.Exactness, d.Inexact, d.PromptTokens, matchedOn(&d, a.node()), a.prompt, a.cached, tail(string(body)))
	}
	return a
}

// said is one message of a conversation, with what tools add.
type said map[string]any

func (r *real) body(t *testing.T, talk []said, more said) []byte {
	t.Helper()
	whole := said{"model": "sim", "max_tokens": 24, "messages": talk}
	for key, value := range more {
		whole[key] = value
	}
	b, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var weatherTool = said{"tools": []said{{"type": "function", "function": said{
	"name": "weather", "description": "Today's weather in a <town>", "parameters": said{
		"type": "object", "required": []string{"town"},
		"properties": said{"town": said{"type": "string", "description": "Größe, \"name\" & land"}, "days": said{"type": "integer", "minimum": 1.0}},
	},
}}}}

// TestRealModelTurns has conversations with engines that have a real model's
// tokens: every prompt is known to the token, and every hit to the block.
func TestRealModelTurns(t *testing.T) {
	t.Parallel()
	r := startReal(t, "qwen3")
	long := strings.Repeat("You are terse, and you name 12 sources. Ihr Maß: 漢字, émigré 🙂. ", 20)
	talks := map[string]struct {
		more said
		turn func(i int, answer string) []said // what follows an answer
	}{
		"plain": {nil, func(i int, answer string) []said {
			return []said{{"role": "assistant", "content": answer}, {"role": "user", "content": fmt.Sprintf("  Question %d:\n\n\tand? ", i)}}
		}},
		"streams": {said{"stream": true, "stream_options": said{"include_usage": true}}, func(i int, answer string) []said {
			return []said{{"role": "assistant", "content": answer}, {"role": "user", "content": strings.Repeat("more of it ", 40*i)}}
		}},
		"tools": {weatherTool, func(i int, answer string) []said {
			id := fmt.Sprintf("call_%09d", i)
			return []said{
				{"role": "assistant", "content": answer, "tool_calls": []said{{"id": id, "type": "function", "function": said{
					"name": "weather", "arguments": fmt.Sprintf(`{"town": "Łódź", "days": %d}`, i),
				}}}},
				{"role": "tool", "tool_call_id": id, "content": fmt.Sprintf(`{"t": %d.5}`, i)},
			}
		}},
		"parts": {said{"chat_template_kwargs": said{"enable_thinking": false}}, func(i int, answer string) []said {
			return []said{{"role": "assistant", "content": answer}, {"role": "user", "content": []said{{"type": "text", "text": "one"}, {"type": "text", "text": fmt.Sprint("two ", i)}}}}
		}},
	}
	history := map[string][]said{}
	cached := 0
	for round := range 5 {
		if round == 3 {
			r.restart(t, 0)
		}
		for _, name := range []string{"plain", "streams", "tools", "parts"} {
			talk := history[name]
			if talk == nil {
				talk = []said{{"role": "system", "content": name + ": " + long}, {"role": "user", "content": "Who are you, " + name + "?"}}
			}
			a := r.exactly(t, r.body(t, talk, talks[name].more))
			cached += a.cached
			history[name] = append(talk, talks[name].turn(round+1, a.text)...)
		}
	}
	if cached < 5_000 {
		t.Errorf("%d tokens were cached in all", cached)
	}
	if wrong := r.metric(t, `prompt_length_checks_total{result="different"}`); wrong != 0 {
		t.Errorf("%v prompts had another length", wrong)
	}
	if log := r.err.String(); strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("log: %s", tail(log))
	}
	r.realTokens(t, r.body(t, history["tools"], weatherTool))
	r.settled(t)
}

// realTokens holds what the command says of a prompt against the engine.
func (r *real) realTokens(t *testing.T, body []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "body.json")
	if err := os.WriteFile(file, body, 0o600); err != nil {
		t.Fatal(err)
	}
	view := r.sameTokens(t, r.dir, file)
	if ids := engineTokens(t, r.sim.urls[0], body); view.Class != "tools" || !slices.Equal(view.IDs, ids) {
		t.Errorf("class %s, %d ids; the engine has %d", view.Class, len(view.IDs), len(ids))
	}
}

// engineTokens asks an engine itself for the ids of a prompt.
func engineTokens(t *testing.T, engine string, body []byte) (ids []uint32) {
	t.Helper()
	resp, err := http.Post(engine+"/tokenize", "application/json", strings.NewReader(string(body)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct{ Tokens []uint32 }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	return answer.Tokens
}

// TestRealModelProofs: of every model that can be had, the classes that its
// template bears are proved, and completions. What a class refuses is said.
func TestRealModelProofs(t *testing.T) {
	t.Parallel()
	const all, texts = "plain tools parts tools+parts options tools+options parts+options tools+parts+options", "plain" // texts: no chat template
	for model, want := range map[string]string{
		"qwen3": all, "qwen2_5": all, "llama3_1": all, "llama3_2": all, "mistral_nemo": all, "deepseek_v3": all, "gemma3": all,
		"gptoss": texts, "llama2": texts, "gemma2": texts,
	} {
		t.Run(model, func(t *testing.T) {
			r := beginReal(t, model, 1)
			var exact []string
			eventually(t, 20*time.Second, "the engine was asked", func() bool {
				n := r.node(t, "sim-0")
				exact = n.Exact
				return n.EngineVersion != ""
			})
			if got := strings.Join(exact, " "); got != want {
				t.Errorf("%s: exact are %s, want %s\n%s", model, got, want, tail(r.err.String()))
			}
		})
	}
}
