package state

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"warmpath/dataplane/fleet"
)

// answers draws the mean rate of n answers whose logarithms spread about a truth.
func answers(r *rand.Rand, truth, spread float64, n int) fleet.Gauge {
	seconds := 0.0
	for range n {
		seconds += math.Exp(-spread * r.NormFloat64())
	}
	return fleet.Gauge{Value: truth * float64(n) / seconds, Known: true}
}

// middle is what such readings have for their mean, on a logarithmic scale.
func middle(truth, spread float64, n int) float64 {
	r := rand.New(rand.NewPCG(9, 9))
	sum := 0.0
	const readings = 20000
	for range readings {
		sum += math.Log(answers(r, truth, spread, n).Value)
	}
	return sum / readings
}

// TestRateIsWithinItsError: what is learned lies within two standard errors about
// nineteen times in twenty, and three times in four where answers differ by far
// more than they are taken to at first.
func TestRateIsWithinItsError(t *testing.T) {
	const trials, readings = 400, 40
	for spread, want := range map[float64]float64{0.05: 0.9, 0.2: 0.9, 0.5: 0.9, 0.8: 0.75} {
		for _, samples := range []int{1, 5, 30} {
			r := rand.New(rand.NewPCG(1, uint64(samples)))
			within, errors := 0, []float64{}
			truth := middle(8000, spread, samples)
			for range trials {
				var rate Rate
				for i := range readings {
					rate.learn(int64(i)*second, answers(r, 8000, spread, samples), samples)
				}
				off := math.Abs(math.Log(rate.Value) - truth)
				errors = append(errors, off)
				if off <= 2*rate.Error {
					within++
				}
			}
			slices.Sort(errors)
			if share := float64(within) / trials; share < want {
				t.Errorf("spread %v, %d answers a reading: within two standard errors in %.0f %%, want %.0f", spread, samples, 100*share, 100*want)
			}
			if most := 4 * (spread/math.Sqrt(readings*float64(samples)) + rateShared); errors[trials*19/20] > most {
				t.Errorf("spread %v, %d answers a reading: off by %.3f, want at most %.3f", spread, samples, errors[trials*19/20], most)
			}
		}
	}
}

// TestRateStandsOutliers: prompts that were preempted, or served from a cache
// that nobody knew of.
func TestRateStandsOutliers(t *testing.T) {
	for name, factor := range map[string]float64{"twenty times slower": 0.05, "twenty times faster": 20} {
		r := rand.New(rand.NewPCG(3, 4))
		var rate Rate
		worst := 0.0
		for i := range 300 {
			g := answers(r, 8000, 0.2, 5)
			if i%20 == 19 {
				g.Value *= factor
			}
			rate.learn(int64(i)*second, g, 5)
			if i > 30 {
				worst = max(worst, math.Abs(math.Log(rate.Value/8000)))
			}
		}
		if worst > 0.25 {
			t.Errorf("%s, one reading of twenty: off by %.2f at worst", name, worst)
		}
	}
}

// TestRateFollowsAChange: a node that gets another card, or half of its own.
func TestRateFollowsAChange(t *testing.T) {
	for _, factor := range []float64{0.25, 0.5, 3} {
		r := rand.New(rand.NewPCG(5, 6))
		var rate Rate
		for i := range 200 {
			rate.learn(int64(i)*second, answers(r, 8000, 0.2, 5), 5)
		}
		took := 0
		for ; math.Abs(math.Log(rate.Value/(8000*factor))) > 0.15 && took < 100; took++ {
			rate.learn(int64(200+took)*second, answers(r, 8000*factor, 0.2, 5), 5)
		}
		if took > 2*rateShift {
			t.Errorf("a node %v times as fast was known as that after %d readings", factor, took)
		}
	}
}

// TestRateForgets: what was learned an hour ago is worth less than what comes now.
func TestRateForgets(t *testing.T) {
	learned := func(laterNs int64) float64 {
		var rate Rate
		for i := range 100 {
			rate.learn(int64(i)*second, fleet.Gauge{Value: 8000, Known: true}, 5)
		}
		rate.learn(100*second+laterNs, fleet.Gauge{Value: 10000, Known: true}, 5)
		return rate.Value
	}
	if soon, late := learned(second), learned(3600*second); late-soon < 500 {
		t.Errorf("one reading of 10000 after many of 8000 makes %.0f at once and %.0f after an hour", soon, late)
	}
}

func TestRateTakesNoNonsense(t *testing.T) {
	var rate Rate
	for _, v := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if rate.learn(1, fleet.Gauge{Value: v, Known: true}, 1) || rate.Known {
			t.Errorf("%v is taken for a rate", v)
		}
	}
	for _, v := range []float64{1e-300, 1e300, 1, 1e300, 1e300, 1e300, 1e300, 1e300, 1e300} {
		if rate.learn(1, fleet.Gauge{Value: v, Known: true}, -7); !(rate.Value > 0) || math.IsInf(rate.Value, 0) || !(rate.Error > 0) {
			t.Fatalf("after %v: %+v", v, rate)
		}
	}
}

