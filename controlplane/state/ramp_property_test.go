package state

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"warmpath/dataplane/fleet"
)

// TestColdFleet: in a fleet whose nodes are equally cold, and in one that starts, all
// are warm against each other and none ramps, in whatever order they come and
// whatever their caches hold by chance.
func TestColdFleet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := rapid.IntRange(1, 6).Draw(t, "nodes")
		equal := rapid.SampledFrom([]int64{-1, 0, 5000, 300000}).Draw(t, "equal") // -1: by chance
		specs, caches := []Spec{}, []CacheSeen{}
		for i := range nodes {
			name := fmt.Sprint("n", i)
			tokens := equal
			if equal < 0 {
				tokens = rapid.Int64Range(0, likeLeastTokens-1).Draw(t, "tokens")
			}
			specs = append(specs, Spec{Name: name, URL: "http://" + name, Models: []string{"m"}})
			caches = append(caches, CacheSeen{Node: name, Tokens: tokens})
		}
		s, _ := Step(New(DefaultSettings()), NodesSeen{NowNs: 1, Source: "x", Specs: specs})
		for _, i := range rapid.Permutation(seq(nodes)).Draw(t, "order") {
			s, _ = Step(s, ProbeResult{NowNs: 2, Node: specs[i].Name, OK: true})
			s, _ = Step(s, LoadsSeen{NowNs: 2, Loads: []LoadSeen{{Node: specs[i].Name, Successes: rapid.Int64Range(0, proofAnswers-1).Draw(t, "answers")}}})
		}
		s, _ = Step(s, CachesSeen{NowNs: 3, Caches: caches})
		s, _ = Step(s, Tick{NowNs: 4})
		for _, n := range s.Nodes {
			if n.Warmth != (fleet.Gauge{Value: 1, Known: true}) || n.Filling || n.Proof.Known {
				t.Fatalf("%s: warmth %v, filling %v, proof %v", n.Spec.Name, n.Warmth, n.Filling, n.Proof)
			}
		}
	})
}

func seq(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

// TestRampEnds: whatever a node's cache does, so many good answers end its ramp: each
// fillAnswers of them bring growth or the end.
func TestRampEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := fleetOf(1)
		s, _ = Step(s, LoadsSeen{NowNs: 2, Loads: []LoadSeen{{Node: "n000", Successes: 100}}})
		s, _ = Step(s, CachesSeen{NowNs: 2, Caches: []CacheSeen{{Node: "n000", Tokens: 100000}}})
		s, _ = Step(s, NodesSeen{NowNs: 3, Source: "x", Specs: []Spec{
			{Name: "n000", URL: "http://h0:1", Models: []string{"m"}}, {Name: "new", URL: "http://new", Models: []string{"m"}},
		}})
		s, _ = Step(s, ProbeResult{NowNs: 3, Node: "new", OK: true})
		now, tokens, good := int64(4), int64(0), int64(0)
		const most = proofAnswers + int64(1/fillGain+1)*fillAnswers
		for ramps := true; ramps; {
			now += second
			good += rapid.Int64Range(1, 30).Draw(t, "good")
			tokens = rapid.Int64Range(0, 120000).Draw(t, "tokens")
			s, _ = Step(s, LoadsSeen{NowNs: now, Loads: []LoadSeen{{Node: "new", Successes: good}}})
			s, _ = Step(s, CachesSeen{NowNs: now, Caches: []CacheSeen{{Node: "n000", Tokens: 100000}, {Node: "new", Tokens: tokens}}})
			s, _ = Step(s, Tick{NowNs: now})
			n := s.Find("new")
			if ramps = n.Filling || n.Proof.Known; ramps && good > most+30 {
				t.Fatalf("it still ramps after %d good answers: filling %v from %+v, proof %v", good, n.Filling, n.life.fill, n.Proof)
			}
		}
	})
}

// TestFlapping: of a node that goes down and comes back a thousand times no more is
// remembered than of any other, each return begins without any proof, and each cycle
// costs a bounded number of lines and snapshots.
func TestFlapping(t *testing.T) {
	s := fleetOf(2)
	loads := []LoadSeen{{Node: "n000", Successes: 100}, {Node: "n001", Successes: 100}}
	s, _ = Step(s, LoadsSeen{NowNs: 2, Loads: loads})
	step := func(ev Event) (lines, snapshots int) {
		var effects []Effect
		s, effects = Step(s, ev)
		for _, e := range effects {
			switch e.(type) {
			case Log:
				lines++
			case Publish:
				snapshots++
			}
		}
		return lines, snapshots
	}
	now := int64(2)
	for range 1000 {
		lines, snapshots := 0, 0
		all := func(ev Event) {
			l, p := step(ev)
			lines, snapshots = lines+l, snapshots+p
		}
		for range refusalsDown {
			now += second / 10
			all(Failure{NowNs: now, Node: "n001", Class: Refused})
		}
		if n := s.Find("n001"); n.Health != fleet.Down {
			t.Fatalf("health %v", n.Health)
		}
		for range s.Settings.UpAfter {
			now += 2 * second
			all(ProbeResult{NowNs: now, Node: "n001", OK: true})
		}
		n := s.Find("n001")
		if n.Health != fleet.Ready || n.Proof != (fleet.Gauge{Known: true}) || len(n.History) > maxChanges {
			t.Fatalf("health %v, proof %v, %d changes", n.Health, n.Proof, len(n.History))
		}
		loads[1].Successes += 20
		now += second
		all(LoadsSeen{NowNs: now, Loads: loads})
		all(Tick{NowNs: now})
		if lines > 6 || snapshots > 6 {
			t.Fatalf("a cycle makes %d lines and %d snapshots", lines, snapshots)
		}
	}
}

// BenchmarkCachesSeen1024 is a second of a fleet of the largest size, every one of
// whose caches changes, with the tick that compares them.
func BenchmarkCachesSeen1024(b *testing.B) {
	s := fleetOf(fleet.MaxSlots)
	e := CachesSeen{Caches: make([]CacheSeen, len(s.Nodes))}
	b.ReportAllocs()
	for now := int64(2); b.Loop(); now += second {
		for i, n := range s.Nodes {
			e.Caches[i] = CacheSeen{Node: n.Spec.Name, Tokens: 100000 + now*int64(i)%9973}
		}
		e.NowNs = now
		s, _ = Step(s, e)
		s, _ = Step(s, Tick{NowNs: now})
	}
}
