package publish

import (
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
)

// A Publisher that takes nodes from its last snapshot makes the snapshots that a new
// one makes, whatever happened in between, and never changes one that it gave.
func TestPublisherTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		settings := state.DefaultSettings()
		settings.Models = []state.ModelSpec{{Name: "m", Aliases: []string{"alias"}}}
		s, now := state.New(settings), int64(1)
		var p Publisher
		type given struct {
			snap  *fleet.Snapshot
			nodes []fleet.Node
		}
		var before []given
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			now += rapid.SampledFrom([]int64{1e7, 1e8, 6e9}).Draw(rt, "dt")
			s, _ = state.Step(s, drawEvent(rt, now))
			s, _ = state.Step(s, state.Tick{NowNs: now})
			got, err := p.Next(&s)
			if err != nil {
				rt.Fatal(err)
			}
			fresh, err := Build(s)
			if err != nil {
				rt.Fatal(err)
			}
			if !reflect.DeepEqual(got, fresh) {
				rt.Fatalf("with the last snapshot %+v, without %+v", got, fresh)
			}
			for _, g := range before {
				for i, n := range g.snap.Nodes {
					if n != nil && !reflect.DeepEqual(*n, g.nodes[i]) {
						rt.Fatalf("node %s of an old snapshot changed", n.Name)
					}
				}
			}
			g := given{got, make([]fleet.Node, len(got.Nodes))}
			for i, n := range g.snap.Nodes {
				if n != nil {
					g.nodes[i] = *n
				}
			}
			before = append(before, g)
		}
	})
}

func drawEvent(t *rapid.T, now int64) state.Event {
	name := fmt.Sprintf("n%d", rapid.IntRange(0, 3).Draw(t, "node"))
	switch rapid.IntRange(0, 7).Draw(t, "event") {
	case 0, 1:
		var specs []state.Spec
		for i := range rapid.IntRange(0, 4).Draw(t, "nodes") {
			specs = append(specs, state.Spec{Name: fmt.Sprintf("n%d", i), URL: fmt.Sprintf("http://10.0.%d.%d:8000", rapid.IntRange(0, 1).Draw(t, "net"), i)})
		}
		return state.NodesSeen{NowNs: now, Source: "x", Specs: specs}
	case 2:
		return state.ProbeResult{NowNs: now, Node: name, OK: rapid.Bool().Draw(t, "ok")}
	case 3:
		return state.ModelsSeen{NowNs: now, Node: name, Engine: "vllm", Models: []state.Served{{ID: rapid.SampledFrom([]string{"m", "other"}).Draw(t, "model"), MaxModelLen: 4096}}}
	case 4:
		return state.OutputSeen{NowNs: now, Model: "m", MeanTokens: 7}
	case 5:
		return state.SlotSwept{NowNs: now, Slot: rapid.IntRange(0, 3).Draw(t, "slot"), Generation: uint32(rapid.IntRange(1, 3).Draw(t, "generation"))}
	case 6:
		return state.ExpectSeen{NowNs: now, Models: []string{"soon"}}
	default:
		seen := make([]state.MetricsSeen, 2)
		for i := range seen {
			gauge := fleet.Gauge{Value: float64(rapid.IntRange(0, 2).Draw(t, "queued")), Known: true}
			seen[i] = state.MetricsSeen{NowNs: now, Node: fmt.Sprintf("n%d", i), Sample: state.Sample{Queued: gauge, Running: gauge, BlockTokens: rapid.SampledFrom([]int{0, 16, 32}).Draw(t, "block")}}
		}
		return state.MetricsRead{NowNs: now, Readings: seen}
	}
}

// BenchmarkPublish1000 is a snapshot of a thousand nodes of which a tenth has news, as
// at scrapes each second and ticks each tenth of one.
func BenchmarkPublish1000(b *testing.B) {
	var specs []state.Spec
	for i := range 1000 {
		specs = append(specs, state.Spec{Name: fmt.Sprintf("n%04d", i), URL: fmt.Sprintf("http://10.0.%d.%d:8000", i/250, i%250), Models: []string{"m"}})
	}
	s, _ := state.Step(state.New(state.DefaultSettings()), state.NodesSeen{NowNs: 1, Source: "x", Specs: specs})
	var p Publisher
	for now, turn := int64(2), 0; b.Loop(); now, turn = now+1e8, turn+1 {
		b.StopTimer()
		var seen []state.MetricsSeen
		for i := turn % 10; i < len(specs); i += 10 {
			seen = append(seen, state.MetricsSeen{NowNs: now, Node: specs[i].Name, Sample: state.Sample{Queued: fleet.Gauge{Value: float64(turn), Known: true}}})
		}
		s, _ = state.Step(s, state.MetricsRead{NowNs: now, Readings: seen})
		b.StartTimer()
		if _, err := p.Next(&s); err != nil {
			b.Fatal(err)
		}
	}
}
