//go:build !hf || !cgo

package hf

// Available says whether this build has the library.
const Available = false

// Tokenizer has no values in this build.
type Tokenizer struct{}

// Load fails with ErrUnavailable.
func Load([]byte) (*Tokenizer, error) { return nil, ErrUnavailable }

// Encode fails with ErrUnavailable.
func (*Tokenizer) Encode(ids []uint32, _ []byte, _ bool) ([]uint32, error) {
	return ids, ErrUnavailable
}

// Decode fails with ErrUnavailable.
func (*Tokenizer) Decode([]uint32) (string, error) { return "", ErrUnavailable }

// Close does nothing.
func (*Tokenizer) Close() error { return nil }
