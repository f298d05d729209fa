package exact

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"warmpath/controlplane/engine"
	"warmpath/dataplane/chat"
	"warmpath/dataplane/prompt"
)

const (
	// chatML is a template in the manner of Qwen's: tools, calls, parts and an
	// option leave their marks.
	chatML = `{%- if tools %}{{ '<|im_start|>system\n' }}{% for t in tools %}{{ t | tojson }}{{ '\n' }}{% endfor %}{{ '<|im_end|>\n' }}{%- endif %}` +
		`{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.content is string %}{{ m.content }}{% endif %}` +
		`{%- for c in m.tool_calls or [] %}{{ '<call>' + c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{{ '<|im_end|>\n' }}{%- endfor %}` +
		`{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}`
	// dated writes the date; plainly refuses turns of the system, as Gemma's
	// does; strange is not understood.
	dated   = `{{ strftime_now('%d %B %Y') }}` + chatML
	plainly = `{%- if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{%- endif %}` + chatML
	strange = `{% frobnicate %}`
)

// modelFolder makes the folder of a model: the tiny tokenizer, and a template
// unless it is "".
func modelFolder(t testing.TB, template string) string {
	t.Helper()
	dir := t.TempDir()
	tiny, err := os.ReadFile("../../dataplane/tokenize/testdata/tiny.json")
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "tokenizer.json", string(tiny))
	if template != "" {
		write(t, dir, "template.jinja", template)
	}
	return dir
}

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// source names the files of such a folder.
func source(dir, template string) Source {
	s := Source{Model: "m", Tokenizer: filepath.Join(dir, "tokenizer.json")}
	if template != "" {
		s.Template = filepath.Join(dir, "template.jinja")
	}
	return s
}

// engines is an Asker: engines that make of requests what the model says,
// except where they are told to go wrong.
type engines struct {
	truth map[string]*prompt.Model // by kind of engine

	mu    sync.Mutex // guards what follows
	nodes map[string]*fakeEngine
}

// fakeEngine is one of them.
type fakeEngine struct {
	down, mute, busy bool
	hang             chan struct{} // closed when it goes on; nil = it does not hang
	wrong            map[prompt.Class]bool
	asked            []string // bodies, since it was looked at last
	version          string
}

// newEngines returns engines with a model whose files are loaded already, and
// with a clock of their own.
func newEngines(l Loaded, now func() time.Time) *engines {
	l.now = now
	e := &engines{truth: map[string]*prompt.Model{}, nodes: map[string]*fakeEngine{}}
	for kind, as := range map[string]chat.Engine{"vllm": chat.VLLM, "sglang": chat.SGLang} {
		e.truth[kind] = l.Model(as, 16, prompt.NewMemo(1<<20))
	}
	return e
}

// of returns a node's engine; base is http:// and the node's name.
func (e *engines) of(base string) *fakeEngine {
	name := strings.TrimPrefix(base, "http://")
	if e.nodes[name] == nil {
		e.nodes[name] = &fakeEngine{wrong: map[prompt.Class]bool{}, version: "1"}
	}
	return e.nodes[name]
}

var errDown = errors.New("connection refused")

func (e *engines) Version(_ context.Context, _, base string) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.of(base).version
}

func (e *engines) Tokens(ctx context.Context, kind, base string, body []byte) ([]uint32, error) {
	e.mu.Lock()
	n := e.of(base)
	n.asked = append(n.asked, string(body))
	down, mute, busy, hang := n.down, n.mute, n.busy, n.hang
	e.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
		}
	}
	form := prompt.FormChat
	if strings.Contains(string(body), `"prompt":`) {
		form = prompt.FormCompletion
	}
	ids, v, err := prompt.IDs(e.truth[kind], form, body)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case down:
		return nil, errDown
	case mute:
		return nil, engine.ErrNoTokens
	case busy:
		return nil, &engine.StatusError{URL: base, Status: 429}
	case err != nil || v.Level != chat.LevelExact:
		return nil, &engine.StatusError{URL: base, Status: 400, Body: v.Reason}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if n.wrong[v.Class] {
		ids[len(ids)/2]++
	}
	return ids, nil
}
