package scaler

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestPeaks: the largest of a time, beside all values kept; what is beyond by a slot's
// width may be in it.
func TestPeaks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		span := rapid.SampledFrom([]float64{0, 3, 180, 3600}).Draw(t, "span")
		every := rapid.SampledFrom([]float64{1, 10}).Draw(t, "interval")
		var p peaks
		var values []float64
		for i := range rapid.IntRange(1, 900).Draw(t, "values") {
			v := math.Round(100 * math.Abs(math.Sin(float64(i*i)))) // any order will do
			values = append(values, v)
			now := int64(1e9 + float64(i)*every*1e9)
			p.add(now, span, v)
			got, full := p.since(now - int64(span*1e9))
			atLeast, atMost := v, v
			for back, v := range values {
				ago := float64(i-back) * every
				if ago <= span {
					atLeast = max(atLeast, v)
				}
				if ago <= span*1.01+every {
					atMost = max(atMost, v)
				}
			}
			if got < atLeast || got > atMost && span > 0 || span == 0 && got != v {
				t.Fatalf("after %d values: %v, it is %v to %v", i+1, got, atLeast, atMost)
			}
			if seen := float64(i) * every; full != (seen > span) {
				t.Fatalf("after %v s of %v: full is %v", seen, span, full)
			}
		}
	})
}

// TestShrinksAfterLong: however long fewer must be wanted, it comes to an end.
func TestShrinksAfterLong(t *testing.T) {
	s := newSite(12)
	s.c.StabiliseDownSeconds = 3600
	for i := range 1000 {
		if d := s.step(1); d.Action == ActionDown && i < 360 {
			t.Fatalf("%d s after the start: %s", 10*i, d.Words)
		}
	}
	if len(s.nodes) > 2 {
		t.Errorf("%d nodes for a request a second", len(s.nodes))
	}
}

// TestTriggersNeedTraffic: what was late, or in no cache, before the requests ended
// asks for nothing.
func TestTriggersNeedTraffic(t *testing.T) {
	for name, trigger := range map[string]Triggers{"ttft": {TTFTSeconds: .25}, "hit_ratio": {HitRatio: .4}} {
		s := newSite(3)
		s.c.Triggers = trigger
		for range 3 {
			s.step(4)
		}
		before := len(s.nodes)
		for range 360 {
			if d := s.step(0); d.Action == ActionUp {
				t.Fatalf("%s: %d nodes, nobody asks anything: %s", name, before, d.Words)
			}
		}
	}
}

// TestAllDown: nodes that are down together are not given back, for it may be the way to
// them; once one serves they are, a part at a time.
func TestAllDown(t *testing.T) {
	s := newSite(20)
	for range 30 {
		s.step(40)
	}
	count := len(s.nodes)
	for i := range s.nodes {
		s.nodes[i].Phase, s.nodes[i].SinceNs = Down, s.now
	}
	for range 60 {
		s.now += 10e9
		if d := s.plan(Signals{NowNs: s.now, Nodes: s.nodes, Traffic: s.traffic(40)}); len(d.Drain) > 0 {
			t.Fatalf("with all nodes down it gives back %d: %s", len(d.Drain), d.Words)
		}
	}
	s.nodes[0].Phase = Ready
	s.now += 10e9
	if d := s.plan(Signals{NowNs: s.now, Nodes: s.nodes, Traffic: s.traffic(40)}); len(d.Drain) != max(1, count/10) {
		t.Errorf("with one of %d that serves it gives back %d: %s", count, len(d.Drain), d.Words)
	}
}

// TestDrainedByHand: a node that somebody drains is neither asked back nor counted.
func TestDrainedByHand(t *testing.T) {
	s := newSite(4)
	for range 60 {
		s.step(8)
	}
	before := len(s.nodes)
	last := &s.nodes[before-1]
	last.Phase, last.ByHand = Draining, true
	ups := 0
	for range 60 {
		d := s.step(8)
		if len(d.Undrain) > 0 {
			t.Fatalf("it asks %v back", d.Undrain)
		}
		if d.Action == ActionUp {
			ups++
		}
	}
	if serving := len(s.nodes) - 1; serving < before-1 || ups > 1 {
		t.Errorf("%d nodes served, now %d after %d times up", before, serving, ups)
	}
}

