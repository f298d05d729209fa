package kvevent

import (
	"slices"

	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// tails remembers blocks that end inside a unit: the prefix hash of the last
// whole unit before, and the tokens since. A unit's pages share one segment of
// tokens, each with a length of its own, so that a page costs a map entry and
// not a copy.
type tails struct {
	segmentTokens int // of a segment: one less than a unit
	limitBytes    int
	entries       map[uint64]tail
	segments      []segment
	tokens        []uint32 // segmentTokens for each segment
	free          []int32  // segments that nobody uses
	replaced      uint64   // names that meant something else before
	recent        int32    // where the last tail went; the next is often there too
}

type tail struct {
	segment int32
	length  int32
	refs    [index.Tiers]uint16
}

type segment struct {
	own    prefix.Hash
	length int32
	refs   int32 // entries that point here
}

// What an entry costs in a map that is half full, and a segment beside its
// tokens.
const (
	tailBytes    = 2 * (8 + 8 + 2*index.Tiers + 2)
	segmentBytes = 16 + 4
)

func (s *tails) init(unit, limitBytes int) {
	s.segmentTokens, s.limitBytes, s.recent = unit-1, limitBytes, -1
	s.entries = make(map[uint64]tail)
}

// clear forgets all and gives the memory back.
func (s *tails) clear() {
	if len(s.entries) > 0 {
		replaced := s.replaced
		*s = tails{segmentTokens: s.segmentTokens, limitBytes: s.limitBytes, replaced: replaced, recent: -1, entries: make(map[uint64]tail)}
	}
}

// get returns a block's tail; its tokens are valid until the next put.
func (s *tails) get(block uint64) (own prefix.Hash, tokens []uint32, ok bool) {
	e, ok := s.entries[block]
	if !ok {
		return 0, nil, false
	}
	own, tokens = s.content(e)
	return own, tokens, true
}

func (s *tails) content(e tail) (prefix.Hash, []uint32) {
	start := int(e.segment) * s.segmentTokens
	return s.segments[e.segment].own, s.tokens[start : start+int(e.length)]
}

// put adds a block, once more if it is there already, unless it is only told
// again. It reports whether there was room.
func (s *tails) put(block uint64, tier index.Tier, own prefix.Hash, tokens []uint32, again bool) bool {
	e, known := s.entries[block]
	if known {
		if o, have := s.content(e); o != own || !slices.Equal(have, tokens) {
			s.forget(block)
			s.replaced++
			known = false
		}
	}
	if !known {
		n, ok := s.segmentFor(own, tokens)
		if !ok {
			return false
		}
		e = tail{segment: n, length: int32(len(tokens))}
		s.segments[n].refs++
		s.recent = n
	}
	if (!again || e.refs[tier] == 0) && e.refs[tier] < 1<<16-1 {
		e.refs[tier]++
	}
	s.entries[block] = e
	return true
}

// segmentFor finds a segment that begins with the tokens: the recent one, made
// longer if need be, or a new one.
func (s *tails) segmentFor(own prefix.Hash, tokens []uint32) (int32, bool) {
	if s.bytes() > s.limitBytes {
		return 0, false
	}
	if n := s.recent; n >= 0 && s.segments[n].refs > 0 && s.segments[n].own == own {
		g := &s.segments[n]
		have := s.tokens[int(n)*s.segmentTokens:][:g.length]
		shared := min(len(have), len(tokens))
		if slices.Equal(have[:shared], tokens[:shared]) {
			copy(s.tokens[int(n)*s.segmentTokens+shared:], tokens[shared:])
			g.length = max(g.length, int32(len(tokens)))
			return n, true
		}
	}
	var n int32
	if last := len(s.free) - 1; last >= 0 {
		n, s.free = s.free[last], s.free[:last]
	} else {
		n = int32(len(s.segments))
		s.segments = append(s.segments, segment{})
		s.tokens = slices.Grow(s.tokens, s.segmentTokens)[:len(s.tokens)+s.segmentTokens]
	}
	s.segments[n] = segment{own: own, length: int32(len(tokens))}
	copy(s.tokens[int(n)*s.segmentTokens:], tokens)
	return n, true
}

// bytes is what is in use, at most.
func (s *tails) bytes() int {
	return len(s.entries)*tailBytes + len(s.segments)*(segmentBytes+4*s.segmentTokens)
}

// remove takes a block away once and reports whether it was there.
func (s *tails) remove(block uint64, tier index.Tier) bool {
	e, ok := s.entries[block]
	if !ok || e.refs[tier] == 0 {
		return false
	}
	e.refs[tier]--
	if e.refs == [index.Tiers]uint16{} {
		s.drop(block, e)
	} else {
		s.entries[block] = e
	}
	return true
}

// forget drops a block whose name means something else now.
func (s *tails) forget(block uint64) {
	if e, ok := s.entries[block]; ok {
		s.drop(block, e)
	}
}

// drop forgets a block, and its segment if it was the last.
func (s *tails) drop(block uint64, e tail) {
	delete(s.entries, block)
	g := &s.segments[e.segment]
	if g.refs--; g.refs == 0 {
		s.free = append(s.free, e.segment)
	}
}
