package index

import (
	"math/bits"
	"unsafe"

	"warmpath/dataplane/prefix"
)

// entry is the reverse half of the index: why one slot's bit of one unit is
// set. All kinds share one size and one pool, so that memory that one kind gave
// back serves the others. All of this file is writer-owned.
//
// What a, b and c are depends on the kind, which follows from the table that
// names the entry:
//
//	             a                     b                     c
//	learned      level:7  newer:25     flags:7  older:25     tick of the last use; two of the flags are its weight
//	speculative  newer                 older                 slot:10  due tick:22
//	reported     block hash, low half  block hash, high half next part:25  more copies:7
//	part         –                     –                     next part:25  0
//	shared       –                     –                     blocks beyond the first
//	free         next free             –                     –
//
// The key of a reported block is that of its last unit; a block of several
// units has the others as parts. newer and older are ids of neighbours in a
// list, 0 for none; in the lists of an eviction order newer means "goes later".
type entry struct {
	keyLow, keyHigh uint32 // in halves: 20 bytes an entry, not 24
	a, b, c         uint32
}

const (
	entryBytes      = 20
	entriesPerChunk = 4096
)

// Flags of learned entries, in b.
const (
	flagBusy   = 1 << (idBits + iota) // part of the chain that is being learned: stays
	flagParent                        // some unit that follows it was learned
	flagForked                        // … and another one
	weightBits = iota + idBits        // two: half the exponent of the weight
)

// weight is how much a learned entry counts against the capacity of its node.
func (e *entry) weight() int { return 1 << (2 * (e.b >> weightBits & 3)) }

// setWeight sets it: 1, 4, 16 or 64.
func (e *entry) setWeight(w int) {
	e.b = e.b&^(3<<weightBits) | uint32(bits.TrailingZeros(uint(w))/2)<<weightBits
}

// Bounds of what a reported entry can say, in c.
const (
	copyBits  = 7
	maxCopies = 1<<copyBits - 1
)

func (e *entry) key() uint64 { return uint64(e.keyHigh)<<32 | uint64(e.keyLow) }

func (e *entry) block() uint64 { return uint64(e.b)<<32 | uint64(e.a) }

func (e *entry) setBlock(block uint64) { e.a, e.b = uint32(block), uint32(block>>32) }

func (e *entry) newer() uint32 { return e.a & idMask }

func (e *entry) setNewer(id uint32) { e.a = e.a&^idMask | id }

func (e *entry) older() uint32 { return e.b & idMask }

func (e *entry) setOlder(id uint32) { e.b = e.b&^idMask | id }

func (e *entry) level() int { return int(e.a >> idBits) }

func (e *entry) setLevel(level int) { e.a = e.a&idMask | uint32(level)<<idBits }

func (e *entry) is(flag uint32) bool { return e.b&flag != 0 }

func (e *entry) copies() uint32 { return e.c & maxCopies }

func (e *entry) nextPart() uint32 { return e.c >> copyBits }

func (e *entry) setNextPart(id uint32) { e.c = e.c&maxCopies | id<<copyBits }

// hash returns the unit's hash.
func (e *entry) hash() prefix.Hash { return unspread(e.key()) }

// pool holds the entries of all slots. Their ids start at 1.
type pool struct {
	chunks []*[entriesPerChunk]entry
	used   uint32 // ids ever given out
	free   uint32 // first free entry
	live   int
	bytes  int64
}

func (p *pool) at(id uint32) *entry {
	return &p.chunks[id/entriesPerChunk][id%entriesPerChunk]
}

// keyOf makes a pool know the keys of tables by unit.
func (p *pool) keyOf(id uint32) uint64 { return p.at(id).key() }

func (p *pool) line(id uint32) unsafe.Pointer { return unsafe.Pointer(p.at(id)) }

// blockPool is a pool that knows the keys of tables by engine block.
type blockPool pool

func (p *blockPool) keyOf(id uint32) uint64 { return (*pool)(p).at(id).block() }

func (p *blockPool) line(id uint32) unsafe.Pointer { return (*pool)(p).line(id) }

// take returns a new entry.
func (p *pool) take(key uint64) (uint32, *entry) {
	id := p.free
	if id == 0 {
		p.used++
		id = p.used
		if int(id/entriesPerChunk) == len(p.chunks) {
			p.chunks = append(p.chunks, new([entriesPerChunk]entry))
			p.bytes += entriesPerChunk * entryBytes
		}
	}
	e := p.at(id)
	p.free = e.a
	*e = entry{keyLow: uint32(key), keyHigh: uint32(key >> 32)}
	p.live++
	return id, e
}

// give takes an entry back.
func (p *pool) give(id uint32, e *entry) {
	*e = entry{a: p.free}
	p.free = id
	p.live--
}

// list is a list of entries. Those of an eviction order go from the oldest on.
type list struct{ newest, oldest uint32 }

// unlink takes an entry out of the list.
func (l *list) unlink(p *pool, e *entry) {
	newer, older := e.newer(), e.older()
	if newer != 0 {
		p.at(newer).setOlder(older)
	} else {
		l.newest = older
	}
	if older != 0 {
		p.at(older).setNewer(newer)
	} else {
		l.oldest = newer
	}
}

// link puts an entry behind another, or first for newer == 0.
func (l *list) link(p *pool, newer, id uint32, e *entry) {
	older := l.newest
	if newer != 0 {
		before := p.at(newer)
		older = before.older()
		before.setOlder(id)
	} else {
		l.newest = id
	}
	if older != 0 {
		p.at(older).setNewer(id)
	} else {
		l.oldest = id
	}
	e.setNewer(newer)
	e.setOlder(older)
}

// move puts an entry of the list behind another one, or first.
func (l *list) move(p *pool, newer, id uint32, e *entry) {
	if e.newer() == newer || id == newer {
		return
	}
	l.unlink(p, e)
	l.link(p, newer, id, e)
}
