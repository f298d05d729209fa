package policy

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"warmpath/dataplane/fleet"
)

// oddFloat draws plausible numbers, and those that no engine should ever say.
var oddFloat = rapid.OneOf(
	rapid.Float64Range(0, 1), rapid.Float64Range(0, 20000),
	rapid.SampledFrom([]float64{0, -1, 1e-320, 1e308, math.Inf(1), math.Inf(-1), math.NaN()}),
)

var oddGauge = rapid.Custom(func(t *rapid.T) fleet.Gauge {
	return fleet.Gauge{Value: oddFloat.Draw(t, "value"), Known: rapid.Bool().Draw(t, "known")}
})

var anyNode = rapid.Custom(func(t *rapid.T) *fleet.Node {
	gauge := func(name string) fleet.Gauge { return oddGauge.Draw(t, name) }
	return &fleet.Node{
		State:                  fleet.State(rapid.SampledFrom([]int{0, 1, 2, 2, 2, 2, 2, 2, 3, 4, 5}).Draw(t, "state")),
		Breaker:                fleet.Breaker(rapid.SampledFrom([]int{0, 0, 0, 0, 1, 2}).Draw(t, "breaker")),
		Island:                 rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "island"),
		CapacityClass:          rapid.OneOf(rapid.Just(1.0), oddFloat).Draw(t, "class"),
		Weight:                 oddFloat.Draw(t, "weight"),
		MaxInFlight:            rapid.SampledFrom([]int{0, 0, 1, 8, -3}).Draw(t, "cap"),
		MaxModelLen:            rapid.SampledFrom([]int{0, 1000, 4096, 131072, -1}).Draw(t, "len"),
		BlockTokens:            rapid.SampledFrom([]int{0, 16, 64, -16}).Draw(t, "block"),
		CacheTokens:            rapid.Int64Range(-1, 1e6).Draw(t, "cache"),
		PrefillTokensPerSecond: gauge("rate"), DecodeTokensPerSecond: gauge("decode"),
		RoundTripSeconds: gauge("rtt"), QueuedRequests: gauge("queued"), RunningRequests: gauge("running"),
		KVUse: gauge("kv"), EvictedTokensPerSecond: gauge("evict"), ErrorShare: gauge("errors"),
		Warmth: gauge("warmth"), Proof: gauge("proof"), Filling: rapid.Bool().Draw(t, "filling"),
		Load: &fleet.Load{},
	}
})

// scene is everything that a decision reads.
type scene struct {
	snapshot *fleet.Snapshot
	req      Request
	match    Match
	loads    Loads
	in       Inputs
}

func anyScene(t *rapid.T) *scene {
	s := &fleet.Snapshot{}
	n := rapid.IntRange(0, 24).Draw(t, "nodes")
	m := fleet.Model{Name: "m", MeanOutput: oddFloat.Draw(t, "mean")}
	for slot := range n {
		if rapid.IntRange(0, 9).Draw(t, "gap") == 0 {
			s.Nodes = append(s.Nodes, nil)
			continue
		}
		node := anyNode.Draw(t, "node")
		node.Slot, node.Name = slot, fmt.Sprintf("n%d", slot)
		s.Nodes = append(s.Nodes, node)
		if rapid.IntRange(0, 4).Draw(t, "serves") > 0 {
			m.Slots = append(m.Slots, slot)
		}
	}
	s.Models = []fleet.Model{m}
	key := rapid.OneOf(rapid.Just(uint64(0)), rapid.Uint64())
	counts := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(0, 12), rapid.SampledFrom([]int64{-1, math.MinInt64, math.MaxInt64, 100000})), 0, n)
	return &scene{
		snapshot: s.Seal(),
		req: Request{
			Model:        rapid.IntRange(-1, 0).Draw(t, "model"),
			PromptTokens: rapid.SampledFrom([]int{1000, 4000, 1, 0, -7, math.MaxInt, math.MinInt}).Draw(t, "prompt"),
			OutputTokens: rapid.SampledFrom([]int{-1, 0, 100, math.MaxInt}).Draw(t, "output"),
			AffinityKey:  key.Draw(t, "affinity"), SystemKey: key.Draw(t, "system"),
			PrefixKey: key.Draw(t, "prefix"), SessionKey: key.Draw(t, "session"),
			Island: rapid.SampledFrom([]string{"", "x", "z"}).Draw(t, "here"),
		},
		match: Match{
			Tokens:       rapid.SliceOfN(rapid.SampledFrom([]uint32{0, 0, 16, 512, 1000, math.MaxUint32}), 0, n).Draw(t, "matched"),
			PrefixHolder: rapid.SliceOfN(rapid.Bool(), 0, n).Draw(t, "holders"),
		},
		loads: Loads{Requests: counts.Draw(t, "requests"), PrefillTokens: counts.Draw(t, "prefill"), TotalTokens: counts.Draw(t, "total")},
		in:    Inputs{Cursor: rapid.Uint64().Draw(t, "cursor"), Rand: rapid.Uint64().Draw(t, "rand"), Pressure: oddFloat.Draw(t, "pressure")},
	}
}

