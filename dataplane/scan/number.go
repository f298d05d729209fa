package scan

import (
	"encoding/binary"
	"math/bits"
)

// numberState says which part of a number (RFC 8259, section 6) was seen last.
type numberState uint8

const (
	numStart    numberState = iota
	numMinus                // "-"
	numZero                 // a leading zero: no digit may follow
	numInt                  // digits of the integer
	numPoint                // "."
	numFraction             // digits of the fraction
	numE                    // "e"
	numSign                 // sign of the exponent
	numExponent             // digits of the exponent
)

// numberBytes goes on within a number. A number ends at the first byte that
// cannot belong to it, so one that touches the end of b stays open.
func (s *Scanner) numberBytes(b []byte, p int) (int, bool) {
	num := s.num
	for ; p < len(b); p++ {
		n := num.after(b[p])
		if n == numStart {
			break
		}
		num = n
	}
	s.num = num
	if p == len(b) {
		return p, false
	}
	switch num {
	case numZero, numInt, numFraction, numExponent:
		if c := b[p]; c-'0' <= 9 {
			s.fail(s.tok, "number with a leading zero")
			return p, false
		}
	default:
		s.failByte(b, p, "in a number, want a digit")
		return p, false
	}
	if s.ctx > ctxSkipArray {
		s.numberValue(b, Span{uint32(s.tok), uint32(p)})
	}
	s.state = atNext
	return p, s.err == nil
}

// after returns the state after c, or numStart if c does not go on with n.
func (n numberState) after(c byte) numberState {
	if c-'0' <= 9 {
		switch n {
		case numInt, numFraction, numExponent:
			return n
		case numStart, numMinus:
			if c == '0' {
				return numZero
			}
			return numInt
		case numPoint:
			return numFraction
		case numE, numSign:
			return numExponent
		}
		return numStart
	}
	switch {
	case c == '.' && (n == numInt || n == numZero):
		return numPoint
	case (c == 'e' || c == 'E') && (n == numInt || n == numZero || n == numFraction):
		return numE
	case (c == '-' || c == '+') && n == numE:
		return numSign
	case c == '-' && n == numStart:
		return numMinus
	}
	return numStart
}

// integer reads a number that is written as a plain non-negative integer below
// 2⁶³. Anything else (sign, fraction, exponent, too large) is not one.
func integer(raw []byte) (v int64, ok bool) {
	if len(raw) == 0 || len(raw) > 19 {
		return 0, false
	}
	var u uint64 // 19 digits cannot overflow it
	for _, c := range raw {
		if c-'0' > 9 {
			return 0, false
		}
		u = u*10 + uint64(c-'0')
	}
	return int64(u), u < 1<<63
}

// tokenIDs takes in token ids as long as each is a plain integer of at most
// seven digits that is followed by a comma, at most one space and another
// digit, all well within b: the form lists of ids are written in. It returns
// where it stopped, at the beginning of a value that the general path reads.
func (s *Scanner) tokenIDs(b []byte, p int) int {
	keeps := s.keepsIDs && s.list.holds == elementTokens
	if s.ctx == ctxList {
		keeps = s.element(elementToken)
	}
	keeps = keeps && !s.forgot
	ids := s.tokens
	for len(b)-p >= 16 && (!keeps || len(ids) < s.Limits.MaxTokenIDs) {
		id, n := leadingInteger(binary.LittleEndian.Uint64(b[p:]))
		if n == 0 || n > 7 || b[p] == '0' && n > 1 || b[p+n] != ',' {
			break
		}
		n++
		if b[p+n] == ' ' {
			n++
		}
		if b[p+n]-'0' > 9 {
			break
		}
		if keeps {
			ids = append(ids, id)
		}
		p += n
	}
	s.tokens = ids
	if keeps {
		s.list.at.End = uint32(len(ids))
	}
	return p
}

// leadingInteger reads the digits that the eight bytes of w begin with, the
// first byte being the lowest, and counts them. v is only valid for n in 1 to 8.
func leadingInteger(w uint64) (v uint32, n int) {
	w ^= '0' * lanes                                 // digits become 0 to 9
	other := (w | (w + 0x06*lanes)) & (0xF0 * lanes) // the lowest mark is exact
	n = bits.TrailingZeros64(other) >> 3
	w <<= uint(64-8*n) & 63 // zeros go before the digits
	w = w*10 + w>>8         // pairs, in every second byte
	const two = 0x000000FF_000000FF
	w = (w&two)*(100+1000000<<32) + (w>>16&two)*(1+10000<<32)
	return uint32(w >> 32), n
}
