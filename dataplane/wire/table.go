package wire

import (
	"encoding/binary"
	"math/bits"
)

// Classes of bytes, a bit each in class.
const (
	isToken  = 1 << iota // RFC 9110, section 5.6.2
	isTarget             // visible ASCII but '#'; RFC 9112, section 3.2, read widely
	isHost               // reg-name of RFC 3986, section 3.2.2, without percent-encoding and commas
	isQuoted             // qdtext: RFC 9110, section 5.6.4
	isMark               // '?' and '%', for which a target is looked at again
)

var class = makeClass()

func makeClass() (t [256]uint8) {
	const alnum = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	for _, c := range []byte(alnum + "!#$%&'*+-.^_`|~") {
		t[c] |= isToken
	}
	for _, c := range []byte(alnum + "-._~!$&'()*+;=") {
		t[c] |= isHost
	}
	t['?'] |= isMark
	t['%'] |= isMark
	for c := range t {
		if c > ' ' && c < 0x7f && c != '#' {
			t[c] |= isTarget
		}
		if c >= ' ' && c != 0x7f && c != '"' && c != '\\' || c == '\t' {
			t[c] |= isQuoted
		}
	}
	return t
}

// lowBits has 1 in every byte, highBits 128.
const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// textMarks sets the high bit of the lowest byte of x that is a control
// character, HTAB included, and perhaps of bytes above it: the first term
// finds bytes below 0x20, the second those equal to 0x7f, and borrows can mark
// falsely, but only above a true mark.
func textMarks(x uint64) uint64 {
	del := x ^ lowBits*0x7f
	return ((x-lowBits*0x20)&^x | (del-lowBits)&^del) & highBits
}

// nameMarks sets the high bit of every byte of x that is neither a letter nor
// '-', of which nearly all names consist. The sums cannot carry, because
// bit 7 was cleared.
func nameMarks(x uint64) uint64 {
	lower := (x | lowBits*0x20) &^ highBits
	letter := (lower + lowBits*(128-'a')) &^ (lower + lowBits*(128-'z'-1))
	dash := ^((x^lowBits*'-')&^highBits + lowBits*127)
	return (^(letter | dash) | x) & highBits
}

// scanText returns the index of the first byte at or after pos that may not
// stand in a field value: a control character but HTAB (RFC 9110, section
// 5.5); len(b) if there is none. It looks at eight bytes at a time.
func scanText(b []byte, pos int) int {
	for uint(pos)+8 <= uint(len(b)) {
		marks := textMarks(binary.LittleEndian.Uint64(b[pos : pos+8]))
		if marks == 0 {
			pos += 8
			continue
		}
		pos += bits.TrailingZeros64(marks) >> 3
		if b[pos] != '\t' {
			return pos
		}
		pos++
	}
	for pos < len(b) && (b[pos] >= ' ' && b[pos] != 0x7f || b[pos] == '\t') {
		pos++
	}
	return pos
}

// scanName returns the index of the first byte at or after pos that is no
// token character; len(b) if there is none.
func scanName(b []byte, pos int) int {
	for uint(pos)+8 <= uint(len(b)) {
		marks := nameMarks(binary.LittleEndian.Uint64(b[pos : pos+8]))
		if marks == 0 {
			pos += 8
			continue
		}
		pos += bits.TrailingZeros64(marks) >> 3
		if class[b[pos]]&isToken == 0 {
			return pos
		}
		pos++
	}
	for pos < len(b) && class[b[pos]]&isToken != 0 {
		pos++
	}
	return pos
}

// trim returns the bounds of b[start:end] without the white space around it.
func trim(b []byte, start, end int) Span {
	for start < end && (b[start] == ' ' || b[start] == '\t') {
		start++
	}
	for start < end && (b[end-1] == ' ' || b[end-1] == '\t') {
		end--
	}
	return Span{uint32(start), uint32(end)}
}

// equalFold reports whether b is lower, which must be lower case, in any case of ASCII letters.
func equalFold(b []byte, lower string) bool {
	if len(b) != len(lower) {
		return false
	}
	for i := range b {
		if toLower(b[i]) != lower[i] {
			return false
		}
	}
	return true
}

func toLower(c byte) byte {
	if c-'A' < 26 {
		return c | 0x20
	}
	return c
}

func isDigit(c byte) bool { return c-'0' < 10 }

// hexValue returns the value of a hexadecimal digit, 16 or more for other bytes.
func hexValue(c byte) byte {
	if c-'0' < 10 {
		return c - '0'
	}
	if l := c | 0x20; l-'a' < 6 {
		return l - 'a' + 10
	}
	return 16
}
