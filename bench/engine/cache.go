package engine

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// EventKind tells what happened to cached blocks.
type EventKind uint8

// The kinds of events, as in vLLM's kv_events.py.
const (
	BlockStored EventKind = iota + 1
	BlockRemoved
	AllBlocksCleared
)

// Event is one change of a cache, before it is encoded for the wire.
type Event struct {
	Kind      EventKind
	Hashes    []uint64 // a contiguous run for BlockStored, one hash for BlockRemoved
	Parent    uint64   // hash of the block before the run
	HasParent bool     // false at the root
	Tokens    []uint32 // the run's token ids, len(Hashes) × block size; never changed later
	Salt      string   // cache_salt of the request, set when the run starts at the root
	Adapter   string   // LoRA adapter, "" for the base model
}

// block is one physical block. Free blocks form a list in the order of their
// re-use; a free block keeps its hash until it is re-used.
type block struct {
	hash       uint64
	refs       int32
	prev, next int32 // neighbours in the free list; 0 = none
	prevCopy   int32 // neighbours among the blocks with the same hash; 0 = none
	nextCopy   int32
	hashed     bool
}

// copies are the blocks with one hash, in the order of their storing.
type copies struct{ first, last int32 }

// Cache is a block cache with the rules of vLLM's block pool: full blocks are
// found by chain hash, blocks are released tail first and re-used in the order
// of their release, equal content may be stored twice, and a re-used block is
// reported removed at that moment. Block 0 is the null block: never handed
// out, so it also serves as "none" in links. Not safe for concurrent use.
type Cache struct {
	blockTokens int
	blocks      []block
	byHash      map[uint64]copies
	head, tail  int32 // free list: head is re-used next
	free        int
	hashed      int // blocks that hold a hash
	events      []Event
}

// NewCache makes a cache of count blocks, one of which is the null block.
func NewCache(count, blockTokens int) *Cache {
	if count < 2 || blockTokens < 1 {
		panic("BUG: a cache needs two blocks of one token or more")
	}
	c := &Cache{blockTokens: blockTokens, blocks: make([]block, count), byHash: make(map[uint64]copies)}
	for i := 1; i < count; i++ {
		c.pushFree(int32(i))
	}
	return c
}

// Free returns how many blocks no request holds.
func (c *Cache) Free() int { return c.free }

// Total returns how many blocks can hold tokens: all but the null block.
func (c *Cache) Total() int { return len(c.blocks) - 1 }

// Hashed returns how many blocks hold content that a prompt could hit.
func (c *Cache) Hashed() int { return c.hashed }

// Match returns the blocks that hold the leading hashes, until the first one
// that is not cached. It changes nothing; the result is the caller's.
func (c *Cache) Match(hashes []uint64) []int32 {
	var found []int32
	for _, h := range hashes {
		same, ok := c.byHash[h]
		if !ok {
			break
		}
		found = append(found, same.first)
	}
	return found
}

// heldNeeded returns how many free blocks taking these cached blocks uses up.
func (c *Cache) heldNeeded(ids []int32) int {
	n := 0
	for _, id := range ids {
		if c.blocks[id].refs == 0 {
			n++
		}
	}
	return n
}

// Hold adds a reference to each block, so that it is not re-used.
func (c *Cache) Hold(ids []int32) {
	for _, id := range ids {
		b := &c.blocks[id]
		if b.refs == 0 {
			c.unlink(id)
		}
		b.refs++
	}
}

// Take hands out n blocks with one reference each and appends them to ids. It
// evicts what they held. ok is false, and nothing happened, if fewer are free.
func (c *Cache) Take(ids []int32, n int) (_ []int32, ok bool) {
	if n > c.free {
		return ids, false
	}
	for range n {
		id := c.head
		c.unlink(id)
		if c.blocks[id].hashed {
			c.events = append(c.events, Event{Kind: BlockRemoved, Hashes: []uint64{c.blocks[id].hash}})
			c.forget(id)
		}
		c.blocks[id].refs = 1
		ids = append(ids, id)
	}
	return ids, true
}

// Release drops one reference of each block, last block first, so that the
// tail of a sequence is re-used before its head.
func (c *Cache) Release(ids []int32) {
	for i := len(ids) - 1; i >= 0; i-- {
		b := &c.blocks[ids[i]]
		if b.refs <= 0 {
			panic("BUG: a block was released more often than held")
		}
		if b.refs--; b.refs == 0 {
			c.pushFree(ids[i])
		}
	}
}

