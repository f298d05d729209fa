package tokenize

// The patterns of gpt-oss (tiktoken's o200k_base) and of Mistral Nemo
// (tekken), which has no contractions and takes digits one by one.
const (
	o200kPattern  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	tekkenPattern = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// The two classes of its words overlap in what has no case.
const (
	head = upper | uncased | mark // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	tail = lower | uncased | mark // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
)

func splitO200k(piece []byte, pos int) int {
	class, size := classAt(piece, pos)
	if class&number != 0 {
		return numbersUpTo(3, piece, pos)
	}
	if end := casedWord(piece, pos, class, size); end != 0 {
		if end < len(piece) && piece[end] == '\'' {
			end += contraction(piece, end)
		}
		return end
	}
	return o200kRest(piece, pos, class)
}

func splitTekken(piece []byte, pos int) int {
	class, size := classAt(piece, pos)
	if class&number != 0 {
		return pos + size
	}
	if end := casedWord(piece, pos, class, size); end != 0 {
		return end
	}
	return o200kRest(piece, pos, class)
}

// casedWord matches the first two branches of the pattern, without the
// contraction, at pos, where no number stands; 0 if neither does. The order of
// trials is the back-tracking one: first branch with and without the code
// point in front, then the second.
func casedWord(piece []byte, pos int, class uint8, size int) int {
	if class&letter != 0 {
		if end := headsThenTails(piece, pos); end != 0 {
			return end
		}
		return runOf(head, piece, pos) // capitals and nothing else
	}
	next := pos + size
	if b := piece[pos]; b == '\r' || b == '\n' {
		return 0
	}
	if next < len(piece) {
		if end := headsThenTails(piece, next); end != 0 {
			return end
		}
	}
	if class&mark != 0 { // as the first letter of the word, and not in front of it
		return headsThenTails(piece, pos)
	}
	if end := runOf(head, piece, next); end > next {
		return end
	}
	return 0
}

// headsThenTails matches head*tail+ at pos; 0 if it does not match. If no tail
// follows the heads, the last of them that is a tail too must do.
func headsThenTails(piece []byte, pos int) int {
	lastBoth := 0 // end of it
	for pos < len(piece) {
		class, size := classAt(piece, pos)
		if class&lower != 0 {
			return runOf(tail, piece, pos+size)
		}
		if class&head == 0 {
			break
		}
		pos += size
		if class&tail != 0 {
			lastBoth = pos
		}
	}
	return lastBoth
}

// o200kRest matches the branches after numbers.
func o200kRest(piece []byte, pos int, class uint8) int {
	if piece[pos] == ' ' && pos+1 < len(piece) {
		if c, _ := classAt(piece, pos+1); c&(letter|number|space) == 0 {
			return newlinesOrSlashes(piece, runOther(piece, pos+1))
		}
	}
	if class&space != 0 {
		return whiteSpace(piece, pos)
	}
	return newlinesOrSlashes(piece, runOther(piece, pos))
}
