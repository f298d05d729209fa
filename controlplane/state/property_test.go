package state

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"warmpath/dataplane/fleet"
)

var names = []string{"a", "b", "c", "d", "e"}

// Random events in any order: Step never panics, keeps its invariants, leaves
// its argument unchanged, and gives the same answer twice.
func TestStepProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := New(DefaultSettings()), int64(1e9)
		generations := map[int]uint32{}
		for range rapid.IntRange(1, 120).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{0, 1e6, 1e8, 2e9, 2e10, -5e8}).Draw(t, "dt")
			ev := drawEvent(t, now)
			before := dump(s)
			next, effects := Step(s, ev)
			again, effectsAgain := Step(s, ev)
			if got := dump(s); got != before {
				t.Fatalf("%T changed its argument:\n%s\n%s", ev, before, got)
			}
			if a, b := dump(next), dump(again); a != b {
				t.Fatalf("%T is not deterministic:\n%s\n%s", ev, a, b)
			}
			if a, b := fmt.Sprintf("%+v", effects), fmt.Sprintf("%+v", effectsAgain); a != b {
				t.Fatalf("%T: effects differ:\n%s\n%s", ev, a, b)
			}
			checkState(t, s, next, effects, generations)
			if _, ok := ev.(Tick); ok {
				checkEjected(t, next)
			}
			s = next
		}
	})
}

// dump prints all of a State but the identity of counters.
func dump(s State) string {
	var b strings.Builder
	for _, n := range s.Nodes {
		c := *n
		if c.Load == nil {
			b.WriteString("no counters ")
		}
		c.Load = nil
		fmt.Fprintf(&b, "%+v\n", c)
	}
	s.Nodes = nil
	fmt.Fprintf(&b, "%+v", s)
	return b.String()
}

func checkState(t *rapid.T, old, s State, effects []Effect, generations map[int]uint32) {
	if s.NowNs < old.NowNs {
		t.Fatalf("the clock runs backwards: %d, %d", old.NowNs, s.NowNs)
	}
	if s.Pressure < 0 || s.Pressure > 1 || math.IsNaN(s.Pressure) {
		t.Fatalf("pressure %v", s.Pressure)
	}
	loads := map[*fleet.Load]bool{}
	for i, n := range s.Nodes {
		slot := s.Slots[n.Slot]
		switch {
		case i > 0 && s.Nodes[i-1].Spec.Name >= n.Spec.Name:
			t.Fatalf("nodes are not sorted at %q", n.Spec.Name)
		case slot.Tenant != n.Spec.Name || slot.Generation != n.Generation || slot.Resting:
			t.Fatalf("node %q is not the tenant of %+v", n.Spec.Name, slot)
		case n.Load == nil || loads[n.Load]:
			t.Fatalf("counters of %q", n.Spec.Name)
		case n.Generation < generations[n.Slot]:
			t.Fatalf("generation of slot %d went back", n.Slot)
		case n.Health > fleet.Down || n.Health == fleet.Draining:
			t.Fatalf("health %v", n.Health)
		case (n.Health == fleet.Down) != (n.Cause != fleet.CauseNone):
			t.Fatalf("%v for %q", n.Health, n.Cause)
		case n.Cause == fleet.CauseDead && (n.life.silentNs == 0 || n.life.heardNs > n.life.silentNs):
			t.Fatalf("dead since %d and heard at %d", n.life.silentNs, n.life.heardNs)
		case n.Health != fleet.Ready && n.ejected():
			t.Fatalf("breaker %v, trial %+v of a node that is %v", n.Breaker, n.life.trial, n.Health)
		case n.life.trial.on && (n.Breaker != fleet.Closed || n.Cap() < 1):
			t.Fatalf("breaker %v and cap %d on trial", n.Breaker, n.Cap())
		case !(n.Weight >= minWeight && n.Weight <= maxWeight):
			t.Fatalf("weight %v", n.Weight)
		case n.Warmth.Known && !(n.Warmth.Value >= 0 && n.Warmth.Value <= 1):
			t.Fatalf("warmth %v of %v tokens", n.Warmth, n.Cached)
		case n.Proof.Known != n.life.proof.on || n.Proof.Known && !slices.Contains([]float64{0, 0.25, 0.5, 0.75}, n.Proof.Value):
			t.Fatalf("proof %v, %+v", n.Proof, n.life.proof)
		case n.Health != fleet.Ready && (n.Filling || n.Proof.Known), n.Breaker != fleet.Closed && n.Proof.Known:
			t.Fatalf("%v ramps with its breaker %v: filling %v, proof %v", n.Health, n.Breaker, n.Filling, n.Proof)
		case len(n.History) > maxChanges:
			t.Fatalf("%d changes are remembered", len(n.History))
		case !slices.IsSortedFunc(n.Models, func(a, b Served) int { return strings.Compare(a.ID, b.ID) }):
			t.Fatalf("models of %q are not sorted", n.Spec.Name)
		case n.SampleFresh && n.Sample.KVUse.Known && !(n.Sample.KVUse.Value >= 0 && n.Sample.KVUse.Value <= 1):
			t.Fatalf("kv use %v", n.Sample.KVUse)
		case n.Said.KVUse.Known && !(n.Said.KVUse.Value >= 0 && n.Said.KVUse.Value <= 1) || n.Said.AtNs > s.NowNs:
			t.Fatalf("said %+v at %d", n.Said, s.NowNs)
		}
		loads[n.Load] = true
		generations[n.Slot] = n.Generation
	}
	tenants := 0
	for i, slot := range s.Slots {
		if slot.Tenant != "" {
			tenants++
		}
		if i < len(old.Slots) && old.Slots[i].Resting && slot.Tenant != "" {
			t.Fatalf("slot %d was given away unswept", i)
		}
	}
	if tenants != len(s.Nodes) {
		t.Fatalf("%d tenants, %d nodes", tenants, len(s.Nodes))
	}
	for i, e := range effects {
		if _, ok := e.(Publish); ok && (i != len(effects)-1 || s.Version != old.Version+1) {
			t.Fatalf("Publish is effect %d of %d, version %d after %d", i, len(effects), s.Version, old.Version)
		}
	}
}

