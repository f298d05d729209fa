package tokenize

import (
	"math/bits"
	"unicode/utf8"
)

// joins knows which two code points, one right after the other, some merge of
// the vocabulary can put into one token.
//
// A merge of the entries L and R joins the place between the last code point
// of L and the first of R, and no other place: those inside L and R were joined
// by the merges that made them. So a place is never joined if there is no merge
// with these two code points, and merging what stands left and right of it
// separately gives the symbols that merging the whole gives. (The order in
// which merges on different sides of such a place happen does not matter.)
type joins struct {
	ascii [utf8.RuneSelf][2]uint64 // by the left one: a bit for each right one
	// wide has the other pairs, hashed to one bit each. Another pair may have
	// the same bit: then a segment is longer than it need be.
	wide  []uint64
	shift uint

	split bool // Metaspace divides before every space, whatever merges there are
	// unknown, if not nil, has code points of which some are unknown. Symbols of
	// those depend on their neighbours, so behind them is no place to divide.
	unknown *symbolTable
}

// wideBits is how many bits there are for each pair.
const wideBits = 32

// newJoins collects the pairs of a model. symbols are its.
func newJoins(m *bpeModel, split bool, symbols *symbolTable) joins {
	size := bits.Len(uint(wideBits * len(m.Merges)))
	j := joins{split: split, wide: make([]uint64, max(1<<size/64, 1)), shift: uint(64 - max(size, 6))}
	for _, pair := range m.Merges {
		left, _ := utf8.DecodeLastRuneInString(pair[0])
		right, _ := utf8.DecodeRuneInString(pair[1])
		j.add(left, right)
	}
	if split {
		for left := range j.ascii {
			j.ascii[left][' '>>6] &^= 1 << (' ' & 63)
		}
	}
	if symbols.closed {
		return j
	}
	j.unknown = symbols
	for left := range rune(utf8.RuneSelf) {
		if symbols.find(asMetaspace(left)) == noID {
			j.ascii[left] = [2]uint64{^uint64(0), ^uint64(0)}
			if split {
				j.ascii[left][' '>>6] &^= 1 << (' ' & 63)
			}
		}
	}
	return j
}

// add notes a pair of code points as entries have them.
func (j *joins) add(left, right rune) {
	bit := j.bit(left, right)
	j.wide[bit/64] |= 1 << (bit % 64)
	if left, right = asSpace(left), asSpace(right); left|right < utf8.RuneSelf {
		j.ascii[left][right>>6] |= 1 << (right & 63)
	}
}

func (j *joins) bit(left, right rune) uint64 {
	return (uint64(left)<<21 | uint64(right)) * 0x9E3779B97F4A7C15 >> j.shift
}

// end returns the end of the segment that begins at pos, inside text: the
// first place behind pos that no merge joins. The text is valid UTF-8.
func (j *joins) end(text []byte, pos int) int {
	left, size := runeAt(text, pos)
	for pos += size; pos < len(text); pos += size {
		if b := rune(text[pos]); left|b < utf8.RuneSelf {
			if j.ascii[left][b>>6]>>(b&63)&1 == 0 {
				return pos
			}
			left, size = b, 1
			continue
		}
		var right rune
		if right, size = runeAt(text, pos); !j.joinsWide(left, right) {
			return pos
		}
		left = right
	}
	return pos
}

// joinsWide is whether a merge may join two code points of a text, at least
// one of which is not ASCII.
func (j *joins) joinsWide(left, right rune) bool {
	left, right = asMetaspace(left), asMetaspace(right)
	if j.split && right == metaspace {
		return false
	}
	if j.unknown != nil && j.unknown.find(left) == noID {
		return true
	}
	bit := j.bit(left, right)
	return j.wide[bit/64]>>(bit%64)&1 != 0
}

// asMetaspace is how entries spell a code point of a text.
func asMetaspace(r rune) rune {
	if r == ' ' {
		return metaspace
	}
	return r
}

// asSpace is how a text may spell a code point of an entry.
func asSpace(r rune) rune {
	if r == metaspace {
		return ' '
	}
	return r
}

// runeAt returns the code point at pos and its length. The text must be valid
// UTF-8.
func runeAt(text []byte, pos int) (r rune, size int) {
	b0 := rune(text[pos])
	switch {
	case b0 < utf8.RuneSelf:
		return b0, 1
	case b0 < 0xE0:
		return b0&0x1F<<6 | rune(text[pos+1]&0x3F), 2
	case b0 < 0xF0:
		return b0&0x0F<<12 | rune(text[pos+1]&0x3F)<<6 | rune(text[pos+2]&0x3F), 3
	}
	return b0&0x07<<18 | rune(text[pos+1]&0x3F)<<12 | rune(text[pos+2]&0x3F)<<6 | rune(text[pos+3]&0x3F), 4
}
