package tokenize

// The pattern of Llama 3 (three digits) and Qwen 2, 2.5 and 3 (one digit),
// which goes back to tiktoken's cl100k_base.
const (
	cl100kPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	qwenPattern   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

func splitCl100k(piece []byte, pos int) int { return cl100k(piece, pos, 3) }

func splitQwen(piece []byte, pos int) int { return cl100k(piece, pos, 1) }

func cl100k(piece []byte, pos, digits int) int {
	class, size := classAt(piece, pos)
	if class&letter != 0 {
		return runOf(letter, piece, pos+size)
	}
	if class&number != 0 {
		return numbersUpTo(digits, piece, pos)
	}
	b := piece[pos]
	if b == '\'' {
		if n := contraction(piece, pos); n != 0 {
			return pos + n
		}
	}
	next := pos + size
	if b != '\r' && b != '\n' && next < len(piece) {
		// [^\r\n\p{L}\p{N}]?\p{L}+
		if c, n := classAt(piece, next); c&letter != 0 {
			return runOf(letter, piece, next+n)
		} else if b == ' ' && c&(number|space) == 0 {
			return newlines(piece, runOther(piece, next+n))
		}
	}
	if class&space != 0 {
		return whiteSpace(piece, pos)
	}
	return newlines(piece, runOther(piece, next))
}
