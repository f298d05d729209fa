package scenario_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"warmpath/bench/scenario"
	"warmpath/bench/workload"
	"warmpath/dataplane/policy"
	"warmpath/scaler"
)

// law is a function as a law, asked every ten seconds.
type law func(s *scaler.Signals) scenario.Orders

func (law) Name() string                               { return "test" }
func (law) IntervalSeconds() float64                   { return 10 }
func (l law) Decide(s *scaler.Signals) scenario.Orders { return l(s) }
func hold(*scaler.Signals) scenario.Orders             { return scenario.Orders{} }
func run(t testing.TB, c scenario.Config, l scenario.Law) *scenario.Report {
	t.Helper()
	r, err := scenario.Run(c, l)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// hasty is a law that is asked every two seconds.
type hasty struct{ law }

func (hasty) IntervalSeconds() float64 { return 2 }

// flat is a load that stays as it is.
func flat(seed uint64, hours, perSecond float64, changes ...workload.Change) *workload.Workload {
	d := workload.NewDay("flat", seed)
	d.Hours, d.PeakToTrough, d.PeakPerSecond, d.Changes = hours, 1, perSecond, changes
	return d.Make()
}

// TestScaleDownsCutNothing drains nodes at random under load, asks some back, and
// asks for others, more than a thousand times.
func TestScaleDownsCutNothing(t *testing.T) {
	load := flat(1, .4, 16)
	r := rand.New(rand.NewPCG(1, 2))
	reaper := hasty{law(func(s *scaler.Signals) (o scenario.Orders) {
		ready, coming := 0, 0
		for i := range s.Nodes {
			switch n := &s.Nodes[i]; n.Phase {
			case scaler.Ready:
				ready++
				if r.IntN(6) == 0 {
					o.Drain = append(o.Drain, n.Name)
				}
			case scaler.Starting:
				coming++
			case scaler.Draining:
				if r.IntN(4) == 0 {
					o.Undrain = append(o.Undrain, n.Name)
				}
			}
		}
		o.Start = []scaler.Start{{Count: max(0, 10+r.IntN(4)-ready-coming+len(o.Drain))}}
		return o
	})}
	offers := []scenario.Offer{{Offer: scaler.Offer{Name: "gpu", PricePerHour: 1, StartUpSeconds: 5}, StartUpSigma: .3}}
	got := run(t, scenario.Config{Load: load, Seed: 1, Offers: offers, StartNodes: 12}, reaper)
	t.Logf("%d drains, %d nodes started, %d requests, attainment %.4f, p99 %.2f s", got.Drains, got.NodesStarted, got.Requests, got.SLOAttainment, got.TTFTP99)
	if got.Drains < 1000 || got.CutStreams != 0 || got.LostRequests != 0 || got.Requests != int64(len(load.Requests)) {
		t.Errorf("%d drains cut %d streams and lost %d of %d requests, want none by 1000 or more", got.Drains, got.CutStreams, got.LostRequests, got.Requests)
	}
}

// TestSameSeedSameBytes runs all that is drawn at random twice.
func TestSameSeedSameBytes(t *testing.T) {
	load := flat(2, .15, 15)
	one := func(seed uint64) []byte {
		r := rand.New(rand.NewPCG(7, 7))
		moody := law(func(*scaler.Signals) scenario.Orders {
			return scenario.Orders{Start: []scaler.Start{{Count: r.IntN(3)}}, Fewer: r.IntN(3)}
		})
		c := scenario.Config{
			Load: load, Seed: seed, StartNodes: 9, Series: true, Policy: "p2c",
			Offers: []scenario.Offer{{Offer: scaler.Offer{Name: "gpu", StartUpSeconds: 60}, StartUpSigma: .4, CapacityShare: .2}},
			Signs:  scenario.Signs{Noise: .2, Unknown: .1, Missing: .05, Stale: .1},
			Kills:  []scenario.Kill{{AtNs: 200e9, Share: .5}, {AtNs: 300e9, Share: .1}},
		}
		got := run(t, c, moody)
		var out bytes.Buffer
		if err := errorsOf(json.NewEncoder(&out).Encode(got), got.WriteSeries(&out)); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	first := one(1)
	if again := one(1); !bytes.Equal(first, again) {
		t.Errorf("two runs of one seed differ:\n%s\n%s", first, again)
	}
	if bytes.Equal(first, one(2)) {
		t.Error("two seeds give the same")
	}
}

func errorsOf(list ...error) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// TestKillsLoseOnlyWhatHadBegun kills half of the nodes under load.
func TestKillsLoseOnlyWhatHadBegun(t *testing.T) {
	load := flat(3, .2, 20)
	got := run(t, scenario.Config{Load: load, StartNodes: 24, Kills: []scenario.Kill{{AtNs: 500e9, Share: .5}}}, law(hold))
	if got.Deaths != 12 || got.CutStreams == 0 || got.LostRequests != got.CutStreams {
		t.Errorf("%d deaths, %d cut, %d lost; want 12 deaths and no more lost than cut", got.Deaths, got.CutStreams, got.LostRequests)
	}
	want := 24*.2 - 12*(.2-500./3600)
	if math.Abs(got.GPUHours-want) > .01 {
		t.Errorf("%.3f GPU-hours, want %.3f: dead nodes cost nothing", got.GPUHours, want)
	}
	t.Logf("cut %d of %d, recovered in %v s", got.CutStreams, got.Requests, got.Recoveries)
}

// TestHeldRequestsWait has no node at all for a while.
func TestHeldRequestsWait(t *testing.T) {
	load := flat(4, .2, 2)
	asked := false
	first := law(func(s *scaler.Signals) (o scenario.Orders) {
		if s.Held > 0 && !asked {
			asked = true
			o.Start = []scaler.Start{{Count: 4}}
		}
		return o
	})
	c := scenario.Config{Load: load, StartNodes: -1}
	got := run(t, c, first)
	if got.LostRequests != 0 || got.SLOAttainment > .8 || got.SLOAttainment < .5 {
		t.Errorf("lost %d, attainment %.3f: want all that came before the first node held and answered late", got.LostRequests, got.SLOAttainment)
	}
	asked = false
	c.MostHeld = 50
	few := run(t, c, first)
	asked = false
	c.MostHeld, c.HeldSeconds = 0, 60
	short := run(t, c, first)
	if few.LostRequests == 0 || short.LostRequests == 0 {
		t.Errorf("lost %d with room for 50, %d with a minute's patience: want some", few.LostRequests, short.LostRequests)
	}
}

// TestOffersFail looks at what a law is told of offers that refuse, hang, or are used
// up.
func TestOffersFail(t *testing.T) {
	load := flat(5, .25, 2)
	offers := []scenario.Offer{
		{Offer: scaler.Offer{Name: "refuses", PricePerHour: 1, StartUpSeconds: 30}, Outages: []scenario.Outage{{ToNs: 1e18}}},
		{Offer: scaler.Offer{Name: "hangs", PricePerHour: 1, StartUpSeconds: 30}, Outages: []scenario.Outage{{ToNs: 1e18, Hangs: true}}},
		{Offer: scaler.Offer{Name: "small", PricePerHour: 2, StartUpSeconds: 30, Quota: 3}},
		{Offer: scaler.Offer{Name: "dear", PricePerHour: 3, StartUpSeconds: 30}, Prices: []scenario.Price{{FromNs: 300e9, PerHour: 6}}},
	}
	type seen struct{ withheld, uncertain, nodes, price float64 }
	var at []map[string]seen
	r := run(t, scenario.Config{Load: load, Offers: offers, StartNodes: -1, MaxNodes: 6}, law(func(s *scaler.Signals) (o scenario.Orders) {
		m := map[string]seen{}
		for _, status := range s.Offers {
			v := seen{uncertain: float64(status.Uncertain), price: status.PricePerHour.Or(-1)}
			if status.Withheld != "" {
				v.withheld = 1
			}
			for i := range s.Nodes {
				if s.Nodes[i].Offer == status.Name {
					v.nodes++
				}
			}
			m[status.Name] = v
		}
		at = append(at, m)
		if len(at) == 1 {
			o.Start = []scaler.Start{{Offer: "refuses", Count: 2}, {Offer: "hangs", Count: 1}, {Offer: "small", Count: 5}}
		}
		if len(at) == 40 {
			o.Start = []scaler.Start{{Count: 10}}
		}
		return o
	}))
	for _, c := range []struct {
		tick  int
		offer string
		want  seen
	}{
		{1, "refuses", seen{withheld: 1, price: -1}},
		{1, "hangs", seen{uncertain: 1, price: -1}},
		{7, "hangs", seen{withheld: 1, price: -1}},
		{1, "small", seen{withheld: 1, nodes: 3, price: -1}},
		{1, "dear", seen{price: 3}},
		{14, "refuses", seen{price: -1}},
		{40, "dear", seen{price: 6, nodes: 0}},
	} {
		if got := at[c.tick][c.offer]; c.offer != "small" && got != c.want || c.offer == "small" && got.nodes != c.want.nodes {
			t.Errorf("tick %d, offer %s: %+v, want %+v", c.tick, c.offer, got, c.want)
		}
	}
	t.Logf("%d nodes, peak %d, cost %.3f", r.NodesStarted, r.PeakNodes, r.Cost)
}

// TestSignalsAddUp compares what a law was told with what happened.
func TestSignalsAddUp(t *testing.T) {
	load := flat(6, .25, 20)
	var sum scaler.Traffic
	var sizes, ttft float64
	names := true
	r := run(t, scenario.Config{Load: load, StartNodes: 12}, law(func(s *scaler.Signals) scenario.Orders {
		tr := &s.Traffic
		sum.SpanSeconds += tr.SpanSeconds
		sum.Requests += tr.Requests
		sum.PromptTokens += tr.PromptTokens
		sum.UncachedTokens += tr.UncachedTokens
		sum.OutputTokens += tr.OutputTokens
		sum.Answers += tr.Answers
		for _, n := range tr.Uncached {
			sizes += n
		}
		for _, n := range tr.TTFT {
			ttft += n
		}
		names = names && slices.IsSortedFunc(s.Nodes, func(a, b scaler.Node) int { return compare(a.Name, b.Name) })
		for i := range s.Nodes {
			n := &s.Nodes[i]
			if !(n.Busy.Known && n.Busy.Value >= 0 && n.Busy.Value <= 1) || !(n.KVUse.Value >= 0 && n.KVUse.Value <= 1) || n.InFlight < 0 {
				t.Errorf("node %+v", *n)
			}
		}
		return scenario.Orders{}
	}))
	prompts, outputs := 0., 0.
	for i := range load.Requests {
		prompts += float64(load.Requests[i].Prompt)
		outputs += float64(load.Requests[i].Output)
	}
	near := func(what string, got, want, share float64) {
		if math.Abs(got/want-1) > share {
			t.Errorf("%s: %.0f, want %.0f", what, got, want)
		}
	}
	n := float64(len(load.Requests))
	near("seconds", sum.SpanSeconds, 900, 0)
	near("requests", sum.Requests, n, .002)
	near("sizes", sizes, n, .002)
	near("first tokens", ttft, n, .002)
	near("answers", sum.Answers, n, .01)
	near("prompt tokens", sum.PromptTokens, prompts, .002)
	near("output tokens", sum.OutputTokens, outputs, .01)
	near("cached share", r.CachedShare, 1-sum.UncachedTokens/sum.PromptTokens, .02)
	if !names {
		t.Error("nodes are not in the order of their names")
	}
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// TestEveryPolicyServes runs all of the router's policies.
func TestEveryPolicyServes(t *testing.T) {
	load := flat(7, .03, 10)
	for _, name := range policy.Names() {
		r := run(t, scenario.Config{Load: load, Policy: name, StartNodes: 6}, law(hold))
		if r.LostRequests != 0 || r.TTFTP50 == 0 {
			t.Errorf("%s: %d lost, p50 %.3f s", name, r.LostRequests, r.TTFTP50)
		}
	}
}

// TestForeseenNodesCostTheirStartUp compares the GPU-hours of a plan.
func TestForeseenNodesCostTheirStartUp(t *testing.T) {
	load := flat(8, 1, 2)
	c := scenario.Config{Load: load, Foreseen: []scenario.Wanted{{Nodes: 4}, {FromNs: 1800e9, Nodes: 6}, {FromNs: 2700e9, Nodes: 4}}}
	r := run(t, c, nil)
	if want := 4 + 2*(900.+180)/3600; math.Abs(r.GPUHours-want) > .02 || math.Abs(r.Cost-2*r.GPUHours) > 1e-9 {
		t.Errorf("%.3f GPU-hours at a cost of %.3f, want %.3f at 2 an hour", r.GPUHours, r.Cost, want)
	}
	if r.PeakNodes != 6 || r.Drains != 2 {
		t.Errorf("peak %d, %d drains, want 6 and 2", r.PeakNodes, r.Drains)
	}
}

func TestRecover(t *testing.T) {
	seconds := make([]scenario.Second, 600)
	for i := range seconds {
		seconds[i] = scenario.Second{Arrived: 10, Attained: 10}
		if i >= 100 && i < 150 {
			seconds[i].Attained = 5
		}
	}
	for _, c := range []struct {
		from int
		want float64
	}{{90, 60}, {100, 50}, {149, 1}, {150, 0}, {0, 0}} {
		if got := scenario.Recover(seconds, c.from); got != c.want {
			t.Errorf("from %d: %v s, want %v", c.from, got, c.want)
		}
	}
	for i := range seconds {
		seconds[i].Attained = 0
	}
	if got := scenario.Recover(seconds, 100); got != -1 {
		t.Errorf("never: %v", got)
	}
}

// TestBadConfigurationIsRefused names what is wrong.
func TestBadConfigurationIsRefused(t *testing.T) {
	load := flat(9, .01, 5)
	for _, c := range []scenario.Config{
		{},
		{Load: load, MaxNodes: 1000},
		{Load: load, StartNodes: 100},
		{Load: load, Policy: "nonsense"},
		{Load: load, Offers: []scenario.Offer{{}}},
	} {
		if _, err := scenario.Run(c, law(hold)); err == nil {
			t.Errorf("no error for %+v", c)
		}
	}
}

// BenchmarkHour is an hour of 25 busy nodes.
func BenchmarkHour(b *testing.B) {
	load := flat(1, 1, 70)
	for _, share := range []bool{true, false} {
		b.Run(fmt.Sprintf("sharing=%v", share), func(b *testing.B) {
			if !share {
				load = flat(1, 1, 50)
				for i := range load.Requests {
					load.Requests[i].Contents = nil
				}
			}
			for b.Loop() {
				r := run(b, scenario.Config{Load: load, StartNodes: 25}, law(hold))
				b.ReportMetric(r.TTFTP99, "p99_s")
			}
		})
	}
}
