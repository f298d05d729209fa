package chat

import (
	"bytes"
	"unicode/utf8"
)

// This file walks over text that may be the raw content of a JSON string.
// There, a character is either written as itself or as an escape: a backslash
// and a letter, \uXXXX, or two of these for a surrogate pair.

// backslashesBefore counts the backslashes that end right before position at.
// The byte there belongs to an escape if their number is odd.
func backslashesBefore(raw []byte, at int) int {
	i := at
	for i > 0 && raw[i-1] == '\\' {
		i--
	}
	return at - i
}

func isSurrogate(r rune) bool { return 0xd800 <= r && r < 0xe000 }

// firstChar decodes the character that the raw content of a JSON string begins
// with. A lone surrogate is returned as itself; size is 0 for an escape that
// is none, and for no text.
func firstChar(raw []byte) (r rune, size int) {
	if len(raw) == 0 {
		return 0, 0
	}
	if raw[0] != '\\' {
		return utf8.DecodeRune(raw)
	}
	if len(raw) < 2 {
		return 0, 0
	}
	if raw[1] != 'u' {
		r = simpleEscape(raw[1])
		if r == 0 {
			return 0, 0
		}
		return r, 2
	}
	high, ok := codeUnit(raw)
	if !ok {
		return 0, 0
	}
	if high < 0xd800 || high >= 0xdc00 {
		return high, 6
	}
	if low, ok := codeUnit(raw[6:]); ok && 0xdc00 <= low && low < 0xe000 {
		return (high-0xd800)<<10 + (low - 0xdc00) + 0x10000, 12
	}
	return high, 6
}

// lastChar decodes the character that the raw content of a JSON string ends
// with. The text must have been checked.
func lastChar(raw []byte) (r rune, size int) {
	n := len(raw)
	if n == 0 {
		return 0, 0
	}
	if raw[n-1] >= utf8.RuneSelf {
		return utf8.DecodeLastRune(raw)
	}
	if n >= 2 && simpleEscape(raw[n-1]) != 0 && backslashesBefore(raw, n-1)%2 == 1 {
		return simpleEscape(raw[n-1]), 2
	}
	if n >= 6 && raw[n-6] == '\\' && raw[n-5] == 'u' && backslashesBefore(raw, n-5)%2 == 1 {
		unit, ok := codeUnit(raw[n-6:])
		if ok && 0xdc00 <= unit && unit < 0xe000 && n >= 12 {
			if r, size := firstChar(raw[n-12:]); size == 12 {
				return r, 12
			}
		}
		if ok {
			return unit, 6
		}
	}
	return rune(raw[n-1]), 1
}

// simpleEscape returns what a backslash and c stand for, 0 if c is u or no
// letter of an escape (RFC 8259, section 7).
func simpleEscape(c byte) rune {
	switch c {
	case '"', '\\', '/':
		return rune(c)
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return 0
}

// codeUnit reads the escape \uXXXX that raw begins with, if it does.
func codeUnit(raw []byte) (r rune, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	for _, c := range raw[2:6] {
		switch {
		case c-'0' <= 9:
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// equalText compares two strings in any form, without memory.
func equalText(a, b Value) bool {
	if a.form != formEscaped && a.form != formRope && b.form != formEscaped && b.form != formRope {
		return string(a.text) == string(b.text)
	}
	var x, y textReader
	x.open(a)
	y.open(b)
	for {
		p, q := x.piece(), y.piece()
		if len(p) == 0 || len(q) == 0 {
			return len(p) == len(q)
		}
		n := min(len(p), len(q))
		if string(p[:n]) != string(q[:n]) {
			return false
		}
		x.skip(n)
		y.skip(n)
	}
}

// textReader yields the decoded text of a string piece by piece.
type textReader struct {
	current  Segment // what is left of the segment being read
	segments []Segment
	char     [utf8.UTFMax]byte // a decoded escape, of which [from:to] is left
	from, to int
}

func (t *textReader) open(v Value) {
	if v.form == formRope {
		t.current, t.segments = v.ref.segments[0], v.ref.segments[1:]
		return
	}
	t.current = Segment{Bytes: v.text, Escaped: v.form == formEscaped}
}

// piece returns some of the text that is left, nothing at its end.
func (t *textReader) piece() []byte {
	if t.from < t.to {
		return t.char[t.from:t.to]
	}
	for len(t.current.Bytes) == 0 {
		if len(t.segments) == 0 {
			return nil
		}
		t.current, t.segments = t.segments[0], t.segments[1:]
	}
	raw := t.current.Bytes
	if !t.current.Escaped {
		return raw
	}
	if n := bytes.IndexByte(raw, '\\'); n > 0 {
		return raw[:n]
	} else if n < 0 {
		return raw
	}
	r, n := firstChar(raw)
	if n == 0 {
		n = len(raw) // no escape: not to happen in checked text
	}
	t.current.Bytes = raw[n:]
	t.from, t.to = 0, utf8.EncodeRune(t.char[:], r)
	return t.char[:t.to]
}

// skip goes on by n bytes of the last piece.
func (t *textReader) skip(n int) {
	if t.from < t.to {
		t.from += n
		return
	}
	t.current.Bytes = t.current.Bytes[n:]
}

// isSpace reports whether Python counts a character as white space
// (str.isspace, and \s in patterns).
func isSpace(r rune) bool {
	switch {
	case r <= 0x20:
		return r == ' ' || '\t' <= r && r <= '\r' || 0x1c <= r && r <= 0x1f
	case r < 0x1680:
		return r == 0x85 || r == 0xa0
	}
	return r == 0x1680 || 0x2000 <= r && r <= 0x200a || r == 0x2028 || r == 0x2029 ||
		r == 0x202f || r == 0x205f || r == 0x3000
}
