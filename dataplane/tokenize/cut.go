package tokenize

import "unicode/utf8"

// cutClass names the places where a text may be cut whatever stands around:
// the ids of the whole are those of the two parts, one after the other.
type cutClass uint8

const (
	// cutSpace is before a space between a letter or number and a letter.
	cutSpace cutClass = 1 << iota
	// cutLine is after a newline that a letter or number follows.
	cutLine
	// cutSymbol is between a letter and what is no letter, mark, number,
	// white space or apostrophe.
	cutSymbol

	cutAll = cutSpace | cutLine | cutSymbol
)

// Why these are cuts for every splitter of this package: no branch of its
// pattern goes across one of these places, none looks behind, and the only
// look ahead, (?!\S), is about white space, which never ends at such a place
// but for the newline of cutLine: there the branch \s*[\r\n]+ has matched
// before. (GPT-2's pattern lacks that branch, and the class.) NFC goes across
// none either, and leaves the code points beside the cut what they are: only
// those are taken that are not active in it.
//
// What is left are added tokens, whose contents may have such places, and
// whose conditions may reach across: newCutter looks for both.

// cutter finds cuts.
type cutter struct {
	classes cutClass
	// inside has the pairs of bytes that stand next to each other in some
	// added token, left one first: between such two is no cut.
	inside [256][4]uint64
}

// newCutter takes from the classes that hold for the encoder those that hold
// in spite of the added tokens.
func newCutter(classes cutClass, added *addedTokens) cutter {
	c := cutter{classes: classes}
	for _, token := range added.all {
		if token.normalized && added.rewriting {
			c.classes = 0 // it may stand in the text in another form
		}
		if token.singleWord {
			c.classes &^= cutSymbol // the other side may be a part of a word: "_"
		}
		first, _ := utf8.DecodeRuneInString(token.content)
		last, _ := utf8.DecodeLastRuneInString(token.content)
		if token.rstrip && classOf(last)&(letter|number) != 0 {
			c.classes &^= cutSpace // it swallows the space
		}
		if token.lstrip && classOf(first)&(letter|number) != 0 {
			c.classes &^= cutLine // it swallows the newline
		}
		for i := 1; i < len(token.content); i++ {
			left, right := token.content[i-1], token.content[i]
			c.inside[left][right>>6] |= 1 << (right & 63)
		}
	}
	return c
}

// divides reports whether the two bytes beside a place are together in no
// added token.
func (c *cutter) divides(left, right byte) bool {
	return c.inside[left][right>>6]>>(right&63)&1 == 0
}

// NextCut returns the first cut at or after from, -1 if there is none: a place
// inside the text, past its start and before its end, where it may be divided
// with the ids of the parts making up the ids of the whole. Whether a place is
// a cut depends on the two or three code points around it only.
func (t *Tokenizer) NextCut(text []byte, from int) int {
	if t.cuts.classes == 0 {
		return -1
	}
	for pos := max(from, 1); pos < len(text); pos++ {
		if t.cuts.at(text, pos) {
			return pos
		}
	}
	return -1
}

// at reports whether pos, inside text and not at its start, is a cut.
func (c *cutter) at(text []byte, pos int) bool {
	left, right := text[pos-1], text[pos]
	if !utf8.RuneStart(right) {
		return false
	}
	switch {
	case right == ' ':
		return c.classes&cutSpace != 0 && pos+1 < len(text) && c.divides(left, right) &&
			isInert(validClassBefore(text, pos), letter|number) && isInert(validClassAt(text, pos+1), letter)
	case left == '\n':
		return c.classes&cutLine != 0 && c.divides(left, right) && isInert(validClassAt(text, pos), letter|number)
	}
	return c.classes&cutSymbol != 0 && c.divides(left, right) &&
		isCutSymbol(text, pos) && isInert(validClassBefore(text, pos), letter)
}

// isInert reports whether a code point is of one of the wanted classes and
// NFC leaves it as it is.
func isInert(class, wanted uint8) bool { return class&wanted != 0 && class&nfcActive == 0 }

// isCutSymbol reports whether a code point may be on the right of cutSymbol.
func isCutSymbol(text []byte, pos int) bool {
	const others = letter | mark | number | space | nfcActive
	if b := text[pos]; b < utf8.RuneSelf {
		return asciiClass[b]&others == 0 && b != '\''
	}
	r, size := utf8.DecodeRune(text[pos:])
	return size > 1 && r != '’' && classOf(r)&others == 0
}

// validClassAt is classAt for text that may be no UTF-8: what is none has no
// class.
func validClassAt(text []byte, pos int) uint8 {
	if b := text[pos]; b < utf8.RuneSelf {
		return asciiClass[b]
	}
	r, size := utf8.DecodeRune(text[pos:])
	if size == 1 {
		return 0
	}
	return classOf(r)
}

func validClassBefore(text []byte, pos int) uint8 {
	if b := text[pos-1]; b < utf8.RuneSelf {
		return asciiClass[b]
	}
	r, size := utf8.DecodeLastRune(text[:pos])
	if size == 1 {
		return 0
	}
	return classOf(r)
}
