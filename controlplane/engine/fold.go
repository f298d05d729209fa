package engine

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"warmpath/dataplane/fleet"
)

// group is what remains of a series' labels when those that only tell the
// shards of one rank apart are left out.
type group struct {
	rank string
	rest string // the other labels, in order
}

// sample folds the series of a text into one Sample.
func (d *dialect) sample(families *families) Sample {
	s := Sample{Engine: d.name}
	s.Queued = d.sum(families, fQueued)
	s.Running = d.sum(families, fRunning)
	s.KVUse = d.share(families, fKVUse)
	s.HitTokens = d.sum(families, fHit)
	s.QueryTokens = d.sum(families, fQuery)
	s.PromptTokens = d.sum(families, fPrompt)
	s.GeneratedTokens = d.sum(families, fGenerated)
	s.Preemptions = d.sum(families, fPreempted)
	if f := families.of(wanted[startName]); len(f) > 0 {
		if v := f[0].value; v > 0 && !math.IsInf(v, 0) {
			s.StartSeconds = fleet.Gauge{Value: v, Known: true}
		}
	}
	s.BlockTokens, s.CacheTokens = d.capacity(families)
	s.Ranks = d.ranks(families)
	return s
}

// find returns the series of a field under its newest name, nil if the text
// carries none of its names.
func (d *dialect) find(families *families, f field) []series {
	for _, number := range d.numbers[f] {
		if family := families.of(number); len(family) > 0 {
			return family
		}
	}
	return nil
}

// groups folds the shards: one value a group, the largest. Values that are no
// numbers or negative are left out: they are unknown.
func (d *dialect) groups(family []series) map[group]float64 {
	all := make(map[group]float64, len(family))
	for i := range family {
		v := family[i].value
		if !plausible(v) {
			continue
		}
		g := d.groupOf(&family[i])
		if old, ok := all[g]; !ok || v > old {
			all[g] = v
		}
	}
	return all
}

// plausible reports whether a value is a number, and not negative.
func plausible(v float64) bool { return v >= 0 && !math.IsInf(v, 0) }

func (d *dialect) groupOf(m *series) group {
	var g group
	var rest []string
	for _, l := range m.labels {
		switch name := string(l.name); {
		case d.rankLabel != "" && name == d.rankLabel:
			g.rank = string(l.value)
		case slices.Contains(shadowLabels, name):
		default:
			rest = append(rest, name+"\x00"+string(l.value))
		}
	}
	if len(rest) > 1 {
		slices.Sort(rest)
	}
	g.rest = strings.Join(rest, "\x01")
	return g
}

// sum adds the groups of a field up; unknown if there is none.
func (d *dialect) sum(families *families, f field) fleet.Gauge {
	family := d.find(families, f)
	if len(family) == 1 { // as most engines have it: then there is nothing to tell apart
		return fleet.Gauge{Value: known(family[0].value), Known: plausible(family[0].value)}
	}
	all := d.groups(family)
	if len(all) == 0 {
		return fleet.Gauge{}
	}
	total := 0.0
	for _, v := range all {
		total += v
	}
	if math.IsInf(total, 0) {
		return fleet.Gauge{}
	}
	return fleet.Gauge{Value: total, Known: true}
}

// known is a value that is plausible, else 0.
func known(v float64) float64 {
	if !plausible(v) {
		return 0
	}
	return v
}

// share is the mean over the groups of a field that is a share of one. A value
// a little above 1 is rounding; one far above is another unit, and unknown.
func (d *dialect) share(families *families, f field) fleet.Gauge {
	total, n := 0.0, 0
	for _, v := range d.groups(d.find(families, f)) {
		if v <= 1.1 {
			total += min(v, 1)
			n++
		}
	}
	if n == 0 {
		return fleet.Gauge{}
	}
	return fleet.Gauge{Value: total / float64(n), Known: true}
}

// maxCount bounds sizes that a text may claim, so that products stay far from
// overflow: 2^40 tokens are more than any fleet holds.
const maxCount = 1 << 40

// capacity finds the tokens of one block and of the caches of all ranks.
func (d *dialect) capacity(families *families) (blockTokens int, cacheTokens int64) {
	var block, blocks, direct float64
	if info := d.find(families, fConfig); info != nil {
		block, blocks, direct = d.config(info)
	}
	if g := d.groups(d.find(families, fBlockTokens)); block == 0 {
		for _, v := range g {
			block = max(block, v)
		}
	}
	if blocks == 0 {
		blocks = d.sum(families, fBlocks).Value
	}
	if direct == 0 && blocks == 0 {
		direct = d.sum(families, fCacheTokens).Value
	}
	if block < 1 || block > 1<<20 {
		block = 0
	}
	if direct == 0 {
		direct = block * blocks
	}
	if direct > maxCount {
		direct = 0
	}
	return int(block), int64(direct)
}

// config reads the labels of an info metric: block is the tokens of one
// block, blocks the engine's, direct the tokens of all ranks if it says them.
// 0 is unknown.
func (d *dialect) config(info []series) (block, blocks, direct float64) {
	var seen map[string]bool
	if len(info) > 1 {
		seen = make(map[string]bool, len(info))
	}
	for i := range info {
		m := &info[i]
		if seen != nil {
			rank := string(d.rankOf(m))
			if seen[rank] { // a shard of a rank that was counted
				continue
			}
			seen[rank] = true
		}
		block = max(block, label(m, d.blockLabel))
		direct += label(m, d.perRankLabel)
		if n := label(m, d.blocksLabel); d.perRank {
			blocks += n
		} else {
			blocks = max(blocks, n)
		}
	}
	return block, blocks, direct
}

// ranks counts the data-parallel ranks of the queue's series.
func (d *dialect) ranks(families *families) int {
	seen := map[string]bool{}
	for _, f := range []field{fRunning, fQueued} {
		family := d.find(families, f)
		for i := range family {
			if rank := d.rankOf(&family[i]); len(rank) > 0 && plausible(family[i].value) {
				seen[string(rank)] = true
			}
		}
	}
	return len(seen)
}

// rankOf is the rank that a series is of, as its label has it; nil without one.
func (d *dialect) rankOf(m *series) []byte {
	for _, l := range m.labels {
		if d.rankLabel != "" && string(l.name) == d.rankLabel {
			return l.value
		}
	}
	return nil
}

// label reads a label as a count; 0 if it is absent or no count ("None").
func label(m *series, name string) float64 {
	for _, l := range m.labels {
		if name == "" || string(l.name) != name {
			continue
		}
		n, err := strconv.ParseInt(string(l.value), 10, 64)
		if err != nil || n < 0 || n > maxCount {
			return 0
		}
		return float64(n)
	}
	return 0
}
