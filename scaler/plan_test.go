package scaler

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestErlangC: against the sum that defines it.
func TestErlangC(t *testing.T) {
	for n := 1; n <= 40; n++ {
		for _, utilisation := range []float64{.1, .5, .8, .95} {
			a := float64(n) * utilisation
			term, sum := 1.0, 0.0
			for k := range n {
				sum += term
				term *= a / float64(k+1)
			}
			last := term / (1 - utilisation) // a^n ÷ n! ÷ (1-ρ)
			want := last / (sum + last)
			if got := erlangC(float64(n), a); math.Abs(got-want) > 1e-9 {
				t.Errorf("erlangC(%d, %v) = %v, want %v", n, a, got, want)
			}
		}
	}
}

// TestDecodeFit finds the line that readings lie on, and is careful while they were
// all made with as many requests.
func TestDecodeFit(t *testing.T) {
	var one, many decodeFit
	for i := range 500 {
		one.add(8, .006+.00035*8)
		running := float64(1 + i%40)
		many.add(running, .006+.00035*running)
	}
	if base, each, _ := one.line(); base < 0 || each <= 0 || math.Abs(base+8*each-.0088) > .0005 {
		t.Errorf("from one point: %v + %v × running", base, each)
	}
	if base, each, _ := many.line(); math.Abs(base-.006) > .0005 || math.Abs(each-.00035) > .00005 {
		t.Errorf("from many: %v + %v × running", base, each)
	}
}

// TestNeedIsLeast: need is the least number that does, as asking one by one finds.
func TestNeedIsLeast(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := speed{prefill: rapid.Float64Range(500, 50_000).Draw(t, "prefill"), burst: rapid.Float64Range(0, 20).Draw(t, "burst"), base: .006, each: .0003, most: 64}
		d := demand{uncached: 1000, prompt: 2000, output: rapid.Float64Range(1, 500).Draw(t, "output"), shares: make([]float64, len(TokenBounds)+1)}
		d.shares[5], d.shares[9] = .9, .1
		rate := rapid.Float64Range(.1, 100).Draw(t, "rate")
		const most = 200
		in := goal{seconds: 1, slowdown: rapid.SampledFrom([]float64{0, 2, 5}).Draw(t, "slowdown")}
		got := v.need(&d, rate, in, .01, most)
		ok := func(n int) bool {
			f := v.under(&d, rate, float64(n))
			limit := .01
			if h := v.hopeless(&d, in); h > 0 {
				limit = h + max(.01-h, .01/4)
			}
			return f.utilisation < 1 && v.late(&d, f, in) <= limit
		}
		if got <= most && !ok(got) {
			t.Fatalf("%d nodes are not enough", got)
		}
		if got > 1 && float64(got-1) > rate*v.work(&d) && ok(got-1) {
			t.Fatalf("%d nodes would do, need says %d", got-1, got)
		}
	})
}

// site is a pool in a test: so many ready nodes of an offer under a load.
type site struct {
	c     Config
	h     History
	now   int64
	nodes []Node
}

func newSite(nodes int) *site {
	s := &site{c: DefaultConfig(), h: NewHistory(), now: 1e9}
	s.c.Max = 50
	s.c.Offers = []Offer{{Name: "cheap", PricePerHour: 1, Quota: 20}, {Name: "dear", PricePerHour: 2}}
	for i := range nodes {
		s.nodes = append(s.nodes, Node{
			Name: fmt.Sprintf("cheap-%02d", i), Offer: "cheap", Phase: Ready, PrefillTokensPerSecond: Known(8000),
			DecodeTokensPerSecond: Known(80), Running: Known(10), MostRunning: Known(64), Queued: Known(0), KVUse: Known(.3),
		})
	}
	return s
}

// traffic is a span of so many requests a second, of 1,000 uncached tokens and 200 of
// output.
func (s *site) traffic(perSecond float64) Traffic {
	n := perSecond * s.c.IntervalSeconds
	t := Traffic{
		SpanSeconds: s.c.IntervalSeconds, Requests: n, PromptTokens: 1500 * n, UncachedTokens: 1000 * n, OutputTokens: 200 * n, Answers: n,
		Uncached: make([]float64, len(TokenBounds)+1), TTFT: NewTTFT(),
	}
	t.Uncached[5], t.TTFT[TTFTBucket(5, 5)] = n, n
	return t
}

