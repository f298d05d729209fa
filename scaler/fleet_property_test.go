package scaler

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"warmpath/scaler/actuate"
)

// wholeFleet is Plan and a Book at a provider that goes wrong in every way, under a
// load that does what it likes, seen by routers that are blind at times.
type wholeFleet struct {
	*world
	c     Config
	h     History
	blind bool // signals are missing
	// exact says that all that may exist can be known: its provider makes one node a
	// key, and the clock does not run ahead of what is said of the past.
	exact bool
	idles bool // nothing is decided any more
}

func newFleet(t *rapid.T) *wholeFleet {
	c := DefaultConfig()
	c.Min = rapid.IntRange(0, 2).Draw(t, "min")
	c.Max = rapid.IntRange(2, 8).Draw(t, "max")
	c.BudgetPerHour = rapid.SampledFrom([]float64{4, 7, 12}).Draw(t, "budget")
	c.Spread = rapid.Bool().Draw(t, "spread")
	c.IdleSeconds, c.StabiliseDownSeconds, c.CoolDownSeconds, c.ReplaceDownSeconds = 120, 40, 30, 40
	c.Offers = []Offer{{Name: "a", PricePerHour: 1, Quota: 4, Region: "r1"}, {Name: "b", PricePerHour: 2, Region: "r2"}, {Name: "c", PricePerHour: 3, Quota: 2, Region: "r2"}}
	set := BookSettings{Epoch: "x", Orphans: rapid.SampledFrom([]string{"report", "adopt", "remove"}).Draw(t, "orphans"), StartUpSeconds: 60, Offers: c.Offers}
	f := &wholeFleet{c: c, h: NewHistory(), exact: true}
	f.world = &world{t: t, set: set, cloud: &cloud{t: t, more: true, past: map[string]snapshot{}}, crash: -1, nowNs: 1e9}
	f.cloud.nowNs = f.nowNs
	f.cloud.twice = rapid.IntRange(0, 3).Draw(t, "twice") == 0
	f.exact = !f.cloud.twice
	f.book = NewBook(set, nil)
	f.died = func() { f.h = NewHistory() }
	return f
}

// signals are what the router says, of the nodes that it knows.
func (f *wholeFleet) signals() Signals {
	pool := site{c: f.c}
	s := Signals{NowNs: f.now(), Offers: f.book.Offers()}
	s.Traffic = pool.traffic(rapid.SampledFrom([]float64{0, 0, .1, 2, 20, 200}).Draw(f.t, "rate"))
	if s.Traffic.Requests == 0 {
		s.Held = float64(rapid.IntRange(0, 1).Draw(f.t, "held"))
	}
	for _, v := range f.cloud.nodes {
		if !v.known {
			continue
		}
		s.Nodes = append(s.Nodes, Node{
			Name: v.key, Phase: v.watched(), SinceNs: max(0, v.sickNs-f.offset), InFlight: v.inFlight,
			PrefillTokensPerSecond: Known(8000), DecodeTokensPerSecond: Known(80), Running: Known(float64(v.inFlight)), MostRunning: Known(64), Queued: Known(0),
		})
	}
	slices.SortFunc(s.Nodes, func(a, b Node) int { return compareNames(a.Name, b.Name) })
	s.Nodes = f.book.merge(s.Nodes, s.NowNs)
	if f.blind {
		s.Missing = "the router did not answer"
	}
	return s
}

// decide plans once and has it done.
func (f *wholeFleet) decide() {
	var d Decision
	d, f.h = Plan(f.signals(), f.h, &f.c)
	if f.blind && (d.Action != ActionFrozen || len(d.Start)+len(d.Drain)+len(d.Undrain) > 0) {
		f.t.Fatalf("blind, it decided %+v", d)
	}
	if d.Action == ActionHold || d.Action == ActionFrozen {
		return
	}
	f.step(Ordered{NowNs: f.now(), Start: d.Start, Drain: d.Drain, Undrain: d.Undrain, Why: d.Reason})
	f.holds()
}

// holds is what holds at any time: the money, the quotas, one node a key.
func (f *wholeFleet) holds() {
	cost, at, keys := 0.0, map[string]int{}, map[string]bool{}
	for _, v := range f.cloud.nodes {
		if v.phase == actuate.Ended {
			continue
		}
		if f.exact && keys[v.key] {
			f.t.Fatalf("node %s is there twice", v.key)
		}
		keys[v.key] = true
		offer := offerOf(v.key)
		at[offer]++
		cost += f.c.offer(offer).PricePerHour
	}
	if !f.exact {
		return
	}
	if cost > f.c.BudgetPerHour {
		f.t.Fatalf("%v an hour for %v, the budget is %v", cost, at, f.c.BudgetPerHour)
	}
	for _, o := range f.c.Offers {
		if o.Quota > 0 && at[o.Name] > o.Quota {
			f.t.Fatalf("%d nodes of %s, its quota is %d", at[o.Name], o.Name, o.Quota)
		}
	}
}

