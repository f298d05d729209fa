package engine

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// templateFolder makes a model folder with a chat template.
func templateFolder(t *testing.T, template string) string {
	t.Helper()
	folder := t.TempDir()
	config := `{"bos_token":{"content":"<s>"},"eos_token":"</s>","unk_token":null,"chat_template":"not this one"}`
	for name, text := range map[string]string{"tokenizer_config.json": config, "chat_template.jinja": template} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// jinjaPython is an interpreter with jinja2: that of the tests (make setup),
// seen from this folder, or the machine's. Without one the test is skipped.
func jinjaPython(t testing.TB) string {
	t.Helper()
	tests := filepath.Join("..", "..", ".cache", "venv", "bin", "python")
	for _, python := range []string{tests, "python3"} {
		if exec.Command(python, "-c", "import jinja2").Run() == nil {
			return python
		}
	}
	t.Skip("no Python with jinja2: make setup")
	return ""
}

// rendering starts the renderer of a template.
func rendering(t *testing.T, template string) *renderer {
	t.Helper()
	r, err := startRenderer(jinjaPython(t), templateFolder(t, template))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.close() })
	return r
}

// show is a template that prints what it is given.
const show = `{{ bos_token }}{{ unk_token }}|{% for m in messages %}
	{{ m.role }}={{ m.content }}{% if m.tool_calls %} calls {{ m.tool_calls | tojson }}{% endif %}{% if m.reasoning %} thinks {{ m.reasoning }}{% endif %};
{% endfor %}{% if tools %}tools {{ tools | tojson }};{% endif %}{% generation %}{% if add_generation_prompt %}go{% endif %}{% endgeneration %}{{ thinking }}`

// TestRenderedAsVLLMDoes checks what vLLM does to a request before the
// template sees it. Facts are those of its source, and of the captures that
// TestPromptsAreThoseOfRealEngine uses.
func TestRenderedAsVLLMDoes(t *testing.T) {
	r := rendering(t, show)
	for _, c := range []struct{ name, body, want string }{
		{"special tokens", `{"messages":[]}`, "<s>|go"},
		{"parts are joined by newlines", `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},"b",{"type":"text","text":null}]}]}`, "<s>|\tuser=a\nb;\ngo"},
		{"a system message loses its billing header", `{"messages":[{"role":"system","content":"x-anthropic-billing-header: 1\nrest"}]}`, "<s>|\tsystem=rest;\ngo"},
		{"null of an assistant is nothing", `{"messages":[{"role":"assistant","content":null}]}`, "<s>|\tassistant=;\ngo"},
		{
			"arguments are objects, keys as declared",
			`{"messages":[{"role":"assistant","content":"","tool_calls":[{"type":"function","id":"1","function":{"name":"f","arguments":"{\"b\":1e5,\"a\":null}"}}]}]}`,
			"<s>|\tassistant= calls " + `[{"id": "1", "function": {"arguments": {"b": 100000.0, "a": null}, "name": "f"}, "type": "function"}]` + ";\ngo",
		},
		{
			"arguments that are no object are dropped",
			`{"messages":[{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"[1"}}]}]}`,
			"<s>|\tassistant= calls " + `[{"id": "1", "function": {"arguments": {}, "name": "f"}, "type": "function"}]` + ";\ngo",
		},
		{"no calls are none", `{"messages":[{"role":"assistant","content":"x","tool_calls":[]}]}`, "<s>|\tassistant=x;\ngo"},
		{"reasoning by its old name", `{"messages":[{"role":"assistant","content":"x","reasoning_content":"why"}]}`, "<s>|\tassistant=x thinks why;\ngo"},
		{
			"tools as they are dumped",
			`{"messages":[],"tools":[{"other":1,"function":{"parameters":{"b":1,"a":"<ü>"},"name":"f","other":2},"type":"function"}]}`,
			`<s>|tools [{"type": "function", "function": {"name": "f", "description": null, "parameters": {"b": 1, "a": "<ü>"}}}];go`,
		},
		{
			"a developer is the system, and systems are one",
			`{"messages":[{"role":"user","content":"u"},{"role":"developer","content":"d"},{"role":"system","content":"s"}]}`,
			"<s>|\tsystem=d\n\ns;\n\tuser=u;\ngo",
		},
		{"no generation prompt", `{"messages":[],"add_generation_prompt":false}`, "<s>|"},
		{"keyword arguments that the template names", `{"messages":[],"chat_template_kwargs":{"thinking":"yes","bos_token":"B","other":1}}`, "B|goyes"},
		{"fields win over keyword arguments", `{"messages":[],"chat_template_kwargs":{"add_generation_prompt":false}}`, "<s>|go"},
		{
			"the last message is continued",
			`{"messages":[{"role":"assistant","content":"half a "}],"add_generation_prompt":false,"continue_final_message":true}`,
			"<s>|\tassistant=half a ",
		},
	} {
		got, fault := r.render(routeChat, []byte(c.body))
		if fault != nil || got != c.want {
			t.Errorf("%s: %q, %+v, want %q", c.name, got, fault, c.want)
		}
	}
}

