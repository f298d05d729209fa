package exact

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"warmpath/dataplane/chat"
	"warmpath/dataplane/prompt"
	"warmpath/dataplane/tokenize"
)

// Source says where a model's files are.
type Source struct {
	Model     string // its name
	Tokenizer string // path of tokenizer.json
	Template  string // path of a chat template; "" = the one in tokenizer_config.json beside the tokenizer
}

// Loaded is one model's tokenizer and templates, for all units.
type Loaded struct {
	Source
	// Refused says why nothing of the model is known exactly; "" if something
	// is.
	Refused string
	// Slow says why the tokenizer is Hugging Face's own, which takes
	// milliseconds where ours takes microseconds; "" if it is ours.
	Slow string
	// Partly says why its chats are not; "" if they are.
	Partly string

	tokenizer   prompt.Tokenizer
	slow        bool
	template    *chat.Template
	special     map[string]string
	fingerprint [32]byte
	dialects    map[chat.Engine]*chat.Dialect
	now         func() time.Time
}

// tokenizerConfig is what is needed of tokenizer_config.json.
type tokenizerConfig struct {
	Template json.RawMessage `json:"chat_template"` // a text, or a list of named ones
	special  map[string]string
}

// specialTokens are the variables that a tokenizer gives to its template
// (transformers, SpecialTokensMixin.special_tokens_map).
var specialTokens = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// Load reads a model's files. An error means that one cannot be read; a file
// that can be read and is not understood is said in Refused or Partly.
func Load(s Source) (*Loaded, error) {
	data, err := os.ReadFile(s.Tokenizer)
	if err != nil {
		return nil, fmt.Errorf("read tokenizer of model %q: %w", s.Model, err)
	}
	l := &Loaded{Source: s, fingerprint: sha256.Sum256(data), dialects: map[chat.Engine]*chat.Dialect{}, now: time.Now}
	if l.tokenizer, err = tokenize.Load(data); err != nil {
		l.tokenizer, l.slow = loadSlow(data), true
		if l.tokenizer == nil {
			l.Refused = err.Error()
			return l, nil
		}
		l.Slow = err.Error()
	}
	if err := l.loadTemplate(); err != nil {
		return nil, fmt.Errorf("read chat template of model %q: %w", s.Model, err)
	}
	for _, engine := range []chat.Engine{chat.VLLM, chat.SGLang} {
		d, err := chat.NewDialect(chat.DialectOptions{Engine: engine, Template: l.template, SpecialTokens: l.special})
		if err != nil {
			l.Partly = err.Error()
			continue
		}
		l.dialects[engine] = d
	}
	return l, nil
}

// loadTemplate finds and compiles the chat template.
func (l *Loaded) loadTemplate() error {
	config, err := readConfig(filepath.Join(filepath.Dir(l.Tokenizer), "tokenizer_config.json"))
	if err != nil {
		return err
	}
	l.special = config.special
	source, why := config.template()
	if l.Template != "" {
		text, err := os.ReadFile(l.Template)
		if err != nil {
			return err
		}
		source, why = string(text), ""
	}
	if source == "" {
		l.Partly = why
		return nil
	}
	if l.template, err = chat.Compile(source, chat.Options{}); err != nil {
		l.template, l.Partly = nil, err.Error()
	}
	return nil
}

// readConfig reads tokenizer_config.json; one that is not there says nothing.
func readConfig(path string) (c tokenizerConfig, err error) {
	c.special = map[string]string{}
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(data, &fields) // it was read before
	for _, name := range specialTokens {
		var text string
		var token struct {
			Content string `json:"content"`
		}
		switch raw := fields[name]; {
		case json.Unmarshal(raw, &text) == nil && text != "":
			c.special[name] = text
		case json.Unmarshal(raw, &token) == nil && token.Content != "":
			c.special[name] = token.Content
		}
	}
	return c, nil
}

// template is the default chat template, or why there is none.
func (c *tokenizerConfig) template() (source, why string) {
	if len(c.Template) == 0 || json.Unmarshal(c.Template, &source) == nil {
		return source, "the tokenizer has no chat template"
	}
	var named []struct {
		Name     string `json:"name"`
		Template string `json:"template"`
	}
	if json.Unmarshal(c.Template, &named) != nil {
		return "", "chat_template is neither a text nor a list of named texts"
	}
	for _, t := range named {
		if t.Name == "tool_use" {
			return "", "which of several chat templates is used depends on the request"
		}
	}
	for _, t := range named {
		if t.Name == "default" {
			return t.Template, ""
		}
	}
	return "", "none of several chat templates is the default"
}

// Model returns what the data plane needs for prompts of the model, as an
// engine of one kind makes them.
func (l *Loaded) Model(engine chat.Engine, unitTokens int, memo *prompt.Memo) *prompt.Model {
	o := prompt.Options{
		Name: l.Source.Model, Tokenizer: l.tokenizer, Slow: l.slow, Fingerprint: l.fingerprint[:], Dialect: l.dialects[engine],
		UnitTokens: unitTokens, Memo: memo,
	}
	if l.template != nil && l.template.UsesTime() {
		o.Clock = l.clock
	}
	return prompt.NewModel(o)
}

// clock is this host's time: engines write their own host's, and a probe tells
// when that has another date.
func (l *Loaded) clock() chat.Clock {
	now := l.now()
	return chat.Clock{
		Year: now.Year(), Month: int(now.Month()), Day: now.Day(),
		Hour: now.Hour(), Minute: now.Minute(), Second: now.Second(), Microsecond: now.Nanosecond() / 1000,
	}
}
