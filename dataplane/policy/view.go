package policy

import (
	"math"

	"github.com/cespare/xxhash/v2"

	"warmpath/dataplane/fleet"
)

// view is what every prepared policy keeps of a snapshot: the few facts of
// each node that a decision reads, side by side in memory, and for each model
// the slots that may take requests. Immutable after newView.
type view struct {
	nodes        []facts  // by slot
	hashes       []uint64 // of their names, by slot: apart, as ties are broken by nothing else
	models       []roster // by model
	fleet        roster   // every node, for requests that name no model
	equalClasses bool     // all capacity classes are equal, so rendezvous needs no logarithm
	manyIslands  bool     // nodes stand in more than one island
	ramping      bool     // the load of a node counts more than once
}

// facts are the parts of a fleet.Node that more than one policy reads, with
// odd values made harmless.
type facts struct {
	class         float64 // capacity class, finite and positive
	maxInFlight   int64   // 0 = no cap
	maxModelLen   int     // 0 = unknown
	blockTokens   int     // 0 = unknown
	engineLoad    float64 // requests running and queued as the engine says; 0 where it does not say
	kvUse         float64 // 0 … 1
	kvKnown       bool
	tripKnown     bool
	ramp          float32 // how often its load counts while any ramps, see setRamps; 1 = once
	island        string
	secondsOfTrip float64
}

// roster lists the nodes of one model.
type roster struct {
	open       []int32 // slots that are ready with a closed breaker, ascending
	warm       []int32 // slots whose cache may still be of use: open, draining or behind an open breaker
	longest    int     // the largest context of its nodes in any state; math.MaxInt if one is unknown
	shortest   int     // the smallest that is known of those open; 0 = none is
	capped     bool    // one of those open takes no more than so many at once
	nodes      int     // nodes that are not gone, in any state
	meanOutput float64 // output tokens; 0 = none seen yet
}

// newView gathers the facts of a snapshot.
func newView(s *fleet.Snapshot) view {
	v := view{nodes: make([]facts, len(s.Nodes)), hashes: make([]uint64, len(s.Nodes)), models: make([]roster, len(s.Models)), equalClasses: true}
	var first *facts
	every := make([]int, 0, len(s.Nodes))
	for slot, n := range s.Nodes {
		if n == nil {
			continue
		}
		every = append(every, slot)
		v.nodes[slot], v.hashes[slot] = factsOf(n), xxhash.Sum64String(n.Name)
		if first == nil {
			first = &v.nodes[slot]
		}
		v.equalClasses = v.equalClasses && v.nodes[slot].class == first.class
		v.manyIslands = v.manyIslands || v.nodes[slot].island != first.island
	}
	for i := range s.Models {
		v.models[i] = rosterOf(s, s.Models[i].Slots)
		v.models[i].meanOutput = min(positive(s.Models[i].MeanOutput, 0), mostCounted)
	}
	v.fleet = rosterOf(s, every)
	v.setRamps(s, byFill)
	return v
}

func factsOf(n *fleet.Node) facts {
	f := facts{
		class:       min(max(positive(n.CapacityClass, 1), 1e-3), 1e6),
		maxInFlight: int64(max(n.MaxInFlight, 0)),
		maxModelLen: max(n.MaxModelLen, 0),
		blockTokens: max(n.BlockTokens, 0),
		engineLoad:  min(positive(n.RunningRequests.Or(0), 0), mostCounted) + min(positive(n.QueuedRequests.Or(0), 0), mostCounted),
		island:      n.Island,
	}
	if n.KVUse.Known && !math.IsNaN(n.KVUse.Value) {
		f.kvUse, f.kvKnown = min(max(n.KVUse.Value, 0), 1), true
	}
	if trip := n.RoundTripSeconds; trip.Known && trip.Value >= 0 {
		f.secondsOfTrip, f.tripKnown = min(math.Floor(trip.Value/tripStep)*tripStep, longestTrip), true
	}
	return f
}

