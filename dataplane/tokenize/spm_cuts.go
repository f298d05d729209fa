package tokenize

import "unicode/utf8"

// cuts returns the classes of places that are cuts for this encoder. What
// avoidMerges excludes comes off later.
//
// A place is a cut if no merge joins its two sides and the right part, encoded
// by itself, gets no space in front that it has not in the whole.
func (p *spacing) cuts(m *bpeModel, e *sentencePiece) cutClass {
	classes := cutAll
	switch {
	case p.prefix == prefixEach || len(e.whole.words) > 0 && !p.split:
		return 0
	case p.prefix != prefixNever:
		classes = cutSpace // the right part begins with a space already
	}
	if !e.symbols.closed {
		// Of two unknown code points in a row the second has no symbol, unless
		// ▁ stands between.
		if classes &= cutSpace; e.symbols.find(metaspace) == noID {
			return 0
		}
	}
	if len(e.whole.words) > 0 {
		classes &= cutSpace // a pre-token may be more than its parts
	}
	for _, pair := range m.Merges {
		last, _ := utf8.DecodeLastRuneInString(pair[0])
		first, _ := utf8.DecodeRuneInString(pair[1])
		left, right := classOf(last), classOf(first)
		if left&(letter|number) != 0 && first == metaspace && !p.split {
			classes &^= cutSpace
		}
		if last == '\n' && right&(letter|number) != 0 {
			classes &^= cutLine
		}
	}
	return classes
}

// avoidMerges takes away the places of cutSymbol that some merge joins. There
// are some, like "s)", in most vocabularies.
func (c *cutter) avoidMerges(m *bpeModel) {
	for _, pair := range m.Merges {
		left, right := pair[0][len(pair[0])-1], pair[1][0]
		if validClassBefore([]byte(pair[0]), len(pair[0]))&letter != 0 && isCutSymbol([]byte(pair[1]), 0) {
			c.inside[left][right>>6] |= 1 << (right & 63)
		}
	}
}
