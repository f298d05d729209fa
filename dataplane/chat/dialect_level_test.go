package chat

import (
	"strings"
	"testing"
)

const imagePart = `{"type": "image_url", "image_url": {"url": "data:,"}}`

// TestPrefixBeforeMedia: with an image in the request the prompt is known up to
// where the image begins, whatever the template writes for one.
func TestPrefixBeforeMedia(t *testing.T) {
	const vision = `{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}` +
		`{% if part.type == 'text' %}{{ part.text }}{% else %}<vision>{{ part.type }}</vision>{% endif %}{% endfor %}{% endif %}{% endfor %}<bot>`
	const flat = `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<bot>`
	const early = `{{ messages[1].content|length }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}`
	messages := `{"messages": [{"role": "system", "content": "Rules é"}, {"role": "user", "content": [{"type": "text", "text": "Look: "}, ` +
		imagePart + `, {"type": "text", "text": "What?"}]}, {"role": "assistant", "content": "A cat"}, {"role": "user", "content": "Sure?"}]}`
	for _, c := range []struct {
		name, template, body, want string
		engine                     Engine
	}{
		{"parts", vision, messages, "<system>Rules é<user>Look: ", VLLM},
		{"text", flat, messages, "<system>Rules é<user>", VLLM},
		{"before everything", early, messages, "", VLLM},
		{"first part", vision, `{"messages": [{"role": "user", "content": [` + imagePart + `]}]}`, "<user>", VLLM},
		{"audio", vision, `{"messages": [{"role": "user", "content": [{"type": "text", "text": "a\n"}, {"type": "input_audio", "input_audio": {}}]}]}`, "<user>a\n", VLLM},
		{"sglang", vision, messages, "<system>Rules é<user>Look: ", SGLang},
	} {
		t.Run(c.name, func(t *testing.T) {
			in, level, text, err := prepareWith(t, c.template, DialectOptions{Engine: c.engine}, c.body)
			if err != nil {
				t.Fatal(err)
			}
			if level != LevelPrefix || text != c.want || in.Features&FeatureMedia == 0 || in.Reason == "" {
				t.Errorf("level %v, features %v, reason %q, text %q, want %q", level, in.Features, in.Reason, text, c.want)
			}
		})
	}
}

// prepareWith prepares and renders a chat request with a template.
func prepareWith(t *testing.T, source string, o DialectOptions, body string) (in Input, level Level, text string, err error) {
	t.Helper()
	if o.Template, err = Compile(source, Options{}); err != nil {
		t.Fatal(err)
	}
	d, err := NewDialect(o)
	if err != nil {
		t.Fatal(err)
	}
	m := Machine{Now: goldenNow}
	if err := d.Prepare(&m, ChatCompletions, []byte(body), &in); err != nil {
		return in, LevelText, "", err
	}
	var out Rope
	level, err = d.Render(&m, &in, &out)
	return in, level, string(out.AppendText(nil)), err
}

func TestFeatures(t *testing.T) {
	for body, want := range map[string]string{
		`{"messages": [{"role": "user", "content": "x"}]}`:                                                                                    "plain",
		`{"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}`:                                                        "parts",
		`{"messages": [{"role": "user", "content": "x"}], "tools": [{"function": {"name": "f"}}]}`:                                            "tools",
		`{"messages": [{"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "x"}]}]}`: "tools+parts",
		`{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"a": 1}}`:                                                  "options",
		`{"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "low", "documents": []}`:                                        "options",
		`{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {}, "documents": null, "tools": null}`:                      "plain",
		`{"messages": [{"role": "user", "content": [` + imagePart + `]}]}`:                                                                    "parts+media",
	} {
		in, _, _, err := prepareWith(t, "{{ messages }}", DialectOptions{}, body)
		if err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if got := in.Features.String(); got != want {
			t.Errorf("%s: features %s, want %s", body, got, want)
		}
	}
}