// TestWeightsOfAMixedFleet: three generations of cards in one fleet are weighted
// by what they do, and a newcomer of which little is known is taken for less
// unlike the others than its first answers say.
func TestWeightsOfAMixedFleet(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	speeds := []float64{4000, 4000, 8000, 8000, 8000, 16000, 16000}
	s := New(DefaultSettings())
	s.Nodes = nil
	for i, speed := range speeds {
		n := &Node{Slot: i, Weight: 1}
		for j := range 30 {
			n.Prefill.learn(int64(j)*second, answers(r, speed, 0.3, 10), 10)
		}
		s.Nodes = append(s.Nodes, n)
	}
	newcomer := &Node{Slot: len(speeds), Weight: 1}
	newcomer.Prefill.learn(30*second, fleet.Gauge{Value: 64000, Known: true}, 1)
	s.Nodes = append(s.Nodes, newcomer)
	st := &step{s: s}
	st.weigh()
	for i, speed := range speeds {
		if want := speed / 8000; math.Abs(math.Log(st.s.Nodes[i].Weight/want)) > 0.1 {
			t.Errorf("a node of %v tokens a second has weight %.2f, want %.2f", speed, st.s.Nodes[i].Weight, want)
		}
	}
	if w := st.s.Nodes[len(speeds)].Weight; w < 2 || w > 6 {
		t.Errorf("one answer at eight times the speed makes weight %.2f, want 2 to 6", w)
	}
}

// TestAlikeUntilShown: nodes of one speed keep one speed for decisions, however
// their answers fall; a node that is slower loses that, has it again once nobody has
// seen it for long, and after its engine has restarted.
func TestAlikeUntilShown(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	st := &step{s: New(DefaultSettings())}
	for i := range 9 {
		st.s.Nodes = append(st.s.Nodes, &Node{Slot: i, Weight: 1})
	}
	slow := func() *Node { return st.s.Nodes[7] } // each step may replace it
	apart := 0
	for j := range 300 {
		st.s.NowNs = int64(j) * second
		for i, n := range st.s.Nodes[:8] {
			speed := 8000.0
			if i == 7 {
				speed = 4000
			}
			g := answers(r, speed, 0.3, 5)
			st.rateSeen(n, RateSeen{PrefillTokensPerSecond: g, PrefillSamples: 5, DecodeTokensPerSecond: g, DecodeSamples: 5})
		}
		st.weigh()
		first := st.s.Nodes[0].PrefillTokensPerSecond
		for _, n := range append(st.s.Nodes[1:7:7], st.s.Nodes[8]) {
			if n.PrefillTokensPerSecond != first || n.DecodeTokensPerSecond != first || n.Weight != 1 {
				apart++
			}
		}
	}
	if apart > 300*7/100 {
		t.Errorf("equals were told apart %d times of %d", apart, 300*7)
	}
	if w := slow().Weight; math.Abs(w-0.5) > 0.05 || slow().PrefillTokensPerSecond == st.s.Nodes[0].PrefillTokensPerSecond {
		t.Errorf("the slow node has weight %.2f, want 0.5", w)
	}
	slowAfter := func(what string, want bool) {
		st.weigh()
		if is := slow().Weight != 1; is != want {
			t.Errorf("%s: weight %.2f", what, slow().Weight)
		}
	}
	st.s.NowNs += 60 * second
	slowAfter("a minute later", true)
	st.s.NowNs += 600 * second
	slowAfter("ten minutes later", false)
	st.rateSeen(slow(), RateSeen{PrefillTokensPerSecond: answers(r, 4000, 0.3, 50), PrefillSamples: 50})
	slowAfter("as slow as ever", true)
	st.clear(slow())
	slowAfter("after its engine has restarted", false)
	if n := slow().Prefill.Samples(st.s.NowNs); n != 0 {
		t.Errorf("a successor would be told %d samples of an engine that has restarted", n)
	}
}

// TestTwoSpeeds: in a fleet of two speeds nobody is as fast as the mean of them; and
// adapters make no other fleet of nodes.
func TestTwoSpeeds(t *testing.T) {
	for _, speeds := range [][]float64{{8000, 4000}, {4000, 8000, 4000, 8000}, {8000, 8000, 4000}} {
		r := rand.New(rand.NewPCG(11, 12))
		st := &step{s: New(DefaultSettings())}
		for i := range speeds {
			n := &Node{Slot: i, Weight: 1, Models: []Served{{ID: "m"}}}
			if i%2 == 1 {
				n.Models = []Served{{ID: "an-adapter", Parent: "m"}, {ID: "m"}}
			}
			st.s.Nodes = append(st.s.Nodes, n)
		}
		turned := 0
		for j := range 300 {
			st.s.NowNs = int64(j) * second
			for i, n := range st.s.Nodes {
				st.rateSeen(n, RateSeen{PrefillTokensPerSecond: answers(r, speeds[i], 0.3, 5), PrefillSamples: 5})
			}
			was := make([]bool, len(speeds))
			for i, n := range st.s.Nodes {
				was[i] = n.Prefill.apart
			}
			st.weigh()
			for i, n := range st.s.Nodes {
				if j > 10 && n.Prefill.apart != was[i] {
					turned++
				}
			}
		}
		for i, speed := range speeds {
			if got := st.s.Nodes[i].PrefillTokensPerSecond.Value; math.Abs(math.Log(got/speed)) > 0.2 {
				t.Errorf("of %v, node %d counts as %.0f", speeds, i, got)
			}
		}
		if turned > 2 {
			t.Errorf("%v: alike and apart in turns, %d times", speeds, turned)
		}
	}
}
