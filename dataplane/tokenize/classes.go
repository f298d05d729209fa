package tokenize

import (
	"sort"
	"unicode/utf8"
)

// The classes of a code point, as the reference implementation's regular
// expressions see it; a code point has at most one of the first seven. The
// order is that of scripts/unicode_classes.py.
const (
	upper     uint8 = 1 << iota // \p{Lu}, \p{Lt}
	lower                       // \p{Ll}
	uncased                     // \p{Lm}, \p{Lo}
	mark                        // \p{M}
	number                      // \p{N}
	space                       // \s
	symbol                      // \p{P}, \p{S}
	nfcActive                   // NFC may change it, or the text before it

	letter = upper | lower | uncased
	// classMask leaves what regular expressions know.
	classMask = ^nfcActive
)

// classOf returns the classes of r, which must be a valid code point.
func classOf(r rune) uint8 {
	return classBlocks[int(classIndex[r>>7])<<7|int(r&127)]
}

// asciiClass is classOf for single bytes; bytes of longer sequences have none,
// so that a loop over it stops at them.
var asciiClass = func() (table [256]uint8) {
	for r := range rune(utf8.RuneSelf) {
		table[r] = classOf(r)
	}
	return table
}()

// classAt returns the class and the length of the code point at pos, which
// must be inside text. The text must be valid UTF-8.
func classAt(text []byte, pos int) (class uint8, size int) {
	b0 := text[pos]
	switch {
	case b0 < utf8.RuneSelf:
		return asciiClass[b0], 1
	case b0 < 0xE0:
		return classOf(rune(b0&0x1F)<<6 | rune(text[pos+1]&0x3F)), 2
	case b0 < 0xF0:
		return classOf(rune(b0&0x0F)<<12 | rune(text[pos+1]&0x3F)<<6 | rune(text[pos+2]&0x3F)), 3
	}
	return classOf(rune(b0&0x07)<<18 | rune(text[pos+1]&0x3F)<<12 | rune(text[pos+2]&0x3F)<<6 | rune(text[pos+3]&0x3F)), 4
}

// classBefore returns the class of the code point that ends at pos > 0.
func classBefore(text []byte, pos int) uint8 {
	if b := text[pos-1]; b < utf8.RuneSelf {
		return asciiClass[b]
	}
	r, _ := utf8.DecodeLastRune(text[:pos])
	return classOf(r)
}

// within reports whether r lies in one of the sorted ranges.
func within(ranges [][2]rune, r rune) bool {
	i := sort.Search(len(ranges), func(i int) bool { return ranges[i][1] >= r })
	return i < len(ranges) && ranges[i][0] <= r
}

func isWordRune(r rune) bool { return within(wordRanges[:], r) }

// numericAt returns the length of the code point at pos if the pre-tokenizer
// Digits takes it for one, else 0. Its standard library knows a few more than
// the regular expressions do.
func numericAt(text []byte, pos int) int {
	class, size := classAt(text, pos)
	if class&number != 0 {
		return size
	}
	if size > 2 && class&classMask == 0 {
		if r, _ := utf8.DecodeRune(text[pos:]); within(numericRanges[:], r) {
			return size
		}
	}
	return 0
}
