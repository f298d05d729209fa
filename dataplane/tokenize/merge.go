package tokenize

import (
	"math/bits"
)

const (
	noRank = ^uint32(0)

	// A slot of the hash table is one word: two ids and a rank.
	idBits   = 21
	rankBits = 64 - 2*idBits
	maxIDs   = 1 << idBits
	// One rank less, so that no slot in use is all ones.
	maxMerges = 1<<rankBits - 1

	emptySlot = ^uint64(0)

	// scanMost is up to how many symbols a word is merged by scanning for the
	// best pair; longer ones use a heap, whose cost is not quadratic.
	scanMost = 64
)

// mergeTable holds the merges of a byte-pair encoding: which pairs of ids join,
// in what order of preference, into what.
type mergeTable struct {
	slots  []uint64 // open addressing, at most two thirds full
	shift  uint     // from a 64-bit hash to an index
	filter []uint64 // a bit per hash: most pairs that do not join end here
	result []uint32 // by rank
}

// filterBits makes the filter of 256 KB, which stays in a core's own cache, as
// the table does not.
const filterBits = 21

func newMergeTable(merges int) *mergeTable {
	size := max(bits.Len(uint(merges+merges/2)), 4)
	m := &mergeTable{
		slots: make([]uint64, 1<<size), shift: uint(64 - size),
		filter: make([]uint64, 1<<filterBits/64), result: make([]uint32, 0, merges),
	}
	for i := range m.slots {
		m.slots[i] = emptySlot
	}
	return m
}

// pairHash spreads a pair over 64 bits; the upper ones are the good ones.
func pairHash(left, right uint32) uint64 {
	return (uint64(left)<<idBits | uint64(right)) * 0x9E3779B97F4A7C15
}

// add appends a merge. Of two for the same pair the later one holds, as in the
// reference.
func (m *mergeTable) add(left, right, into uint32) {
	pair, hash := uint64(left)<<idBits|uint64(right), pairHash(left, right)
	m.filter[hash>>(64-filterBits+6)] |= 1 << (hash >> (64 - filterBits) & 63)
	i := int(hash >> m.shift)
	for m.slots[i] != emptySlot && m.slots[i]>>rankBits != pair {
		i = (i + 1) & (len(m.slots) - 1)
	}
	m.slots[i] = pair<<rankBits | uint64(len(m.result))
	m.result = append(m.result, into)
}

// rank returns the rank of a pair, noRank if it does not join.
func (m *mergeTable) rank(left, right uint32) uint32 {
	hash := pairHash(left, right)
	if m.filter[hash>>(64-filterBits+6)]>>(hash>>(64-filterBits)&63)&1 == 0 {
		return noRank
	}
	pair := uint64(left)<<idBits | uint64(right)
	for i := int(hash >> m.shift); ; i = (i + 1) & (len(m.slots) - 1) {
		switch slot := m.slots[i]; {
		case slot == emptySlot:
			return noRank
		case slot>>rankBits == pair:
			return uint32(slot & (1<<rankBits - 1))
		}
	}
}

// merge joins pairs of symbols until none joins any more, always the pair of
// lowest rank, of equal ones the leftmost. It works in place and returns how
// many symbols are left.
func (m *mergeTable) merge(symbols []uint32, s *Scratch) int {
	if len(symbols) <= scanMost {
		return m.mergeByScan(symbols)
	}
	return m.mergeByHeap(symbols, s)
}

func (m *mergeTable) mergeByScan(symbols []uint32) int {
	var store [scanMost]uint32
	n := len(symbols)
	if n < 2 {
		return n
	}
	ranks := store[:n] // ranks[i] is that of symbols i and i+1
	for i := range n - 1 {
		ranks[i] = m.rank(symbols[i], symbols[i+1])
	}
	for n > 1 {
		best, at := noRank, 0
		for i, r := range ranks[:n-1] {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			break
		}
		symbols[at] = m.result[best]
		copy(symbols[at+1:n-1], symbols[at+2:n])
		copy(ranks[at:n-2], ranks[at+1:n-1])
		n--
		if at > 0 {
			ranks[at-1] = m.rank(symbols[at-1], symbols[at])
		}
		if at < n-1 {
			ranks[at] = m.rank(symbols[at], symbols[at+1])
		}
	}
	return n
}

// link is a symbol of a long word: its neighbours, and the rank of its pair
// with the next one.
type link struct {
	prev, next int32 // -1 for none
	rank       uint32
}

// keptLinks bounds the memory that a Scratch keeps after a long word.
const keptLinks = 1 << 16

func (m *mergeTable) mergeByHeap(symbols []uint32, s *Scratch) int {
	n := len(symbols)
	links, heap := s.links[:0], s.heap[:0]
	for i := range n {
		l := link{int32(i) - 1, int32(i) + 1, noRank}
		if i == n-1 {
			l.next = -1
		} else if l.rank = m.rank(symbols[i], symbols[i+1]); l.rank != noRank {
			heap = append(heap, candidate(l.rank, i))
		}
		links = append(links, l)
	}
	for i := len(heap)/2 - 1; i >= 0; i-- {
		siftDown(heap, i)
	}
	for len(heap) > 0 {
		top := heap[0]
		rank, at := uint32(top>>32), int32(uint32(top))
		if links[at].rank != rank { // joined or changed since
			heap[0] = heap[len(heap)-1]
			heap = heap[:len(heap)-1]
			siftDown(heap, 0)
			continue
		}
		heap = m.join(symbols, links, heap, at)
	}
	kept := 0
	for i := int32(0); i >= 0; i = links[i].next {
		symbols[kept] = symbols[i]
		kept++
	}
	if s.links, s.heap = links, heap; cap(links) > keptLinks {
		s.links, s.heap = nil, nil
	}
	return kept
}

// join merges the pair at the top of the heap, which begins at at, and puts
// the pairs with its neighbours into the heap.
func (m *mergeTable) join(symbols []uint32, links []link, heap []uint64, at int32) []uint64 {
	l := &links[at]
	symbols[at] = m.result[l.rank]
	gone := &links[l.next]
	l.next, gone.rank = gone.next, noRank
	if l.rank = noRank; l.next >= 0 {
		links[l.next].prev = at
		l.rank = m.rank(symbols[at], symbols[l.next])
	}
	if l.rank != noRank { // in place of the top
		heap[0] = candidate(l.rank, int(at))
	} else {
		heap[0] = heap[len(heap)-1]
		heap = heap[:len(heap)-1]
	}
	siftDown(heap, 0)
	if l.prev >= 0 {
		before := &links[l.prev]
		if before.rank = m.rank(symbols[l.prev], symbols[at]); before.rank != noRank {
			heap = append(heap, candidate(before.rank, int(l.prev)))
			siftUp(heap, len(heap)-1)
		}
	}
	return heap
}

// candidate orders by rank, then by place.
func candidate(rank uint32, at int) uint64 { return uint64(rank)<<32 | uint64(uint32(at)) }

func siftDown(heap []uint64, i int) {
	for {
		child := 2*i + 1
		if child >= len(heap) {
			return
		}
		if child+1 < len(heap) && heap[child+1] < heap[child] {
			child++
		}
		if heap[i] <= heap[child] {
			return
		}
		heap[i], heap[child] = heap[child], heap[i]
		i = child
	}
}

func siftUp(heap []uint64, i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if heap[parent] <= heap[i] {
			return
		}
		heap[i], heap[parent] = heap[parent], heap[i]
		i = parent
	}
}
