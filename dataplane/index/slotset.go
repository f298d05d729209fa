package index

import (
	"math/bits"

	"warmpath/dataplane/fleet"
)

// SlotSet is a set of slots, a bit each. The zero SlotSet is empty. A slot
// outside of 0 … fleet.MaxSlots-1 is a programming error.
type SlotSet [fleet.MaxSlots / 64]uint64

// Add puts slot into the set.
func (s *SlotSet) Add(slot int) { s[slot>>6] |= 1 << (slot & 63) }

// Remove takes slot out of the set.
func (s *SlotSet) Remove(slot int) { s[slot>>6] &^= 1 << (slot & 63) }

// Has reports whether slot is in the set.
func (s *SlotSet) Has(slot int) bool { return s[slot>>6]&(1<<(slot&63)) != 0 }

// Reset empties the set.
func (s *SlotSet) Reset() { *s = SlotSet{} }

// Len returns the number of slots in the set.
func (s *SlotSet) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Next returns the first slot of the set that is at least from, -1 if there
// is none: for slot := s.Next(0); slot >= 0; slot = s.Next(slot + 1).
func (s *SlotSet) Next(from int) int {
	for i := from >> 6; i < len(s); i++ {
		w := s[i]
		if i == from>>6 {
			w &= ^uint64(0) << (from & 63)
		}
		if w != 0 {
			return i<<6 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// width returns how many leading words of the set are in use.
func (s *SlotSet) width() int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != 0 {
			return i + 1
		}
	}
	return 0
}
