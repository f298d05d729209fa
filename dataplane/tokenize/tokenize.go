package tokenize

// Tokenizer gives the ids of one model. It is immutable after [Load] but for
// an internal cache of words, and shared by all goroutines.
type Tokenizer struct {
	encoder    pieceEncoder
	normalizer normalizer // nil for none
	added      addedTokens
	cuts       cutter
	pieces     pieceTable

	before, after []uint32
}

// pieceEncoder is what makes ids of plain text: the seam between the families
// of models. [Load] chooses one by the shape of the file. It is shared by all
// goroutines.
type pieceEncoder interface {
	// appendPiece appends the ids of a piece: a maximal part of the text that
	// holds no added token, normalised, valid UTF-8, never empty. start says
	// that it begins the text. It keeps nothing of the piece.
	appendPiece(ids []uint32, piece []byte, start bool, s *Scratch) []uint32
	// decode returns the text of a vocabulary entry that is no added token.
	decode(entry string) string
}

// normalizer is what rewrites a piece before the encoder sees it.
type normalizer interface {
	// normalize returns the piece itself or a rewriting of it that lives in
	// the scratch until the next call. inert says that NFC surely leaves the
	// piece as it is. The piece is valid UTF-8 and not empty.
	normalize(piece []byte, inert bool, s *Scratch) []byte
}

// Scratch holds the buffers of one goroutine's calls. The zero value is ready.
// It may be used with any number of Tokenizers, by one goroutine at a time. It
// keeps as much memory as the largest text that was not plain UTF-8 in normal
// form needed, and a few megabytes at most besides.
type Scratch struct {
	valid    []byte // the text with invalid bytes replaced
	normal   []byte // a normalised piece
	prefixed []byte // a piece behind the space that ByteLevel may want
	runes    []combiningRune
	links    []link
	heap     []uint64
}

// Append appends the ids of text to ids, as encode(text,
// add_special_tokens=False) of the reference gives them: added tokens are
// found, special or not, and no other is put in. text should be UTF-8; each
// maximal invalid part counts as U+FFFD. The text is not kept.
func (t *Tokenizer) Append(ids []uint32, text []byte, s *Scratch) []uint32 {
	valid, inert := inspect(text)
	if !valid {
		s.valid = appendLossy(s.valid[:0], text)
		text = s.valid
		_, inert = inspect(text)
	}
	for done := 0; done < len(text); {
		start, end, token := t.added.raw.next(text, done)
		if start > done {
			ids = t.appendBetween(ids, text[done:start], done == 0, inert, s)
		}
		if token != nil {
			ids = append(ids, token.id)
		}
		done = end
	}
	return ids
}

// appendBetween appends the ids of what stands between added tokens of the raw
// text.
func (t *Tokenizer) appendBetween(ids []uint32, piece []byte, first, inert bool, s *Scratch) []uint32 {
	if t.normalizer != nil {
		piece = t.normalizer.normalize(piece, inert, s)
	}
	for done := 0; done < len(piece); {
		start, end, token := t.added.normalized.next(piece, done)
		if start > done {
			ids = t.encoder.appendPiece(ids, piece[done:start], first && done == 0, s)
		}
		if token != nil {
			ids = append(ids, token.id)
		}
		done = end
	}
	return ids
}

// Wrap returns what encode(…, add_special_tokens=True) puts around the ids of
// a text: the token that begins a sequence, say. The caller must not change
// the slices.
func (t *Tokenizer) Wrap() (before, after []uint32) { return t.before, t.after }

// VocabSize is one more than the largest id.
func (t *Tokenizer) VocabSize() int { return t.pieces.size() }

// Decode returns the text of ids, special tokens included, for messages and
// tests. An id that does not exist gives nothing; bytes that are no UTF-8 give
// U+FFFD.
func (t *Tokenizer) Decode(ids []uint32) string {
	var text []byte
	for _, id := range ids {
		if token := t.added.byID(id); token != nil {
			text = append(text, token.content...)
			continue
		}
		text = append(text, t.encoder.decode(t.pieces.entry(id))...)
	}
	return string(appendLossy(nil, text))
}
