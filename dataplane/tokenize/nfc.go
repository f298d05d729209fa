package tokenize

import (
	"cmp"
	"slices"
	"sort"
	"unicode/utf8"
)

// The arithmetic of Hangul syllables (The Unicode Standard, section 3.12).
const (
	hangulBase  = 0xAC00
	leadBase    = 0x1100
	vowelBase   = 0x1161
	tailBase    = 0x11A7
	leadCount   = 19
	vowelCount  = 21
	tailCount   = 28
	hangulCount = leadCount * vowelCount * tailCount
)

// decomposition is a row of the generated table.
type decomposition struct {
	from rune
	to   string
}

// composition is a row of the generated table.
type composition struct {
	first, second, to rune
}

// combiningRune is a code point with its canonical combining class.
type combiningRune struct {
	r     rune
	class uint8
}

// appendNFC appends NFC of text, which must be valid UTF-8.
//
// It is not that of golang.org/x/text, for two reasons: the reference
// normalises by Unicode 9 or so, where 188 combining marks of today have no
// class yet and stay where they are; and x/text breaks runs of more than 30
// marks, as UAX 15's stream-safe format asks, which the reference does not.
func appendNFC(dst, text []byte, s *Scratch) []byte {
	done := 0 // text before it is in dst
	for pos := 0; pos < len(text); {
		class, size := classAt(text, pos)
		if class&nfcActive == 0 {
			pos += max(size, asciiPrefix(text, pos))
			continue
		}
		// What changes is this run of active code points with the one before
		// it: that is inert, so nothing in front of it can be touched.
		start := pos
		if start > done {
			_, before := utf8.DecodeLastRune(text[done:pos])
			start -= before
		}
		for pos < len(text) && class&nfcActive != 0 {
			if pos += size; pos < len(text) {
				class, size = classAt(text, pos)
			}
		}
		dst = append(dst, text[done:start]...)
		dst = appendComposed(dst, text[start:pos], s)
		done = pos
	}
	return append(dst, text[done:]...)
}

// appendComposed decomposes, orders and composes one run.
func appendComposed(dst, run []byte, s *Scratch) []byte {
	runes := s.runes[:0]
	for pos := 0; pos < len(run); {
		r, size := utf8.DecodeRune(run[pos:])
		runes = appendDecomposed(runes, r)
		pos += size
	}
	s.runes = runes
	orderMarks(runes)
	for _, c := range compose(runes) {
		dst = utf8.AppendRune(dst, c.r)
	}
	return dst
}

func appendDecomposed(dst []combiningRune, r rune) []combiningRune {
	if i := r - hangulBase; i >= 0 && i < hangulCount {
		dst = append(dst, combiningRune{leadBase + i/(vowelCount*tailCount), 0},
			combiningRune{vowelBase + i/tailCount%vowelCount, 0})
		if tail := i % tailCount; tail != 0 {
			dst = append(dst, combiningRune{tailBase + tail, 0})
		}
		return dst
	}
	i, found := sort.Find(len(decompositions), func(i int) int { return cmp.Compare(r, decompositions[i].from) })
	if !found {
		return append(dst, combiningRune{r, combiningClass(r)})
	}
	for _, part := range decompositions[i].to {
		dst = append(dst, combiningRune{part, combiningClass(part)})
	}
	return dst
}

func combiningClass(r rune) uint8 {
	i := sort.Search(len(combiningClasses), func(i int) bool { return combiningClasses[i][1] >= r })
	if i < len(combiningClasses) && combiningClasses[i][0] <= r {
		return uint8(combiningClasses[i][2])
	}
	return 0
}

// orderMarks sorts each run of marks by their classes, equal ones as they stand.
func orderMarks(runes []combiningRune) {
	for start := 0; start < len(runes); start++ {
		end := start
		for end < len(runes) && runes[end].class != 0 {
			end++
		}
		if end-start > 1 {
			slices.SortStableFunc(runes[start:end], func(a, b combiningRune) int { return cmp.Compare(a.class, b.class) })
		}
		start = end
	}
}

// compose joins what has a composite, in place.
func compose(runes []combiningRune) []combiningRune {
	starter := -1 // the last one kept
	kept := 0
	for _, c := range runes {
		blocked := starter < 0 || starter < kept-1 && runes[kept-1].class >= c.class
		if !blocked {
			if joined, ok := composite(runes[starter].r, c.r); ok {
				runes[starter].r = joined
				continue
			}
		}
		if c.class == 0 {
			starter = kept
		}
		runes[kept] = c
		kept++
	}
	return runes[:kept]
}

func composite(first, second rune) (rune, bool) {
	if lead, vowel := first-leadBase, second-vowelBase; lead >= 0 && lead < leadCount && vowel >= 0 && vowel < vowelCount {
		return hangulBase + (lead*vowelCount+vowel)*tailCount, true
	}
	if i, tail := first-hangulBase, second-tailBase; i >= 0 && i < hangulCount && i%tailCount == 0 && tail > 0 && tail < tailCount {
		return first + tail, true
	}
	i, found := sort.Find(len(compositions), func(i int) int {
		return cmp.Or(cmp.Compare(first, compositions[i].first), cmp.Compare(second, compositions[i].second))
	})
	if !found {
		return 0, false
	}
	return compositions[i].to, true
}
