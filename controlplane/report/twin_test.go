package report

import (
	"slices"

	"warmpath/controlplane/report/message"
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// twin is an index that is as simple as can be.
type twin struct {
	blocks map[shelf]map[uint64]*twinBlock
	full   bool
}

type twinBlock struct {
	refs  int
	parts []prefix.Hash
}

func newTwin() *twin { return &twin{blocks: map[shelf]map[uint64]*twinBlock{}} }

func (x *twin) Stored(slot int, tier index.Tier, block uint64, parts []prefix.Hash) bool {
	if len(parts) == 0 {
		panic("a block of no units")
	}
	at := shelf{slot, tier}
	if x.blocks[at] == nil {
		x.blocks[at] = map[uint64]*twinBlock{}
	}
	if b := x.blocks[at][block]; b != nil {
		b.refs++
		return true
	}
	if x.full {
		return false
	}
	x.blocks[at][block] = &twinBlock{1, slices.Clone(parts)}
	return true
}

func (x *twin) Removed(slot int, tier index.Tier, block uint64) bool {
	b := x.blocks[shelf{slot, tier}][block]
	if b == nil {
		return false
	}
	if b.refs--; b.refs == 0 {
		delete(x.blocks[shelf{slot, tier}], block)
	}
	return true
}

func (x *twin) Last(slot int, block uint64) (prefix.Hash, bool) {
	for tier := range index.Tier(index.Tiers) {
		if b := x.blocks[shelf{slot, tier}][block]; b != nil {
			return b.parts[len(b.parts)-1], true
		}
	}
	return 0, false
}

func (x *twin) Digest(slot int, tier index.Tier) (count, xor, sum uint64) {
	var d message.Digest
	for block := range x.blocks[shelf{slot, tier}] {
		d.Add(block)
	}
	return d.Count, d.XOR, d.Sum
}

func (x *twin) Blocks(slot int, tier index.Tier, yield func(block uint64) bool) {
	for block := range x.blocks[shelf{slot, tier}] {
		if !yield(block) {
			return
		}
	}
}

func (x *twin) Clear(slot int) {
	for tier := range index.Tier(index.Tiers) {
		delete(x.blocks, shelf{slot, tier})
	}
}

// units are all units that a slot holds, in any tier.
func (x *twin) units(slot int) map[prefix.Hash]bool {
	held := map[prefix.Hash]bool{}
	for tier := range index.Tier(index.Tiers) {
		for _, b := range x.blocks[shelf{slot, tier}] {
			for _, h := range b.parts {
				held[h] = true
			}
		}
	}
	return held
}

// match is how many units at the start of a chain a slot holds.
func (x *twin) match(slot int, chain []prefix.Hash) int {
	held := x.units(slot)
	for i, h := range chain {
		if !held[h] {
			return i
		}
	}
	return len(chain)
}