func (s *scene) decide(p Policy, out *Decision) {
	p.Prepare(s.snapshot).Decide(&s.req, &s.match, &s.loads, &s.in, out)
}

// available is the dumb twin of gather.
func (s *scene) available() (slots []int, tooLong bool) {
	exists, couldFit := false, false
	prompt := max(s.req.PromptTokens, 0)
	for slot, n := range s.snapshot.Nodes {
		if n == nil || n.State == fleet.Gone || s.req.Model == 0 && !slices.Contains(s.snapshot.Models[0].Slots, slot) {
			continue
		}
		exists = true
		if n.MaxModelLen > 0 && (prompt >= n.MaxModelLen || s.req.OutputTokens > n.MaxModelLen-prompt) {
			continue
		}
		couldFit = true
		full := n.MaxInFlight > 0 && slot < len(s.loads.Requests) && s.loads.Requests[slot] >= int64(n.MaxInFlight)
		if n.Available() && !full {
			slots = append(slots, slot)
		}
	}
	return slots, len(slots) == 0 && exists && !couldFit
}

func TestCandidatesAreTheAvailableNodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyScene(t)
		want, tooLong := s.available()
		everyPolicy(t, func(label string, p Policy) {
			out := &Decision{}
			s.decide(p, out)
			var got []int
			for _, c := range out.Candidates {
				got = append(got, c.Slot)
				if math.IsNaN(c.Score) || math.IsInf(c.Score, 0) {
					t.Fatalf("%s: score of slot %d is %v", label, c.Slot, c.Score)
				}
				if c.MatchedTokens < 0 || c.MatchedTokens > 0 && c.MatchedTokens >= s.req.PromptTokens {
					t.Fatalf("%s: slot %d matches %d of %d tokens", label, c.Slot, c.MatchedTokens, s.req.PromptTokens)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, want) || out.TooLong != tooLong {
				t.Fatalf("%s: candidates %v too long %v, want %v %v", label, got, out.TooLong, want, tooLong)
			}
			switch {
			case len(want) == 0 && (out.Slot != -1 || out.Reason != ReasonNone):
				t.Fatalf("%s: chose slot %d for %v of no candidates", label, out.Slot, out.Reason)
			case len(want) > 0 && (out.Slot != out.Candidates[0].Slot || out.Reason == ReasonNone):
				t.Fatalf("%s: chose slot %d for %v, first candidate is %d", label, out.Slot, out.Reason, out.Candidates[0].Slot)
			case len(want) == 1 && out.Reason != ReasonOnly:
				t.Fatalf("%s: reason %v of one candidate", label, out.Reason)
			}
		})
	})
}

// TestOrderIsThatOfAFullSort compares lead with its dumb twin.
func TestOrderIsThatOfAFullSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Candidate {
			return Candidate{
				Group: uint8(rapid.IntRange(0, 2).Draw(t, "group")),
				Score: float64(rapid.IntRange(0, 5).Draw(t, "score")),
			}
		}), 1, 60).Draw(t, "list")
		s := &fleet.Snapshot{}
		for slot := range list {
			list[slot].Slot = slot
			s.Nodes = append(s.Nodes, &fleet.Node{Name: fmt.Sprint(slot), State: fleet.Ready, CapacityClass: float64(1 + slot%2)})
		}
		v := newView(s)
		key := rapid.Uint64().Draw(t, "key")
		want := slices.Clone(list)
		slices.SortFunc(want, func(a, b Candidate) int {
			if order := byScore.compare(&a, &b); order != 0 {
				return order
			}
			return sign(v.distance(key, a.Slot), v.distance(key, b.Slot))
		})
		out := &Decision{Candidates: list}
		v.settle(&Request{AffinityKey: key}, &Inputs{Rand: key}, out)
		for i := range min(Ordered, len(list)) {
			if list[i].Slot != want[i].Slot {
				t.Fatalf("place %d is slot %d, want %d", i, list[i].Slot, want[i].Slot)
			}
		}
		slices.SortFunc(list, func(a, b Candidate) int { return a.Slot - b.Slot })
		for slot := range list {
			if list[slot].Slot != slot {
				t.Fatalf("slot %d lost", slot)
			}
		}
	})
}

