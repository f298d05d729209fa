//go:build hf && cgo

package engine

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// models is where make models puts real models, from this folder.
var models = filepath.Join("..", "..", ".cache", "models")

// realModel loads a model, or skips the test where it cannot be had.
func realModel(t testing.TB, name string) *Model {
	t.Helper()
	m, err := LoadModel(filepath.Join(models, name), jinjaPython(t))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrNoOracle) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// send asks the engine without a network.
func send(t testing.TB, e *Engine, path, body string) (code int, answer string) {
	t.Helper()
	w := ask(t.Context(), e, path, body)
	return w.Code, w.Body.String()
}

// captured is a request that a real vLLM 0.32 with the Qwen3 tokenizer
// answered, and the ids that it said were its prompt.
type captured struct {
	Path   string          `json:"path"`
	Body   json.RawMessage `json:"body"`
	Status int             `json:"status"`
	Prompt []uint32        `json:"prompt_token_ids"`
}

func capturedRequests(t *testing.T) map[string][]captured {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(captures, "..", "kvevents", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]captured{}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Meta struct {
				Requests []captured `json:"requests"`
			} `json:"meta"`
		}
		if err := json.Unmarshal(data, &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all[filepath.Base(name)] = file.Meta.Requests
	}
	return all
}

// TestPromptsAreThoseOfRealEngine holds rendering and tokenization against
// every prompt that was captured of a real engine.
func TestPromptsAreThoseOfRealEngine(t *testing.T) {
	m := realModel(t, "qwen3")
	e := sim(t, Config{Model: "tiny", Adapters: []string{"ad1", "ad2"}, AsFastAsPossible: true, Real: m})
	chats, texts := 0, 0
	for name, requests := range capturedRequests(t) {
		for i, c := range requests {
			if c.Status != 200 || len(c.Prompt) == 0 {
				continue
			}
			req := &requestBody{raw: c.Body}
			if err := json.Unmarshal(c.Body, req); err != nil {
				t.Fatal(err)
			}
			chat := strings.HasSuffix(c.Path, "/chat/completions")
			ids, fault := e.prompt(req, chat, routeChat)
			if fault != nil {
				t.Fatalf("%s, request %d: %s", name, i, fault.Message)
			}
			if !slices.Equal(ids, c.Prompt) {
				t.Errorf("%s, request %d: %d ids %v…, want %d, %v…", name, i, len(ids), ids[:min(20, len(ids))], len(c.Prompt), c.Prompt[:min(20, len(c.Prompt))])
			}
			if chat {
				chats++
			} else {
				texts++
			}
		}
	}
	t.Logf("prompts of %d chats and %d completions identical to the real engine's", chats, texts)
	if chats == 0 {
		t.Skip("no captures of a real engine beside the checkout")
	}
}

// TestTokenizeRouteIsThatOfRealEngine compares whole answers of /tokenize.
func TestTokenizeRouteIsThatOfRealEngine(t *testing.T) {
	m := realModel(t, "qwen3")
	e := sim(t, Config{Model: "tiny", MaxModelLen: 2048, AsFastAsPossible: true, Real: m})
	for _, name := range []string{"tokenize", "tokenize_tools"} {
		_, want := capture(t, name+".raw")
		code, body := send(t, e, "/tokenize", request(t, "req_"+name+".json"))
		if code != 200 {
			t.Fatalf("%s: %d %s", name, code, body)
		}
		type answer struct {
			Count       int      `json:"count"`
			MaxModelLen int      `json:"max_model_len"`
			Tokens      []uint32 `json:"tokens"`
		}
		var got, real answer
		if err := errors.Join(json.Unmarshal([]byte(body), &got), json.Unmarshal([]byte(want), &real)); err != nil {
			t.Fatal(err)
		}
		if got.Count != real.Count || got.MaxModelLen != real.MaxModelLen || !slices.Equal(got.Tokens, real.Tokens) {
			t.Errorf("%s: %+v, want %+v", name, got, real)
		}
	}
}