// TestTokenizeRouteReadsLess: /tokenize has fewer fields than chat.
func TestTokenizeRouteReadsLess(t *testing.T) {
	r := rendering(t, show)
	body := `{"messages":[{"role":"assistant","content":"x","reasoning_content":"why"}],"reasoning_effort":"none"}`
	if got, fault := r.render(routeTokenize, []byte(body)); fault != nil || got != "<s>|\tassistant=x;\ngo" {
		t.Errorf("%q, %+v", got, fault)
	}
}

// TestPartsReachTemplatesThatTakeThem: a template that loops over a content
// gets lists of parts, with what the client added to them.
func TestPartsReachTemplatesThatTakeThem(t *testing.T) {
	r := rendering(t, `{% for m in messages %}{% for p in m.content %}{{ p | tojson }}{% endfor %}{% endfor %}`)
	body := `{"messages":[{"role":"user","content":"a"},{"role":"user","content":[{"cache":1,"text":"b","type":"text"}]}]}`
	want := `{"type": "text", "text": "a"}{"type": "text", "text": "b", "cache": 1}`
	if got, fault := r.render(routeChat, []byte(body)); fault != nil || got != want {
		t.Errorf("%q, %+v, want %q", got, fault, want)
	}
}

// TestRenderingRefuses checks what is answered 400.
func TestRenderingRefuses(t *testing.T) {
	r := rendering(t, show+`{% if wrong %}{{ raise_exception("it is wrong") }}{% endif %}`)
	for body, want := range map[string]string{
		`{"messages":[],"chat_template_kwargs":{"wrong":1}}`:                             "it is wrong",
		`{"messages":[],"chat_template_kwargs":{"chat_template":"x"}}`:                   "unexpected",
		`{"messages":[],"chat_template":"x"}`:                                            "--trust-request-chat-template",
		`{"messages":[],"continue_final_message":true,"add_generation_prompt":true}`:     "Cannot set both",
		`{"messages":[{"role":"user","content":null}]}`:                                  "must not be null",
		`{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}`: "At most 0 image(s)",
		`{"messages":[{"role":"user","content":"\ud800"}]}`:                              "surrogates",
		`{"messages":[{"role":"assistant","tool_calls":[{"type":"custom"}]}]}`:           "of type 'function'",
		`{"messages":[],"tools":[{"type":"web_search"}]}`:                                "tools:",
	} {
		if got, fault := r.render(routeChat, []byte(body)); fault == nil || fault.Code != 400 || !strings.Contains(fault.Message, want) {
			t.Errorf("%s: %q, %+v, want %q", body, got, fault, want)
		}
	}
}

func TestNoRendererSaysWhy(t *testing.T) {
	if _, err := startRenderer("no-such-python", "."); !errors.Is(err, ErrNoOracle) || !strings.Contains(err.Error(), "no-such-python") {
		t.Errorf("no interpreter: %v", err)
	}
	python := jinjaPython(t)
	if _, err := startRenderer(python, t.TempDir()); err == nil || !strings.Contains(err.Error(), "tokenizer_config.json") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := startRenderer(python, templateFolder(t, "{% if %}")); err == nil || !strings.Contains(err.Error(), "TemplateSyntaxError") {
		t.Errorf("a broken template: %v", err)
	}
}
