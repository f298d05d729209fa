package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"warmpath/dataplane/tokenize/hf"
)

// ErrNoOracle is returned by LoadModel where real ids cannot be had: the
// program was built without the library, or there is no Python with jinja2.
var ErrNoOracle = errors.New("load a real model")

// Model is the vocabulary and the chat template of a real model. Engines may
// share it. It tokenizes with Hugging Face's library and renders with Python's
// jinja2, so that it has no code in common with a router that is compared with
// the simulated engine.
type Model struct {
	folder    string
	tokenizer *hf.Tokenizer
	template  *renderer
	ids       uint32 // one more than the largest
	words     answerTable
}

// LoadModel reads the folder of a model: tokenizer.json, tokenizer_config.json
// and, where the template has a file of its own, chat_template.jinja. python
// is the interpreter; "" takes the first that has jinja2 of those of the tests
// and of the machine. The error wraps ErrNoOracle where the machine is at
// fault and not the folder. Close the model after the engines that use it.
func LoadModel(folder, python string) (*Model, error) {
	data, err := os.ReadFile(filepath.Join(folder, "tokenizer.json"))
	if err != nil {
		return nil, fmt.Errorf("load model %q: %w", folder, err)
	}
	m := &Model{folder: folder}
	if m.ids, err = vocabularySize(data); err != nil {
		return nil, fmt.Errorf("load model %q: %w", folder, err)
	}
	m.tokenizer, err = hf.Load(data)
	if errors.Is(err, hf.ErrUnavailable) {
		return nil, fmt.Errorf("%w %q: %w", ErrNoOracle, folder, err)
	}
	if err != nil {
		return nil, fmt.Errorf("load model %q: %w", folder, err)
	}
	if m.template, err = startRenderer(python, folder); err != nil {
		_ = m.tokenizer.Close()
		return nil, err
	}
	if err := m.pickWords(); err != nil {
		_ = m.Close()
		return nil, fmt.Errorf("load model %q: %w", folder, err)
	}
	return m, nil
}

// Close ends the renderer and frees the tokenizer.
func (m *Model) Close() error { return errors.Join(m.template.close(), m.tokenizer.Close()) }

func (m *Model) name() string {
	return filepath.Base(m.folder) + ", rendered with " + m.template.version
}

func (m *Model) size() uint32 { return m.ids }

func (m *Model) answers() *answerTable { return &m.words }

func (m *Model) text(text string, special bool) ([]uint32, *apiError) {
	ids, err := m.tokenizer.Encode(nil, []byte(strings.ToValidUTF8(text, "\uFFFD")), special)
	if err != nil {
		return nil, internalError(err)
	}
	return ids, nil
}

func (m *Model) chat(req *requestBody, by route) ([]uint32, *apiError) {
	text, fault := m.template.render(by, req.raw)
	if fault != nil {
		return nil, fault
	}
	return m.text(text, by == routeTokenize && req.AddSpecialTokens != nil && *req.AddSpecialTokens)
}

func internalError(err error) *apiError {
	return &apiError{Message: err.Error(), Type: "InternalServerError", Code: http.StatusInternalServerError}
}

// pickWords finds answers in this vocabulary: words that are one token behind
// whatever word stands before them.
func (m *Model) pickWords() error {
	alone, err := m.tokenizer.Encode(nil, []byte("it"), false)
	if err != nil {
		return err
	}
	var found answerTable
	n := 0
	for _, word := range fourByteAnswers.text {
		ids, err := m.tokenizer.Encode(nil, []byte("it"+word), false)
		if err != nil {
			return err
		}
		if len(ids) == len(alone)+1 {
			found.text[n], found.ids[n] = word, ids[len(alone)]
			n++
		}
	}
	if n == 0 {
		return errors.New("no common English word is one token in this vocabulary")
	}
	for i := range m.words.text {
		m.words.text[i], m.words.ids[i] = found.text[i%n], found.ids[i%n]
	}
	return nil
}

// vocabularySize is one more than the largest id of a tokenizer.json.
func vocabularySize(data []byte) (uint32, error) {
	var file struct {
		Model struct {
			Vocab map[string]uint32 `json:"vocab"`
		} `json:"model"`
		Added []struct {
			ID uint32 `json:"id"`
		} `json:"added_tokens"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return 0, fmt.Errorf("read tokenizer.json: %w", err)
	}
	size := uint32(0)
	for _, id := range file.Model.Vocab {
		size = max(size, id+1)
	}
	for _, a := range file.Added {
		size = max(size, a.ID+1)
	}
	return size, nil
}
