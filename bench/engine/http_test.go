package engine

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// captures is where raw answers of a real engine lie, from this folder.
const captures = "../../../shared/data/http"

// capture reads a raw answer; the test is skipped where there is none.
func capture(t *testing.T, name string) (head, body string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(captures, name))
	if err != nil {
		t.Skipf("no capture of a real engine to compare with: %v", err)
	}
	head, body, found := strings.Cut(strings.ReplaceAll(string(raw), "\r\n", "\n"), "\n\n")
	if !found {
		return "", string(raw)
	}
	return head, body
}

// shape lists the keys of a JSON text in their order, nested; of arrays the
// first element.
func shape(t *testing.T, text string) []string {
	t.Helper()
	var out []string
	dec := json.NewDecoder(strings.NewReader(text))
	var walk func(path string, show bool)
	walk = func(path string, show bool) {
		tok, err := dec.Token()
		if err != nil {
			t.Fatalf("shape of %q: %v", text, err)
		}
		switch tok {
		case json.Delim('{'):
			for dec.More() {
				key, err := dec.Token()
				if err != nil {
					t.Fatalf("shape of %q: %v", text, err)
				}
				p := path + "." + key.(string)
				if show {
					out = append(out, p)
				}
				walk(p, show)
			}
		case json.Delim('['):
			for i := 0; dec.More(); i++ {
				walk(path+"[]", show && i == 0)
			}
		default:
			return
		}
		if _, err := dec.Token(); err != nil {
			t.Fatalf("shape of %q: %v", text, err)
		}
	}
	walk("", true)
	return out
}

// tiny is an engine configured as the captured one.
func tiny(t testing.TB) *Engine {
	return sim(t, Config{Model: "tiny", MaxModelLen: 2048, Blocks: 65, BlockTokens: 32, AsFastAsPossible: true})
}

// request reads a captured request body.
func request(t *testing.T, name string) string {
	_, body := capture(t, name)
	return body
}

func TestAnswersHaveTheShapeOfVLLM(t *testing.T) {
	for _, c := range []struct{ path, request, answer string }{
		{"/v1/chat/completions", "req_chat.json", "chat_nonstream.raw"},
		{"/v1/chat/completions", "req_bad_model.json", "err_bad_model.raw"},
		{"/v1/chat/completions", "req_too_long.json", "err_too_long.raw"},
		{"/tokenize", "req_tokenize.json", "tokenize.raw"},
		{"/tokenize", "req_tokenize_tools.json", "tokenize_tools.raw"},
	} {
		t.Run(c.answer, func(t *testing.T) {
			head, want := capture(t, c.answer)
			body := request(t, c.request)
			if c.request == "req_too_long.json" { // our tokens are longer than the real engine's
				body = `{"model":"tiny","messages":[{"role":"user","content":"` + strings.Repeat("x ", 5000) + `"}]}`
			}
			got := ask(t.Context(), tiny(t), c.path, body)
			if g, w := shape(t, got.Body.String()), shape(t, want); !slices.Equal(g, w) {
				t.Errorf("keys\n%v\nwant\n%v", g, w)
			}
			if code := strings.Fields(head)[1]; code != jsonText(t, got.Code) {
				t.Errorf("status %d, want %s", got.Code, code)
			}
			if strings.HasPrefix(c.answer, "err_") && got.Body.String() != want {
				t.Errorf("answer\n%s\nwant\n%s", got.Body, want)
			}
		})
	}
}

