package virtual

import "math/bits"

// Index says which slots of a fleet hold a content: exactly, since caches write it
// as they change, and speculatively, for what was sent to a node and is not computed
// yet. Contents are small consecutive numbers. Not safe for concurrent use.
type Index struct {
	words    int // of 64 slots each
	exact    []uint64
	expected []uint64
	alive    []uint64 // scratch of Match
}

// NewIndex makes an index for contents below contents and slots below slots.
func NewIndex(contents, slots int) *Index {
	words := max(1, (slots+63)/64)
	return &Index{words, make([]uint64, contents*words), make([]uint64, contents*words), make([]uint64, words)}
}

// Slots returns how many slots there are room for.
func (x *Index) Slots() int { return x.words * 64 }

func (x *Index) add(content uint32, slot int) {
	x.exact[int(content)*x.words+slot>>6] |= 1 << (slot & 63)
}

func (x *Index) remove(content uint32, slot int) {
	x.exact[int(content)*x.words+slot>>6] &^= 1 << (slot & 63)
}

// Expect notes that a slot will hold contents, or with false that it is no longer to
// be counted on.
func (x *Index) Expect(contents []uint32, slot int, will bool) {
	word, bit := slot>>6, uint64(1)<<(slot&63)
	for _, content := range contents {
		if content == Anonymous {
			continue
		}
		if p := &x.expected[int(content)*x.words+word]; will {
			*p |= bit
		} else {
			*p &^= bit
		}
	}
}

// Match writes to found, by slot, how many of the leading contents it holds, times
// unit. It returns how many the best slot has.
func (x *Index) Match(contents []uint32, unit uint32, found []uint32) int {
	clear(found)
	for w := range x.alive {
		x.alive[w] = ^uint64(0)
	}
	for depth, content := range contents {
		if content == Anonymous {
			x.leave(found, uint32(depth)*unit)
			return depth
		}
		at, left := int(content)*x.words, uint64(0)
		for w := range x.alive {
			stay := x.alive[w] & (x.exact[at+w] | x.expected[at+w])
			if depth > 0 {
				mark(found, w, x.alive[w]&^stay, uint32(depth)*unit)
			}
			x.alive[w] = stay
			left |= stay
		}
		if left == 0 {
			return depth
		}
	}
	x.leave(found, uint32(len(contents))*unit)
	return len(contents)
}

// leave writes the depth of those that hold all there was.
func (x *Index) leave(found []uint32, depth uint32) {
	if depth == 0 {
		return
	}
	for w := range x.alive {
		mark(found, w, x.alive[w], depth)
	}
}

func mark(found []uint32, word int, slots uint64, depth uint32) {
	for ; slots != 0; slots &= slots - 1 {
		if slot := word<<6 + bits.TrailingZeros64(slots); slot < len(found) {
			found[slot] = depth
		}
	}
}