func rosterOf(s *fleet.Snapshot, slots []int) roster {
	var r roster
	for _, slot := range slots {
		if slot < 0 || slot >= len(s.Nodes) {
			continue
		}
		n := s.Nodes[slot]
		if n == nil || n.State == fleet.Gone {
			continue
		}
		r.nodes++
		if n.MaxModelLen <= 0 {
			r.longest = math.MaxInt
		}
		r.longest = max(r.longest, n.MaxModelLen)
		if n.State == fleet.Ready || n.State == fleet.Draining {
			r.warm = append(r.warm, int32(slot))
		}
		if n.Available() {
			r.open = append(r.open, int32(slot))
			r.capped = r.capped || n.MaxInFlight > 0
			if n.MaxModelLen > 0 && (r.shortest == 0 || n.MaxModelLen < r.shortest) {
				r.shortest = n.MaxModelLen
			}
		}
	}
	return r
}

// roster returns the nodes that serve the request's model.
func (v *view) roster(model int) *roster {
	if model < 0 {
		return &v.fleet
	}
	if model >= len(v.models) {
		panic("BUG: request names a model that the prepared snapshot does not have")
	}
	return &v.models[model]
}

// takes reports whether a node may have one more request, of so many tokens.
func (f *facts) takes(inFlight int64, least, output int) bool {
	return (f.maxInFlight <= 0 || inFlight < f.maxInFlight) && Fits(least, output, f.maxModelLen)
}

// Fits reports whether prompt and answer find room in a context of limit
// tokens; 0 is unknown and refuses nothing. At least one token must be left
// for the answer, whatever the request asks for.
func Fits(prompt, output, limit int) bool {
	return limit == 0 || (prompt < limit && output <= limit-prompt)
}

// servable is how many of the matched tokens the engine takes from its cache.
// It always computes the prompt's last token, hence with it the block that
// token lies in.
func (f *facts) servable(matched uint32, prompt int) int {
	if int64(matched) < int64(prompt) {
		return int(matched)
	}
	most := max(prompt-1, 0)
	if f.blockTokens > 0 {
		most -= most % f.blockTokens
	}
	return most
}

// positive returns v if it is finite and above zero, else fallback.
func positive(v, fallback float64) float64 {
	if v > 0 && v <= math.MaxFloat64 {
		return v
	}
	return fallback
}

// Bounds beyond which a measurement is nonsense; they keep scores finite.
const (
	slowestRate = 1e-3 // tokens a second
	fastestRate = 1e9  // tokens a second
	longestTrip = 3600 // seconds
	tripStep    = 1e-3 // seconds: what lies below would part equals by chance
	mostCounted = 1e9  // requests or tokens
)

// secondsPerToken returns, by slot, 1 ÷ rate. The gauge stands for itself; where it
// does not know, the rate is fallback × Weight. (Weight comes from the same
// measurements: applying both would count slowness twice.)
func secondsPerToken(s *fleet.Snapshot, gauge func(*fleet.Node) fleet.Gauge, fallback float64) []float64 {
	paces := make([]float64, len(s.Nodes))
	for slot, n := range s.Nodes {
		if n == nil {
			continue
		}
		rate := fallback * positive(n.Weight, 1)
		if g := gauge(n); g.Known {
			rate = positive(g.Value, rate)
		}
		paces[slot] = 1 / min(max(rate, slowestRate), fastestRate)
	}
	return paces
}

func prefillRate(n *fleet.Node) fleet.Gauge { return n.PrefillTokensPerSecond }
func decodeRate(n *fleet.Node) fleet.Gauge  { return n.DecodeTokensPerSecond }

// at reads one counter; what is missing is zero, and so is what a leak has
// driven below it.
func at(counters []int64, slot int) int64 {
	if slot < len(counters) {
		return max(counters[slot], 0)
	}
	return 0
}

// matchedAt reads how many tokens the index found on a node.
func (m *Match) matchedAt(slot int) uint32 {
	if slot < len(m.Tokens) {
		return m.Tokens[slot]
	}
	return 0
}

// holdsAt reads whether a node holds the request's PrefixKey.
func (m *Match) holdsAt(slot int) bool {
	return slot < len(m.PrefixHolder) && m.PrefixHolder[slot]
}