func jsonText(t *testing.T, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestStreamsHaveTheShapeOfVLLM(t *testing.T) {
	for _, c := range []struct{ path, request, answer string }{
		{"/v1/chat/completions", "req_chat_stream.json", "sse_chat_stream.raw"},
		{"/v1/chat/completions", "req_chat_stream_tokenids.json", "sse_chat_stream_tokenids.raw"},
		{"/v1/completions", "req_completion_stream.json", "sse_completion_stream.raw"},
	} {
		t.Run(c.answer, func(t *testing.T) {
			head, want := capture(t, c.answer)
			got := ask(t.Context(), tiny(t), c.path, request(t, c.request))
			if ct := got.Header().Get("Content-Type"); !strings.Contains(head, "content-type: "+ct) {
				t.Errorf("content type %q", ct)
			}
			gotEvents, wantEvents := events(got.Body.String()), events(want)
			if len(gotEvents) != len(wantEvents) {
				t.Fatalf("%d events, want %d", len(gotEvents), len(wantEvents))
			}
			for i, ev := range wantEvents {
				if ev == "[DONE]" {
					if gotEvents[i] != ev {
						t.Errorf("event %d is %q", i, gotEvents[i])
					}
					continue
				}
				if g, w := shape(t, gotEvents[i]), shape(t, ev); !slices.Equal(g, w) {
					t.Errorf("event %d has keys\n%v\nwant\n%v", i, g, w)
				}
			}
		})
	}
}

// events splits a stream into the data of its events.
func events(stream string) (out []string) {
	for ev := range strings.SplitSeq(strings.TrimSpace(stream), "\n\n") {
		out = append(out, strings.TrimPrefix(ev, "data: "))
	}
	return out
}

func TestModelsHaveTheShapeOfVLLM(t *testing.T) {
	want := request(t, "v1_models.json")
	w := httptest.NewRecorder()
	tiny(t).Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/models", nil))
	if g, s := shape(t, w.Body.String()), shape(t, want); !slices.Equal(g, s) {
		t.Errorf("keys\n%v\nwant\n%v", g, s)
	}
	if !strings.Contains(w.Body.String(), `"max_model_len":2048`) {
		t.Error(w.Body)
	}
}

// TestMetricsHaveNamesAndLabelsOfVLLM: every series of ours exists in a real
// engine's metrics with the same label names.
func TestMetricsHaveNamesAndLabelsOfVLLM(t *testing.T) {
	_, body := capture(t, "bs32_metrics.txt")
	real := map[string]bool{}
	for line := range strings.SplitSeq(body, "\n") {
		real[series(line)] = true
	}
	e := tiny(t)
	ask(t.Context(), e, "/v1/chat/completions", chatBody(400, 5, ""))
	w := httptest.NewRecorder()
	e.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := w.Body.String()
	for line := range strings.SplitSeq(text, "\n") {
		if s := series(line); s != "" && !real[s] && !strings.HasPrefix(s, "vllm:cache_config_info") {
			t.Errorf("a real engine has no series %s", s)
		}
	}
	for _, want := range []string{
		`vllm:cache_config_info{block_size="32"`, `num_gpu_blocks="65"`, `vllm:num_requests_running{engine="0",model_name="tiny"} 0`,
		`vllm:prompt_tokens_total{engine="0",model_name="tiny"} 114`, `vllm:generation_tokens_total{engine="0",model_name="tiny"} 5`,
		`vllm:request_success_total{engine="0",finished_reason="length",model_name="tiny"} 1`,
		`vllm:time_to_first_token_seconds_count{engine="0",model_name="tiny"} 1`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// series is a metrics line's name and sorted label names, "" for comments.
func series(line string) string {
	if line == "" || line[0] == '#' {
		return ""
	}
	name, rest, _ := strings.Cut(line, "{")
	labels, _, _ := strings.Cut(rest, "}")
	keys := strings.Split(labels, ",")
	for i, pair := range keys {
		keys[i], _, _ = strings.Cut(pair, "=")
	}
	slices.Sort(keys)
	return name + " " + strings.Join(keys, " ")
}

// answerOf reads what tests need of a chat answer.
func answerOf(t *testing.T, w *httptest.ResponseRecorder) (a chatAnswer) {
	t.Helper()
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK {
		t.Fatalf("answer %d %s: %v", w.Code, w.Body, err)
	}
	return a
}

func TestSecondTurnHitsPromptAndAnswer(t *testing.T) {
	e := sim(t, Config{AsFastAsPossible: true})
	body := func(messages []map[string]string) string {
		return jsonText(t, map[string]any{"messages": messages, "max_tokens": 100})
	}
	messages := []map[string]string{
		{"role": "system", "content": strings.Repeat("Be brief. ", 50)},
		{"role": "user", "content": "What is it?"},
	}
	first := answerOf(t, ask(t.Context(), e, "/v1/chat/completions", body(messages)))
	messages = append(messages,
		map[string]string{"role": "assistant", "content": first.Choices[0].Message.Content},
		map[string]string{"role": "user", "content": "And then?"})
	second := answerOf(t, ask(t.Context(), e, "/v1/chat/completions", body(messages)))
	if first.Usage.PromptTokensDetails.CachedTokens != 0 {
		t.Errorf("first turn: %+v", first.Usage)
	}
	// All full blocks of the first turn but the last sampled token, whose KV was never computed.
	want := int64(first.Usage.TotalTokens-1) / 16 * 16
	if got := second.Usage.PromptTokensDetails.CachedTokens; got != want {
		t.Errorf("second turn: %d cached tokens, want %d of a first turn of %d", got, want, first.Usage.TotalTokens)
	}
	if s := e.State(); s.CachedTokens != want || s.Finished != 2 {
		t.Errorf("%+v", s)
	}
}

func TestRequestVariants(t *testing.T) {
	e := sim(t, Config{AsFastAsPossible: true, Adapters: []string{"poet"}, MaxModelLen: 4096})
	for name, c := range map[string]struct {
		path, body string
		code       int
		want       string
	}{
		"bad JSON":            {"/v1/chat/completions", `{"messages":`, 400, `"type":"BadRequestError"`},
		"no messages":         {"/v1/chat/completions", `{}`, 400, `"param":"messages"`},
		"wrong type":          {"/v1/chat/completions", `{"messages":"x"}`, 400, "BadRequestError"},
		"image":               {"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}`, 400, "At most 0 image(s)"},
		"parts":               {"/v1/chat/completions", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}],"max_tokens":2}`, 200, `"completion_tokens":2`},
		"tool calls":          {"/v1/chat/completions", `{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"x"}]}],"max_completion_tokens":3}`, 200, `"completion_tokens":3`},
		"no limit":            {"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}]}`, 200, `"finish_reason":"stop"`},
		"limit too large":     {"/v1/chat/completions", `{"messages":[{"role":"user","content":"a"}],"max_tokens":4096}`, 400, `"param":"max_tokens"`},
		"limit zero":          {"/v1/completions", `{"prompt":"a","max_tokens":0}`, 400, "at least 1"},
		"two choices":         {"/v1/completions", `{"prompt":"a","n":2}`, 400, `"param":"n"`},
		"empty salt":          {"/v1/completions", `{"prompt":"a","cache_salt":""}`, 400, "cache_salt"},
		"adapter":             {"/v1/completions", `{"model":"poet","prompt":"a"}`, 200, `"model":"poet"`},
		"token ids":           {"/v1/completions", `{"prompt":[1,2,3]}`, 200, `"prompt_tokens":3`},
		"list of one":         {"/v1/completions", `{"prompt":[[1,2,3,4]]}`, 200, `"prompt_tokens":4`},
		"list of one text":    {"/v1/completions", `{"prompt":["abcdefgh"]}`, 200, `"prompt_tokens":2`},
		"two prompts":         {"/v1/completions", `{"prompt":["a","b"]}`, 400, `"param":"prompt"`},
		"empty prompt":        {"/v1/completions", `{"prompt":""}`, 400, `"param":"prompt"`},
		"id out of range":     {"/v1/completions", `{"prompt":[151000]}`, 400, "out of vocabulary"},
		"returned ids":        {"/v1/completions", `{"prompt":[7,8],"max_tokens":1,"return_token_ids":true}`, 200, `"prompt_token_ids":[7,8]`},
		"tokenize text":       {"/tokenize", `{"prompt":"abcdabcd"}`, 200, `"count":2`},
		"tokenize nothing":    {"/tokenize", `{}`, 400, "messages"},
		"tokenize no model":   {"/tokenize", `{"model":"x","prompt":"a"}`, 404, "NotFoundError"},
		"tokenize no prompt":  {"/tokenize", `{"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false}`, 200, `"count":8`},
		"unknown key is fine": {"/v1/completions", `{"prompt":"a","temperature":0.5,"stop":["x"]}`, 200, `"finish_reason":"length"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := ask(t.Context(), e, c.path, c.body)
			if w.Code != c.code || !strings.Contains(w.Body.String(), c.want) {
				t.Errorf("answered %d %s, want %d with %s", w.Code, w.Body, c.code, c.want)
			}
		})
	}
}

func TestSmallRoutes(t *testing.T) {
	e := sim(t, Config{AsFastAsPossible: true, Adapters: []string{"poet"}})
	for path, want := range map[string]string{
		"/health": "", "/version": `{"version":"0.32.0"}`, "/load": `{"server_load":0}`,
		"/v1/models": `"id":"poet","object":"model"`,
	} {
		w := httptest.NewRecorder()
		e.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) || (want == "" && w.Body.Len() > 0) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	ask(t.Context(), e, "/v1/completions", `{"prompt":"`+strings.Repeat("a", 400)+`"}`)
	if w := ask(t.Context(), e, "/reset_prefix_cache", ""); w.Body.String() != `{"success":true}` || e.State().BlocksCached != 0 {
		t.Errorf("reset: %s, %+v", w.Body, e.State())
	}
	r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"prompt":"a"}`))
	r.Header.Set("X-Request-Id", "abc-1")
	w := httptest.NewRecorder()
	e.Handler().ServeHTTP(w, r)
	if ids := e.State().RequestIDs; !strings.Contains(w.Body.String(), `"id":"cmpl-abc-1"`) || ids[len(ids)-1] != "abc-1" {
		t.Errorf("request id: %s %v", w.Body, ids)
	}
}

