package tokenize

import (
	"encoding/binary"
	"math/bits"
)

// shortMost is the length of the longest short word: its bytes and its length
// fit into two machine words.
const shortMost = 15

// shortWord is a word of 1 to shortMost bytes: the bytes in order, then zeros,
// and the length in the last byte.
type shortWord struct{ low, high uint64 }

// shortMasks keep the first n bytes of a word's two machine words.
var shortMasks = func() (masks [shortMost + 1]shortWord) {
	for n := range masks {
		masks[n] = shortWord{1<<(8*min(n, 8)) - 1, 1<<(8*max(n-8, 0)) - 1}
	}
	return masks
}()

// shortAt reads the short word of n bytes at pos.
func shortAt(text []byte, pos, n int) shortWord {
	var w shortWord
	if pos+16 <= len(text) {
		w.low = binary.LittleEndian.Uint64(text[pos:])
		w.high = binary.LittleEndian.Uint64(text[pos+8:])
	} else {
		var end [16]byte
		copy(end[:], text[pos:])
		w.low = binary.LittleEndian.Uint64(end[:])
		w.high = binary.LittleEndian.Uint64(end[8:])
	}
	mask := &shortMasks[n]
	return shortWord{w.low & mask.low, w.high&mask.high | uint64(n)<<56}
}

func (w shortWord) hash() uint64 {
	high, low := bits.Mul64(w.low^0x9E3779B97F4A7C15, w.high^0xC2B2AE3D27D4EB4F)
	return high ^ low
}

// wordTable finds the short words that are one token.
type wordTable struct {
	slots []wordSlot // open addressing, at most two thirds full
	mask  uint64
}

// wordSlot is empty if its word is, for a word has a length.
type wordSlot struct {
	word shortWord
	id   uint32
}

func newWordTable(words int) *wordTable {
	size := 1 << max(bits.Len(uint(words+words/2)), 4)
	return &wordTable{slots: make([]wordSlot, size), mask: uint64(size - 1)}
}

func (t *wordTable) add(w shortWord, id uint32) {
	i := w.hash() & t.mask
	for t.slots[i].word.high != 0 {
		i = (i + 1) & t.mask
	}
	t.slots[i] = wordSlot{w, id}
}

func (t *wordTable) find(w shortWord, hash uint64) (id uint32, ok bool) {
	for i := hash & t.mask; ; i = (i + 1) & t.mask {
		slot := &t.slots[i]
		if slot.word == w {
			return slot.id, true
		}
		if slot.word.high == 0 {
			return 0, false
		}
	}
}
