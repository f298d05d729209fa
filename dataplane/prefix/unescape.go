package prefix

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// unescape decodes the contents of a JSON string from raw into the free
// capacity of dst, at most limit characters, and stops before a character
// that would not fit. It returns dst, the bytes of raw not yet decoded and
// the characters of the limit not yet used.
//
// A character is a Unicode code point: a pair of surrogate escapes is one, a
// surrogate without its other half is U+FFFD, as encoding/json reads it.
func unescape(dst, raw []byte, limit int) (out, rest []byte, left int) {
	for len(raw) > 0 && limit > 0 && cap(dst)-len(dst) >= utf8.UTFMax {
		if n := min(plainRun(raw), limit, cap(dst)-len(dst)); n > 0 {
			dst = append(dst, raw[:n]...)
			raw = raw[n:]
			limit -= n
			continue
		}
		size := 1
		switch c := raw[0]; {
		case c == '\\':
			var r rune
			r, size = escape(raw)
			dst = utf8.AppendRune(dst, r)
		default:
			_, size = utf8.DecodeRune(raw)
			dst = append(dst, raw[:size]...)
		}
		raw = raw[size:]
		limit--
	}
	return dst, raw, limit
}

// plainRun returns how many bytes at the start of raw are ASCII and begin no
// escape, looking at eight at a time.
func plainRun(raw []byte) (n int) {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for ; len(raw)-n >= 8; n += 8 {
		w := binary.LittleEndian.Uint64(raw[n:])
		x := w ^ '\\'*ones // a backslash becomes zero
		if hit := (w | (x-ones)&^x) & highs; hit != 0 {
			return n + bits.TrailingZeros64(hit)>>3
		}
	}
	for n < len(raw) && raw[n] < utf8.RuneSelf && raw[n] != '\\' {
		n++
	}
	return n
}

// escape reads the escape at the start of raw and returns the character it
// stands for and its length in bytes (RFC 8259, section 7). The grammar was
// checked by scan; what it would refuse counts as U+FFFD here.
func escape(raw []byte) (r rune, size int) {
	if len(raw) < 2 {
		return utf8.RuneError, len(raw)
	}
	switch raw[1] {
	case 'n':
		return '\n', 2
	case 't':
		return '\t', 2
	case 'r':
		return '\r', 2
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'u':
		return escapeUnicode(raw)
	}
	return rune(raw[1]), 2 // quote, backslash, solidus stand for themselves
}

// escapeUnicode reads \uXXXX, and the second half of a surrogate pair if one
// follows.
func escapeUnicode(raw []byte) (r rune, size int) {
	high, ok := hex4(raw)
	if !ok {
		return utf8.RuneError, min(len(raw), 6)
	}
	if high < 0xD800 || high > 0xDFFF {
		return high, 6
	}
	if high < 0xDC00 && len(raw) >= 8 && raw[6] == '\\' && raw[7] == 'u' {
		if low, ok := hex4(raw[6:]); ok && low >= 0xDC00 && low <= 0xDFFF {
			return (high-0xD800)<<10 | (low - 0xDC00) + 0x10000, 12
		}
	}
	return utf8.RuneError, 6
}

// hex4 reads the four digits of the \uXXXX at the start of raw.
func hex4(raw []byte) (r rune, ok bool) {
	if len(raw) < 6 {
		return 0, false
	}
	for _, c := range raw[2:6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// plainIs reports whether the JSON string contents raw, decoded, are the
// ASCII text name.
func plainIs(raw []byte, name string) bool {
	if string(raw) == name {
		return true
	}
	if len(raw) <= len(name) { // an escape is longer than what it stands for
		return false
	}
	for i := range len(name) {
		if len(raw) == 0 {
			return false
		}
		r, size := rune(raw[0]), 1
		if raw[0] == '\\' {
			r, size = escape(raw)
		}
		if r != rune(name[i]) {
			return false
		}
		raw = raw[size:]
	}
	return len(raw) == 0
}