// TestDialectOptions: what the engine was started with.
func TestDialectOptions(t *testing.T) {
	const shows = `{{ [tools|default('no') is none, a|default('-'), b|default('-'), enable_thinking|default('-')]|join(' ') }} {{ messages[0].content is string }}`
	const body = `{"messages": [{"role": "user", "content": "x"}], "tools": [{"function": {"name": "f"}}], "tool_choice": "none", "chat_template_kwargs": {"b": 2}}`
	for _, c := range []struct {
		name, want string
		options    DialectOptions
	}{
		{"defaults", "False - 2 - True", DialectOptions{}},
		{"tools excluded", "True - 2 - True", DialectOptions{ExcludeToolsWhenNone: true}},
		{"sglang excludes tools", "True - 2 - True", DialectOptions{Engine: SGLang}},
		{"arguments", "False 1 2 false True", DialectOptions{DefaultKwargs: []byte(`{"a": 1, "b": 1, "enable_thinking": "false"}`)}},
		{"content format", "False - 2 - False", DialectOptions{ContentFormat: ContentParts}},
	} {
		_, level, text, err := prepareWith(t, shows, c.options, body)
		if err != nil || level != LevelExact || text != c.want {
			t.Errorf("%s: %q, %v, %v; want %q", c.name, text, level, err, c.want)
		}
	}
}

func TestNewDialectRefuses(t *testing.T) {
	for _, kwargs := range []string{"[]", "{", `"x"`} {
		if _, err := NewDialect(DialectOptions{DefaultKwargs: []byte(kwargs)}); err == nil {
			t.Errorf("default arguments %s were taken", kwargs)
		}
	}
}

// TestWithoutTemplate: completions need no template, chats are not known.
func TestWithoutTemplate(t *testing.T) {
	d, err := NewDialect(DialectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var m Machine
	var in Input
	if err := d.Prepare(&m, Completions, []byte(`{"prompt": "x"}`), &in); err != nil || !in.Text.Is("x") {
		t.Errorf("completion: %v", err)
	}
	for _, e := range []Endpoint{ChatCompletions, Messages, Responses} {
		err := d.Prepare(&m, e, []byte(`{"messages": [{"role": "user", "content": "x"}], "input": "x"}`), &in)
		if err == nil || in.Level != LevelText || ClassOf(err) != Inexact {
			t.Errorf("endpoint %d: level %v, %v", e, in.Level, err)
		}
	}
}

// TestSGLangRetry: a template that wants functions without their wrapper.
func TestSGLangRetry(t *testing.T) {
	const bare = `{{ tools[0].name if tools[0].name is defined else raise_exception('no name') }}`
	const body = `{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f"}}]}`
	_, level, text, err := prepareWith(t, bare, DialectOptions{Engine: SGLang}, body)
	if err != nil || level != LevelExact || text != "f" {
		t.Errorf("%q, %v, %v", text, level, err)
	}
	if _, _, _, err := prepareWith(t, bare, DialectOptions{Engine: VLLM}, body); ClassOf(err) != Raised {
		t.Errorf("vLLM does not try again, but: %v", err)
	}
}

// FuzzPrepare: whatever the body, there is an error or a prompt, and no panic.
func FuzzPrepare(f *testing.F) {
	var all []*Dialect
	for _, engine := range []Engine{VLLM, SGLang} {
		for _, name := range []string{"chatml_think", "variables_parts"} {
			source, _, _ := templateSource(name)
			template, err := Compile(source, Options{})
			if err != nil {
				f.Fatal(err)
			}
			d, err := NewDialect(DialectOptions{Engine: engine, Template: template, SpecialTokens: engineSpecialTokens})
			if err != nil {
				f.Fatal(err)
			}
			all = append(all, d)
		}
	}
	for _, body := range []string{
		`{"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, ` + imagePart + `]}], "tools": [{"function": {"name": "f"}}]}`,
		`{"messages": [{"role": "developer", "content": "x"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}], "continue_final_message": true, "add_generation_prompt": false}`,
		`{"system": "x", "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "b"}]}], "input": [{"type": "function_call", "call_id": "a", "name": "b", "arguments": ""}]}`,
		`{"prompt": ["a", "b"], "input": "x", "instructions": "y"}`,
	} {
		f.Add([]byte(body))
	}
	m := Machine{Now: goldenNow, Limits: Limits{Steps: 1 << 14, ArenaBytes: 1 << 20}}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, d := range all {
			for _, e := range []Endpoint{ChatCompletions, Completions, Messages, Responses} {
				m.Reset()
				var in Input
				var out Rope
				err := d.Prepare(&m, e, body, &in)
				if (err != nil) != (in.Level == LevelText) {
					t.Fatalf("level %v with error %v", in.Level, err)
				}
				if err != nil {
					continue
				}
				if level, err := d.Render(&m, &in, &out); err == nil && level == LevelText {
					t.Fatal("no error and no level")
				}
				if strings.ContainsAny(string(out.AppendText(nil)), unknownText+unknownOther[:1]) && !strings.Contains(string(body), "u000") {
					t.Fatal("what stands for media is in the prompt")
				}
			}
		}
	})
}
