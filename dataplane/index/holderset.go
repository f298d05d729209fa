package index

import "math/bits"

// holderSet is a set of positions that the writer works on. All words beyond
// width and all tiers beyond tiers are 0, so that a small fleet pays for the
// words it uses.
type holderSet struct {
	bits  [Tiers][slotWords]uint64
	width int // words in use, of the tier that uses most
	tiers int // tiers in use, counted from Device
}

func (s *holderSet) reset() {
	for t := range s.tiers {
		clear(s.bits[t][:s.width])
	}
	s.width, s.tiers = 0, 0
}

func (s *holderSet) has(position int) bool {
	slot := slotOf(position)
	return s.bits[tierOf(position)][slot>>6]&(1<<(slot&63)) != 0
}

func (s *holderSet) add(position int) {
	slot, tier := slotOf(position), tierOf(position)
	s.bits[tier][slot>>6] |= 1 << (slot & 63)
	s.width = max(s.width, slot>>6+1)
	s.tiers = max(s.tiers, int(tier)+1)
}

func (s *holderSet) remove(position int) {
	slot := slotOf(position)
	s.bits[tierOf(position)][slot>>6] &^= 1 << (slot & 63)
	s.trim()
}

// trim finds out again how much is in use.
func (s *holderSet) trim() {
	var used [Tiers]uint64
	width := 0
	for t := range s.tiers {
		for k, w := range s.bits[t][:s.width] {
			used[t] |= w
			if w != 0 {
				width = max(width, k+1)
			}
		}
	}
	s.width = width
	for s.tiers > 0 && used[s.tiers-1] == 0 {
		s.tiers--
	}
}

// only returns the position of a set that has just one.
func (s *holderSet) only() (at int, ok bool) {
	n := 0
	for t := range s.tiers {
		for k, w := range s.bits[t][:s.width] {
			if w != 0 {
				n += bits.OnesCount64(w)
				at = position(k<<6+bits.TrailingZeros64(w), Tier(t))
			}
		}
	}
	return at, n == 1
}

// class is that of the rows that hold such sets: the narrowest that do.
func (s *holderSet) class() int {
	class := 0
	if s.tiers > 1 {
		class = len(rowWidths)
	}
	for s.width > rowWidths[class%len(rowWidths)] {
		class++
	}
	return class
}