// step plans once; what is asked for is there at once, what drains is gone.
func (s *site) step(perSecond float64) Decision {
	s.now += int64(s.c.IntervalSeconds * 1e9)
	d := s.plan(Signals{NowNs: s.now, Nodes: s.nodes, Traffic: s.traffic(perSecond)})
	for _, start := range d.Start {
		for i := range start.Count {
			n := s.nodes[0]
			n.Name, n.Offer, n.SinceNs = fmt.Sprintf("%s-%d-%d", start.Offer, s.now, i), start.Offer, s.now
			s.nodes = append(s.nodes, n)
		}
	}
	for _, name := range d.Drain {
		for i := range s.nodes {
			if s.nodes[i].Name == name {
				s.nodes = append(s.nodes[:i:i], s.nodes[i+1:]...)
				break
			}
		}
	}
	return d
}

func (s *site) plan(signals Signals) (d Decision) {
	d, s.h = Plan(signals, s.h, &s.c)
	return d
}

// TestFollowsTheLoad: it grows with the load and shrinks with it, without a node too
// many for long, and says why.
func TestFollowsTheLoad(t *testing.T) {
	s := newSite(4)
	for range 60 {
		s.step(8)
	}
	few := len(s.nodes)
	grown := s.step(40)
	for range 30 {
		if d := s.step(40); d.Action == ActionUp {
			grown = d
		}
	}
	many := len(s.nodes)
	for range 200 {
		s.step(8)
	}
	if few < 2 || few > 5 || many < 9 || many > 22 || len(s.nodes) > few+1 {
		t.Errorf("%d nodes for 8 requests a second, %d for 40, %d for 8 again", few, many, len(s.nodes))
	}
	if !strings.Contains(grown.Words, "nodes' work now") || grown.Reason == "" {
		t.Errorf("it says no more than %+v", grown)
	}
}

// TestFewRequestsAndNoModel: nodes whose speed nobody has seen yet, as after a restart,
// are given back down to as many as there are requests at once, and no further.
func TestFewRequestsAndNoModel(t *testing.T) {
	s := newSite(4)
	for i := range s.nodes {
		s.nodes[i].PrefillTokensPerSecond, s.nodes[i].DecodeTokensPerSecond = Gauge{}, Gauge{}
	}
	s.c.PrefillTokensPerSecond = 0
	s.nodes[0].InFlight = 30
	for range 60 {
		if d := s.step(1); d.Action != ActionHold {
			t.Fatalf("with 30 requests under way it decided %+v", d)
		}
	}
	s.nodes[0].InFlight, s.nodes[1].InFlight = 1, 1
	var down Decision
	for range 60 {
		if d := s.step(1); d.Action == ActionDown {
			down = d
		}
	}
	if len(s.nodes) != 2 || !strings.Contains(down.Words, "not known yet") {
		t.Errorf("%d nodes for two requests at once: %+v", len(s.nodes), down)
	}
}

// TestBlind: without signals nothing changes, however long that lasts, and afterwards
// it goes on.
func TestBlind(t *testing.T) {
	s := newSite(10)
	for range 30 {
		s.step(1)
	}
	s = newSite(10)
	for range 200 {
		s.now += 10e9
		if d := s.plan(Signals{NowNs: s.now, Nodes: s.nodes, Missing: "the router did not answer"}); d.Action != ActionFrozen || len(d.Start)+len(d.Drain) > 0 || d.Reason != "signals" {
			t.Fatalf("blind, it decided %+v", d)
		}
	}
	for range 60 {
		s.step(1)
	}
	if len(s.nodes) > 3 {
		t.Errorf("%d nodes for a request a second", len(s.nodes))
	}
}

// TestToZeroAndBack: the last node goes after idle, and a request that waits brings
// one.
func TestToZeroAndBack(t *testing.T) {
	s := newSite(2)
	s.c.Min, s.c.IdleSeconds = 0, 120
	for range 10 {
		s.step(1)
	}
	for range 60 {
		s.step(0)
	}
	if len(s.nodes) != 0 {
		t.Fatalf("%d nodes after ten idle minutes", len(s.nodes))
	}
	s.now += 10e9
	d := s.plan(Signals{NowNs: s.now, Held: 1, Traffic: s.traffic(0)})
	if len(d.Start) != 1 || d.Start[0] != (Start{"cheap", 1}) {
		t.Errorf("a request waits, and it decided %+v", d)
	}
}

