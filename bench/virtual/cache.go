package virtual

// Anonymous is the content of a full block that no other prompt has. It takes room
// like any other and is never found.
const Anonymous = ^uint32(0)

// Cache is the block cache of one engine: full blocks are found by their content,
// released tail first and re-used in the order of their release. Block 0 is the
// null block, never handed out, so it also serves as "none" in links. Not safe for
// concurrent use.
type Cache struct {
	blocks     []block
	found      table
	index      *Index // nil = nobody asks
	slot       int
	head, tail int32 // of the free list: head is re-used next
	free       int
	touched    int   // blocks that were ever handed out
	evicted    int64 // blocks with content that were re-used
}

// block is one physical block. Those that nobody holds form a list in the order of
// their re-use; they keep their content until then.
type block struct {
	content    uint32 // 0 = not full
	refs       int32
	prev, next int32
	touched    bool
}

// NewCache makes a cache of so many blocks, the null block not counted. What it
// holds is noted in index under slot; index may be nil.
func NewCache(blocks int, index *Index, slot int) *Cache {
	if blocks < 1 {
		panic("BUG: a cache needs a block or more")
	}
	c := &Cache{blocks: make([]block, blocks+1), found: newTable(blocks), index: index, slot: slot}
	for i := 1; i <= blocks; i++ {
		c.pushFree(int32(i))
	}
	return c
}

// Total returns how many blocks can hold tokens.
func (c *Cache) Total() int { return len(c.blocks) - 1 }

// Free returns how many blocks no request holds.
func (c *Cache) Free() int { return c.free }

// Fill returns the share of the blocks that were ever used.
func (c *Cache) Fill() float64 { return float64(c.touched) / float64(c.Total()) }

// Evicted returns how many blocks lost their content so far.
func (c *Cache) Evicted() int64 { return c.evicted }

// Forget takes what the cache holds out of the index. The cache is not used again.
func (c *Cache) Forget() {
	if c.index == nil {
		return
	}
	for i := range c.blocks {
		if content := c.blocks[i].content; content != 0 && content != Anonymous {
			c.index.remove(content, c.slot)
		}
	}
}

// match returns the blocks that hold the leading contents, appended to ids, and how
// many of them nobody holds.
func (c *Cache) match(contents []uint32, ids []int32) (_ []int32, unheld int) {
	for _, content := range contents {
		id := c.found.get(content)
		if id == 0 {
			break
		}
		ids = append(ids, id)
		if c.blocks[id].refs == 0 {
			unheld++
		}
	}
	return ids, unheld
}

// hold adds a reference to each block, so that it is not re-used.
func (c *Cache) hold(ids []int32) {
	for _, id := range ids {
		b := &c.blocks[id]
		if b.refs == 0 {
			c.unlink(id)
		}
		b.refs++
	}
}

// take hands out n blocks with one reference each, appended to ids. ok is false,
// and nothing happened, if fewer are free.
func (c *Cache) take(ids []int32, n int) (_ []int32, ok bool) {
	if n > c.free {
		return ids, false
	}
	for range n {
		id := c.head
		c.unlink(id)
		b := &c.blocks[id]
		if !b.touched {
			b.touched = true
			c.touched++
		}
		if b.content != 0 {
			c.lose(b.content)
			b.content = 0
		}
		b.refs = 1
		ids = append(ids, id)
	}
	return ids, true
}

func (c *Cache) lose(content uint32) {
	c.evicted++
	if content == Anonymous {
		return
	}
	c.found.remove(content)
	if c.index != nil {
		c.index.remove(content, c.slot)
	}
}

// store says what a full block holds.
func (c *Cache) store(id int32, content uint32) {
	b := &c.blocks[id]
	if content == Anonymous || c.found.get(content) != 0 {
		b.content = Anonymous
		return
	}
	b.content = content
	c.found.put(content, id)
	if c.index != nil {
		c.index.add(content, c.slot)
	}
}

// release drops one reference of each block, last block first.
func (c *Cache) release(ids []int32) {
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

// table maps contents to blocks: open addressing with linear probing, at most half
// full, no tombstones. Content 0 is an empty place.
type table struct {
	keys []uint32
	ids  []int32
	mask uint32
}

func newTable(most int) table {
	size := 16
	for size < 2*most {
		size *= 2
	}
	return table{make([]uint32, size), make([]int32, size), uint32(size - 1)}
}

// home spreads contents, which are mostly consecutive, by Fibonacci hashing.
func (t *table) home(content uint32) uint32 {
	return uint32(uint64(content) * 0x9e3779b97f4a7c15 >> 32 & uint64(t.mask))
}

func (t *table) get(content uint32) int32 {
	for i := t.home(content); ; i = (i + 1) & t.mask {
		switch t.keys[i] {
		case content:
			return t.ids[i]
		case 0:
			return 0
		}
	}
}

func (t *table) put(content uint32, id int32) {
	i := t.home(content)
	for t.keys[i] != 0 {
		i = (i + 1) & t.mask
	}
	t.keys[i], t.ids[i] = content, id
}

// remove takes a content out and moves those behind it that would not be found over
// the gap.
func (t *table) remove(content uint32) {
	i := t.home(content)
	for t.keys[i] != content {
		i = (i + 1) & t.mask
	}
	for j := i; ; {
		j = (j + 1) & t.mask
		if t.keys[j] == 0 {
			break
		}
		if (j-t.home(t.keys[j]))&t.mask >= (j-i)&t.mask {
			t.keys[i], t.ids[i] = t.keys[j], t.ids[j]
			i = j
		}
	}
	t.keys[i], t.ids[i] = 0, 0
}
