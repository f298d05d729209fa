package policy

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"warmpath/dataplane/fleet"
)

// TestEqualRampsChangeNothing: a fleet whose nodes are all cold, or all unproved,
// decides as one without ramps.
func TestEqualRampsChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyScene(t)
		ramp := *anyNode.Draw(t, "ramp")
		everyPolicy(t, func(label string, p Policy) {
			out := [2]Decision{}
			for i, with := range []fleet.Node{{}, ramp} {
				for _, n := range s.snapshot.Nodes {
					if n != nil {
						n.Warmth, n.Filling, n.Proof = with.Warmth, with.Filling, with.Proof
					}
				}
				s.decide(p, &out[i])
			}
			if !equalDecisions(&out[0], &out[1]) {
				t.Fatalf("%s: %+v without ramps, %+v with equal ones", label, out[0], out[1])
			}
		})
	})
}

// TestRampsAreNoHindrance: while nothing is in flight, and for a prompt of which the
// only ramping node holds half or more, decisions are as without ramps.
func TestRampsAreNoHindrance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyScene(t)
		s.req.PromptTokens = 1000
		s.loads = Loads{}
		idle := rapid.Bool().Draw(t, "idle")
		only := rapid.IntRange(0, 24).Draw(t, "only")
		if !idle {
			s.loads.Requests = rapid.SliceOfN(rapid.Int64Range(0, 12), 24, 24).Draw(t, "requests")
			s.loads.TotalTokens = rapid.SliceOfN(rapid.Int64Range(0, 9000), 24, 24).Draw(t, "total")
			s.match.Tokens = slices.Grow(s.match.Tokens, 25)[:25]
			s.match.Tokens[only] = 700
		}
		everyPolicy(t, func(label string, p Policy) {
			if idle && (p.Name() == "random" || p.Name() == "round_robin") {
				return // which look at no loads
			}
			out := [2]Decision{}
			for i, proof := range []fleet.Gauge{{}, known(0)} {
				for slot, n := range s.snapshot.Nodes {
					if n != nil {
						n.Filling, n.Warmth, n.Proof = false, fleet.Gauge{}, fleet.Gauge{}
						n.QueuedRequests, n.RunningRequests = fleet.Gauge{}, fleet.Gauge{}
					}
					if n != nil && (idle && slot%2 == 0 || slot == only) {
						n.Proof = proof
					}
				}
				s.decide(p, &out[i])
			}
			for i := range out[0].Candidates { // all but what may count, were there something to count
				a, b := out[0].Candidates[i], out[1].Candidates[i]
				if a.Slot != b.Slot || a.Score != b.Score || a.Group != b.Group {
					t.Fatalf("%s: %+v without ramps, %+v with them", label, out[0], out[1])
				}
			}
		})
	})
}

// TestShares: of work that is under way for a while a ramping node has its share, or
// less where a rule draws two nodes and takes the better; never nothing, and a full
// share when the ramp is over.
func TestShares(t *testing.T) {
	const nodes, turns, lasting = 4, 8000, 48
	shares := func(p Policy, proof fleet.Gauge) (share float64) {
		s := &fleet.Snapshot{Models: []fleet.Model{{Name: "m", Slots: seq(nodes)}}}
		for slot := range nodes {
			s.Nodes = append(s.Nodes, &fleet.Node{Slot: slot, Name: fmt.Sprint("n", slot), State: fleet.Ready, CapacityClass: 1, Weight: 1})
		}
		s.Nodes[1].Proof = proof
		prepared, out := p.Prepare(s.Seal()), &Decision{}
		loads := &Loads{Requests: make([]int64, nodes), PrefillTokens: make([]int64, nodes), TotalTokens: make([]int64, nodes)}
		add := func(slot int, sign int64) {
			loads.Requests[slot] += sign
			loads.PrefillTokens[slot] += sign * 1000
			loads.TotalTokens[slot] += sign * 1250
		}
		var underWay []int
		for i := range turns {
			random := mix(uint64(i) + 1)
			req := &Request{PromptTokens: 1000, OutputTokens: 250, AffinityKey: random | 1, SystemKey: random, PrefixKey: random}
			prepared.Decide(req, &Match{}, loads, &Inputs{Cursor: uint64(i), Rand: mix(random)}, out)
			add(out.Slot, 1)
			if underWay = append(underWay, out.Slot); len(underWay) > lasting {
				add(underWay[0], -1)
				underWay = underWay[1:]
			}
			if out.Slot == 1 {
				share += 1.0 / turns
			}
		}
		return share
	}
	everyPolicy(t, func(label string, p Policy) {
		full, ramping := shares(p, fleet.Gauge{}), shares(p, known(0))
		if math.Abs(full-1.0/nodes) > 0.05 {
			t.Errorf("%s: share %.3f without a ramp", label, full)
		}
		// Keys have their places, whatever the loads; the bounds of these rules count
		// loads, and are wide here.
		most := 0.12
		if slices.Contains([]string{"session", "bounded_hash", "prefix_hash", "prefix_hash/ring", "prefix_hash/modulo", "weighted"}, label) {
			most = 0.3
		}
		if ramping < 0.02 || ramping > most {
			t.Errorf("%s: share %.3f of a node that has proved nothing, %.3f else", label, ramping, full)
		}
	})
}
