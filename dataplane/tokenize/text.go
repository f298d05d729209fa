package tokenize

import (
	"encoding/binary"
	"unicode/utf8"
)

const highBits = 0x8080808080808080

// asciiPrefix returns how many bytes from pos on are certainly ASCII: a
// multiple of 8, not necessarily all of them.
func asciiPrefix(text []byte, pos int) int {
	n := 0
	for pos+n+8 <= len(text) && binary.LittleEndian.Uint64(text[pos+n:])&highBits == 0 {
		n += 8
	}
	return n
}

// inspect says whether text is valid UTF-8, and whether NFC surely leaves it
// as it is.
func inspect(text []byte) (valid, normal bool) {
	active := uint8(0)
	for pos := 0; pos < len(text); {
		if text[pos] < utf8.RuneSelf {
			pos += max(asciiPrefix(text, pos), 1)
			continue
		}
		r, size := utf8.DecodeRune(text[pos:])
		if r == utf8.RuneError && size == 1 {
			return false, false
		}
		active |= classOf(r)
		pos += size
	}
	return true, active&nfcActive == 0
}

// appendLossy appends text with each maximal part of an invalid sequence
// replaced by one U+FFFD: what Rust's from_utf8_lossy, Python's "replace" and
// the Unicode Standard (section 3.9, table 3-8) do, and Go's conversions,
// which replace every byte by itself, do not.
func appendLossy(dst, text []byte) []byte {
	for pos := 0; pos < len(text); {
		r, size := utf8.DecodeRune(text[pos:])
		if r == utf8.RuneError && size == 1 {
			size = brokenLen(text[pos:])
		}
		dst = utf8.AppendRune(dst, r)
		pos += size
	}
	return dst
}

// brokenLen returns how many bytes at the start of text, which is no valid
// sequence, could be the beginning of one; at least 1.
func brokenLen(text []byte) int {
	want, low, high := 0, byte(0x80), byte(0xBF)
	switch b := text[0]; {
	case b >= 0xC2 && b <= 0xDF:
		want = 1
	case b >= 0xE0 && b <= 0xEF:
		want = 2
	case b >= 0xF0 && b <= 0xF4:
		want = 3
	}
	switch text[0] {
	case 0xE0:
		low = 0xA0
	case 0xED:
		high = 0x9F
	case 0xF0:
		low = 0x90
	case 0xF4:
		high = 0x8F
	}
	n := 1
	for ; n <= want && n < len(text) && text[n] >= low && text[n] <= high; n++ {
		low, high = 0x80, 0xBF
	}
	return n
}