// FuzzRequests: whatever a client sends, the answer is JSON and a 200 means
// that the body was JSON too.
func FuzzRequests(f *testing.F) {
	f.Add(chatBody(10, 1, ""))
	f.Add(`{"prompt":[[1,2]],"max_tokens":1,"return_token_ids":true,"tools":[ 1 ]}`)
	f.Add(`{"messages":[{"role":"user","content":[{"type":"text","text":"\ud800"}],"tool_calls":null}],"tools":null,"max_tokens":1}`)
	e := sim(f, Config{AsFastAsPossible: true, MaxModelLen: 256, Blocks: 100, DefaultTokens: 4})
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/tokenize"} {
			w := ask(t.Context(), e, path, body)
			if w.Header().Get("Content-Type") == "application/json" && !json.Valid(w.Body.Bytes()) {
				t.Fatalf("%s answered %q", path, w.Body)
			}
			if w.Code == http.StatusOK && !json.Valid([]byte(body)) || w.Code >= 500 {
				t.Fatalf("%s answered %d %s", path, w.Code, w.Body)
			}
		}
	})
}

// BenchmarkChat is one chat request of 1,000 tokens through the handler.
func BenchmarkChat(b *testing.B) {
	e := sim(b, Config{AsFastAsPossible: true})
	body := []byte(chatBody(4000, 16, ""))
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		e.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", bytes.NewReader(body)))
		if w.Code != http.StatusOK {
			b.Fatal(w.Body)
		}
	}
}
