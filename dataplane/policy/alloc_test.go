package policy

import "testing"

func TestDecideDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, n := range []int{1, 16, 256} {
		s, req, match, loads, in := benchFleet(n)
		for i := 1; i < n; i += 3 {
			s.Nodes[i].Proof = known(0.25)
		}
		everyPolicy(t, func(label string, p Policy) {
			prepared, out := p.Prepare(s), &Decision{}
			prepared.Decide(req, match, loads, in, out)
			for _, key := range []uint64{0, 11} {
				req.AffinityKey, req.SessionKey = key, key
				if got := testing.AllocsPerRun(20, func() { prepared.Decide(req, match, loads, in, out) }); got != 0 {
					t.Errorf("%s at %d nodes, key %d: %v allocations a decision, want 0", label, n, key, got)
				}
			}
		})
	}
}