func TestDecideIsAFunction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyScene(t)
		before := fmt.Sprintf("%+v %+v %+v %+v", s.req, s.match, s.loads, s.in)
		everyPolicy(t, func(label string, p Policy) {
			first, again := &Decision{}, &Decision{Slot: 7, TooLong: true, Candidates: make([]Candidate, 3, 40)}
			s.decide(p, first)
			s.decide(p, again)
			if !equalDecisions(first, again) {
				t.Fatalf("%s: %+v, then %+v", label, first, again)
			}
		})
		if after := fmt.Sprintf("%+v %+v %+v %+v", s.req, s.match, s.loads, s.in); after != before {
			t.Fatalf("inputs changed from %s to %s", before, after)
		}
	})
}

func equalDecisions(a, b *Decision) bool {
	return a.Slot == b.Slot && a.Reason == b.Reason && a.TooLong == b.TooLong &&
		len(a.Candidates) == len(b.Candidates) && (len(a.Candidates) == 0 || reflect.DeepEqual(a.Candidates, b.Candidates))
}

// TestReplicasAgree moves the nodes to other slots: with an affinity key the
// same node is chosen, by every policy that does not count or draw slots.
func TestReplicasAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "nodes")
		order := rapid.Permutation(seq(n)).Draw(t, "slots")
		req := Request{PromptTokens: 1000, OutputTokens: -1, AffinityKey: rapid.Uint64Min(1).Draw(t, "key"), SessionKey: 5, SystemKey: 6, PrefixKey: 7}
		loads := rapid.SliceOfN(rapid.Int64Range(0, 3), n, n).Draw(t, "loads")
		matched := rapid.SliceOfN(rapid.SampledFrom([]uint32{0, 400, 800}), n, n).Draw(t, "matched")
		build := func(slotOf []int) *scene {
			s := &scene{snapshot: &fleet.Snapshot{Nodes: make([]*fleet.Node, n)}, req: req}
			s.req.Model = -1
			s.match.Tokens, s.loads.Requests = make([]uint32, n), make([]int64, n)
			for i, slot := range slotOf {
				s.snapshot.Nodes[slot] = &fleet.Node{Name: fmt.Sprint("n", i), State: fleet.Ready, CapacityClass: float64(1 + i%3), Weight: 1}
				s.match.Tokens[slot], s.loads.Requests[slot] = matched[i], loads[i]
			}
			s.snapshot.Seal()
			return s
		}
		here, there := build(seq(n)), build(order)
		everyPolicy(t, func(label string, p Policy) {
			if slices.Contains([]string{"p2c", "round_robin", "ray_prefix"}, p.Name()) {
				return
			}
			a, b := &Decision{}, &Decision{}
			here.decide(p, a)
			there.decide(p, b)
			if x, y := here.snapshot.Nodes[a.Slot].Name, there.snapshot.Nodes[b.Slot].Name; x != y || a.Reason != b.Reason {
				t.Fatalf("%s: one replica chose %s for %v, the other %s for %v", label, x, a.Reason, y, b.Reason)
			}
		})
	})
}

