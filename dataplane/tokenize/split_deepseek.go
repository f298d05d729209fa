package tokenize

// The three splits of DeepSeek-V3, each applied to the parts that the one
// before has made.
const (
	deepseekNumbers = `\p{N}{1,3}`
	deepseekCJK     = `[一-龥぀-ゟ゠-ヿ]+`
	deepseekWords   = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)

// splitDeepseek matches the third pattern in the part that pos is in. A part
// ends where numbers begin or end, and the same for the second pattern's
// characters; its end counts as the end of the text.
func splitDeepseek(piece []byte, pos int) int {
	class, size := classAt(piece, pos)
	if class&number != 0 {
		return numbersUpTo(3, piece, pos)
	}
	cjk := isDeepseekCJK(piece, pos, size)
	for at := pos; ; {
		if end := deepseekMatch(piece, at, cjk); end != 0 {
			if at > pos {
				return at // what nothing matches stays together
			}
			return end
		}
		_, size := classAt(piece, at)
		at += size
		if !inPart(piece, at, cjk) {
			return at
		}
	}
}

// inPart reports whether pos is neither the end of the text nor in another
// part than a code point before it.
func inPart(piece []byte, pos int, cjk bool) bool {
	if pos == len(piece) {
		return false
	}
	class, size := classAt(piece, pos)
	return class&number == 0 && isDeepseekCJK(piece, pos, size) == cjk
}

// isDeepseekCJK reports whether the code point of size bytes at pos is in the
// second pattern's class: U+4E00 to U+9FA5, or U+3040 to U+30FF.
func isDeepseekCJK(text []byte, pos, size int) bool {
	if size != 3 {
		return false
	}
	r := rune(text[pos]&0x0F)<<12 | rune(text[pos+1]&0x3F)<<6 | rune(text[pos+2]&0x3F)
	return r >= 0x4E00 && r <= 0x9FA5 || r >= 0x3040 && r <= 0x30FF
}

// runInPart is runOf that stays in the part.
func runInPart(mask uint8, piece []byte, pos int, cjk bool) int {
	for pos < len(piece) {
		class, size := classAt(piece, pos)
		if class&mask == 0 || isDeepseekCJK(piece, pos, size) != cjk {
			break
		}
		pos += size
	}
	return pos
}

// symbolsInPart returns the end of [\p{P}\p{S}]*[\r\n]* at pos.
func symbolsInPart(piece []byte, pos int, cjk bool) int {
	pos = runInPart(symbol, piece, pos, cjk)
	if cjk {
		return pos // a newline is in another part
	}
	return newlines(piece, pos)
}

// deepseekMatch matches the third pattern at pos, where no number stands; 0 if
// it does not match.
func deepseekMatch(piece []byte, pos int, cjk bool) int {
	class, size := classAt(piece, pos)
	b, next := piece[pos], pos+size
	switch {
	case class&(letter|mark) != 0:
		return runInPart(letter|mark, piece, next, cjk)
	case class&symbol != 0 && size == 1 && next < len(piece) && isASCIILetter(piece[next]):
		for next < len(piece) && isASCIILetter(piece[next]) {
			next++
		}
		return next
	case class&symbol != 0:
		return symbolsInPart(piece, next, cjk)
	}
	if b != '\r' && b != '\n' && inPart(piece, next, cjk) {
		if c, n := classAt(piece, next); c&(letter|mark) != 0 {
			return runInPart(letter|mark, piece, next+n, cjk)
		} else if b == ' ' && c&symbol != 0 {
			return symbolsInPart(piece, next+n, cjk)
		}
	}
	if class&space == 0 {
		return 0
	}
	end := whiteSpace(piece, pos)
	if end < len(piece) && piece[end-1] != '\r' && piece[end-1] != '\n' {
		// It may have left its last code point to another part.
		if blank, _ := blanks(piece, end); !inPart(piece, blank, cjk) {
			return blank
		}
	}
	return end
}

func isASCIILetter(b byte) bool { return b|0x20 >= 'a' && b|0x20 <= 'z' }
