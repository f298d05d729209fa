package exact

import (
	"warmpath/dataplane/prompt"
	"warmpath/dataplane/tokenize"
	"warmpath/dataplane/tokenize/hf"
)

// slow is a tokenizer that ours does not understand, through the Hugging Face
// library. It knows of no places where a text may be cut, so each prompt is
// encoded whole, on a worker.
type slow struct{ t *hf.Tokenizer }

// loadSlow returns a tokenizer through the library; nil where the program was
// built without it, or the library does not understand it either.
func loadSlow(data []byte) prompt.Tokenizer {
	if !hf.Available {
		return nil
	}
	t, err := hf.Load(data)
	if err != nil {
		return nil
	}
	return slow{t}
}

// Append appends the ids of text. A text that the library cannot encode gets
// none: its units are nobody's, and the engine's count of it tells.
func (s slow) Append(ids []uint32, text []byte, _ *tokenize.Scratch) []uint32 {
	more, err := s.t.Encode(ids, text, false)
	if err != nil {
		return ids
	}
	return more
}

// Wrap returns what stands around the ids of a text with special tokens.
func (s slow) Wrap() (before, after []uint32) {
	const any = "a"
	bare, err := s.t.Encode(nil, []byte(any), false)
	if err != nil {
		return nil, nil
	}
	whole, err := s.t.Encode(nil, []byte(any), true)
	if err != nil {
		return nil, nil
	}
	for at := 0; at+len(bare) <= len(whole); at++ {
		if _, same := compare(bare, whole[at:at+len(bare)]); same {
			return whole[:at], whole[at+len(bare):]
		}
	}
	return nil, nil
}

// FindAdded finds none, and no place is a cut.
func (s slow) FindAdded([]byte, int) (start, end int, id uint32, ok bool) { return 0, 0, 0, false }

// Solid knows of no such token.
func (s slow) Solid(uint32) bool { return false }

// NextCut knows of no cut.
func (s slow) NextCut([]byte, int) int { return -1 }

// NextCutEscaped knows of no cut.
func (s slow) NextCutEscaped([]byte, int) int { return -1 }

// Decode is for people.
func (s slow) Decode(ids []uint32) string {
	text, err := s.t.Decode(ids)
	if err != nil {
		return ""
	}
	return text
}
