package kvevent

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tinylib/msgp/msgp"

	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// Tails are blocks that end inside a unit, as another process takes them up.
type Tails []Segment

// Segment is such blocks of one unit: all have the same tokens since the last
// whole one, more or fewer of them.
type Segment struct {
	Own    prefix.Hash // of the last whole unit
	Tokens []uint32
	Blocks []TailBlock
}

// TailBlock is one block.
type TailBlock struct {
	Name   uint64
	Length int // tokens since the last whole unit, at least 1
	Refs   [index.Tiers]uint16
}

// tailsBytes is about how long one Tails is when it is encoded. A segment is
// never divided.
const tailsBytes = 256 << 10

// Save adds what the Tracker knows to what its Stream does. Blocks that end in
// units are in the index.
func (t *Tracker) Save(s *Saved) (tails []Tails) {
	s.Group, s.BlockTokens, s.Orphans = t.group, t.size, t.orphans
	return t.tails.save()
}

// Resume makes a Tracker go on from what another one has saved.
func (t *Tracker) Resume(s *Saved) { t.group, t.size, t.orphans = s.Group, s.BlockTokens, s.Orphans }

// ImportTails takes up what Save has returned and returns how many blocks.
func (t *Tracker) ImportTails(tails Tails) (taken int) {
	for i := range tails {
		g := &tails[i]
		for _, b := range g.Blocks {
			if len(g.Tokens) <= t.tails.segmentTokens && t.tails.restore(g.Own, g.Tokens[:b.Length], b) {
				taken++
			}
		}
	}
	return taken
}

// restore puts a block with all its references.
func (s *tails) restore(own prefix.Hash, tokens []uint32, b TailBlock) bool {
	if !s.put(b.Name, index.Device, own, tokens, true) {
		return false
	}
	e := s.entries[b.Name]
	e.refs = b.Refs
	s.entries[b.Name] = e
	return true
}

// save returns all blocks by their segments.
func (s *tails) save() (all []Tails) {
	if len(s.entries) == 0 {
		return nil
	}
	// Places of each segment's blocks in one list.
	places := make([]int32, len(s.segments)+1)
	for n := range s.segments {
		places[n+1] = places[n] + s.segments[n].refs
	}
	blocks := make([]TailBlock, places[len(s.segments)])
	next := slices.Clone(places)
	for name, e := range s.entries {
		blocks[next[e.segment]] = TailBlock{Name: name, Length: int(e.length), Refs: e.refs}
		next[e.segment]++
	}
	var piece Tails
	size := 0
	for n := range s.segments {
		of := blocks[places[n]:places[n+1]]
		if len(of) == 0 {
			continue
		}
		// The shortest first: each makes the segment longer when it is taken up.
		slices.SortFunc(of, func(a, b TailBlock) int { return a.Length - b.Length })
		start := n * s.segmentTokens
		piece = append(piece, Segment{
			Own: s.segments[n].own, Tokens: slices.Clone(s.tokens[start : start+of[len(of)-1].Length]), Blocks: of,
		})
		if size += 20*len(of) + 5*of[len(of)-1].Length; size >= tailsBytes {
			all, piece, size = append(all, piece), nil, 0
		}
	}
	if len(piece) > 0 {
		all = append(all, piece)
	}
	return all
}

// AppendTails encodes tails as MessagePack: of each segment an array of its
// hash, its tokens, and its blocks as name, length and references by tier.
func AppendTails(b []byte, tails Tails) []byte {
	b = msgp.AppendArrayHeader(b, uint32(len(tails)))
	for i := range tails {
		g := &tails[i]
		b = msgp.AppendUint64(msgp.AppendArrayHeader(b, 3), uint64(g.Own))
		b = msgp.AppendArrayHeader(b, uint32(len(g.Tokens)))
		for _, id := range g.Tokens {
			b = msgp.AppendUint32(b, id)
		}
		b = msgp.AppendArrayHeader(b, uint32(len(g.Blocks)))
		for _, t := range g.Blocks {
			b = msgp.AppendUint64(msgp.AppendArrayHeader(b, 2+index.Tiers), t.Name)
			b = msgp.AppendInt(b, t.Length)
			for _, n := range t.Refs {
				b = msgp.AppendUint16(b, n)
			}
		}
	}
	return b
}

var errTails = errors.New("not what one router writes for another")

// DecodeTails reads what AppendTails has written. It trusts nothing: the error
// says what is wrong with b.
func DecodeTails(b []byte) (tails Tails, err error) {
	defer func() {
		if err != nil {
			tails, err = nil, fmt.Errorf("read partial units: %w", err)
		}
	}()
	count, b, err := readArray(b)
	if err != nil {
		return nil, err
	}
	for range count {
		var g Segment
		if g, b, err = readSegment(b); err != nil {
			return nil, err
		}
		tails = append(tails, g)
	}
	if len(b) > 0 {
		return nil, errTails
	}
	return tails, nil
}

func readSegment(b []byte) (g Segment, rest []byte, err error) {
	if b, err = readTuple(b, 3); err != nil {
		return g, b, err
	}
	own, b, err := msgp.ReadUint64Bytes(b)
	if err != nil {
		return g, b, err
	}
	g.Own = prefix.Hash(own)
	if g.Tokens, b, err = appendTokens(nil, b); err != nil {
		return g, b, err
	}
	count, b, err := readArray(b)
	if err != nil {
		return g, b, err
	}
	for range count {
		var t TailBlock
		if t, b, err = readTailBlock(b); err != nil {
			return g, b, err
		}
		if t.Length < 1 || t.Length > len(g.Tokens) || t.Refs == [index.Tiers]uint16{} {
			return g, b, errTails
		}
		g.Blocks = append(g.Blocks, t)
	}
	return g, b, nil
}

func readTailBlock(b []byte) (t TailBlock, rest []byte, err error) {
	if b, err = readTuple(b, 2+index.Tiers); err != nil {
		return t, b, err
	}
	if t.Name, b, err = msgp.ReadUint64Bytes(b); err != nil {
		return t, b, err
	}
	if t.Length, b, err = msgp.ReadIntBytes(b); err != nil {
		return t, b, err
	}
	for i := range t.Refs {
		if t.Refs[i], b, err = msgp.ReadUint16Bytes(b); err != nil {
			return t, b, err
		}
	}
	return t, b, nil
}

// readTuple reads the head of an array of just so many values.
func readTuple(b []byte, values int) (rest []byte, err error) {
	n, rest, err := readArray(b)
	if err == nil && n != values {
		err = errTails
	}
	return rest, err
}