func seq(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

// placed returns where each of a number of keys goes.
func placed(s *fleet.Snapshot, p Policy, keys int) []string {
	prepared, out := p.Prepare(s), &Decision{}
	names := make([]string, keys)
	for key := range names {
		req := &Request{Model: -1, PromptTokens: 100, AffinityKey: uint64(key) + 1, SessionKey: uint64(key) + 1}
		prepared.Decide(req, &Match{}, &Loads{}, &Inputs{}, out)
		names[key] = s.Nodes[out.Slot].Name
	}
	return names
}

// TestRemovalMovesOnlyTheKeysOfTheNode covers leaving by state and by absence.
func TestRemovalMovesOnlyTheKeysOfTheNode(t *testing.T) {
	const keys = 2000
	for _, p := range []Policy{
		mustNew(t, "prefix_hash", nil), mustNew(t, "prefix_hash", Params{"place": "ring"}),
		mustNew(t, "bounded_hash", nil), mustNew(t, "session", nil), mustNew(t, "weighted", nil), mustNew(t, "cost", nil),
	} {
		rapid.Check(t, func(t *rapid.T) {
			n := rapid.IntRange(2, 12).Draw(t, "nodes")
			leaver := rapid.IntRange(0, n-1).Draw(t, "leaver")
			s := &fleet.Snapshot{}
			for i := range n {
				s.Nodes = append(s.Nodes, &fleet.Node{Slot: i, Name: fmt.Sprintf("node-%d", i), State: fleet.Ready, CapacityClass: 1, Weight: 1})
			}
			before := placed(s, p, keys)
			if rapid.Bool().Draw(t, "absent") {
				s.Nodes[leaver] = nil
			} else {
				left := *s.Nodes[leaver]
				left.State = fleet.Down
				s.Nodes[leaver] = &left
			}
			after := placed(s, p, keys)
			moved, name := 0, fmt.Sprintf("node-%d", leaver)
			for key := range before {
				switch {
				case before[key] == name:
					moved++
				case before[key] != after[key]:
					t.Fatalf("%s: key %d moved from %s to %s though %s left", p.Name(), key, before[key], after[key], name)
				}
			}
			if fair := float64(keys) / float64(n); float64(moved) < 0.6*fair || float64(moved) > 1.5*fair {
				t.Fatalf("%s: %d of %d keys moved when one of %d nodes left", p.Name(), moved, keys, n)
			}
		})
	}
}

func TestRendezvousFollowsCapacityClass(t *testing.T) {
	s := &fleet.Snapshot{}
	classes := []float64{1, 2, 5}
	for i, class := range classes {
		s.Nodes = append(s.Nodes, &fleet.Node{Slot: i, Name: fmt.Sprint("gpu", i), State: fleet.Ready, CapacityClass: class, Weight: 1})
	}
	count := map[string]float64{}
	const keys = 20000
	for _, name := range placed(s, mustNew(t, "session", nil), keys) {
		count[name]++
	}
	for i, class := range classes {
		if got, want := count[fmt.Sprint("gpu", i)]/keys, class/8; math.Abs(got-want) > 0.01 {
			t.Errorf("class %v has %.3f of the keys, want %.3f", class, got, want)
		}
	}
}

// TestWalkIsThatOfANaiveRing compares ring walks with a full one.
func TestWalkIsThatOfANaiveRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, _, _, _, _ := benchFleet(rapid.IntRange(1, 30).Draw(t, "nodes"))
		v := newView(s)
		r := v.newRing(v.fleet.open, rapid.IntRange(1, 40).Draw(t, "virtual"))
		key := rapid.Uint64().Draw(t, "key")
		var list []Candidate
		over := map[int]bool{}
		for slot := range s.Nodes {
			if rapid.IntRange(0, 3).Draw(t, "there") > 0 {
				over[slot] = rapid.Bool().Draw(t, "over")
				list = append(list, Candidate{Slot: slot, Group: map[bool]uint8{true: 1}[over[slot]]})
			}
		}
		var want []int // slots within the bound, in the order of the walk
		start := slices.IndexFunc(r, func(p point) bool { return p.hash >= mix(key) })
		for i := range r {
			slot := int(r[(max(start, 0)+i)%len(r)].slot)
			if isOver, there := over[slot]; there && !isOver && !slices.Contains(want, slot) {
				want = append(want, slot)
			}
		}
		r.byWalk(key, list)
		slices.SortStableFunc(list, func(a, b Candidate) int { return byScore.compare(&a, &b) })
		for i := range min(Ordered, len(want)) {
			if list[i].Slot != want[i] {
				t.Fatalf("place %d of the walk is slot %d, want %d", i, list[i].Slot, want[i])
			}
		}
	})
}

func TestDrawsAreUniform(t *testing.T) {
	s, req, match, loads, in := benchFleet(5)
	for _, name := range []string{"random", "p2c"} {
		prepared, out := mustNew(t, name, nil).Prepare(s), &Decision{}
		const draws = 20000
		var drawn [5]float64
		for range draws {
			in.Rand = mix(in.Rand + 1)
			prepared.Decide(req, match, loads, in, out)
			drawn[out.Candidates[0].Slot]++
			if name == "p2c" {
				drawn[out.Candidates[1].Slot]++
			}
		}
		share := map[string]float64{"random": 0.2, "p2c": 0.4}[name]
		for slot, n := range drawn {
			if math.Abs(n/draws-share) > 0.02 {
				t.Errorf("%s: slot %d drawn in %.3f of the decisions, want %.1f", name, slot, n/draws, share)
			}
		}
	}
}

// TestPreparedIsShared lets several loops decide at once; the race detector
// watches.
func TestPreparedIsShared(t *testing.T) {
	s, req, match, loads, in := benchFleet(40)
	everyPolicy(t, func(label string, p Policy) {
		prepared, want := p.Prepare(s), &Decision{}
		prepared.Decide(req, match, loads, in, want)
		var loops sync.WaitGroup
		for range 4 {
			loops.Go(func() {
				out := &Decision{}
				for range 50 {
					prepared.Decide(req, match, loads, in, out)
				}
				if !equalDecisions(out, want) {
					t.Errorf("%s: a loop decided %+v, want %+v", label, out, want)
				}
			})
		}
		loops.Wait()
	})
}
