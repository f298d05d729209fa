package tokenize

// splitter returns the end of the pre-token that begins at pos, which must be
// inside the piece and either 0 or the end of another pre-token. The piece
// must be valid UTF-8.
//
// Each splitter is the state machine of one regular expression. None of those
// looks behind, so where a pre-token ends depends on the text after pos only.
type splitter func(piece []byte, pos int) (end int)

// runOf returns the end of the run of code points with a class in mask that
// begins at pos.
func runOf(mask uint8, text []byte, pos int) int {
	for pos < len(text) {
		if asciiClass[text[pos]]&mask != 0 {
			pos++
			continue
		}
		if text[pos] < 0x80 {
			break
		}
		class, size := classAt(text, pos)
		if class&mask == 0 {
			break
		}
		pos += size
	}
	return pos
}

// runOther returns the end of the run that begins at pos of code points that
// are no letter, number or white space: [^\s\p{L}\p{N}]*.
func runOther(text []byte, pos int) int {
	for pos < len(text) {
		class, size := classAt(text, pos)
		if class&(letter|number|space) != 0 {
			break
		}
		pos += size
	}
	return pos
}

// numbersUpTo returns the end of at most most numbers: \p{N}{1,most}.
func numbersUpTo(most int, text []byte, pos int) int {
	for ; most > 0 && pos < len(text); most-- {
		class, size := classAt(text, pos)
		if class&number == 0 {
			break
		}
		pos += size
	}
	return pos
}

// newlines returns the end of [\r\n]* at pos.
func newlines(text []byte, pos int) int {
	for pos < len(text) && (text[pos] == '\r' || text[pos] == '\n') {
		pos++
	}
	return pos
}

// newlinesOrSlashes returns the end of [\r\n/]* at pos.
func newlinesOrSlashes(text []byte, pos int) int {
	for pos < len(text) && (text[pos] == '\r' || text[pos] == '\n' || text[pos] == '/') {
		pos++
	}
	return pos
}

// whiteSpace matches \s*[\r\n]+|\s+(?!\S)|\s+ at pos, where white space
// stands: up to the last newline of the run if there is one, else the run
// without its last code point if something follows that would take it in.
func whiteSpace(text []byte, pos int) int {
	last, newline := pos, 0 // start of the last code point; end of the last newline
	end := pos
	for end < len(text) {
		class, size := classAt(text, end)
		if class&space == 0 {
			break
		}
		last = end
		end += size
		if b := text[last]; b == '\n' || b == '\r' {
			newline = end
		}
	}
	switch {
	case newline != 0:
		return newline
	case end < len(text) && last > pos:
		return last
	}
	return end
}

// contraction returns the length of (?i:'s|'t|'re|'ve|'m|'ll|'d) at pos, where
// an apostrophe stands; 0 if it does not match. Of the letters only s has a
// third form: U+017F, the long s.
func contraction(text []byte, pos int) int {
	rest := text[pos+1:]
	if len(rest) == 0 {
		return 0
	}
	switch rest[0] | 0x20 {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(rest) > 1 && rest[1]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if len(rest) > 1 && rest[1]|0x20 == 'l' {
			return 3
		}
	}
	if len(rest) > 1 && rest[0] == 0xC5 && rest[1] == 0xBF {
		return 3
	}
	return 0
}