// pass lets time pass: while signals are missing no node that serves is drained, but
// for one that its provider takes back.
func (f *wholeFleet) pass(seconds int) {
	serving := map[string]bool{}
	for _, n := range f.book.Nodes() {
		serving[n.Key] = n.Stage == StageServing
	}
	f.advance(seconds)
	for _, n := range f.book.Nodes() {
		v := f.cloud.find(n.Key)
		if f.blind && serving[n.Key] && n.Stage != StageServing && v != nil && v.endsNs == 0 {
			f.t.Fatalf("blind, node %s is %s: %s", n.Key, n.Stage, n.Why)
		}
	}
	if !f.idles {
		f.decide()
	}
	f.holds()
}

// hit does something to one of the nodes that run.
func (f *wholeFleet) hit(do func(*vm)) {
	var up []*vm
	for _, v := range f.cloud.nodes {
		if v.phase == actuate.Running {
			up = append(up, v)
		}
	}
	if len(up) > 0 {
		do(rapid.SampledFrom(up).Draw(f.t, "node"))
	}
}

func (f *wholeFleet) fault(what string) {
	switch what {
	case "crash":
		f.crash = rapid.IntRange(0, 5).Draw(f.t, "after")
	case "die":
		f.hit(func(v *vm) { v.phase, v.inFlight = actuate.Ended, 0 })
	case "sick":
		f.hit(func(v *vm) { v.sickNs = f.nowNs })
	case "well":
		f.hit(func(v *vm) { v.sickNs = 0 })
	case "reclaim":
		f.hit(func(v *vm) { v.endsNs = f.nowNs + 60e9 })
	case "blind":
		f.blind = !f.blind
	case "deaf":
		f.deaf = !f.deaf
	case "back":
		f.step(Elapsed{f.now() - int64(rapid.IntRange(0, 1e6).Draw(f.t, "back"))})
	case "ahead":
		f.offset -= int64(rapid.IntRange(1, 3600).Draw(f.t, "ahead")) * 1e9
		f.exact = false
	}
}

// rests checks that provider and Book agree once nothing goes wrong any more, at the
// latest after the time that a node has to come up, and stay so.
func (f *wholeFleet) rests() {
	f.cloud.calm, f.crash, f.blind, f.deaf = true, -1, false, false
	for _, v := range f.cloud.nodes {
		v.sickNs = 0
	}
	for range 5 {
		f.pass(10)
	}
	f.idles = true
	for range 300 {
		if f.pass(50); f.differs() == "" {
			break
		}
	}
	for range 3 {
		if f.pass(20); f.differs() != "" {
			f.t.Fatalf("long after: %s", f.differs())
		}
	}
}

// differs says what the provider and the Book do not agree on, "" if they do.
func (f *wholeFleet) differs() string {
	there := map[string]string{}
	for _, v := range f.cloud.nodes {
		if v.phase == actuate.Ended {
			continue
		}
		if there[v.key] != "" {
			return fmt.Sprintf("node %s is there as %s and %s", v.key, there[v.key], v.id)
		}
		there[v.key] = v.id
	}
	for _, n := range f.book.Nodes() {
		if n.Stage != StageServing || there[n.Key] != n.ID {
			return fmt.Sprintf("node %s is %s as %q, and there as %q: %+v, at %d s", n.Key, n.Stage, n.ID, there[n.Key], n, f.now()/1e9)
		}
		delete(there, n.Key)
	}
	if len(there) > 0 || len(f.book.Orphans()) > 0 {
		return fmt.Sprintf("nobody owns %v; orphans %v", there, f.book.Orphans())
	}
	return ""
}

// TestFleetLosesNothing drives Plan and Book together over random faults and loads:
// never more an hour than the budget, counting all that may exist; none doubled, none
// ended with a request on it, none drained while signals are missing; and at rest the
// provider has what the Book says, and no more.
func TestFleetLosesNothing(t *testing.T) {
	for range 10 { // 1,000 cases without -rapid.checks
		rapid.Check(t, func(t *rapid.T) {
			f := newFleet(t)
			for range rapid.IntRange(5, 30).Draw(t, "steps") {
				f.fault(rapid.SampledFrom([]string{"", "", "", "", "crash", "die", "sick", "well", "reclaim", "blind", "deaf", "back", "ahead"}).Draw(t, "what"))
				f.pass(rapid.IntRange(1, 40).Draw(t, "seconds"))
			}
			f.rests()
		})
	}
}
