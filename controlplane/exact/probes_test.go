package exact

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"warmpath/controlplane/engine"
	"warmpath/dataplane/chat"
	"warmpath/dataplane/prompt"
)

// TestProbes: each probe is what it says that it is, for a template that bears
// everything, and what is asked of an engine is the same prompt.
func TestProbes(t *testing.T) {
	dir := modelFolder(t, chatML)
	l, err := Load(source(dir, chatML))
	if err != nil {
		t.Fatal(err)
	}
	m := l.Model(chat.VLLM, 16, prompt.NewMemo(1<<20))
	proved := uint32(0)
	for i := range probes {
		body := probes[i].bodyFor(`a "model"`)
		ids, v, err := prompt.IDs(m, probes[i].form, body)
		if err != nil || v.Level != chat.LevelExact || v.Class != probes[i].class || len(ids) == 0 {
			t.Errorf("probe %d: %v, %v, %d ids", i, v, err, len(ids))
		}
		ask, err := question(body)
		if err != nil {
			t.Fatal(err)
		}
		if again, _, _ := prompt.IDs(m, probes[i].form, ask); !slices.Equal(again, ids) {
			t.Errorf("probe %d: another prompt is asked for: %s", i, ask)
		}
		proved |= 1 << v.Class
	}
	if want := uint32(1)<<chat.FeatureMedia - 1; proved != want {
		t.Errorf("probes are of the classes %b, want %b", proved, want)
	}
}

// TestQuestion: only what names the prompt is asked, in its order, untouched.
func TestQuestion(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{}`, `{}`},
		{`{"stream":true,"max_tokens":5}`, `{}`},
		{
			` { "stream" : true, "messages" : [ {"role":"user", "content":"\u00e9 \"x\" 1.0"} ] , "model":"m","temperature":0.5}`,
			`{"messages":[ {"role":"user", "content":"\u00e9 \"x\" 1.0"} ],"model":"m"}`,
		},
		{`{"prompt":"a","prompt":"b"}`, `{"prompt":"a","prompt":"b"}`},
		{`{"\u0070rompt":"a"}`, `{"prompt":"a"}`},
		{
			`{"tools":[],"add_generation_prompt":false,"continue_final_message":true,"add_special_tokens":null,"chat_template_kwargs":{"a":1}}`,
			`{"tools":[],"add_generation_prompt":false,"continue_final_message":true,"add_special_tokens":null,"chat_template_kwargs":{"a":1}}`,
		},
	} {
		if got, err := question([]byte(c.body)); err != nil || string(got) != c.want {
			t.Errorf("%s: %s, %v; want %s", c.body, got, err, c.want)
		}
	}
	for _, bad := range []string{``, `[]`, `["model","m"]`, `"model"`, `1`, `{`, `{"model"`, `{"model":`, `{"model":"m"`, `{"model":"m",`, `{"model" "m"}`, `{1:2}`} {
		if got, err := question([]byte(bad)); err == nil {
			t.Errorf("%s: %s", bad, got)
		}
	}
}

// FuzzQuestion compares with encoding/json: the last of equal keys counts.
func FuzzQuestion(f *testing.F) {
	for i := range probes {
		f.Add(probes[i].bodyFor("m"))
	}
	f.Add([]byte(`{"prompt":"a","prompt":{"b":[1e5,-0]},"x":"\ud800","model":null}`))
	f.Add([]byte("{\"\\u006dodel\":1,\"\xff\":2,\"tools\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		var all map[string]json.RawMessage
		bad := json.Unmarshal(body, &all)
		got, err := question(body)
		if bad == nil && all == nil { // null
			bad = errNoObject
		}
		if bad != nil {
			return // what follows the object is not looked at
		}
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		for name := range all {
			if !asked[name] {
				delete(all, name)
			}
		}
		var kept map[string]json.RawMessage
		if err := json.Unmarshal(got, &kept); err != nil {
			t.Fatalf("%q became %q: %v", body, got, err)
		}
		if !reflect.DeepEqual(all, kept) {
			t.Fatalf("%q became %q", body, got)
		}
	})
}

// TestOverHTTP: the same over a real connection, with engine.Prober's words for
// what an engine does not have.
func TestOverHTTP(t *testing.T) {
	dir := modelFolder(t, chatML)
	l, err := Load(source(dir, chatML))
	if err != nil {
		t.Fatal(err)
	}
	truth := newEngines(*l, nil)
	status := 200
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		ids, err := truth.Tokens(r.Context(), "vllm", "http://a", body.Bytes())
		if status != 200 || err != nil || r.URL.Path != "/tokenize" {
			w.WriteHeader(max(status, 400))
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"tokens": ids, "count": len(ids)})
	}))
	defer s.Close()
	p := &Prover{opt: Options{Prober: engine.NewProber()}}
	ask := func() *outcome {
		o := &outcome{node: Node{Name: "a", URL: s.URL, Engine: "vllm", Model: "m"}, model: l.Model(chat.VLLM, 16, prompt.NewMemo(1<<20))}
		o.err = p.prove(t.Context(), o)
		return o
	}
	if o := ask(); o.err != nil || names(o.classes) != "all" || len(o.why) != 0 {
		t.Errorf("%v, %s, %v", o.err, names(o.classes), o.why)
	}
	for _, c := range []struct {
		status  int
		refused bool // else it could not be asked
		why     string
	}{{400, true, "400"}, {404, true, "no route"}, {408, false, ""}, {429, false, ""}, {500, false, ""}, {503, false, ""}} {
		status = c.status
		o := ask()
		if (o.err == nil) != c.refused || o.classes != 0 || c.refused && !strings.Contains(o.why[prompt.ClassPlain], c.why) {
			t.Errorf("status %d: %v, %s, %v", c.status, o.err, names(o.classes), o.why)
		}
	}
	s.Close()
	if o := ask(); o.err == nil || errors.Is(o.err, engine.ErrNoTokens) || o.classes != 0 {
		t.Errorf("a closed port: %v, %s", o.err, names(o.classes))
	}
}
