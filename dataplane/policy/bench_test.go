package policy

import (
	"fmt"
	"testing"

	"warmpath/dataplane/fleet"
)

// benchFleet is a fleet of n ready nodes with measurements, and a request of
// which a quarter of the nodes hold a part.
func benchFleet(n int) (*fleet.Snapshot, *Request, *Match, *Loads, *Inputs) {
	s := &fleet.Snapshot{Models: []fleet.Model{{Name: "m", MeanOutput: 200}}}
	match := &Match{Tokens: make([]uint32, n), PrefixHolder: make([]bool, n)}
	loads := &Loads{Requests: make([]int64, n), PrefillTokens: make([]int64, n), TotalTokens: make([]int64, n)}
	for i := range n {
		s.Nodes = append(s.Nodes, &fleet.Node{
			Slot: i, Name: fmt.Sprintf("gpu-%03d", i), State: fleet.Ready,
			CapacityClass: 1, Weight: 1, MaxModelLen: 131072, BlockTokens: 16, CacheTokens: 400000,
			PrefillTokensPerSecond: known(8000), DecodeTokensPerSecond: known(90),
			RoundTripSeconds: known(0.001), KVUse: known(float64(i%10) / 10),
			QueuedRequests: known(float64(i % 3)), RunningRequests: known(float64(i % 7)),
			EvictedTokensPerSecond: known(1000), Load: &fleet.Load{},
		})
		s.Models[0].Slots = append(s.Models[0].Slots, i)
		if i%4 == 1 {
			match.Tokens[i] = uint32(512 * (1 + i%8))
			match.PrefixHolder[i] = true
		}
		loads.Requests[i] = int64(i * 7 % 11)
		loads.PrefillTokens[i] = int64(i * 1303 % 9000)
		loads.TotalTokens[i] = loads.PrefillTokens[i] + loads.Requests[i]*900
	}
	req := &Request{PromptTokens: 6000, OutputTokens: 300, AffinityKey: 11, SystemKey: 12, PrefixKey: 13, SessionKey: 14}
	return s.Seal(), req, match, loads, &Inputs{Cursor: 5, Rand: 0x9e3779b97f4a7c15, Pressure: 0.5}
}

func known(v float64) fleet.Gauge { return fleet.Gauge{Value: v, Known: true} }

// failer is the part of testing.TB that rapid.T has too.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func mustNew(tb failer, name string, params Params) Policy {
	tb.Helper()
	p, err := New(name, params)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// variants are the policies, and those of their parameters that take another
// path through Decide.
var variants = []struct {
	label, name string
	params      Params
}{
	{"prefix_hash/ring", "prefix_hash", Params{"place": "ring", "load_margin": 1000}},
	{"prefix_hash/modulo", "prefix_hash", Params{"place": "modulo"}},
	{"cache_aware/imbalanced", "cache_aware", Params{"balance_abs_threshold": 1}},
	{"ray_prefix/imbalanced", "ray_prefix", Params{"imbalanced_threshold": 1}},
}

func everyPolicy(tb failer, do func(label string, p Policy)) {
	for _, name := range Names() {
		do(name, mustNew(tb, name, nil))
	}
	for _, v := range variants {
		do(v.label, mustNew(tb, v.name, v.params))
	}
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{4, 16, 256, 1000} {
		s, req, match, loads, in := benchFleet(n)
		everyPolicy(b, func(label string, p Policy) {
			b.Run(fmt.Sprintf("%s/nodes=%d", label, n), func(b *testing.B) {
				prepared, out := p.Prepare(s), &Decision{}
				b.ReportAllocs()
				for b.Loop() {
					in.Cursor++
					in.Rand = mix(in.Rand + in.Cursor)
					req.AffinityKey = in.Rand | 1
					prepared.Decide(req, match, loads, in, out)
				}
			})
		})
		b.Run(fmt.Sprintf("cost/idle/nodes=%d", n), func(b *testing.B) { // every score is equal
			s, req, _, _, in := benchFleet(n)
			for i := range s.Nodes {
				s.Nodes[i] = &fleet.Node{Slot: i, Name: s.Nodes[i].Name, State: fleet.Ready, CapacityClass: 1, Weight: 1, Load: &fleet.Load{}}
			}
			prepared, out := mustNew(b, "cost", nil).Prepare(s), &Decision{}
			match, loads := &Match{}, &Loads{}
			b.ReportAllocs()
			for b.Loop() {
				req.AffinityKey++
				prepared.Decide(req, match, loads, in, out)
			}
		})
	}
}

func BenchmarkPrepare(b *testing.B) {
	for _, n := range []int{16, 256} {
		s, _, _, _, _ := benchFleet(n)
		for _, name := range []string{"cost", "bounded_hash"} {
			b.Run(fmt.Sprintf("%s/nodes=%d", name, n), func(b *testing.B) {
				p := mustNew(b, name, nil)
				for b.Loop() {
					p.Prepare(s)
				}
			})
		}
	}
}
