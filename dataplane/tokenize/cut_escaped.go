package tokenize

// NextCutEscaped is NextCut in the raw content of a JSON string, escapes not
// decoded: dividing the raw bytes there divides the decoded text at a cut. It
// takes no place inside an escape or beside one, but for a letter or number
// after an escaped newline.
func (t *Tokenizer) NextCutEscaped(raw []byte, from int) int {
	if t.cuts.classes == 0 {
		return -1
	}
	for pos := max(from, 1); pos < len(raw); pos++ {
		if t.cuts.atEscaped(raw, pos) {
			return pos
		}
	}
	return -1
}

// atEscaped is at for raw text.
func (c *cutter) atEscaped(raw []byte, pos int) bool {
	plain := c.at(raw, pos)
	if raw[pos] == '\\' || !plain && raw[pos-1] != 'n' {
		return false // whether an escape ends here would change nothing
	}
	if endsEscape(raw, pos) {
		return c.classes&cutLine != 0 && raw[pos-1] == 'n' && raw[pos-2] == '\\' &&
			c.divides('\n', raw[pos]) && isInert(validClassAt(raw, pos), letter|number)
	}
	return plain
}

// endsEscape reports whether an escape ends at pos or goes across it. A
// content that ends in the middle of an escape is no JSON, and no matter.
func endsEscape(raw []byte, pos int) bool {
	for at := pos - 1; at >= 0 && at >= pos-6; at-- {
		if raw[at] != '\\' {
			continue
		}
		start := at
		for start > 0 && raw[start-1] == '\\' {
			start--
		}
		if (at-start)%2 != 0 {
			// The second of a pair: an escape by itself, and none of the
			// backslashes before it begins one that comes this far.
			return at == pos-1
		}
		if at+1 < len(raw) && raw[at+1] == 'u' {
			return true // \uXXXX, up to six bytes from at
		}
		return at >= pos-2
	}
	return false
}
