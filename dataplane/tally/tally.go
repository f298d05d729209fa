package tally

import "sort"

// Histogram counts values in buckets with fixed upper bounds (inclusive) and
// sums them. The unit is the caller's; all of ours are seconds or tokens.
type Histogram struct {
	Bounds []float64 // ascending; shared, never written
	Counts []uint64  // one more than Bounds: the last is +Inf; not cumulative
	Sum    float64
	Total  uint64
}

// NewHistogram returns an empty histogram over bounds, which it keeps.
func NewHistogram(bounds []float64) Histogram {
	return Histogram{Bounds: bounds, Counts: make([]uint64, len(bounds)+1)}
}

// Observe counts one value.
func (h *Histogram) Observe(v float64) {
	h.ObserveIn(h.Bucket(v), v)
}

// Bucket is the one that counts v.
func (h *Histogram) Bucket(v float64) int { return sort.SearchFloat64s(h.Bounds, v) }

// ObserveIn counts a value whose bucket is known.
func (h *Histogram) ObserveIn(bucket int, v float64) {
	h.Counts[bucket]++
	h.Sum += v
	h.Total++
}

// Clone returns a copy that shares nothing with h but its bounds.
func (h *Histogram) Clone() Histogram {
	c := *h
	c.Counts = append([]uint64(nil), h.Counts...)
	return c
}

// Merge adds o, which has the same bounds, to h.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.Counts {
		h.Counts[i] += n
	}
	h.Sum += o.Sum
	h.Total += o.Total
}

// MaxSeries bounds the label sets of one Counters; what comes beyond it is
// counted under the zero key, so that a flood of labels costs exactness of
// the labels and nothing else.
const MaxSeries = 16384

// Counters is a family of counters by key.
type Counters[K comparable] struct {
	byKey  map[K]*uint64
	over   uint64
	recent [recentSeries]series[K] // of the last keys, by hint
}

const recentSeries = 16

type series[K comparable] struct {
	key   K
	count *uint64
}

// Add counts n under key. It allocates the first time a key is seen. hint is
// any number that goes with the key: the last key of each hint is found without
// hashing.
func (c *Counters[K]) Add(hint int, key K, n uint64) {
	r := &c.recent[uint(hint)%recentSeries]
	if r.count == nil || r.key != key {
		count := c.series(key)
		if count == nil {
			c.over += n
			return
		}
		*r = series[K]{key, count}
	}
	*r.count += n
}

// series returns the counter of a key, nil if there is no room for it.
func (c *Counters[K]) series(key K) *uint64 {
	p := c.byKey[key]
	if p == nil && len(c.byKey) < MaxSeries {
		if c.byKey == nil {
			c.byKey = make(map[K]*uint64)
		}
		p = new(uint64)
		c.byKey[key] = p
	}
	return p
}

// MergeInto adds all series to the map that out is.
func (c *Counters[K]) MergeInto(out map[K]uint64) {
	for k, p := range c.byKey {
		out[k] += *p
	}
	if c.over > 0 {
		var zero K
		out[zero] += c.over
	}
}

// Since returns what h has counted since earlier, a Clone of it.
func (h *Histogram) Since(earlier *Histogram) Histogram {
	d := h.Clone()
	for i, n := range earlier.Counts {
		d.Counts[i] -= n
	}
	d.Sum -= earlier.Sum
	d.Total -= earlier.Total
	return d
}

// Quantile estimates the value below which the share q of the counted values
// lies, by interpolation within a bucket; 0 if nothing was counted. Values
// beyond the last bound count as that bound.
func (h *Histogram) Quantile(q float64) float64 {
	if h.Total == 0 {
		return 0
	}
	rank, below := q*float64(h.Total), 0.0
	lower := 0.0
	for i, n := range h.Counts {
		if i == len(h.Bounds) {
			break
		}
		if here := float64(n); below+here >= rank && n > 0 {
			return lower + (h.Bounds[i]-lower)*(rank-below)/here
		}
		below += float64(n)
		lower = h.Bounds[i]
	}
	return lower
}
