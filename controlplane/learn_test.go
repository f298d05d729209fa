package controlplane

import (
	"fmt"
	"testing"

	"warmpath/controlplane/state"
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/tally"
)

// sender is a ControlPlane that only sends: its events wait to be looked at.
func sender(nodes int) (*ControlPlane, *state.State) {
	specs := make([]state.Spec, nodes)
	for i := range specs {
		specs[i] = state.Spec{Name: fmt.Sprintf("n%04d", i), URL: fmt.Sprintf("http://h%d:1", i)}
	}
	s, _ := state.Step(state.New(state.DefaultSettings()), state.NodesSeen{NowNs: 1, Source: "x", Specs: specs})
	c := &ControlPlane{opt: Options{Dataplane: new(dataplane.Dataplane)}, events: make(chan state.Event, eventQueue)}
	c.view.Store(&s)
	return c, &s
}

// sent takes what was sent.
func (c *ControlPlane) sent() (events []state.Event) {
	for len(c.events) > 0 {
		events = append(events, <-c.events)
	}
	return events
}

// Every failure is reported once, by its kind, before the counters that it is
// in; a flood of them is cut.
func TestReportLoads(t *testing.T) {
	c, s := sender(2)
	load := s.Nodes[1].Load
	load.Refused.Add(2)
	load.Resets.Add(1)
	load.ServerFails.Add(3)
	load.Silent.Add(1)
	load.Requests.Add(5)
	c.reportLoads()
	counts := map[state.Class]int{}
	events := c.sent()
	for _, e := range events[:len(events)-1] {
		f := e.(state.Failure)
		if f.Node != "n0001" || f.Incarnation != 2 {
			t.Errorf("%+v", f)
		}
		counts[f.Class]++
	}
	if got := fmt.Sprint(counts); got != "map[refused:2 reset:1 server_error:3 first_event:1]" {
		t.Error(got)
	}
	loads := events[len(events)-1].(state.LoadsSeen).Loads
	if len(loads) != 1 || loads[0].Requests != 5 || loads[0].Node != "n0001" { // of the other there is no news
		t.Errorf("%+v", loads)
	}
	if c.reportLoads(); len(c.sent()) != 1 {
		t.Error("failures were reported again")
	}
	load.Resets.Add(10 * failuresReported)
	if c.reportLoads(); len(c.sent()) != failuresReported+1 {
		t.Error("a flood was not cut")
	}
	if c.reportLoads(); len(c.sent()) != 1 {
		t.Error("the rest of a flood came later")
	}
	empty := state.New(state.DefaultSettings())
	c.view.Store(&empty)
	if c.reportLoads(); len(c.sent()) != 0 || len(c.learned.loads) != 0 {
		t.Error("a node that is gone is remembered")
	}
}

// A rate is measured over enough tokens, each of which counts once, and a
// tally that began anew is no measurement of what it lacks.
func TestReportRate(t *testing.T) {
	c, s := sender(1)
	n, was := s.Nodes[0], nodeSeen{}
	tallied := func(tokens uint64, seconds float64) *dataplane.NodeTally {
		return &dataplane.NodeTally{PrefillTokens: tokens, PrefillSeconds: seconds, FirstEvent: tally.NewHistogram([]float64{1})}
	}
	for _, step := range []struct {
		tokens  uint64
		seconds float64
		want    float64 // 0 = nothing is reported
	}{
		{prefillTokensMin - 1, 1, 0},
		{1000, 0.5, 2000},
		{1000, 0.5, 0},
		{2000, 1.5, 1000},
		{600, 0.1, 6000}, // the loops began anew
	} {
		next := tallied(step.tokens, step.seconds)
		was = was.before(next)
		c.reportRate(n, next, &was)
		events := c.sent()
		if step.want == 0 && len(events) != 0 || step.want != 0 && (len(events) != 1 || events[0].(state.RateSeen).PrefillTokensPerSecond != fleet.Gauge{Value: step.want, Known: true}) {
			t.Errorf("%+v: %+v", step, events)
		}
	}
}

// Each percentile is taken of the answers of its own window, if they are enough.
func TestReportLatency(t *testing.T) {
	c, s := sender(1)
	n, was := s.Nodes[0], nodeSeen{}
	tallied := dataplane.NodeTally{FirstEvent: tally.NewHistogram([]float64{1, 2, 4})}
	for i, step := range []struct {
		answers  int
		seconds  float64
		p95, p99 int // answers that the percentile is of; 0 = it is not reported
	}{
		{100, 0.5, 0, 0}, // the first windows have no beginning
		{19, 1.5, 0, 0},
		{1, 1.5, 20, 0},
		{0, 0, 0, 0},
		{79, 1.5, 79, 0},
		{1, 3, 0, 100}, // a hundredth of them
		{150, 1.5, 151, 150},
	} {
		for range step.answers {
			tallied.FirstEvent.Observe(step.seconds)
		}
		c.reportLatency(n, &tallied, &was)
		got := c.sent()
		if step.p95 == 0 && step.p99 == 0 {
			if len(got) != 0 {
				t.Errorf("step %d: %+v, want nothing", i, got)
			}
			continue
		}
		if len(got) != 1 {
			t.Fatalf("step %d: %d events, want one", i, len(got))
		}
		e := got[0].(state.LatencySeen)
		if e.Samples != step.p95 || e.P99Samples != step.p99 || (e.P95Seconds > 0) != (step.p95 > 0) || (e.P99Seconds > 0) != (step.p99 > 0) {
			t.Errorf("step %d: %+v", i, e)
		}
		if e.P95Seconds > 2 || e.P99Seconds > 2 || step.p95 > 0 && e.P95Seconds <= 1 {
			t.Errorf("step %d: %v and %v s, want above 1 and up to 2", i, e.P95Seconds, e.P99Seconds)
		}
	}
	tallied.FirstEvent = tally.NewHistogram(tallied.FirstEvent.Bounds)
	if was = was.before(&tallied); was.first[0].Counts != nil || was.first[1].Counts != nil {
		t.Error("the loops began anew, and the windows did not")
	}
}

// What the tick costs in the largest fleet, every 100 ms.
func BenchmarkReportLoads1024(b *testing.B) {
	c, s := sender(fleet.MaxSlots)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.Nodes[i%len(s.Nodes)].Load.Requests.Add(1) // else there is nothing to tell
		c.reportLoads()
		c.sent()
	}
}