// checkEjected: with every tick breakers are closed where too many are out.
func checkEjected(t *rapid.T, s State) {
	look := step{s: s}
	for _, n := range s.Nodes {
		if n.Health == fleet.Ready && n.ejected() && !n.Drain && !look.mayBeOut(n) {
			t.Fatalf("breaker of %q is %v, while too many others are out", n.Spec.Name, n.Breaker)
		}
	}
}

func drawEvent(t *rapid.T, now int64) Event {
	node := rapid.SampledFrom(append([]string{"nobody"}, names...)).Draw(t, "node")
	incarnation := rapid.SampledFrom([]uint64{0, 0, 1, 2, 3}).Draw(t, "incarnation")
	ok := rapid.Bool().Draw(t, "ok")
	small := func(name string) int64 { return rapid.Int64Range(-1, 12).Draw(t, name) }
	gauge := func(name string) fleet.Gauge {
		v := rapid.SampledFrom([]float64{0, 1, 0.5, 100, -1, math.NaN(), math.Inf(1)}).Draw(t, name)
		return fleet.Gauge{Value: v, Known: rapid.Bool().Draw(t, name+" known")}
	}
	switch rapid.IntRange(0, 20).Draw(t, "event") {
	case 0:
		return NodesSeen{NowNs: now, Source: rapid.SampledFrom([]string{"static", "file"}).Draw(t, "source"), Specs: drawSpecs(t)}
	case 1:
		return NodesSeen{NowNs: now, Source: APISource, Specs: drawSpecs(t)}
	case 2:
		return NodeRemoved{NowNs: now, Node: node, Force: ok}
	case 3:
		return ProbeResult{NowNs: now, Node: node, Incarnation: incarnation, OK: ok, Local: !ok && rapid.Bool().Draw(t, "local"), Status: rapid.SampledFrom([]int{0, 200, 503, 500, 404}).Draw(t, "status")}
	case 4:
		ev := ModelsSeen{NowNs: now, Node: node, Incarnation: incarnation, Engine: "vllm"}
		for _, id := range rapid.SliceOfN(rapid.SampledFrom([]string{"m", "n", "", "k"}), 0, 4).Draw(t, "models") {
			ev.Models = append(ev.Models, Served{ID: id, MaxModelLen: int(small("len"))})
		}
		return ev
	case 5:
		return ModelsSeen{NowNs: now, Node: node, Err: "refused"}
	case 6:
		return MetricsSeen{NowNs: now, Node: node, Incarnation: incarnation, Sample: Sample{
			Running: gauge("running"), Queued: gauge("queued"), KVUse: gauge("kv"), GeneratedTokens: gauge("gen"), PromptTokens: gauge("prompt"), BlockTokens: int(small("block")),
		}}
	case 7:
		return LoadsSeen{NowNs: now, Loads: []LoadSeen{{
			Node: node, Incarnation: incarnation, Requests: small("req"), PrefillTokens: small("prefill"),
			Failures: small("fail"), Consecutive: small("row"), Successes: small("good"),
		}}}
	case 8:
		return Failure{NowNs: now, Node: node, Incarnation: incarnation, Class: Class(rapid.IntRange(0, 3).Draw(t, "class"))}
	case 9:
		return LatencySeen{NowNs: now, Node: node, P95Seconds: gauge("p95").Value, Samples: 100, P99Seconds: gauge("p99").Value, P99Samples: 200}
	case 10:
		return RateSeen{NowNs: now, Node: node, PrefillTokensPerSecond: gauge("rate"), RoundTripSeconds: gauge("rtt"), EvictedTokensPerSecond: gauge("evicted")}
	case 11:
		return DrainAsked{NowNs: now, Node: node}
	case 12:
		return UndrainAsked{NowNs: now, Node: node}
	case 13:
		return SlotSwept{NowNs: now, Slot: int(small("slot")), Generation: uint32(rapid.IntRange(0, 4).Draw(t, "generation"))}
	case 14:
		return OutputSeen{NowNs: now, Model: "m", MeanTokens: gauge("mean").Value}
	case 15:
		return SilenceSeen{NowNs: now, Node: node, Incarnation: incarnation, SinceNs: now - 1e8*small("silent"), OthersHeard: ok, Evidence: "sentinels"}
	case 16:
		return LifeSeen{NowNs: now, Node: node, Incarnation: incarnation, AtNs: now - 1e8*small("life")}
	case 17:
		return LoadsSaid{NowNs: now, Loads: []LoadSaid{{
			Node: node, Incarnation: incarnation, AtNs: now - 1e8*small("said"), Queued: gauge("queued"), KVUse: gauge("kv"),
		}}}
	case 18, 19:
		ev := CachesSeen{NowNs: now}
		for _, name := range names {
			ev.Caches = append(ev.Caches, CacheSeen{Node: name, Incarnation: incarnation, Tokens: rapid.SampledFrom([]int64{-1, 0, 3000, 20000, 100000, math.MaxInt64}).Draw(t, "cached")})
		}
		return ev
	default:
		return Tick{NowNs: now}
	}
}

