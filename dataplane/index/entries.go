package index

// entry is the reverse half of the index: one unit held by one node. It hangs
// in its node's list, most recently used first. All of this file is
// writer-owned.
type entry struct {
	keyLow, keyHigh uint32 // in halves: 20 bytes an entry, not 24
	newer, older    uint32 // ids of the neighbours in the list, 0 = none
	tick            uint32 // when it was last used
}

const (
	entryBytes      = 20
	entriesPerChunk = 4096
)

func (e *entry) key() uint64 { return uint64(e.keyHigh)<<32 | uint64(e.keyLow) }

// pool holds the entries of all nodes. Their ids start at 1.
type pool struct {
	chunks [][]entry
	used   uint32 // ids ever given out
	free   uint32 // first free entry; they are linked by older
	live   int
	bytes  int64
}

func (p *pool) at(id uint32) *entry {
	return &p.chunks[id/entriesPerChunk][id%entriesPerChunk]
}

func (p *pool) keyOf(id uint32) uint64 { return p.at(id).key() }

// take returns a new entry.
func (p *pool) take(key uint64) (uint32, *entry) {
	id := p.free
	if id == 0 {
		p.used++
		id = p.used
		if int(id/entriesPerChunk) == len(p.chunks) {
			p.chunks = append(p.chunks, make([]entry, entriesPerChunk))
			p.bytes += entriesPerChunk * entryBytes
		}
	}
	e := p.at(id)
	p.free = e.older
	*e = entry{keyLow: uint32(key), keyHigh: uint32(key >> 32)}
	p.live++
	return id, e
}

// give takes an entry back.
func (p *pool) give(id uint32, e *entry) {
	*e = entry{older: p.free}
	p.free = id
	p.live--
}

// node is what the writer knows of one slot: a list of its entries and a table
// to find them by key.
type node struct {
	newest, oldest uint32
	capacity       int // units
	dropped        bool
	entries        ids
}

// unlink takes an entry out of the list.
func (n *node) unlink(p *pool, e *entry) {
	if e.newer != 0 {
		p.at(e.newer).older = e.older
	} else {
		n.newest = e.older
	}
	if e.older != 0 {
		p.at(e.older).newer = e.newer
	} else {
		n.oldest = e.newer
	}
}

// link puts an entry behind another, or first for newer == 0.
func (n *node) link(p *pool, newer, id uint32, e *entry) {
	e.newer = newer
	if newer != 0 {
		before := p.at(newer)
		e.older = before.older
		before.older = id
	} else {
		e.older = n.newest
		n.newest = id
	}
	if e.older != 0 {
		p.at(e.older).newer = id
	} else {
		n.oldest = id
	}
}

// move puts an entry of the list behind another one, or first.
func (n *node) move(p *pool, newer, id uint32, e *entry) {
	if e.newer == newer || id == newer {
		return
	}
	n.unlink(p, e)
	n.link(p, newer, id, e)
}

// find returns the entry of a key, 0 if there is none. Chains are used whole,
// so the entry behind the one of the parent is tried before the table.
func (n *node) find(p *pool, parent uint32, key uint64) uint32 {
	guess := n.newest
	if parent != 0 {
		guess = p.at(parent).older
	}
	if guess != 0 && p.at(guess).key() == key {
		return guess
	}
	return n.entries.find(key, p)
}