// TestPlace: the cheapest that may give, in order; refusals are said.
func TestPlace(t *testing.T) {
	c := DefaultConfig()
	c.Max, c.BudgetPerHour, c.MaxLatencySeconds = 100, 10, .05
	c.Offers = []Offer{
		{Name: "far", PricePerHour: .1, LatencySeconds: .2},
		{Name: "broken", PricePerHour: .2},
		{Name: "small", PricePerHour: 1, Quota: 2, Region: "a"},
		{Name: "big", PricePerHour: 2, Region: "b"},
	}
	s := Signals{Offers: []OfferStatus{{Name: "broken", Withheld: "UnauthorizedOperation: not you"}}}
	starts, unmet := place(9, MostNodes, &s, &c)
	if want := []Start{{"small", 2}, {"big", 4}}; !reflect.DeepEqual(starts, want) {
		t.Errorf("got %v, want %v", starts, want)
	}
	for _, word := range []string{"UnauthorizedOperation: not you", "200 ms away", "exceed the budget of 10"} {
		if !strings.Contains(unmet, word) {
			t.Errorf("what is unmet does not say %q: %s", word, unmet)
		}
	}
	c.Spread, c.BudgetPerHour = true, 0
	if starts, _ := place(4, MostNodes, &s, &c); !reflect.DeepEqual(starts, []Start{{"small", 2}, {"big", 2}}) {
		t.Errorf("spread: %v", starts)
	}
}

// TestPlanProperties: whatever it is told, it keeps the bounds and its arguments.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(rapid.IntRange(1, 12).Draw(t, "nodes"))
		s.c.Min = rapid.IntRange(0, 2).Draw(t, "min")
		s.c.Max = rapid.IntRange(2, 15).Draw(t, "max")
		s.c.BudgetPerHour = rapid.SampledFrom([]float64{0, 5, 12}).Draw(t, "budget")
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			rate := rapid.SampledFrom([]float64{0, .1, 1, 10, 100, 1e4}).Draw(t, "rate")
			for i := range s.nodes {
				s.nodes[i].Phase = rapid.SampledFrom([]Phase{Ready, Ready, Ready, Starting, Draining, Down}).Draw(t, "phase")
				s.nodes[i].Queued = Gauge{rapid.Float64Range(0, 100).Draw(t, "queued"), rapid.Bool().Draw(t, "known")}
				s.nodes[i].DecodeTokensPerSecond = Gauge{rapid.Float64Range(0, 1e4).Draw(t, "rate"), rapid.Bool().Draw(t, "known")}
			}
			signals := Signals{NowNs: s.now + 10e9, Nodes: append([]Node(nil), s.nodes...), Traffic: s.traffic(rate)}
			before := append([]Node(nil), signals.Nodes...)
			h := s.h
			one, next := Plan(signals, h, &s.c)
			two, _ := Plan(signals, h, &s.c)
			if fmt.Sprint(one) != fmt.Sprint(two) || !reflect.DeepEqual(before, signals.Nodes) {
				t.Fatalf("not pure: %+v, %+v", one, two)
			}
			if math.IsNaN(next.skew) || math.IsNaN(next.forecast.level) || math.IsNaN(one.LoadExpected) {
				t.Fatalf("not a number: %+v", one)
			}
			s.bounds(t, &one, &signals)
			s.step(rate)
		}
	})
}

func (s *site) bounds(t *rapid.T, d *Decision, signals *Signals) {
	have, there, cost := 0, 0, 0.0
	for _, n := range signals.Nodes {
		switch n.Phase {
		case Ready, Starting:
			have, there = have+1, there+1
		case Down:
			there++
		}
		cost += s.c.offer(n.Offer).PricePerHour
	}
	asked := 0
	for _, start := range d.Start {
		asked += start.Count
		cost += float64(start.Count) * s.c.offer(start.Offer).PricePerHour
	}
	switch {
	case asked > 0 && have+asked+len(d.Undrain) > s.c.Max:
		t.Fatalf("%d nodes and %d more, at most %d may be", have, asked, s.c.Max)
	case asked > 0 && s.c.BudgetPerHour > 0 && cost > s.c.BudgetPerHour+1e-9:
		t.Fatalf("they would cost %v an hour, the budget is %v", cost, s.c.BudgetPerHour)
	case there < len(d.Drain):
		t.Fatalf("%d nodes, and %d are to go", there, len(d.Drain))
	}
}
