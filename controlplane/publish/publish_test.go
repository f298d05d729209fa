package publish

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
)

func ready(t testing.TB, nodes int) state.State {
	t.Helper()
	var specs []state.Spec
	for i := range nodes {
		specs = append(specs, state.Spec{Name: fmt.Sprintf("n%03d", i), URL: fmt.Sprintf("http://10.0.0.%d:8000/base/", i), Models: []string{"m"}})
	}
	settings := state.DefaultSettings()
	settings.Seed = 7
	settings.Models = []state.ModelSpec{{Name: "z"}, {Name: "m", Aliases: []string{"alias"}, Default: true}}
	s, _ := state.Step(state.New(settings), state.NodesSeen{NowNs: 1, Source: "x", Specs: specs})
	for i := range specs {
		s, _ = state.Step(s, state.ProbeResult{NowNs: 1, Node: specs[i].Name, OK: true})
	}
	return s
}

func built(t *testing.T, s state.State) *fleet.Snapshot {
	t.Helper()
	snap, err := Build(s)
	if err != nil {
		t.Fatal(err)
	}
	return snap
}

func TestBuild(t *testing.T) {
	s := ready(t, 2)
	snap := built(t, s)
	n := snap.Nodes[1]
	if !n.Available() || n.Address != "10.0.0.1:8000" || n.Host != "10.0.0.1:8000" || n.PathPrefix != "/base" || n.URL != "http://10.0.0.1:8000/base" {
		t.Errorf("node %+v", n)
	}
	if n.Load != s.Find("n001").Load {
		t.Error("the counters are not those of the incarnation")
	}
	i := snap.ModelIndex([]byte("alias"))
	if i != 1 || snap.Models[i].Name != "m" || !slices.Equal(snap.Models[i].Slots, []int{0, 1}) || snap.Default != 1 {
		t.Errorf("models %+v, default %d", snap.Models, snap.Default)
	}
	if z := snap.ModelIndex([]byte("z")); z != 0 || len(snap.Models[z].Slots) != 0 {
		t.Errorf("a configured model without nodes: %d", z)
	}
	if !snap.Asked || snap.Seed != 7 || snap.Version != s.Version {
		t.Errorf("snapshot %+v", snap)
	}
}

// One model under two names: what nodes hold of it is filed under one of them,
// and prompts for the other are looked up there.
func TestTwoNames(t *testing.T) {
	s := ready(t, 2)
	for _, n := range s.Nodes {
		n.Models = []state.Served{{ID: "m"}, {ID: "other"}, {ID: "tuned", Parent: "m"}}
	}
	snap := built(t, s)
	for _, name := range []string{"m", "other", "tuned"} {
		if m := snap.Models[snap.ModelIndex([]byte(name))]; string(m.ChainBytes) != "m" {
			t.Errorf("chains of %s begin with %q", name, m.ChainBytes)
		}
	}
	if z := snap.Models[0]; z.ChainName() != "z" {
		t.Errorf("without nodes: %q", z.ChainName())
	}
	s.Nodes[0].Models = []state.Served{{ID: "other"}, {ID: "shared"}}
	s.Nodes[1].Models = []state.Served{{ID: "m"}, {ID: "shared"}, {ID: "third"}}
	snap = built(t, s)
	for name, want := range map[string]string{"shared": "shared", "third": "m"} { // the nodes disagree on one
		if m := snap.Models[snap.ModelIndex([]byte(name))]; m.ChainName() != want {
			t.Errorf("chains of %s begin with %q, want %q", name, m.ChainName(), want)
		}
	}
	s.Nodes[1].Models = []state.Served{{ID: "other"}}
	snap = built(t, s)
	if m := snap.Models[snap.ModelIndex([]byte("other"))]; m.ChainName() != "other" {
		t.Errorf("nodes that disagree: %q", m.ChainName())
	}
}

// A broken State is refused.
func TestInvariants(t *testing.T) {
	breaks := map[string]func(*state.State, *state.Node){
		"out of range":         func(_ *state.State, n *state.Node) { n.Slot = 9 },
		"is also that of":      func(_ *state.State, n *state.Node) { n.Slot = 0 },
		"is not its own":       func(s *state.State, _ *state.Node) { s.Slots[1].Generation = 5 },
		"counters are missing": func(_ *state.State, n *state.Node) { n.Load = nil },
		"counters are also":    func(s *state.State, n *state.Node) { n.Load = s.Nodes[0].Load },
		"address is missing":   func(_ *state.State, n *state.Node) { n.Endpoint.Address = "" },
		"weight is not":        func(_ *state.State, n *state.Node) { n.Weight = 0 },
		"health 5":             func(_ *state.State, n *state.Node) { n.Health = fleet.Gone },
		"name is not above":    func(s *state.State, n *state.Node) { s.Slots[1].Tenant, n.Spec.Name = "n000", "n000" },
		"generation is 0":      func(s *state.State, n *state.Node) { s.Slots[1].Generation, n.Generation = 0, 0 },
	}
	for want, spoil := range breaks {
		s := ready(t, 2)
		n := *s.Nodes[1]
		s.Nodes[1] = &n
		spoil(&s, &n)
		if snap, err := Build(s); snap != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
}

func TestUnit(t *testing.T) {
	for _, c := range []struct {
		blocks []int
		want   int
	}{{nil, 16}, {[]int{0}, 16}, {[]int{16, 0}, 16}, {[]int{1}, 16}, {[]int{64, 96}, 32}, {[]int{64}, 64}, {[]int{12}, 24}, {[]int{64, 48, 1}, 16}, {[]int{17, 16}, 16}} {
		if got := unitOf(c.blocks); got != c.want {
			t.Errorf("unitOf(%v) = %d, want %d", c.blocks, got, c.want)
		}
	}
}

func BenchmarkBuild256(b *testing.B) {
	s := ready(b, 256)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Build(s); err != nil {
			b.Fatal(err)
		}
	}
}

// Models that are expected are there before a node has named them, once each.
func TestExpected(t *testing.T) {
	s := ready(t, 1)
	s, _ = state.Step(s, state.ExpectSeen{NowNs: 2, Models: []string{"new", "alias", "m", "another"}, Any: true})
	snap, err := Build(s)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for i := range snap.Models {
		m := &snap.Models[i]
		names = append(names, m.Name)
		if m.Expected != (m.Name != "z") || len(m.Slots) > 0 != (m.Name == "m") {
			t.Errorf("model %+v", m)
		}
	}
	if !slices.Equal(names, []string{"z", "m", "another", "new"}) || !snap.Expected {
		t.Errorf("models %q, any %v", names, snap.Expected)
	}
	// Without a configuration the only one that is expected is meant by all.
	bare, _ := state.Step(state.New(state.DefaultSettings()), state.ExpectSeen{NowNs: 1, Models: []string{"new"}})
	if snap, err = Build(bare); err != nil || snap.ModelIndex([]byte("new")) != 0 || snap.Default != 0 || snap.Expected || !snap.Asked {
		t.Errorf("%+v: %v", snap, err)
	}
}
