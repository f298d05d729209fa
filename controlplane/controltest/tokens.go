package controltest

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"warmpath/controlplane/exact"
	"warmpath/dataplane/chat"
	"warmpath/dataplane/prompt"
)

// template renders a conversation as small models do.
const template = `{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}{{ '<|im_start|>assistant\n' }}`

// Tokens makes a model's tokens as an engine does that agrees with the router.
type Tokens struct {
	Path  string // of the tokenizer; its chat template is beside it
	model *prompt.Model
}

// TinyTokens is the small tokenizer that the tests of tokenize have, as that of
// a model. root is the path of the repository.
func TinyTokens(t testing.TB, root, model string) *Tokens {
	t.Helper()
	tokenizer, err := os.ReadFile(filepath.Join(root, "dataplane/tokenize/testdata/tiny.json"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]string{"chat_template": template})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, data := range map[string][]byte{"tokenizer.json": tokenizer, "tokenizer_config.json": config} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := &Tokens{Path: filepath.Join(dir, "tokenizer.json")}
	l, err := exact.Load(exact.Source{Model: model, Tokenizer: k.Path})
	if err != nil {
		t.Fatal(err)
	}
	k.model = l.Model(chat.VLLM, prompt.MinUnit, prompt.NewMemo(1<<20))
	return k
}

// Chat is the tokens of a chat, nil if they are not known.
func (k *Tokens) Chat(body []byte) []uint32 { return k.ids(prompt.FormChat, body) }

func (k *Tokens) ids(form prompt.Form, body []byte) []uint32 {
	ids, verdict, err := prompt.IDs(k.model, form, body)
	if err != nil || verdict.Level != chat.LevelExact {
		return nil
	}
	return ids
}

// Answer is the engine's route that tells a prompt's tokens.
func (k *Tokens) Answer(w http.ResponseWriter, body []byte) {
	form := prompt.FormChat
	var asked struct{ Prompt *json.RawMessage }
	if json.Unmarshal(body, &asked) == nil && asked.Prompt != nil {
		form = prompt.FormCompletion
	}
	ids := k.ids(form, body)
	if ids == nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"tokens": ids, "count": len(ids)})
}
