package tokenize

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// wholeWords are the entries that are one token when they are a whole
// pre-token although merging does not give them (ignore_merges). Models of
// this family have none as a rule.
type wholeWords struct {
	words map[string]uint32 // by text, ▁ spelled as a space
	split bool              // a pre-token begins at every space, and not only with a piece
}

// appendWholes is appendPiece for models with such words.
func (p *sentencePiece) appendWholes(ids []uint32, piece []byte, prefixed bool, s *Scratch) []uint32 {
	text := s.prefixed[:0]
	if prefixed {
		text = append(text, ' ')
	}
	for {
		at := bytes.Index(piece, []byte(string(metaspace)))
		if at < 0 {
			break
		}
		text = append(append(text, piece[:at]...), ' ')
		piece = piece[at+len(string(metaspace)):]
	}
	text = append(text, piece...)
	s.prefixed = text
	for len(text) > 0 {
		end := len(text)
		if i := bytes.IndexByte(text[1:], ' '); p.whole.split && i >= 0 {
			end = i + 1
		}
		if id, ok := p.whole.words[string(text[:end])]; ok {
			ids = append(ids, id)
		} else {
			ids = p.appendSegments(ids, text[:end], s)
		}
		text = text[end:]
	}
	return ids
}

// indexWords finds the entries that merging gives back from their own text: a
// segment with that text is one token. With ignoreMerges, the others are
// tokens where they are a whole pre-token.
func (p *sentencePiece) indexWords(m *bpeModel) {
	p.short = newWordTable(len(m.vocab))
	p.whole.words = map[string]uint32{}
	made := make([]bool, maxIDs) // by some merge
	for _, into := range p.merges.result {
		made[into] = true
	}
	var s Scratch
	var ids []uint32
	for entry, id := range m.vocab {
		text := []byte(spaced(entry))
		if len(text) == 0 || strings.Contains(entry, " ") { // no text has the space of the latter
			continue
		}
		ids = append(ids[:0], noID)
		if made[id] || utf8.RuneCount(text) == 1 {
			ids = p.appendMerged(ids[:0], text, &s)
		}
		switch {
		case len(ids) != 1 || ids[0] != id:
			if m.IgnoreMerges {
				p.whole.words[string(text)] = id
			}
		case len(text) <= shortMost:
			p.short.add(shortAt(text, 0, len(text)), id)
		}
	}
}
