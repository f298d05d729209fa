package tokenize

import (
	"unicode/utf8"
)

// addedToken is a string that is one token wherever it stands in a text.
type addedToken struct {
	content string // as the file has it
	id      uint32

	singleWord     bool // only where no part of a word touches it
	lstrip, rstrip bool // swallows the white space on that side
	normalized     bool // is matched in normalised text, in its own normal form
}

// addedTokens are those of a tokenizer, in the two sets that are matched one
// after the other: first in the raw text, then in what is left of it between
// the matches, normalised.
type addedTokens struct {
	raw, normalized matcher

	all       map[uint32]*addedToken
	solid     map[uint32]bool
	rewriting bool // a normalizer stands between the two sets
}

func (a *addedTokens) byID(id uint32) *addedToken { return a.all[id] }

// matcher finds tokens leftmost first, of those that begin at one place the
// longest.
type matcher struct {
	trie   *trie
	tokens []*addedToken
}

// newMatcher matches tokens by forms, which has a string for each of them.
func newMatcher(tokens []*addedToken, forms []string) matcher {
	return matcher{newTrie(forms), tokens}
}

// next returns the first token at or after from, with the white space that it
// swallows, but none before from. Without any, it returns len(text) twice and
// nil.
func (m *matcher) next(text []byte, from int) (start, end int, token *addedToken) {
	if len(m.tokens) == 0 {
		return len(text), len(text), nil
	}
	for pos := from; pos < len(text); {
		start = m.trie.skip(text, pos)
		if start == len(text) {
			break
		}
		end, value := m.trie.longest(text, start)
		if value < 0 {
			pos = start + 1
			continue
		}
		token = m.tokens[value]
		if token.singleWord && touchesWord(text, start, end) {
			pos = end // the reference does not try a shorter one either
			continue
		}
		if token.lstrip {
			start = stripLeft(text, from, start)
		}
		if token.rstrip {
			end = runOf(space, text, end)
		}
		return start, end, token
	}
	return len(text), len(text), nil
}

// touchesWord reports whether a part of a word stands right before start or
// right after end.
func touchesWord(text []byte, start, end int) bool {
	before, size := utf8.DecodeLastRune(text[:start])
	if size > 0 && isWordRune(before) {
		return true
	}
	after, size := utf8.DecodeRune(text[end:])
	return size > 0 && isWordRune(after)
}

// stripLeft returns the start of the white space that ends at pos, not before
// from.
func stripLeft(text []byte, from, pos int) int {
	for pos > from {
		r, size := utf8.DecodeLastRune(text[from:pos])
		if classOf(r)&space == 0 {
			break
		}
		pos -= size
	}
	return pos
}

// FindAdded returns the next added token at or after from: where it is, with
// the white space that it swallows, and its id. from must be 0 or the end of
// an earlier token. Of tokens that are matched in normalised text it finds
// those of tokenizers that have no normalizer only; no known model has others.
func (t *Tokenizer) FindAdded(text []byte, from int) (start, end int, id uint32, ok bool) {
	start, end, token := t.added.raw.next(text, from)
	if !t.added.rewriting {
		if s, e, earlier := t.added.normalized.next(text[:start], from); earlier != nil {
			start, end, token = s, e, earlier
		}
	}
	if token == nil {
		return 0, 0, 0, false
	}
	return start, end, token.id, true
}

// Solid reports whether id is an added token both sides of which are always
// cuts: wherever FindAdded's text holds its content, it is that token, and the
// ids of the whole are those of what stands before, its own, and those of what
// follows.
func (t *Tokenizer) Solid(id uint32) bool { return t.added.solid[id] }
