package tokenize

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
)

const (
	// cachedMost bounds the words that are kept: in bytes, and so in ids.
	cachedMost = 256

	ringWords  = 1 << 20 // 8 MB
	tableSlots = 1 << 17 // 1 MB
	bucket     = 8       // slots that a word may be in: a cache line

	tagBits = 20
)

// wordCache remembers the ids of words. Its size is fixed; the oldest words
// give way. Any number of goroutines may read without a lock while one writes;
// a second writer does not wait but leaves its word out.
//
// Entries follow each other in a ring of 64-bit words: a header (length of the
// key in bytes, number of ids), the key, the ids. A position counts the words
// ever written, so what it points at is intact as long as no more than the
// ring's size has been reserved since. Writers reserve before they write, and
// readers look at the reservation after they have read.
type wordCache struct {
	ring     []atomic.Uint64 // its length is a power of two
	table    []atomic.Uint64 // position << tagBits | bits of the hash; 0 is empty
	reserved atomic.Uint64

	writer sync.Mutex
}

func newWordCache() *wordCache { return newRing(ringWords) }

// newRing makes a cache whose ring has that many words, a power of two.
func newRing(words int) *wordCache {
	c := &wordCache{ring: make([]atomic.Uint64, words), table: make([]atomic.Uint64, tableSlots)}
	c.reserved.Store(1) // so that no position is 0
	return c
}

// place returns the first slot of the word's bucket and the tag it has there.
func place(hash uint64) (slot int, tag uint64) {
	return int(hash>>40) & (tableSlots - 1) &^ (bucket - 1), hash & (1<<tagBits - 1)
}

// intact reports whether nothing has been written over the entry at position.
func (c *wordCache) intact(position uint64) bool {
	return c.reserved.Load()-position <= uint64(len(c.ring))
}

// at returns the word of the ring at a position.
func (c *wordCache) at(position uint64) *atomic.Uint64 {
	return &c.ring[position&uint64(len(c.ring)-1)]
}

// find appends the ids of word, if they are known.
func (c *wordCache) find(ids []uint32, word []byte, hash uint64) ([]uint32, bool) {
	first, tag := place(hash)
	slots := c.table[first : first+bucket]
	for i := range slots {
		slot := slots[i].Load()
		if slot&(1<<tagBits-1) != tag || slot == 0 {
			continue
		}
		position := slot >> tagBits
		if !c.intact(position) {
			continue
		}
		if found, ok := c.read(ids, word, position); ok && c.intact(position) {
			return found, true
		}
	}
	return ids, false
}

// read appends the ids of the entry at position if its key is word. What it
// has read may have been overwritten meanwhile: the caller checks.
func (c *wordCache) read(ids []uint32, word []byte, position uint64) ([]uint32, bool) {
	header := c.at(position).Load()
	if header>>32 != uint64(len(word)) {
		return ids, false
	}
	position++
	for len(word) >= 8 {
		if c.at(position).Load() != binary.LittleEndian.Uint64(word) {
			return ids, false
		}
		word = word[8:]
		position++
	}
	if len(word) > 0 {
		if c.at(position).Load() != tailWord(word) {
			return ids, false
		}
		position++
	}
	for count := int(min(header&(1<<32-1), cachedMost)); count > 0; count -= 2 {
		two := c.at(position).Load()
		position++
		if ids = append(ids, uint32(two)); count > 1 {
			ids = append(ids, uint32(two>>32))
		}
	}
	return ids, true
}

// tailWord packs fewer than 8 bytes.
func tailWord(bytes []byte) (w uint64) {
	for i, b := range bytes {
		w |= uint64(b) << (8 * i)
	}
	return w
}

// add remembers the ids of word, which has none to cachedMost bytes and at
// least one and no more ids than bytes.
func (c *wordCache) add(word []byte, hash uint64, ids []uint32) {
	if !c.writer.TryLock() {
		return
	}
	defer c.writer.Unlock()
	position := c.reserved.Load()
	c.reserved.Store(position + uint64(1+(len(word)+7)/8+(len(ids)+1)/2))
	at := position
	put := func(w uint64) {
		c.at(at).Store(w)
		at++
	}
	put(uint64(len(word))<<32 | uint64(len(ids)))
	for ; len(word) >= 8; word = word[8:] {
		put(binary.LittleEndian.Uint64(word))
	}
	if len(word) > 0 {
		put(tailWord(word))
	}
	for ; len(ids) > 1; ids = ids[2:] {
		put(uint64(ids[1])<<32 | uint64(ids[0]))
	}
	if len(ids) > 0 {
		put(uint64(ids[0]))
	}
	c.publish(hash, position)
}

// publish puts a position into the oldest slot of its bucket.
func (c *wordCache) publish(hash, position uint64) {
	first, tag := place(hash)
	slots := c.table[first : first+bucket]
	oldest := 0
	for i := range slots {
		if slots[i].Load()>>tagBits < slots[oldest].Load()>>tagBits {
			oldest = i
		}
	}
	slots[oldest].Store(position<<tagBits | tag)
}
