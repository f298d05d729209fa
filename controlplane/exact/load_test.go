package exact

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warmpath/dataplane/chat"
	"warmpath/dataplane/prompt"
)

// TestLoad: what a folder has, and what becomes known of its model.
func TestLoad(t *testing.T) {
	const chatBody, textBody = `{"messages":[{"role":"user","content":"Hi"}]}`, `{"prompt":"Hi"}`
	for _, c := range []struct {
		name, config, template string // files; "" = none
		partly                 string // a part of it
		text                   string // of the chat; "" = not known
	}{
		{name: "no template", partly: "no chat template"},
		{name: "a config without one", config: `{"bos_token":"<s>"}`, partly: "no chat template"},
		{name: "null", config: `{"chat_template":null}`, partly: "no chat template"},
		{name: "one in the config", config: `{"chat_template":"{{ messages[0].content }}!"}`, text: "Hi!"},
		{name: "a file goes first", config: `{"chat_template":"{{ nothing"}`, template: "{{ messages[0].content }}?", text: "Hi?"},
		{name: "not understood", template: strange, partly: "frobnicate"},
		{
			name: "special tokens", config: `{"bos_token":"<s>","eos_token":{"content":"</s>","lstrip":false},"pad_token":null,"unk_token":{}}`,
			template: "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token is defined }}", text: "<s>Hi</s>False",
		},
		{name: "named, with a default", config: `{"chat_template":[{"name":"rag","template":"R"},{"name":"default","template":"D"}]}`, text: "D"},
		{name: "named, without", config: `{"chat_template":[{"name":"rag","template":"R"}]}`, partly: "none of several"},
		{name: "named, one for tools", config: `{"chat_template":[{"name":"default","template":"D"},{"name":"tool_use","template":"T"}]}`, partly: "depends on the request"},
		{name: "a number", config: `{"chat_template":5}`, partly: "neither a text nor a list"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := modelFolder(t, c.template)
			if c.config != "" {
				write(t, dir, "tokenizer_config.json", c.config)
			}
			l, err := Load(source(dir, c.template))
			if err != nil || l.Refused != "" {
				t.Fatalf("%v, refused %q", err, l.Refused)
			}
			if (c.partly == "") != (l.Partly == "") || !strings.Contains(l.Partly, c.partly) {
				t.Errorf("partly: %q, want %q", l.Partly, c.partly)
			}
			for _, engine := range []chat.Engine{chat.VLLM, chat.SGLang} {
				m := l.Model(engine, 16, prompt.NewMemo(1<<20))
				_, text, v, err := prompt.Text(m, prompt.FormChat, []byte(chatBody))
				if err != nil || string(text) != c.text || (v.Level == chat.LevelExact) != (c.text != "") {
					t.Errorf("%v: the chat is %v %q (%s), %v; want %q", engine, v.Level, text, v.Reason, err, c.text)
				}
				if ids, v, err := prompt.IDs(m, prompt.FormCompletion, []byte(textBody)); err != nil || v.Level != chat.LevelExact || len(ids) == 0 {
					t.Errorf("%v: a completion is %v, %v", engine, v, err)
				}
			}
		})
	}
}

// TestLoadErrors: what cannot be read is an error that names the file and the
// model, from New too; a tokenizer that is not understood is none.
func TestLoadErrors(t *testing.T) {
	good := modelFolder(t, chatML)
	broken := modelFolder(t, chatML)
	write(t, broken, "tokenizer_config.json", `{"chat_template":`)
	for name, s := range map[string]Source{
		"tokenizer.json":        {Model: "m1", Tokenizer: filepath.Join(good, "none", "tokenizer.json")},
		"none.jinja":            {Model: "m2", Tokenizer: filepath.Join(good, "tokenizer.json"), Template: filepath.Join(good, "none.jinja")},
		"tokenizer_config.json": {Model: "m3", Tokenizer: filepath.Join(broken, "tokenizer.json")},
	} {
		_, err := New(Options{Models: []Source{s}})
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), s.Model) {
			t.Errorf("%s: %v", name, err)
		}
		if name != "tokenizer_config.json" && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, text := range []string{`{"model":{"type":"WordPiece","vocab":{}}}`, `{`, ``} {
		dir := modelFolder(t, chatML)
		write(t, dir, "tokenizer.json", text)
		if l, err := Load(source(dir, chatML)); err != nil || l.Refused == "" || l.tokenizer != nil {
			t.Errorf("tokenizer %q: %v, refused %q", text, err, l.Refused)
		}
	}
}

// TestClock: the date in prompts is that of the clock; templates without one
// need none.
func TestClock(t *testing.T) {
	now := time.Date(2031, 12, 31, 23, 59, 58, 765_432_100, time.FixedZone("", 3600))
	for _, c := range []struct{ template, text string }{
		{`{{ strftime_now('%Y-%m-%d %H:%M:%S.%f') }}`, "2031-12-31 23:59:58.765432"},
		{"plain", "plain"},
	} {
		dir := modelFolder(t, c.template)
		l, err := Load(source(dir, c.template))
		if err != nil {
			t.Fatal(err)
		}
		l.now = func() time.Time { return now }
		m := l.Model(chat.VLLM, 16, prompt.NewMemo(1<<20))
		_, text, _, err := prompt.Text(m, prompt.FormChat, []byte(`{"messages":[{"role":"user","content":"Hi"}]}`))
		if err != nil || string(text) != c.text || (m.Clock == nil) != (c.text == c.template) {
			t.Errorf("%q %v, want %q", text, err, c.text)
		}
	}
}

// TestUnreadable: a folder in place of a file is an error as well.
func TestUnreadable(t *testing.T) {
	dir := modelFolder(t, "")
	if err := os.Mkdir(filepath.Join(dir, "tokenizer_config.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(source(dir, "")); err == nil {
		t.Error("a folder was read")
	}
}
