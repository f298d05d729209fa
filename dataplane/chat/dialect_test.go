package chat

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// engineSpecialTokens are those of the tokenizer behind the engines' goldens.
var engineSpecialTokens = map[string]string{"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}

type engineRequest struct {
	Name, Endpoint string
	Body           json.RawMessage
}

func engineRequests(t *testing.T) map[string]engineRequest {
	t.Helper()
	requests := map[string]engineRequest{}
	for _, line := range readLines(t, "testdata/requests.jsonl") {
		var r engineRequest
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		requests[r.Name] = r
	}
	return requests
}

func (r engineRequest) endpoint(t *testing.T) Endpoint {
	t.Helper()
	switch r.Endpoint {
	case "chat":
		return ChatCompletions
	case "completions":
		return Completions
	case "messages":
		return Messages
	case "responses":
		return Responses
	}
	t.Fatalf("%s: endpoint %s", r.Name, r.Endpoint)
	return 0
}

// textRequests are the lines "ENGINE REQUEST WHY" of testdata/text.txt:
// requests that the engine renders and that are not followed here.
func textRequests(t *testing.T, engine Engine) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, line := range readLines(t, "testdata/text.txt") {
		if fields := strings.Fields(line); len(fields) >= 3 && fields[0] == engine.String() {
			known[fields[1]] = true
		}
	}
	return known
}

// dialects are Dialects of one engine by template.
type dialects struct {
	engine Engine
	made   map[string]*Dialect
}

func (d *dialects) of(t *testing.T, template string) *Dialect {
	t.Helper()
	if dialect := d.made[template]; dialect != nil {
		return dialect
	}
	source, _, ok := templateSource(template)
	if !ok {
		t.Fatalf("no template %s", template)
	}
	compiled, err := Compile(source, Options{})
	if err != nil {
		t.Fatal(err)
	}
	dialect, err := NewDialect(DialectOptions{Engine: d.engine, Template: compiled, SpecialTokens: engineSpecialTokens})
	if err != nil {
		t.Fatal(err)
	}
	d.made[template] = dialect
	return dialect
}

// TestDialects compares with the prompts that the engines' own code made
// (scripts/vllm_render_goldens.py, scripts/sglang_render_goldens.py).
func TestDialects(t *testing.T) {
	for _, of := range []struct {
		engine Engine
		file   string
	}{
		{VLLM, "testdata/vllm_0.32.0.txt"},
		{SGLang, "testdata/sglang_0.5.23.txt"},
	} {
		t.Run(of.engine.String(), func(t *testing.T) {
			requests, text := engineRequests(t), textRequests(t, of.engine)
			made := dialects{of.engine, map[string]*Dialect{}}
			exact := 0
			m := Machine{Now: goldenNow}
			for _, line := range readLines(t, of.file) {
				fields := strings.SplitN(line, " ", 4)
				request := requests[fields[0]]
				m.Reset()
				got := preparedText(t, made.of(t, fields[1]), &m, request)
				want := fields[2] + " " + fields[3]
				switch wanted := wantedText(t, fields[2], fields[3]); {
				case got.level == LevelPrefix:
					if !in(request.Name, "image", "anthropic_image") {
						t.Errorf("%s %s: known only as a prefix", fields[0], fields[1])
					}
				case text[fields[0]]:
					if got.err == nil {
						t.Errorf("%s %s: listed in text.txt, but rendered", fields[0], fields[1])
					}
				case fields[2] == "refused" || fields[2] == "changed":
					if got.err == nil {
						t.Errorf("%s %s: want %s, got %s", fields[0], fields[1], want, got.text)
					}
				case got.err != nil:
					t.Errorf("%s %s: %v, want %s", fields[0], fields[1], got.err, want)
				case got.text != wanted:
					t.Errorf("%s %s:\n%s", fields[0], fields[1], difference([]byte(got.text), []byte(wanted)))
				default:
					exact++
				}
			}
			t.Logf("%d prompts equal", exact)
			if exact < 200 {
				t.Errorf("%d prompts equal, want at least 200", exact)
			}
		})
	}
}

type prepared struct {
	text  string
	level Level
	err   error
}

func in(s string, list ...string) bool { return contains(list, s) }

// preparedText renders a request and describes the result in one line, as
// wantedText does.
func preparedText(t *testing.T, d *Dialect, m *Machine, r engineRequest) prepared {
	t.Helper()
	var in Input
	var out Rope
	if err := d.Prepare(m, r.endpoint(t), r.Body, &in); err != nil {
		return prepared{err: err}
	}
	level, err := d.Render(m, &in, &out)
	if err != nil {
		return prepared{err: err}
	}
	if level != LevelExact {
		return prepared{level: level}
	}
	text := string(out.AppendText(nil))
	switch {
	case in.IDs.Kind() == KindList:
		return prepared{text: "ids"}
	case in.SpecialTokens:
		return prepared{text: "special " + text}
	case in.Suffix.IsString():
		return prepared{text: "ok " + text + "|" + string(m.Bytes(in.Suffix))}
	}
	return prepared{text: "ok " + text}
}

func wantedText(t *testing.T, kind, rest string) string {
	t.Helper()
	switch kind {
	case "ids":
		return "ids"
	case "refused", "changed":
		return ""
	}
	d := json.NewDecoder(strings.NewReader(rest))
	var text, suffix string
	if err := d.Decode(&text); err != nil {
		t.Fatal(err)
	}
	if kind == "suffix" {
		if err := d.Decode(&suffix); err != nil {
			t.Fatal(err)
		}
		return "ok " + text + "|" + suffix
	}
	return kind + " " + text
}

// TestContentFormat compares with what the engines find out of each template.
func TestContentFormat(t *testing.T) {
	for _, of := range []struct {
		engine Engine
		file   string
	}{
		{VLLM, "testdata/vllm_0.32.0_templates.txt"},
		{SGLang, "testdata/sglang_0.5.23_templates.txt"},
	} {
		for _, line := range readLines(t, of.file) {
			fields := strings.Fields(line)
			source, _, _ := templateSource(fields[0])
			template, err := Compile(source, Options{})
			if err != nil {
				t.Fatalf("%s: %v", fields[0], err)
			}
			want := map[string]ContentFormat{"string": ContentString, "openai": ContentParts}[fields[1]]
			if got := template.ContentFormat(of.engine); got != want {
				t.Errorf("%v %s: got %v, want %s", of.engine, fields[0], got, fields[1])
			}
		}
	}
}

// TestPrepareUsesNoMemoryAllocs: preparing and rendering a conversation again
// takes no memory.
func TestPrepareAllocs(t *testing.T) {
	body, err := os.ReadFile("testdata/request_long.json")
	if err != nil {
		t.Fatal(err)
	}
	made := dialects{VLLM, map[string]*Dialect{}}
	d := made.of(t, "chatml_tools")
	var m Machine
	var in Input
	var out Rope
	run := func() {
		m.Reset()
		if err := d.Prepare(&m, ChatCompletions, body, &in); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Render(&m, &in, &out); err != nil {
			t.Fatal(err)
		}
	}
	run()
	run()
	if n := testing.AllocsPerRun(50, run); n > 0 {
		t.Errorf("%v allocations a request, want none", n)
	}
}
