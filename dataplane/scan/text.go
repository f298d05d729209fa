package scan

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// stringEnd says why skipString stopped.
type stringEnd uint8

const (
	endQuote stringEnd = iota // at the closing quote
	endInput                  // the input is used up, or ends within an escape or a character
	endBad                    // at a byte, escape or character that no string may hold
)

// Eight copies of a byte.
const (
	lanes = 0x0101010101010101
	highs = 0x80 * lanes
)

// special marks, in the high bit of each byte of w, what needs a closer look:
// quotes, backslashes, control characters, bytes of non-ASCII characters. The
// lowest mark is exact; a mark above it may be an artefact of a borrow.
//
// Flipping bit 1 puts the quote (0x22 → 0x20) next to the control characters
// and moves nothing else below 0x21, so that one comparison finds them all.
func special(w uint64) uint64 {
	return ((w ^ 0x02*lanes) - 0x21*lanes) | ((w ^ '\\'*lanes) - lanes) | w
}

// skipStringGeneric moves from p, inside a string and not inside an escape or a
// character, to the closing quote. When it stops elsewhere, q is again such a
// place. escaped says whether an escape was passed.
func skipStringGeneric(b []byte, p int) (q int, end stringEnd, escaped bool) {
	for {
		p = skipPlain(b, p)
		if p >= len(b) {
			return p, endInput, escaped
		}
		switch c := b[p]; {
		case c == '"':
			return p, endQuote, escaped
		case c == '\\':
			q, end = skipEscapes(b, p)
			escaped = escaped || q != p
			p = q
		case c >= utf8.RuneSelf:
			p, end = skipRunes(b, p)
		default:
			end = endBad
		}
		if end != endQuote {
			return p, end, escaped
		}
	}
}

// skipPlain moves over ASCII text without quotes, backslashes and controls.
func skipPlain(b []byte, p int) int {
	for len(b)-p >= 8 {
		if m := special(binary.LittleEndian.Uint64(b[p:])) & highs; m != 0 {
			return p + bits.TrailingZeros64(m)>>3
		}
		p += 8
		for len(b)-p >= 32 {
			w := b[p : p+32 : p+32]
			m := special(binary.LittleEndian.Uint64(w)) |
				special(binary.LittleEndian.Uint64(w[8:])) |
				special(binary.LittleEndian.Uint64(w[16:])) |
				special(binary.LittleEndian.Uint64(w[24:]))
			if m&highs != 0 {
				break
			}
			p += 32
		}
	}
	for p < len(b) && b[p] >= ' ' && b[p] < utf8.RuneSelf && b[p] != '"' && b[p] != '\\' {
		p++
	}
	return p
}

// skipEscapes moves over escapes and over the short plain runs between them,
// from a backslash on. Its end is endQuote unless it met something bad or the
// end of b.
func skipEscapes(b []byte, p int) (q int, end stringEnd) {
	for p < len(b) && b[p] == '\\' {
		if p+1 >= len(b) {
			return p, endInput
		}
		switch escapes[b[p+1]] {
		case 0:
			return p, endBad
		case 'u':
			n := 2
			for n < 6 && p+n < len(b) && hexDigits[b[p+n]] >= 0 {
				n++
			}
			if n < 6 {
				if p+n < len(b) {
					return p, endBad
				}
				return p, endInput
			}
			p += 6
		default:
			p += 2
		}
		for range 3 {
			if len(b)-p < 8 {
				break
			}
			if m := special(binary.LittleEndian.Uint64(b[p:])) & highs; m != 0 {
				p += bits.TrailingZeros64(m) >> 3
				break
			}
			p += 8
		}
	}
	return p, endQuote
}

// A pair of three-byte characters, in the low six bytes of a word.
const (
	pairMask  = 0x0000_C0C0F0_C0C0F0
	pairValue = 0x0000_8080E0_8080E0
)

// threeByteLegal has a bit for each pair (bit 5 of the second byte, low four bits
// of the first) of a three-byte character that is legal: no overlong form (E0
// with bit 5 clear), no surrogate (ED with bit 5 set). RFC 3629, section 4.
const threeByteLegal uint64 = 0xDFFF_FFFE

// skipRunes moves over non-ASCII characters.
func skipRunes(b []byte, p int) (q int, end stringEnd) {
	for p < len(b) && b[p] >= utf8.RuneSelf {
		for len(b)-p >= 8 {
			w := binary.LittleEndian.Uint64(b[p:])
			legal := threeByteLegal >> (w&15 | w>>9&16) & (threeByteLegal >> (w>>24&15 | w>>33&16))
			if w&pairMask != pairValue || legal&1 == 0 {
				break
			}
			p += 6
		}
		if p >= len(b) || b[p] < utf8.RuneSelf {
			break
		}
		_, size := utf8.DecodeRune(b[p:])
		if size == 1 {
			if utf8.FullRune(b[p:]) {
				return p, endBad
			}
			return p, endInput
		}
		p += size
	}
	return p, endQuote
}

// failString names what is wrong at p, where skipString stopped with endBad.
func (s *Scanner) failString(b []byte, p int) {
	switch c := b[p]; {
	case c != '\\' && c < ' ':
		s.failByte(b, p, "in a string, control characters must be escaped")
	case c != '\\':
		s.fail(p, "invalid UTF-8 in a string")
	case b[p+1] != 'u':
		s.failByte(b, p+1, "in a string escape")
	default:
		for p += 2; hexDigits[b[p]] >= 0; {
			p++
		}
		s.failByte(b, p, `in a \u escape, want four hexadecimal digits`)
	}
}