func drawSpecs(t *rapid.T) []Spec {
	var out []Spec
	for _, name := range names {
		if rapid.Bool().Draw(t, "has "+name) {
			out = append(out, drawSpec(t, name))
		}
	}
	return out
}

func drawSpec(t *rapid.T, name string) Spec {
	s := Spec{Name: name, URL: rapid.SampledFrom([]string{"http://" + name, "http://" + name, "http://h:2/", "ftp://x", "http://[::1]:8/v"}).Draw(t, "url")}
	s.Models = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"m", "n"}), 0, 2, rapid.ID).Draw(t, "configured")
	s.Weight = rapid.SampledFrom([]float64{0, 1, 2, -1}).Draw(t, "weight")
	return s
}

// At the bound a node waits for a slot, and gets one when it is swept.
func TestSlotsAreBounded(t *testing.T) {
	var specs []Spec
	for i := range fleet.MaxSlots + 1 {
		specs = append(specs, Spec{Name: fmt.Sprintf("n%04d", i), URL: fmt.Sprintf("http://h%d:1", i)})
	}
	s, effects := Step(New(DefaultSettings()), NodesSeen{NowNs: 1, Source: "static", Specs: specs})
	refused := 0
	for _, e := range effects {
		if l, ok := e.(Log); ok && strings.HasPrefix(l.Message, "no slot is free") {
			refused++
		}
	}
	if len(s.Nodes) != fleet.MaxSlots || refused != 1 {
		t.Fatalf("%d nodes, %d refused", len(s.Nodes), refused)
	}
	last := specs[fleet.MaxSlots].Name
	s, _ = Step(s, NodesSeen{NowNs: 2, Source: "static", Specs: specs[1:]})
	if s.Find(last) != nil {
		t.Fatal("the slot of a node that went was given away unswept")
	}
	s, _ = Step(s, SlotSwept{NowNs: 3, Slot: 0, Generation: 1})
	if n := s.Find(last); n == nil || n.Slot != 0 || n.Generation != 2 {
		t.Fatalf("the waiting node got %+v", n)
	}
}

