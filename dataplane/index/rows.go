package index

import (
	"sync/atomic"

	"warmpath/dataplane/fleet"
)

// rowsPerChunk rows are allocated at a time.
const rowsPerChunk = 256

// maxRows is how many rows a reference can name, in whole chunks.
const maxRows = (refMask + 1 - firstRow) / rowsPerChunk * rowsPerChunk

// Widths of rows in words, by class: fleets of up to 64, 256 and 1024 slots.
// The class follows from the highest slot of the set alone.
var rowWidths = [...]int{1, 4, fleet.MaxSlots / 64}

func rowClass(set *SlotSet) int {
	switch w := set.width(); {
	case w <= rowWidths[0]:
		return 0
	case w <= rowWidths[1]:
		return 1
	}
	return 2
}

// rowChunk is storage of rows of one class. A row's version is odd while it is
// written, and a row is written only when no word of a segment in force names
// it.
type rowChunk struct {
	class    int // immutable
	width    int // immutable
	versions [rowsPerChunk]atomic.Uint64
	bits     []atomic.Uint64
	meta     [rowsPerChunk]rowMeta // writer-owned
}

func (c *rowChunk) row(i int) []atomic.Uint64 { return c.bits[i*c.width : (i+1)*c.width] }

// rowMeta is what the writer knows of a row.
type rowMeta struct {
	hash uint64 // of the set
	refs uint32 // words that name the row; 0 = free
	next uint32 // id of the next free row of the class
}

// rows is the store of sets of two or more holders. Equal sets share a row
// (units of one prefix are held by the same nodes), so rows are few, and a
// reader that walks a chain sees the same reference again and again.
// The id of a row, in writer-owned tables, is its number + 1.
type rows struct {
	chunks []atomic.Pointer[rowChunk] // immutable slice

	// writer-owned
	used    int // chunks
	free    [len(rowWidths)]uint32
	sets    ids
	marks   [fleet.MaxSlots]uint64 // a set's hash is the sum of its slots' marks
	live    int
	bytes   int64
	maximum int64 // bytes
}

func (s *rows) init(maximum int64) {
	s.chunks = make([]atomic.Pointer[rowChunk], maxRows/rowsPerChunk)
	s.maximum = maximum
	for i := range s.marks {
		s.marks[i] = mark(uint64(i))
	}
}

// mark is SplitMix64's output function: independent bits for every slot.
func mark(i uint64) uint64 {
	i = (i + 1) * 0x9e3779b97f4a7c15
	i = (i ^ i>>30) * 0xbf58476d1ce4e5b9
	i = (i ^ i>>27) * 0x94d049bb133111eb
	return i ^ i>>31
}

// at returns the chunk of a reference to a row, and the row's place in it.
func (s *rows) at(ref uint64) (c *rowChunk, i int) {
	n := ref - firstRow
	return s.chunks[n/rowsPerChunk].Load(), int(n % rowsPerChunk)
}

func (s *rows) keyOf(id uint32) uint64 {
	c, i := s.at(uint64(id-1) + firstRow)
	return c.meta[i].hash
}

// load fills set with the holders that a reference stands for. Writer only.
func (s *rows) load(ref uint64, set *SlotSet) {
	set.Reset()
	if ref < firstRow {
		if ref != 0 {
			set.Add(int(ref - 1))
		}
		return
	}
	c, i := s.at(ref)
	row := c.row(i)
	for k := range row {
		set[k] = row[k].Load()
	}
}

// with returns a reference to the set of ref and slot, 0 if there is no room
// for it. The caller owes a release of ref if it differs.
func (s *rows) with(ref uint64, slot int) uint64 {
	if ref == 0 {
		return uint64(slot + 1)
	}
	var set SlotSet
	s.load(ref, &set)
	if set.Has(slot) {
		return ref
	}
	hash := s.hash(ref) + s.marks[slot]
	set.Add(slot)
	return s.acquire(&set, hash)
}

