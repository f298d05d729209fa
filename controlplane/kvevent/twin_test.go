package kvevent

import (
	"fmt"
	"slices"
	"strings"

	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// twin is an Index that does nothing clever.
type twin struct {
	blocks map[uint64]*twinBlock
	clears int
}

type twinBlock struct {
	refs  [index.Tiers]int
	parts []prefix.Hash
}

func newTwin() *twin { return &twin{blocks: map[uint64]*twinBlock{}} }

func (x *twin) StoredRun(_ int, tier index.Tier, blocks []uint64, units []prefix.Hash, again bool) (known, replaced int) {
	each := len(units) / len(blocks)
	for i, block := range blocks {
		parts := units[i*each : (i+1)*each]
		b := x.blocks[block]
		if b != nil && b.parts[len(b.parts)-1] != parts[each-1] {
			replaced++
			b = nil
		}
		if b == nil {
			b = &twinBlock{parts: slices.Clone(parts)}
			x.blocks[block] = b
		}
		if !slices.Equal(b.parts, parts) {
			panic(fmt.Sprintf("BUG: block %d stored as %v, was %v", block, parts, b.parts))
		}
		if !again || b.refs[tier] == 0 {
			b.refs[tier]++
		}
	}
	return len(blocks), replaced
}

func (x *twin) RemovedRun(_ int, tier index.Tier, blocks []uint64) (known int) {
	for _, block := range blocks {
		b := x.blocks[block]
		if b == nil || b.refs[tier] == 0 {
			continue
		}
		known++
		if b.refs[tier]--; b.refs == [index.Tiers]int{} {
			delete(x.blocks, block)
		}
	}
	return known
}

func (x *twin) Last(_ int, block uint64) (prefix.Hash, bool) {
	if b := x.blocks[block]; b != nil {
		return b.parts[len(b.parts)-1], true
	}
	return 0, false
}

func (x *twin) Clear(int) { x.clears++; clear(x.blocks) }

// holds is how many leading units of a chain some block completes.
func (x *twin) holds(chain []prefix.Hash) (units int) {
	held := map[prefix.Hash]bool{}
	for _, b := range x.blocks {
		for _, h := range b.parts {
			held[h] = true
		}
	}
	for units < len(chain) && held[chain[units]] {
		units++
	}
	return units
}

// String lists the blocks with their references: device, host, disk.
func (x *twin) String() string {
	var lines []string
	for name, b := range x.blocks {
		lines = append(lines, fmt.Sprintf("%d:%d/%d/%d of %d", name, b.refs[0], b.refs[1], b.refs[2], len(b.parts)))
	}
	slices.Sort(lines)
	return strings.Join(lines, ", ")
}

// chainOf is the chain that the data plane would make of a prompt.
func chainOf(o TrackerOptions, adapter, salt string, ids []uint32) []prefix.Hash {
	h := prefix.ChainStart(o.Seed, []byte(o.Model), []byte(adapter), []byte(salt))
	var chain []prefix.Hash
	for ; len(ids) >= o.UnitTokens; ids = ids[o.UnitTokens:] {
		h = prefix.NextUnit(h, ids[:o.UnitTokens], nil)
		chain = append(chain, h)
	}
	return chain
}
