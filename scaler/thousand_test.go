package scaler

import "testing"

// TestThousandNodes: a pool of a thousand nodes is planned as a small one is: it holds
// under the load that it is for, gives nodes back when that falls, and takes no more
// than its bound.
func TestThousandNodes(t *testing.T) {
	const count = 1000
	s := newSite(count)
	s.c.Max, s.c.Offers[0].Quota, s.c.Offers[1].Quota = MostNodes, MostNodes, MostNodes
	first := s.step(4 * count)
	if len(s.nodes) > MostNodes || first.Target < 1 || first.Target > MostNodes || first.Reason == "" {
		t.Fatalf("%d nodes, %+v", len(s.nodes), first)
	}
	for range 60 {
		if d := s.step(4 * count); len(s.nodes) > MostNodes || d.Target > MostNodes {
			t.Fatalf("%d nodes, %+v", len(s.nodes), d)
		}
	}
	busy := len(s.nodes)
	for range 400 {
		s.step(1)
	}
	if quiet := len(s.nodes); quiet < 1 || quiet >= busy {
		t.Errorf("%d nodes under load, %d without", busy, quiet)
	}
}
