package scan

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// escapes maps the byte after a backslash to what it stands for, 'u' to
// itself, and what no escape begins with to 0 (RFC 8259, section 7).
var escapes = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'u': 'u',
}

// hexDigits maps a hexadecimal digit to its value, anything else to -1.
var hexDigits = func() (t [256]int8) {
	for c := range t {
		t[c] = -1
	}
	for i, c := range "0123456789abcdef" {
		t[c] = int8(i)
	}
	for i, c := range "ABCDEF" {
		t[c] = int8(10 + i)
	}
	return t
}()

// AppendUnescaped appends the text that raw, the contents of a JSON string
// without its quotes, stands for. Two escapes of a surrogate pair make one
// character; a lone surrogate becomes U+FFFD. An escape that the end of raw
// cuts off is left out, so raw may be the beginning of a longer string.
func AppendUnescaped(dst, raw []byte) []byte {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(dst, raw...)
		}
		dst, raw = append(dst, raw[:i]...), raw[i:]
		if len(raw) < 2 {
			return dst
		}
		if raw[1] != 'u' {
			dst, raw = append(dst, escapes[raw[1]]), raw[2:]
			continue
		}
		r, ok := codeUnit(raw)
		if !ok {
			return dst
		}
		raw = raw[6:]
		if utf16.IsSurrogate(r) {
			low, _ := codeUnit(raw)
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				raw = raw[6:]
			}
		}
		dst = utf8.AppendRune(dst, r)
	}
}

// codeUnit reads the \u escape that raw begins with, if it does.
func codeUnit(raw []byte) (r rune, ok bool) {
	if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' {
		return 0, false
	}
	for _, c := range raw[2:6] {
		if hexDigits[c] < 0 {
			return 0, false
		}
		r = r<<4 | rune(hexDigits[c])
	}
	return r, true
}
