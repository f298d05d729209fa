package index

import (
	"slices"
	"sync"

	"warmpath/dataplane/fleet"
	"warmpath/dataplane/prefix"
)

// twin is the index as it would be written without a thought for speed: a
// mutex, a list a node with the most recently used unit first, and a search.
type twin struct {
	mu       sync.Mutex
	nodes    [fleet.MaxSlots][]twinEntry
	capacity [fleet.MaxSlots]int
	dropped  [fleet.MaxSlots]bool
}

type twinEntry struct {
	hash   prefix.Hash
	atNs   int64
	weight int // 0 = 1
}

func newTwin(capacity int) *twin {
	t := &twin{}
	for i := range t.capacity {
		t.capacity[i] = capacity
	}
	return t
}

func (t *twin) holds(slot int, h prefix.Hash) bool {
	return slices.ContainsFunc(t.nodes[slot], func(e twinEntry) bool { return e.hash == h })
}

func (t *twin) learn(slot int, chain []prefix.Hash, nowNs int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped[slot] {
		return
	}
	chain = chain[:min(len(chain), t.capacity[slot])]
	var list []twinEntry
	for _, h := range chain {
		list = append(list, twinEntry{h, nowNs, 1})
	}
	for _, e := range t.nodes[slot] {
		if !slices.Contains(chain, e.hash) {
			list = append(list, e)
		}
	}
	t.nodes[slot] = list[:min(len(list), t.capacity[slot])]
}

// learnText is learn of units that have weights.
func (t *twin) learnText(slot int, chain []prefix.Hash, nowNs int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dropped[slot] {
		return
	}
	var list []twinEntry
	for i, h := range chain {
		list = append(list, twinEntry{h, nowNs, prefix.TextUnitWeight(i)})
	}
	list = t.fitting(slot, list)
	chain = chain[:len(list)]
	for _, e := range t.nodes[slot] {
		if !slices.Contains(chain, e.hash) {
			list = append(list, e)
		}
	}
	t.nodes[slot] = t.fitting(slot, list)
}

// fitting cuts a list where the capacity ends.
func (t *twin) fitting(slot int, list []twinEntry) []twinEntry {
	weight := 0
	for i, e := range list {
		if weight += max(e.weight, 1); weight > t.capacity[slot] {
			return list[:i]
		}
	}
	return list
}

func (t *twin) setCapacity(slot, units int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.capacity[slot] = units
	t.nodes[slot] = t.fitting(slot, t.nodes[slot])
}

func (t *twin) drop(slot int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.nodes[slot] = nil
}

func (t *twin) expire(nowNs, ttlNs int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for slot := range t.nodes {
		t.nodes[slot] = slices.DeleteFunc(t.nodes[slot], func(e twinEntry) bool {
			return e.atNs+ttlNs < nowNs
		})
	}
}

func (t *twin) match(chain []prefix.Hash, live *SlotSet, units []uint32) (longest int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for slot := live.Next(0); slot >= 0; slot = live.Next(slot + 1) {
		n := 0
		for n < len(chain) && t.holds(slot, chain[n]) {
			n++
		}
		units[slot] = uint32(n)
		longest = max(longest, n)
	}
	return longest
}

func (t *twin) holders(h prefix.Hash) (set SlotSet) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for slot := range t.nodes {
		if t.holds(slot, h) {
			set.Add(slot)
		}
	}
	return set
}

// total returns the different units and the pairs of unit and node.
func (t *twin) total() (units, pairs int) {
	seen := map[prefix.Hash]bool{}
	for slot := range t.nodes {
		for _, e := range t.nodes[slot] {
			seen[e.hash] = true
			pairs++
		}
	}
	return len(seen), pairs
}
