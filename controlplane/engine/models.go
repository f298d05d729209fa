package engine

import (
	"encoding/json"
	"fmt"
	"io"
)

// Bounds of a model list.
const (
	MaxModelsBytes  = 4 << 20
	MaxModels       = 4096
	maxModelIDBytes = 512
)

// rawModel is a model entry as engines write it. Numbers are floats because
// some engines write 4096.0.
type rawModel struct {
	ID            string   `json:"id"`
	OwnedBy       string   `json:"owned_by"`
	Root          *string  `json:"root"`
	Parent        *string  `json:"parent"`
	MaxModelLen   *float64 `json:"max_model_len"`  // vLLM, SGLang
	ContextLength *float64 `json:"context_length"` // others
	Meta          *struct {
		// llama.cpp. Its n_ctx_train is what the model was trained with, not
		// what the server allows, and is not used.
		Context *float64 `json:"n_ctx"`
	} `json:"meta"`
}

// Models reads an engine's answer to GET /v1/models. Entries without a usable
// id are left out. An empty list is no error: an engine that loads models on
// demand has none at first.
func Models(r io.Reader) (ModelList, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxModelsBytes+1))
	if err != nil {
		return ModelList{}, fmt.Errorf("decode models: %w", err)
	}
	if len(text) > MaxModelsBytes {
		return ModelList{}, fmt.Errorf("decode models: more than %d bytes: %w", MaxModelsBytes, ErrTooLarge)
	}
	var answer struct {
		Data *[]rawModel `json:"data"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return ModelList{}, fmt.Errorf("decode models: %w", err)
	}
	if answer.Data == nil {
		return ModelList{}, fmt.Errorf("decode models: no key %q: is this an OpenAI-compatible engine?", "data")
	}
	if len(*answer.Data) > MaxModels {
		return ModelList{}, fmt.Errorf("decode models: %d entries, at most %d are taken: %w", len(*answer.Data), MaxModels, ErrTooLarge)
	}
	list := ModelList{Engine: OpenAI, Models: make([]Model, 0, len(*answer.Data))}
	for i := range *answer.Data {
		raw := &(*answer.Data)[i]
		if raw.ID == "" || len(raw.ID) > maxModelIDBytes {
			continue
		}
		list.Models = append(list.Models, raw.model())
		if list.Engine == OpenAI {
			list.Engine = raw.engine()
		}
	}
	return list, nil
}

// heard takes note of what the answer's Server field says of the engine, if the list says
// nothing.
func (l *ModelList) heard(server string) {
	if name := byOwner(server); name != "" && l.Engine == OpenAI {
		l.Engine = name
	}
}

// engine says which dialect an entry speaks for. TGI writes the model's id as
// its owner.
func (m *rawModel) engine() string {
	if name := byOwner(m.OwnedBy); name != "" {
		return name
	}
	if m.OwnedBy == m.ID {
		return TGI
	}
	return OpenAI
}

func (m *rawModel) model() Model {
	out := Model{ID: m.ID, OwnedBy: m.OwnedBy}
	if m.Root != nil {
		out.Root = *m.Root
	}
	if m.Parent != nil {
		out.Parent = *m.Parent
	}
	lengths := []*float64{m.MaxModelLen, m.ContextLength}
	if m.Meta != nil {
		lengths = append(lengths, m.Meta.Context)
	}
	for _, n := range lengths {
		if n != nil && *n >= 1 && *n <= maxCount {
			out.MaxModelLen = int(*n)
			break
		}
	}
	return out
}
