package index

import "fmt"

// Eviction is the order in which the learned units of a full node go. It
// should be the order of the engine itself; the names are those of SGLang's
// --radix-eviction-policy (python/sglang/srt/mem_cache/evict_policy.py).
//
// All of them evict leaves: a unit never goes before the units that follow it
// in its chain. SGLang's cache works on runs of tokens and times them; here a
// use is a prompt that was sent to the node. How closely each order is followed
// is said beside it.
type Eviction uint8

const (
	// LRU: what was least recently used goes first. Exact.
	LRU Eviction = iota
	// LFU: what was used the fewest times, and of that the least recently used.
	// Exact up to 127 uses; more count as 127.
	LFU
	// FIFO: what was made first. Exact: a unit is as young as the youngest that
	// follows it, for it cannot go before that.
	FIFO
	// MRU: what was used last goes first. A unit that was ever followed by two
	// different ones keeps its place from then on, below both, also when one of
	// them has gone; the engine would move it again.
	MRU
	// FILO: what was made last goes first. Exact.
	FILO
	// Priority: the lowest priority first (see LearnPriority), and of that the
	// least recently used. Exact for priorities of 0 to 127.
	Priority

	evictions // how many there are
)

var evictionNames = [evictions]string{"lru", "lfu", "fifo", "mru", "filo", "priority"}

// String returns the order's name in the configuration.
func (e Eviction) String() string {
	if e >= evictions {
		return fmt.Sprintf("eviction(%d)", uint8(e))
	}
	return evictionNames[e]
}

// ParseEviction returns the order of a name that String gives.
func ParseEviction(name string) (Eviction, error) {
	for e, n := range evictionNames {
		if n == name {
			return Eviction(e), nil
		}
	}
	return 0, fmt.Errorf("unknown eviction order %q: want one of %v", name, evictionNames)
}

// maxLevel is the highest level of a learned unit: how often it was used, or
// its priority. Lower levels go first. Orders without levels use level 0.
const maxLevel = 127

// levels returns how many lists an order needs.
func (e Eviction) levels() int {
	if e == LFU || e == Priority {
		return maxLevel + 1
	}
	return 1
}

// sorted says that each list is in the order of its ticks, so that only its
// oldest entry need be looked at to know whether any is old.
func (e Eviction) sorted() bool { return e == LRU || e == LFU || e == Priority }