// Everything else that grows has its bound.
func TestBounds(t *testing.T) {
	s := New(DefaultSettings())
	for i := range maxSources + 1 {
		s, _ = Step(s, NodesSeen{NowNs: 1, Source: fmt.Sprint(i), Specs: []Spec{{Name: fmt.Sprintf("n%d", i), URL: fmt.Sprintf("http://h%d:1", i)}}})
	}
	if len(s.sources) != maxSources || len(s.Nodes) != maxSources {
		t.Errorf("%d sources, %d nodes", len(s.sources), len(s.Nodes))
	}
	for i := range MaxModels + 1 {
		s, _ = Step(s, OutputSeen{NowNs: 1, Model: fmt.Sprint(i), MeanTokens: 5})
	}
	if len(s.Outputs) != MaxModels || s.MeanOutput("3") != 5 {
		t.Errorf("%d output means", len(s.Outputs))
	}
	models := make([]Served, MaxModels+1)
	for i := range models {
		models[i].ID = fmt.Sprint("m", i)
	}
	s, _ = Step(s, ModelsSeen{NowNs: 1, Node: "n0", Models: models})
	if n := s.Find("n0"); len(n.Models) != MaxModels {
		t.Errorf("%d models", len(n.Models))
	}
	s, _ = Step(s, NodesSeen{NowNs: 1, Source: "1", Specs: make([]Spec, maxSpecs+1)})
	if n := len((&step{s: s}).specsOf("1")); n != maxSpecs {
		t.Errorf("%d specs", n)
	}
}

// What became of nodes is remembered within bounds, and no record is written in place.
func TestHistoryBounds(t *testing.T) {
	s, _ := Step(New(DefaultSettings()), NodesSeen{NowNs: 1, Source: "x", Specs: []Spec{{Name: "a", URL: "http://a:1"}}})
	first := s
	for i := range int64(maxChanges) {
		s, _ = Step(s, DrainAsked{NowNs: 2 + 2*i, Node: "a"})
		s, _ = Step(s, UndrainAsked{NowNs: 3 + 2*i, Node: "a"})
	}
	if h := s.History("a"); len(h) != maxChanges || h[maxChanges-1].AtNs != 1+2*maxChanges || h[0].AtNs != 2+maxChanges {
		t.Errorf("%d changes, from %v to %v", len(h), h[0], h[len(h)-1])
	}
	if h := first.History("a"); len(h) != 1 || h[0].To != "joining" {
		t.Errorf("an earlier state's history is %v", h)
	}
	for i := range maxGone + 2 {
		for _, specs := range [][]Spec{{{Name: fmt.Sprint("n", i), URL: "http://n:1"}}, nil} {
			s, _ = Step(s, NodesSeen{NowNs: 1000, Source: "y", Specs: specs})
		}
	}
	if len(s.Gone) != maxGone || s.History("n1") != nil || len(s.History("n2")) != 2 || s.History("nobody") != nil {
		t.Errorf("%d are gone, of n1 is known %v, of n2 %v", len(s.Gone), s.History("n1"), s.History("n2"))
	}
}

// An answer to an earlier incarnation says nothing about the present one.
func TestStaleAnswers(t *testing.T) {
	s, _ := Step(New(DefaultSettings()), NodesSeen{NowNs: 1, Source: "x", Specs: []Spec{{Name: "a", URL: "http://h:1"}}})
	s, _ = Step(s, NodesSeen{NowNs: 2, Source: "x", Specs: []Spec{{Name: "a", URL: "http://h:2"}}})
	s, _ = Step(s, ProbeResult{NowNs: 3, Node: "a", Incarnation: 1, OK: true})
	if n := s.Find("a"); n.Health != fleet.Joining {
		t.Errorf("health %v", n.Health)
	}
	s, _ = Step(s, ProbeResult{NowNs: 3, Node: "a", Incarnation: 2, OK: true})
	if n := s.Find("a"); n.Health != fleet.Ready {
		t.Errorf("health %v", n.Health)
	}
}

