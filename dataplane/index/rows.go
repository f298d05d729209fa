package index

import (
	"sync/atomic"
	"unsafe"

	"warmpath/dataplane/fleet"
)

// rowsPerChunk rows are allocated at a time.
const rowsPerChunk = 256

// maxRows is how many rows a reference can name, in whole chunks.
const maxRows = (refMask + 1 - firstRow) / rowsPerChunk * rowsPerChunk

// slotWords is how many words a set of slots has.
const slotWords = fleet.MaxSlots / 64

// Widths of rows in words: fleets of up to 64, 256 and 1024 slots. A row of
// the first three classes knows Device only, one of the other three has a run
// of words for each tier. The class follows from the set alone.
var rowWidths = [...]int{1, 4, slotWords}

const rowClasses = 2 * len(rowWidths)

// rowChunk is storage of rows of one class. A row's version is odd while it is
// written, and a row is written only when no word of a segment in force names
// it.
type rowChunk struct {
	class    int // immutable, as the next two
	width    int // words a tier
	tiers    int
	versions [rowsPerChunk]atomic.Uint64
	bits     []atomic.Uint64
	meta     [rowsPerChunk]rowMeta // writer-owned
}

// row returns the words of row i, tier after tier.
func (c *rowChunk) row(i int) []atomic.Uint64 {
	n := c.width * c.tiers
	return c.bits[i*n : (i+1)*n]
}

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
	free    [rowClasses]uint32
	sets    ids
	marks   [positions]uint64 // a set's hash is the sum of its positions' marks
	set     holderSet         // scratch
	joined  step              // the last set that grew, and into what
	left    step              // the last set that shrank
	live    int
	bytes   int64
	maximum int64 // bytes
}

// step remembers one change of a set: the units of a chain mostly change
// alike, one after the other. It counts while neither row was written anew.
type step struct {
	from, to               uint64
	position               int
	fromVersion, toVersion uint64
}

func (s *rows) init(maximum int64) {
	s.chunks = make([]atomic.Pointer[rowChunk], maxRows/rowsPerChunk)
	s.maximum = maximum
	for i := range s.marks {
		s.marks[i] = mark(uint64(i))
	}
}

// mark is SplitMix64's output function: independent bits for every position.
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

func (s *rows) line(id uint32) unsafe.Pointer {
	c, i := s.at(uint64(id-1) + firstRow)
	return unsafe.Pointer(&c.meta[i])
}

// load fills set with the holders that a reference stands for. Writer only.
func (s *rows) load(ref uint64, set *holderSet) {
	set.reset()
	if ref < firstRow {
		if ref != 0 {
			set.add(int(ref - 1))
		}
		return
	}
	c, i := s.at(ref)
	row := c.row(i)
	set.width, set.tiers = c.width, c.tiers
	for t := range c.tiers {
		for k := range c.width {
			set.bits[t][k] = row[t*c.width+k].Load()
		}
	}
	set.trim()
}

// has reports whether the set of ref has a position of Device. Writer only.
func (s *rows) has(ref uint64, slot int) bool {
	if ref < firstRow {
		return ref == uint64(slot+1)
	}
	c, i := s.at(ref)
	return slot>>6 < c.width && c.row(i)[slot>>6].Load()>>(slot&63)&1 != 0
}

// with returns a reference to the set of ref and position, ref itself if it
// has the position, 0 if there is no room. The caller owes a release of ref if
// it differs.
func (s *rows) with(ref uint64, position int) uint64 {
	if ref == 0 {
		return uint64(position + 1)
	}
	if to := s.again(&s.joined, ref, position); to != 0 {
		return to
	}
	s.load(ref, &s.set)
	if s.set.has(position) {
		return ref
	}
	hash := s.hash(ref) + s.marks[position]
	s.set.add(position)
	to := s.acquire(hash)
	s.note(&s.joined, ref, to, position)
	return to
}

