package tokenize

import (
	"encoding/json"
	"fmt"
	"slices"
)

// isSentencePiece reports whether a file is to be read as one of the family of
// sentencePiece: its pre-tokenizer, if any, does not end with ByteLevel.
func isSentencePiece(f *file) bool {
	raw := f.PreTokenizer
	for !absent(raw) {
		var part struct {
			Type  string            `json:"type"`
			Steps []json.RawMessage `json:"pretokenizers"`
		}
		if json.Unmarshal(raw, &part) != nil {
			return false
		}
		if part.Type != "Sequence" || len(part.Steps) == 0 {
			return part.Type != "ByteLevel"
		}
		raw = part.Steps[len(part.Steps)-1]
	}
	return true
}

// loadSentencePiece builds the tokenizers whose encoder is sentencePiece.
func loadSentencePiece(f *file) (*Tokenizer, error) {
	model, err := loadBPE(f.Model)
	if err != nil {
		return nil, err
	}
	spaces, err := loadSpacing(f)
	if err != nil {
		return nil, err
	}
	added, size, err := resolveAdded(f.AddedTokens, model.vocab)
	if err != nil {
		return nil, err
	}
	t := &Tokenizer{pieces: newPieceTable(model.vocab, size)}
	form := func(content string) string { return content }
	if spaces.normalizes && slices.ContainsFunc(added, func(a *addedToken) bool { return a.normalized }) {
		// Only then does anything but the encoder see the normalised text.
		n := metaspaceNormalizer{spaces.prepends}
		t.normalizer = n
		form = func(content string) string { return string(n.append(nil, []byte(content))) }
		if spaces.prepends {
			spaces.prefix = prefixNever
		}
	}
	encoder, err := newSentencePiece(model, spaces)
	if err != nil {
		return nil, err
	}
	t.encoder = encoder
	t.added = newAddedTokens(added, t.normalizer != nil, form)
	if spaces.prefix == prefixFirst {
		clear(t.added.solid) // what follows one would get a space if it stood alone
	}
	t.cuts = newCutter(spaces.cuts(model, encoder), &t.added)
	t.cuts.avoidMerges(model)
	return t, nil
}

// newSentencePiece builds the encoder.
func newSentencePiece(m *bpeModel, spaces *spacing) (*sentencePiece, error) {
	p := &sentencePiece{prefix: spaces.prefix, whole: wholeWords{split: spaces.split}}
	var err error
	if p.symbols, err = newSymbolTable(m); err != nil {
		return nil, err
	}
	if err := m.checkParts(); err != nil {
		return nil, err
	}
	if p.merges, err = m.mergeTable(); err != nil {
		return nil, err
	}
	p.joins = newJoins(m, spaces.split, &p.symbols)
	p.indexWords(m)
	p.cache = newWordCache()
	return p, nil
}

// checkParts refuses merges of what does not stand for its own text.
func (m *bpeModel) checkParts() error {
	for i, pair := range m.Merges {
		for _, part := range pair {
			_, isByte := byteEntry(part)
			if part == "" || m.ByteFallback && isByte || m.UnkToken != nil && part == *m.UnkToken {
				return &Unsupported{fmt.Sprintf("model.merges[%d]", i), fmt.Sprintf("%q is part of a merge", part)}
			}
		}
	}
	return nil
}