// without returns a reference to the set of ref less slot. full is true if
// there was no room for it.
func (s *rows) without(ref uint64, slot int) (to uint64, full bool) {
	if ref < firstRow {
		if ref == uint64(slot+1) {
			return 0, false
		}
		return ref, false
	}
	var set SlotSet
	s.load(ref, &set)
	if !set.Has(slot) {
		return ref, false
	}
	hash := s.hash(ref) - s.marks[slot]
	set.Remove(slot)
	if first := set.Next(0); set.Next(first+1) < 0 {
		return uint64(first + 1), false
	}
	to = s.acquire(&set, hash)
	return to, to == 0
}

func (s *rows) hash(ref uint64) uint64 {
	if ref < firstRow {
		return s.marks[ref-1]
	}
	return s.keyOf(uint32(ref - firstRow + 1))
}

// acquire returns a counted reference to the row of a set, 0 if there is none
// and no room for one.
func (s *rows) acquire(set *SlotSet, hash uint64) uint64 {
	id := s.sets.find(hash, s)
	if id == 0 {
		if id = s.allocate(set, hash); id == 0 {
			return 0
		}
	}
	ref := uint64(id-1) + firstRow
	c, i := s.at(ref)
	row := c.row(i)
	for k := range row {
		if row[k].Load() != set[k] {
			return 0 // two sets with one 64-bit hash: the second has no place
		}
	}
	c.meta[i].refs++
	return ref
}

// release gives back one reference. A row that no word names any more keeps
// its contents until it is written anew.
func (s *rows) release(ref uint64) {
	if ref < firstRow {
		return
	}
	c, i := s.at(ref)
	m := &c.meta[i]
	if m.refs--; m.refs > 0 {
		return
	}
	id := uint32(ref - firstRow + 1)
	s.bytes -= s.sets.remove(m.hash, id, s)
	m.next = s.free[c.class]
	s.free[c.class] = id
	s.live--
}

// allocate writes a set into a free row and returns its id, 0 if there is no
// room.
func (s *rows) allocate(set *SlotSet, hash uint64) uint32 {
	class := rowClass(set)
	if s.free[class] == 0 && !s.extend(class) {
		return 0
	}
	id := s.free[class]
	c, i := s.at(uint64(id-1) + firstRow)
	m := &c.meta[i]
	s.free[class] = m.next
	*m = rowMeta{hash: hash}
	c.versions[i].Add(1)
	row := c.row(i)
	for k := range row {
		row[k].Store(set[k])
	}
	c.versions[i].Add(1)
	s.bytes += s.sets.insert(hash, id, s)
	s.live++
	return id
}

// chunkBytes is what a chunk of a class costs, with its share of sets.
func chunkBytes(class int) int64 {
	return rowsPerChunk * int64(8+16+8*rowWidths[class])
}

// extend adds a chunk of free rows of a class, unless the store is full. A row
// costs up to 15 bytes in sets.
func (s *rows) extend(class int) bool {
	size := chunkBytes(class)
	if s.used == len(s.chunks) || s.bytes+size+15*rowsPerChunk > s.maximum {
		return false
	}
	c := &rowChunk{class: class, width: rowWidths[class]}
	c.bits = make([]atomic.Uint64, rowsPerChunk*c.width)
	for i := range rowsPerChunk {
		c.meta[i].next = s.free[class]
		s.free[class] = uint32(s.used*rowsPerChunk + i + 1)
	}
	s.chunks[s.used].Store(c)
	s.used++
	s.bytes += size
	return true
}

// read fills the first words of set with the holders that row ref has, for a
// reader that found ref in the word at, in segment s. ok is false if the unit
// may have changed meanwhile; then the reader looks it up again. See doc.go
// for why this order is enough.
func (s *rows) read(seg *segment, at *atomic.Uint64, word uint64, set []uint64) (r reading, ok bool) {
	c, i := s.at(word & refMask)
	r = reading{word & refMask, &c.versions[i], c.versions[i].Load()}
	if r.seen&1 != 0 || at.Load() != word {
		return r, false
	}
	row := c.row(i)
	for k := range set {
		if k < len(row) {
			set[k] = row[k].Load()
		} else {
			set[k] = 0
		}
	}
	return r, r.version.Load() == r.seen && !seg.retired.Load()
}
