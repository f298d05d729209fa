package tokenize

// What the ByteLevel pre-tokenizer splits by with use_regex stands in its
// code, not in tokenizer.json:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+

func splitGPT2(piece []byte, pos int) int {
	start := pos
	if piece[pos] == '\'' {
		if n := lowerContraction(piece, pos); n != 0 {
			return pos + n
		}
	}
	if piece[pos] == ' ' && pos+1 < len(piece) {
		pos++
	}
	class, size := classAt(piece, pos)
	switch {
	case class&letter != 0:
		return runOf(letter, piece, pos+size)
	case class&number != 0:
		return runOf(number, piece, pos+size)
	case class&space == 0:
		return runOther(piece, pos+size)
	}
	end, last := blanks(piece, start)
	if end < len(piece) && last > start {
		return last
	}
	return end
}

// splitDigitsGPT2 is the pre-tokenizer Digits, each digit by itself, followed
// by that of GPT-2: a digit counts as the end of the text before it.
func splitDigitsGPT2(piece []byte, pos int) int {
	if size := numericAt(piece, pos); size != 0 {
		return pos + size
	}
	if piece[pos] == ' ' && pos+1 < len(piece) && numericAt(piece, pos+1) != 0 {
		return pos + 1
	}
	end := splitGPT2(piece, pos)
	for at := pos; at < end; {
		// Only among symbols can there be digits that are no numbers to GPT-2.
		class, size := classAt(piece, at)
		if class&classMask == 0 && numericAt(piece, at) != 0 {
			return at
		}
		at += size
	}
	if classBefore(piece, end)&space == 0 {
		return end
	}
	// White space leaves its last one to what follows, but not to a digit.
	if blank, _ := blanks(piece, pos); blank > end && blank < len(piece) && numericAt(piece, blank) != 0 {
		return blank
	}
	return end
}

// lowerContraction returns the length of 's|'t|'re|'ve|'m|'ll|'d at pos, where
// an apostrophe stands; 0 if it does not match.
func lowerContraction(text []byte, pos int) int {
	n := contraction(text, pos)
	for _, b := range text[pos+1 : pos+max(n, 1)] {
		if b < 'a' || b > 'z' {
			return 0
		}
	}
	return n
}

// blanks returns the end of \s* at pos and where its last code point begins.
func blanks(text []byte, pos int) (end, last int) {
	last, end = pos, pos
	for end < len(text) {
		class, size := classAt(text, end)
		if class&space == 0 {
			break
		}
		last = end
		end += size
	}
	return end, last
}