// TestOthersNodes: nodes that are not the scaler's and do not serve neither keep its own,
// once they have been down for long, nor take the place of any while they start.
func TestOthersNodes(t *testing.T) {
	s := newSite(12)
	s.nodes = append(s.nodes, Node{Name: "gone", Phase: Down, SinceNs: 1})
	for range 300 {
		s.step(1)
	}
	if len(s.nodes) > 3 {
		t.Errorf("a node of others is down: %d nodes for a request a second", len(s.nodes)-1)
	}

	s = newSite(4)
	for range 200 {
		s.step(12)
	}
	served := len(s.nodes)
	for i := range 5 {
		s.nodes = append(s.nodes, Node{Name: fmt.Sprintf("somebody's-%d", i), Phase: Starting, SinceNs: s.now})
	}
	for range 30 {
		if d := s.step(12); len(d.Drain) > 0 {
			t.Fatalf("%d served; five of others start: %s", served, d.Words)
		}
	}
	for i := range s.nodes {
		s.nodes[i].Queued = Known(100)
	}
	ups := 0
	for range 5 {
		if d := s.step(12); d.Action == ActionUp {
			ups++
		}
	}
	if ups == 0 {
		t.Error("nodes of others that never come keep it from asking for more when too many wait")
	}
}

// TestWeights: slow nodes are counted for what they do.
func TestWeights(t *testing.T) {
	s := newSite(5)
	for i := range 7 {
		n := s.nodes[0]
		n.Name, n.Weight = fmt.Sprintf("slow-%d", i), .25
		n.PrefillTokensPerSecond, n.DecodeTokensPerSecond = Known(2000), Known(20)
		s.nodes = append(s.nodes, n)
	}
	var d Decision
	for range 100 {
		d = s.step(45)
	}
	strength := 0.0
	for i := range s.nodes {
		strength += orOne(s.nodes[i].Weight)
	}
	if d.Now.Utilisation >= 1 || strength < d.LoadNow {
		t.Errorf("%d nodes as strong as %.2f under a load of %.1f: %s", len(s.nodes), strength, d.LoadNow, d.Words)
	}
}

// TestNothingSeenYet: a scaler that has just begun asks for nothing and gives nothing
// back before it has seen anything, unless requests wait.
func TestNothingSeenYet(t *testing.T) {
	c := DefaultConfig()
	c.Min = 0
	c.Offers = []Offer{{Name: "gpu", PricePerHour: 3}}
	if d, _ := Plan(Signals{NowNs: 10e9}, NewHistory(), &c); d.Action != ActionHold {
		t.Errorf("it has seen nothing and decides %+v", d)
	}
	if d, _ := Plan(Signals{NowNs: 10e9, Held: 1}, NewHistory(), &c); d.Action != ActionUp {
		t.Errorf("a request waits and it decides %+v", d)
	}
	h, nodes := NewHistory(), []Node{{Name: "gpu-1", Offer: "gpu", Phase: Ready}}
	for i := range int64(100) {
		var d Decision
		if d, h = Plan(Signals{NowNs: (i + 1) * 10e9, Nodes: nodes}, h, &c); d.Action != ActionHold {
			t.Fatalf("it has seen nothing and decides %+v", d)
		}
	}
}

// TestSaysWhatKeepsNodes: nodes that are too many and stay have a reason.
func TestSaysWhatKeepsNodes(t *testing.T) {
	s := newSite(12)
	s.nodes[0].Phase, s.nodes[0].SinceNs = Down, s.now
	s.c.ReplaceDownSeconds = 3600
	var d Decision
	for range 60 {
		d = s.step(1)
	}
	if !strings.Contains(d.Words, "none is given back: cheap-00 is down") {
		t.Errorf("it says %q", d.Words)
	}
}

// TestOfferGone: nodes of an offer that is not configured any more cost nobody knows what:
// under a budget nothing is asked for beside them, and it is said why.
func TestOfferGone(t *testing.T) {
	c := DefaultConfig()
	c.BudgetPerHour, c.Offers = 10, []Offer{{Name: "new", PricePerHour: 5}}
	s := Signals{Nodes: []Node{{Name: "old-1", Offer: "old", Phase: Ready}}}
	if starts, unmet := place(1, 5, &s, &c); len(starts) > 0 || !strings.Contains(unmet, "old-1") {
		t.Errorf("%v, %q", starts, unmet)
	}
	c.BudgetPerHour = 0
	if starts, unmet := place(1, 5, &s, &c); len(starts) != 1 {
		t.Errorf("without a budget: %v, %q", starts, unmet)
	}
}