// Probes of many nodes spread over the interval's jitter.
func TestProbesSpread(t *testing.T) {
	var specs []Spec
	for i := range 200 {
		specs = append(specs, Spec{Name: fmt.Sprintf("n%d", i), URL: fmt.Sprintf("http://h%d:1", i)})
	}
	s, _ := Step(New(DefaultSettings()), NodesSeen{NowNs: 1, Source: "x", Specs: specs})
	for i := range specs {
		s, _ = Step(s, ProbeResult{NowNs: 1, Node: specs[i].Name, OK: true})
	}
	low, high := int64(math.MaxInt64), int64(0)
	for _, n := range s.Nodes {
		low, high = min(low, n.life.probeNextNs), max(high, n.life.probeNextNs)
	}
	if low < 13_500_000_000 || high > 16_500_000_002 || high-low < 2_000_000_000 {
		t.Errorf("next probes from %d to %d", low, high)
	}
}

func fleetOf(n int) State {
	var specs []Spec
	for i := range n {
		specs = append(specs, Spec{Name: fmt.Sprintf("n%03d", i), URL: fmt.Sprintf("http://h%d:1", i), Models: []string{"m"}})
	}
	s, _ := Step(New(DefaultSettings()), NodesSeen{NowNs: 1, Source: "x", Specs: specs})
	for i := range specs {
		s, _ = Step(s, ProbeResult{NowNs: 1, Node: specs[i].Name, OK: true})
	}
	return s
}

// A fleet of the largest size, busy in every node and idle in every node.
func BenchmarkLoadsSeen1024(b *testing.B) {
	for _, busy := range []int64{1, 0} {
		b.Run(fmt.Sprintf("busy=%d", busy), func(b *testing.B) {
			s := fleetOf(fleet.MaxSlots)
			loads := make([]LoadSeen, len(s.Nodes))
			b.ReportAllocs()
			for now := int64(2); b.Loop(); now += 1e8 {
				for i, n := range s.Nodes {
					loads[i] = LoadSeen{Node: n.Spec.Name, Successes: now * busy}
				}
				s, _ = Step(s, LoadsSeen{NowNs: now, Loads: loads})
			}
		})
	}
}

// A reading that changes nothing is not read, and one that is not read would
// have changed nothing that can be seen.
func TestKnownLoads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, now := fleetOf(2), int64(2)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			now += rapid.SampledFrom([]int64{1e8, 1e8, 5e9, 4e10}).Draw(t, "dt")
			small := rapid.Int64Range(0, 3)
			e := LoadSeen{
				Node: "n000", Requests: small.Draw(t, "req"), PrefillTokens: small.Draw(t, "prefill"),
				Failures: small.Draw(t, "fail"), Consecutive: small.Draw(t, "row"), Successes: small.Draw(t, "good"),
			}
			if s.Find("n000").Knows(e) {
				read := step{s: s}
				read.s.NowNs = now
				read.on("n000", 0, func(n *Node) { read.loadSeen(n, e) })
				was, is := *s.Find("n000"), *read.s.Find("n000")
				was.life.errors, was.life.answers, was.life.countedNs, was.life.refusals, was.life.firstEvents = 0, 0, 0, 0, 0
				is.life.errors, is.life.answers, is.life.countedNs, is.life.refusals, is.life.firstEvents = 0, 0, 0, 0, 0
				was.life.failuresAtClose, is.life.failuresAtClose = 0, 0
				if a, b := fmt.Sprintf("%+v", was), fmt.Sprintf("%+v", is); a != b || len(read.effects) > 0 {
					t.Fatalf("%+v:\n%s\n%s\n%+v", e, a, b, read.effects)
				}
			}
			s, _ = Step(s, LoadsSeen{NowNs: now, Loads: []LoadSeen{e}})
		}
	})
}

func BenchmarkTick256(b *testing.B) {
	s := fleetOf(256)
	for now := int64(2); b.Loop(); now += 1e8 {
		s, _ = Step(s, Tick{NowNs: now})
	}
}
