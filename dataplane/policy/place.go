package policy

import (
	"math"
	"slices"

	"warmpath/dataplane/fleet"
)

// Placement says which node a key belongs to. It reads names and capacity
// classes only, never measurements or slots, so that every replica places a
// key alike and no measurement moves one.

// mix is Murmur3's 64-bit finalizer: a bijection that spreads every bit.
func mix(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// unit maps a hash to the open interval (0, 1).
func unit(h uint64) float64 { return (float64(h>>11) + 0.5) / (1 << 53) }

// pairHash is one draw for a key on a node.
func pairHash(key, nameHash uint64) uint64 { return mix(mix(key) ^ nameHash) }

// distance is the weighted rendezvous score with the smallest first: the
// usual score -w ÷ ln u, largest first, is its reciprocal. A node of class w
// wins w ÷ Σw of the keys, and only the keys of a node that leaves move.
func (v *view) distance(key uint64, slot int) float64 {
	return -math.Log(unit(pairHash(key, v.hashes[slot]))) / v.nodes[slot].class
}

// tieDistance orders nodes as distance does; it spares the logarithm where
// all classes are equal.
func (v *view) tieDistance(key uint64, slot int) float64 {
	if v.equalClasses {
		return -unit(pairHash(key, v.hashes[slot]))
	}
	return v.distance(key, slot)
}

// byDistance scores candidates by rendezvous.
func (v *view) byDistance(key uint64, list []Candidate) {
	for i := range list {
		list[i].Score = v.distance(key, list[i].Slot)
	}
}

// ring is a consistent hash ring of one model's nodes, ascending by hash.
type ring []point

type point struct {
	hash uint64
	slot int32
}

// rings are the rings of every model and of the whole fleet. Models served by
// the same nodes share one.
type rings struct {
	models []ring
	fleet  ring
}

func (v *view) newRings(s *fleet.Snapshot, virtual int) rings {
	r := rings{models: make([]ring, len(s.Models)), fleet: v.newRing(v.fleet.open, virtual)}
	for i := range v.models {
		open := v.models[i].open
		if slices.Equal(open, v.fleet.open) {
			r.models[i] = r.fleet
			continue
		}
		same := slices.IndexFunc(v.models[:i], func(o roster) bool { return slices.Equal(open, o.open) })
		if same >= 0 {
			r.models[i] = r.models[same]
			continue
		}
		r.models[i] = v.newRing(open, virtual)
	}
	return r
}

func (r *rings) of(model int) ring {
	if model < 0 {
		return r.fleet
	}
	return r.models[model]
}

// newRing puts virtual points of each node on a ring.
func (v *view) newRing(slots []int32, virtual int) ring {
	r := make(ring, 0, len(slots)*virtual)
	for _, slot := range slots {
		for i := range virtual {
			r = append(r, point{hash: pairHash(uint64(i)+1, v.hashes[slot]), slot: slot})
		}
	}
	slices.SortFunc(r, func(a, b point) int {
		switch {
		case a.hash < b.hash:
			return -1
		case a.hash > b.hash:
			return 1
		}
		return int(a.slot) - int(b.slot)
	})
	return r
}

// byWalk scores candidates by the order in which a walk from the key's place
// meets them: 0, 1, 2 … It ends when Ordered nodes of Group 0 are met, or all
// there are; those not met share the last place. The list must be in the order
// of slots, and grouped.
func (r ring) byWalk(key uint64, list []Candidate) {
	wanted := 0
	for i := range list {
		list[i].Score = -1
		if list[i].Group == 0 {
			wanted++
		}
	}
	wanted = min(wanted, Ordered)
	at, met := r.search(mix(key)), 0.0
	for step := 0; step < len(r) && wanted > 0; step++ {
		if at == len(r) {
			at = 0
		}
		if i := find(list, int(r[at].slot)); i >= 0 && list[i].Score < 0 {
			list[i].Score = met
			met++
			if list[i].Group == 0 {
				wanted--
			}
		}
		at++
	}
	for i := range list {
		if list[i].Score < 0 {
			list[i].Score = met
		}
	}
}

// search returns the index of the first point at or after hash.
func (r ring) search(hash uint64) int {
	lo, hi := 0, len(r)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if r[mid].hash < hash {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// find returns the index of a slot in a list ordered by slots, -1 if absent.
func find(list []Candidate, slot int) int {
	lo, hi := 0, len(list)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if list[mid].Slot < slot {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(list) && list[lo].Slot == slot {
		return lo
	}
	return -1
}

// byModulo scores candidates by key modulo their number, counted in the order
// of their name hashes, then round about. It reorders the list.
func (v *view) byModulo(key uint64, list []Candidate) {
	for i := range list {
		list[i].tie = unit(v.hashes[list[i].Slot])
	}
	slices.SortFunc(list, func(a, b Candidate) int { return byTie.compare(&a, &b) })
	n := len(list)
	start := int(mix(key) % uint64(n))
	for i := range list {
		list[i].Score = float64((i - start + n) % n)
	}
}