// without returns a reference to the set of ref less position. full is true
// if there was no room for it.
func (s *rows) without(ref uint64, position int) (to uint64, full bool) {
	if ref < firstRow {
		if ref == uint64(position+1) {
			return 0, false
		}
		return ref, false
	}
	if to := s.again(&s.left, ref, position); to != 0 {
		return to, false
	}
	s.load(ref, &s.set)
	if !s.set.has(position) {
		return ref, false
	}
	hash := s.hash(ref) - s.marks[position]
	s.set.remove(position)
	if other, ok := s.set.only(); ok {
		to = uint64(other + 1)
	} else {
		to = s.acquire(hash)
	}
	s.note(&s.left, ref, to, position)
	return to, to == 0
}

// again returns a counted reference to what ref became the last time, if this
// is the same change, else 0.
func (s *rows) again(m *step, ref uint64, position int) uint64 {
	if m.from != ref || m.position != position || s.version(ref) != m.fromVersion {
		return 0
	}
	if m.to < firstRow {
		return m.to
	}
	c, i := s.at(m.to)
	if c.versions[i].Load() != m.toVersion || c.meta[i].refs == 0 {
		return 0
	}
	c.meta[i].refs++
	return m.to
}

// note remembers a change for again.
func (s *rows) note(m *step, from, to uint64, position int) {
	*m = step{}
	if to != 0 {
		*m = step{from, to, position, s.version(from), s.version(to)}
	}
}

// version returns that of a row; a set that is no row never changes.
func (s *rows) version(ref uint64) uint64 {
	if ref < firstRow {
		return 0
	}
	c, i := s.at(ref)
	return c.versions[i].Load()
}

func (s *rows) hash(ref uint64) uint64 {
	if ref < firstRow {
		return s.marks[ref-1]
	}
	return s.keyOf(uint32(ref - firstRow + 1))
}

// acquire returns a counted reference to the row of the scratch set, 0 if
// there is none and no room for one.
func (s *rows) acquire(hash uint64) uint64 {
	id := s.sets.find(hash, s)
	if id == 0 {
		if id = s.allocate(hash); id == 0 {
			return 0
		}
	}
	ref := uint64(id-1) + firstRow
	c, i := s.at(ref)
	if !s.same(c, i) {
		return 0 // two sets with one 64-bit hash: the second has no place
	}
	c.meta[i].refs++
	return ref
}

// same reports whether a row holds the scratch set.
func (s *rows) same(c *rowChunk, i int) bool {
	if c.class != s.set.class() {
		return false
	}
	row := c.row(i)
	for t := range c.tiers {
		for k := range c.width {
			if row[t*c.width+k].Load() != s.set.bits[t][k] {
				return false
			}
		}
	}
	return true
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

// allocate writes the scratch set into a free row and returns its id, 0 if
// there is no room.
func (s *rows) allocate(hash uint64) uint32 {
	class := s.set.class()
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
	for t := range c.tiers {
		for k := range c.width {
			row[t*c.width+k].Store(s.set.bits[t][k])
		}
	}
	c.versions[i].Add(1)
	s.bytes += s.sets.insert(hash, id, s)
	s.live++
	return id
}

// classShape returns the words a tier and the tiers of a class.
func classShape(class int) (width, tiers int) {
	if class < len(rowWidths) {
		return rowWidths[class], 1
	}
	return rowWidths[class-len(rowWidths)], Tiers
}

// extend adds a chunk of free rows of a class, unless the store is full. A row
// costs up to 15 bytes in sets.
func (s *rows) extend(class int) bool {
	width, tiers := classShape(class)
	size := rowsPerChunk * int64(8+16+8*width*tiers)
	if s.used == len(s.chunks) || s.bytes+size+15*rowsPerChunk > s.maximum {
		return false
	}
	c := &rowChunk{class: class, width: width, tiers: tiers}
	c.bits = make([]atomic.Uint64, rowsPerChunk*width*tiers)
	for i := range rowsPerChunk {
		c.meta[i].next = s.free[class]
		s.free[class] = uint32(s.used*rowsPerChunk + i + 1)
	}
	s.chunks[s.used].Store(c)
	s.used++
	s.bytes += size
	return true
}
