package agent

import (
	"slices"

	"warmpath/controlplane/kvevent"
	"warmpath/controlplane/report/message"
	"warmpath/dataplane/index"
)

// cache is what one rank of the engine holds, as its events say, and what of it
// has changed since the last flush.
//
// Engines announce a block once for every copy they have and take each copy back
// by itself; a router is told only of the first and of the last. What comes and
// goes between two flushes is not told at all.
type cache struct {
	shelves [index.Tiers]shelf
	group   int // the cache group that counts; kvevent.NotSaid until one was seen
	most    int // blocks of all tiers
	counts  Counts
}

// Counts say what became of a rank's events; they only grow.
type Counts struct {
	Stored   uint64 // blocks that appeared
	Removed  uint64 // blocks that went
	Ignored  uint64 // events that name nothing a prompt could be matched with
	Overflow uint64 // blocks beyond the bound, not tracked
	Voided   uint64 // times that all was forgotten
}

// shelf is one tier.
type shelf struct {
	live   map[uint64]*entry
	was    map[uint64]bool // hashes that changed since the last flush → live at that flush
	digest message.Digest  // of live
	used   bool            // anything was ever in it
	births uint64
}

// entry is one live block. The message's slices are shared with reports under
// way, so they are replaced and never written to.
type entry struct {
	block message.Block
	refs  int
	birth uint64 // grows: a parent is older than its children
}

func newCache(most int) *cache {
	c := &cache{most: most}
	c.void()
	return c
}

// void forgets all. Tiers that were in use stay so: routers have to be told.
func (c *cache) void() {
	c.group = kvevent.NotSaid
	for i := range c.shelves {
		s := &c.shelves[i]
		*s = shelf{live: map[uint64]*entry{}, was: map[uint64]bool{}, used: s.used || i == int(index.Device)}
	}
}

// len is the number of live blocks of all tiers.
func (c *cache) len() (n int) {
	for i := range c.shelves {
		n += len(c.shelves[i].live)
	}
	return n
}

// apply takes one event that is no Cleared. The event's memory is not kept.
func (c *cache) apply(e *kvevent.Event) {
	if !c.counting(e) {
		c.counts.Ignored++
		return
	}
	tier := [...]index.Tier{kvevent.Device: index.Device, kvevent.Host: index.Host, kvevent.Disk: index.Disk}[e.Medium]
	if e.Kind == kvevent.Removed {
		for _, hash := range e.Hashes {
			c.remove(&c.shelves[tier], hash)
		}
		return
	}
	c.store(tier, e)
}

// counting reports whether an event is about blocks that a prompt could be
// matched with: of the engine's own memory, of the one cache group that holds
// whole prefixes, with as many tokens as its blocks need. Blocks without tokens
// (offloads name blocks only) count if another tier knows them.
func (c *cache) counting(e *kvevent.Event) bool {
	switch {
	case e.Remote, e.Medium >= kvevent.OtherMedium, e.Spec == kvevent.SpecOther, e.Spec == kvevent.SpecNotSaid && e.Group > 0,
		e.Group != kvevent.NotSaid && c.group != kvevent.NotSaid && e.Group != c.group:
		return false
	case e.Kind == kvevent.Removed:
		return true
	case len(e.Tokens) == 0 || e.BlockTokens == 0:
		return len(e.Hashes) > 0
	default:
		return len(e.Tokens) == len(e.Hashes)*e.BlockTokens && e.BlockTokens <= message.MaxBlockTokens &&
			len(e.Adapter) <= message.MaxAdapterBytes && len(e.Salt) <= message.MaxSaltBytes && !(e.HasParent && slices.Contains(e.Hashes, e.Parent))
	}
}

// store adds a run of blocks.
func (c *cache) store(tier index.Tier, e *kvevent.Event) {
	s := &c.shelves[tier]
	s.used = true
	if e.Group != kvevent.NotSaid && len(e.Tokens) > 0 {
		c.group = e.Group
	}
	// A run that starts at the root with a block that is known tells of what was
	// there before, as vLLM does when a request asks for it
	// (kv_cache_report_mode): see kvevent.Tracker.
	again := !e.HasParent && len(e.Hashes) > 1 && c.find(e.Hashes[0]) != nil
	for i, hash := range e.Hashes {
		if is := s.live[hash]; is != nil {
			if !again {
				is.refs++
			}
			continue
		}
		block := message.Block{Hash: hash, Adapter: e.Adapter, Salt: e.Salt}
		switch {
		case len(e.Tokens) == 0:
			known := c.find(hash)
			if known == nil {
				c.counts.Ignored++
				continue
			}
			block = known.block
		default:
			block.BlockTokens = e.BlockTokens
			block.Tokens = slices.Clone(e.Tokens[i*e.BlockTokens : (i+1)*e.BlockTokens])
			block.Parent, block.HasParent = e.Parent, e.HasParent
			if i > 0 {
				block.Parent, block.HasParent = e.Hashes[i-1], true
			}
			if extra := e.Extra(i); len(extra) > 0 {
				block.Extra = boundExtra(extra)
			}
		}
		c.add(s, block)
	}
}

func (c *cache) add(s *shelf, b message.Block) {
	if c.len() >= c.most {
		c.counts.Overflow++
		return
	}
	c.counts.Stored++
	s.births++
	s.touch(b.Hash)
	s.live[b.Hash] = &entry{block: b, refs: 1, birth: s.births}
	s.digest.Add(b.Hash)
}

// find returns a block of any tier.
func (c *cache) find(hash uint64) *entry {
	for i := range c.shelves {
		if e := c.shelves[i].live[hash]; e != nil {
			return e
		}
	}
	return nil
}

func (c *cache) remove(s *shelf, hash uint64) {
	e := s.live[hash]
	if e == nil {
		return // from before the first event that we saw
	}
	if e.refs--; e.refs > 0 {
		return
	}
	c.counts.Removed++
	s.touch(hash)
	delete(s.live, hash)
	s.digest.Remove(hash)
}

// touch remembers how a hash was at the last flush, before it changes.
func (s *shelf) touch(hash uint64) {
	if _, touched := s.was[hash]; !touched {
		s.was[hash] = s.live[hash] != nil
	}
}

// flush returns what differs from the last flush: blocks that are live now,
// parents first, and hashes that are no more.
func (s *shelf) flush() (stored []message.Block, evicted []uint64) {
	if len(s.was) == 0 {
		return nil, nil
	}
	var born []*entry
	for hash, was := range s.was {
		switch e := s.live[hash]; {
		case e != nil && !was:
			born = append(born, e)
		case e == nil && was:
			evicted = append(evicted, hash)
		}
	}
	s.was = map[uint64]bool{}
	slices.SortFunc(born, byBirth)
	stored = make([]message.Block, len(born))
	for i, e := range born {
		stored[i] = e.block
	}
	slices.Sort(evicted) // so that the same events give the same reports
	return stored, evicted
}

// all returns the hashes of the live blocks, parents first.
func (s *shelf) all() []uint64 {
	entries := make([]*entry, 0, len(s.live))
	for _, e := range s.live {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, byBirth)
	hashes := make([]uint64, len(entries))
	for i, e := range entries {
		hashes[i] = e.block.Hash
	}
	return hashes
}

func byBirth(a, b *entry) int {
	switch {
	case a.birth < b.birth:
		return -1
	case a.birth > b.birth:
		return 1
	}
	return 0
}

// boundExtra keeps what a report can carry: longer keys are told apart by their
// hash.
func boundExtra(extra []byte) []byte {
	if len(extra) <= message.MaxExtraBytes {
		return slices.Clone(extra)
	}
	return hashed(extra)
}