// Store registers full blocks under their hashes and records one BlockStored
// event for the run, which the caller has filled in but for its kind.
func (c *Cache) Store(ids []int32, run Event) {
	if len(ids) != len(run.Hashes) || len(run.Tokens) != len(ids)*c.blockTokens {
		panic("BUG: a stored run has blocks, hashes and tokens that do not fit")
	}
	for i, id := range ids {
		b := &c.blocks[id]
		if b.hashed || b.refs == 0 {
			panic("BUG: a stored block is free or has a hash already")
		}
		b.hash, b.hashed = run.Hashes[i], true
		c.hashed++
		c.addCopy(id)
	}
	run.Kind = BlockStored
	c.events = append(c.events, run)
}

// Clear forgets all content. As in vLLM it does so only when no request holds
// a block, and reports whether it did.
func (c *Cache) Clear() bool {
	if c.free != c.Total() {
		return false
	}
	for i := range c.blocks {
		c.blocks[i].hashed, c.blocks[i].prevCopy, c.blocks[i].nextCopy = false, 0, 0
	}
	clear(c.byHash)
	c.hashed = 0
	c.events = append(c.events, Event{Kind: AllBlocksCleared})
	return true
}

// Drain returns the events since the last call, in order; they are the caller's.
func (c *Cache) Drain() []Event {
	ev := c.events
	c.events = nil
	return ev
}

// addCopy appends a block to those with its hash. There can be many: the last
// block of a prompt, and every block of an answer, is stored by each request
// that computes it.
func (c *Cache) addCopy(id int32) {
	b := &c.blocks[id]
	same, ok := c.byHash[b.hash]
	if !ok {
		c.byHash[b.hash] = copies{id, id}
		return
	}
	c.blocks[same.last].nextCopy, b.prevCopy = id, same.last
	c.byHash[b.hash] = copies{same.first, id}
}

// forget takes a block's hash away; another copy of it stays findable.
func (c *Cache) forget(id int32) {
	b := &c.blocks[id]
	same := c.byHash[b.hash]
	if b.prevCopy != 0 {
		c.blocks[b.prevCopy].nextCopy = b.nextCopy
	} else {
		same.first = b.nextCopy
	}
	if b.nextCopy != 0 {
		c.blocks[b.nextCopy].prevCopy = b.prevCopy
	} else {
		same.last = b.prevCopy
	}
	if same.first == 0 {
		delete(c.byHash, b.hash)
	} else {
		c.byHash[b.hash] = same
	}
	b.hashed, b.prevCopy, b.nextCopy = false, 0, 0
	c.hashed--
}

// pushFree puts a block at the end of the free list.
func (c *Cache) pushFree(id int32) {
	b := &c.blocks[id]
	b.prev, b.next = c.tail, 0
	if c.tail != 0 {
		c.blocks[c.tail].next = id
	} else {
		c.head = id
	}
	c.tail = id
	c.free++
}

// unlink takes a block out of the free list.
func (c *Cache) unlink(id int32) {
	b := &c.blocks[id]
	if b.prev != 0 {
		c.blocks[b.prev].next = b.next
	} else {
		c.head = b.next
	}
	if b.next != 0 {
		c.blocks[b.next].prev = b.prev
	} else {
		c.tail = b.prev
	}
	b.prev, b.next = 0, 0
	c.free--
}

// rootHash starts a chain: engines with the same seed agree on hashes; a salt
// and an adapter each lead to a chain of their own.
func rootHash(seed uint64, salt, adapter string) uint64 {
	d := xxhash.NewWithSeed(seed)
	var n [8]byte
	binary.LittleEndian.PutUint64(n[:], uint64(len(salt)))
	_, _ = d.Write(n[:]) // the length keeps ("ab","c") and ("a","bc") apart
	_, _ = d.WriteString(salt)
	_, _ = d.WriteString(adapter)
	return d.Sum64()
}

// extendChain appends the chain hashes of all full blocks of tokens that
// hashes does not cover yet.
func extendChain(hashes []uint64, root uint64, tokens []uint32, blockTokens int) []uint64 {
	parent := root
	if len(hashes) > 0 {
		parent = hashes[len(hashes)-1]
	}
	var d xxhash.Digest
	var buf [8]byte
	for end := (len(hashes) + 1) * blockTokens; end <= len(tokens); end += blockTokens {
		d.Reset()
		binary.LittleEndian.PutUint64(buf[:], parent)
		_, _ = d.Write(buf[:])
		writeTokens(&d, tokens[end-blockTokens:end])
		parent = d.Sum64()
		hashes = append(hashes, parent)
	}
	return hashes
}
