package hf

import (
	"errors"
	"fmt"
	"os"
)

// ErrUnavailable is returned by Load in a build without the library.
var ErrUnavailable = errors.New("hf: this program was built without the library of Hugging Face tokenizers; " +
	"run make libtokenizers, then make build-hf (or go build -tags hf)")

// ErrClosed is returned by each call on a Tokenizer after its Close.
var ErrClosed = errors.New("hf: tokenizer is closed")

// ErrNotUTF8 is returned by Encode for text that is no UTF-8: such text has no
// ids, only those of whatever it is replaced by.
var ErrNotUTF8 = errors.New("hf: text is not UTF-8; replace what is invalid before")

// ErrNoIDs is returned by Encode when a text that is not empty has no ids. A
// vocabulary that loses text can't say where its prefixes end.
var ErrNoIDs = errors.New("hf: the tokenizer gives no ids for a text that is not empty")

// LoadFile is Load of the tokenizer.json at path.
func LoadFile(path string) (*Tokenizer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("hf: %w", err)
	}
	t, err := Load(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}