// TestRealIDsReachUsageAndCache sends a conversation twice and looks at what
// the engine says of it.
func TestRealIDsReachUsageAndCache(t *testing.T) {
	m := realModel(t, "llama2")
	e := sim(t, Config{Model: "m", AsFastAsPossible: true, Real: m})
	ids, fault := m.text(strings.Repeat("the harbour lies under a silver mountain. ", 20), true)
	if fault != nil {
		t.Fatal(fault.Message)
	}
	body := `{"model":"m","return_token_ids":true,"max_tokens":5,"prompt":"` + strings.Repeat("the harbour lies under a silver mountain. ", 20) + `"}`
	for _, cached := range []int{0, (len(ids) - 1) / 16 * 16} {
		_, answer := send(t, e, "/v1/completions", body)
		var got struct {
			Choices []struct {
				Text   string   `json:"text"`
				Tokens []uint32 `json:"token_ids"`
				Prompt []uint32 `json:"prompt_token_ids"`
			} `json:"choices"`
			Usage struct {
				Prompt  int `json:"prompt_tokens"`
				Details struct {
					Cached int `json:"cached_tokens"`
				} `json:"prompt_tokens_details"`
			} `json:"usage"`
		}
		if err := json.Unmarshal([]byte(answer), &got); err != nil {
			t.Fatalf("%s: %v", answer, err)
		}
		if ids[0] != 1 || !slices.Equal(got.Choices[0].Prompt, ids) || got.Usage.Prompt != len(ids) || got.Usage.Details.Cached != cached {
			t.Errorf("prompt %v, usage %+v; want %v, cached %d", got.Choices[0].Prompt, got.Usage, ids, cached)
		}
		whole, fault := m.text("it"+got.Choices[0].Text, false)
		if fault != nil || !slices.Equal(whole[1:], got.Choices[0].Tokens) {
			t.Errorf("answer %q has ids %v, tokenized %v", got.Choices[0].Text, got.Choices[0].Tokens, whole)
		}
	}
	if code, answer := send(t, e, "/v1/completions", `{"model":"m","prompt":[31999]}`); code != 200 {
		t.Errorf("the largest id: %d %s", code, answer)
	}
	if code, answer := send(t, e, "/v1/completions", `{"model":"m","prompt":[32000]}`); code != 400 {
		t.Errorf("an id beyond the vocabulary: %d %s", code, answer)
	}
}

// TestRealModelRefuses has the template and the tokenizer refuse requests, and
// the process fail.
func TestRealModelRefuses(t *testing.T) {
	m := realModel(t, "llama2") // has no template
	e := sim(t, Config{Model: "m", AsFastAsPossible: true, Real: m})
	chat := `{"model":"m","messages":[{"role":"user","content":"x"}]}`
	if code, answer := send(t, e, "/v1/chat/completions", chat); code != 400 || !strings.Contains(answer, "chat template") {
		t.Errorf("without a template: %d %s", code, answer)
	}
	_ = m.template.in.Close()
	for range 2 {
		if code, answer := send(t, e, "/v1/chat/completions", chat); code != 500 || !strings.Contains(answer, "Python") {
			t.Errorf("without a process: %d %s", code, answer)
		}
	}
	if _, err := LoadModel(t.TempDir(), jinjaPython(t)); !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrNoOracle) {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := LoadModel(filepath.Join(models, "llama2"), "no-such-python"); !errors.Is(err, ErrNoOracle) {
		t.Errorf("no Python: %v", err)
	}
}

// TestConcurrentRendering shares one model between engines and requests.
func TestConcurrentRendering(t *testing.T) {
	m := realModel(t, "qwen3")
	var running sync.WaitGroup
	for i := range 4 {
		e := sim(t, Config{Model: "m", AsFastAsPossible: true, Real: m})
		want := 9 + i // the template, "x" and i times " the"
		running.Go(func() {
			for range 50 {
				body := `{"model":"m","messages":[{"role":"user","content":"x` + strings.Repeat(" the", i) + `"}]}`
				code, answer := send(t, e, "/tokenize", body)
				var got struct{ Count int }
				if err := json.Unmarshal([]byte(answer), &got); err != nil || code != 200 || got.Count != want {
					t.Errorf("%s: %d %s, want %d", body, code, answer, want)
					return
				}
			}
		})
	}
	running.Wait()
}
