//go:build !purego

package scan

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// Variables, so that tests can compare the ways.
var (
	hasBlocks    = cpu.X86.HasAVX2
	hasBlocks512 = cpu.X86.HasAVX512BW
)

// The block path is worth its set-up from blockBytes on; it looks three bytes
// back.
const (
	blockBytes = 64
	lookBack   = 3
)

// textBlocks checks the n bytes of text at p in blocks of 64 bytes. It stops
// before the last bytes that fill no block, before a block that holds an error,
// or at the closing quote. q is the offset from p. If it is not at the quote,
// pending is 1 if the byte at q is escaped, and digits has a bit for each of
// the next bytes that must be a hexadecimal digit. escaped is not zero if a
// backslash was passed. The three bytes before p must be readable, and p must
// not lie inside an escape or a character. Needs AVX2.
//
//go:noescape
func textBlocks(p *byte, n int) (q int, quote, escaped, pending, digits uint64)

// textBlocks512 is textBlocks for processors with AVX-512BW.
//
//go:noescape
func textBlocks512(p *byte, n int) (q int, quote, escaped, pending, digits uint64)

// skipString moves from p, inside a string and not inside an escape or a
// character, to the closing quote. When it stops elsewhere, q is again such a
// place. escaped says whether an escape was passed.
func skipString(b []byte, p int) (q int, end stringEnd, escaped bool) {
	if !hasBlocks || len(b)-p < blockBytes || p < lookBack {
		return skipStringGeneric(b, p)
	}
	if q, ok := shortString(b, p); ok {
		return q, endQuote, false
	}
	var n int
	var quote, backslashes, pending, digits uint64
	if start := unsafe.SliceData(b[p:]); hasBlocks512 {
		n, quote, backslashes, pending, digits = textBlocks512(start, len(b)-p)
	} else {
		n, quote, backslashes, pending, digits = textBlocks(start, len(b)-p)
	}
	p += n
	if quote != 0 {
		return p, endQuote, backslashes != 0
	}
	p = cleanPlace(b, p, pending, digits)
	p, end, escaped = skipStringGeneric(b, p)
	return p, end, escaped || backslashes != 0
}

// shortString finds the quote of a string of less than 16 plain bytes, as most
// keys and roles are.
func shortString(b []byte, p int) (q int, ok bool) {
	for range 2 {
		if len(b)-p < 8 {
			return p, false
		}
		if m := special(binary.LittleEndian.Uint64(b[p:])) & highs; m != 0 {
			p += bits.TrailingZeros64(m) >> 3
			return p, b[p] == '"'
		}
		p += 8
	}
	return p, false
}

// cleanPlace moves p, where textBlocks stopped, back to where no escape and no
// character is cut in two.
func cleanPlace(b []byte, p int, pending, digits uint64) int {
	switch {
	case pending != 0:
		return p - len(`\`)
	case digits != 0:
		return p - (len(`\u0000`) - bits.Len64(digits))
	}
	for i := 1; i <= lookBack && b[p-i] >= utf8.RuneSelf; i++ {
		if utf8.RuneStart(b[p-i]) {
			if _, size := utf8.DecodeRune(b[p-i : p]); size < max(i, 2) {
				return p - i // cut in two, or an error that shows in its next byte
			}
			break
		}
	}
	return p
}
