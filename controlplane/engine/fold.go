package engine

import (
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"warmpath/dataplane/fleet"
)

// group is what remains of a series' labels when those that only tell the
// shards of one rank apart are left out.
type group struct {
	rank string
	rest string // the other labels, in order
}

// sample folds the series of a text into one Sample.
func (d *dialect) sample(families map[string]*dto.MetricFamily) Sample {
	s := Sample{Engine: d.name}
	s.Queued = d.sum(families, fQueued)
	s.Running = d.sum(families, fRunning)
	s.KVUse = d.share(families, fKVUse)
	s.HitTokens = d.sum(families, fHit)
	s.QueryTokens = d.sum(families, fQuery)
	s.PromptTokens = d.sum(families, fPrompt)
	s.GeneratedTokens = d.sum(families, fGenerated)
	s.Preemptions = d.sum(families, fPreempted)
	if f := families[startName]; f != nil && len(f.Metric) > 0 {
		if v := valueOf(f.Metric[0]); v > 0 && !math.IsInf(v, 0) {
			s.StartSeconds = fleet.Gauge{Value: v, Known: true}
		}
	}
	s.BlockTokens, s.CacheTokens = d.capacity(families)
	s.Ranks = d.ranks(families)
	return s
}

// find returns the family of a field under its newest name, nil if the text
// carries none of its names.
func (d *dialect) find(families map[string]*dto.MetricFamily, f field) *dto.MetricFamily {
	for _, name := range d.names[f] {
		if counters[f] {
			if family := families[d.prefix+name+"_total"]; family != nil {
				return family
			}
		}
		if family := families[d.prefix+name]; family != nil {
			return family
		}
	}
	return nil
}

// groups folds the shards: one value a group, the largest. Values that are no
// numbers or negative are left out: they are unknown.
func (d *dialect) groups(family *dto.MetricFamily) map[group]float64 {
	all := make(map[group]float64, len(family.GetMetric()))
	for _, m := range family.GetMetric() {
		v := valueOf(m)
		if !(v >= 0) || math.IsInf(v, 0) {
			continue
		}
		g := d.groupOf(m)
		if old, ok := all[g]; !ok || v > old {
			all[g] = v
		}
	}
	return all
}

func (d *dialect) groupOf(m *dto.Metric) group {
	var g group
	var rest []string
	for _, l := range m.GetLabel() {
		switch name := l.GetName(); {
		case d.rankLabel != "" && name == d.rankLabel:
			g.rank = l.GetValue()
		case slices.Contains(shadowLabels, name):
		default:
			rest = append(rest, name+"\x00"+l.GetValue())
		}
	}
	if len(rest) > 1 {
		slices.Sort(rest)
	}
	g.rest = strings.Join(rest, "\x01")
	return g
}

// sum adds the groups of a field up; unknown if there is none.
func (d *dialect) sum(families map[string]*dto.MetricFamily, f field) fleet.Gauge {
	all := d.groups(d.find(families, f))
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

// share is the mean over the groups of a field that is a share of one. A value
// a little above 1 is rounding; one far above is another unit, and unknown.
func (d *dialect) share(families map[string]*dto.MetricFamily, f field) fleet.Gauge {
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
func (d *dialect) capacity(families map[string]*dto.MetricFamily) (blockTokens int, cacheTokens int64) {
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
func (d *dialect) config(info *dto.MetricFamily) (block, blocks, direct float64) {
	seen := map[string]bool{}
	for _, m := range info.GetMetric() {
		g := d.groupOf(m)
		if seen[g.rank] { // a shard of a rank that was counted
			continue
		}
		seen[g.rank] = true
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
func (d *dialect) ranks(families map[string]*dto.MetricFamily) int {
	seen := map[string]bool{}
	for _, f := range []field{fRunning, fQueued} {
		for g := range d.groups(d.find(families, f)) {
			if g.rank != "" {
				seen[g.rank] = true
			}
		}
	}
	return len(seen)
}

// label reads a label as a count; 0 if it is absent or no count ("None").
func label(m *dto.Metric, name string) float64 {
	for _, l := range m.GetLabel() {
		if name == "" || l.GetName() != name {
			continue
		}
		n, err := strconv.ParseInt(l.GetValue(), 10, 64)
		if err != nil || n < 0 || n > maxCount {
			return 0
		}
		return float64(n)
	}
	return 0
}

// valueOf reads a sample, whatever type its text declares. Only lines without
// their TYPE comments are parsed, so all are untyped; the rest is for a caller
// that parsed whole texts.
func valueOf(m *dto.Metric) float64 {
	switch {
	case m.Untyped != nil:
		return m.Untyped.GetValue()
	case m.Gauge != nil:
		return m.Gauge.GetValue()
	case m.Counter != nil:
		return m.Counter.GetValue()
	}
	return math.NaN()
}
