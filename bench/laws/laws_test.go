package laws

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"warmpath/bench/scenario"
	"warmpath/bench/workload"
	"warmpath/scaler"
)

// fleetOf makes signals of ready nodes that are busy to some shares, and of nodes that
// start.
func fleetOf(nowS float64, starting int, busy ...float64) *scaler.Signals {
	s := &scaler.Signals{NowNs: int64(nowS * 1e9)}
	for i, b := range busy {
		n := scaler.Node{Name: fmt.Sprintf("n%02d", i), Phase: scaler.Ready}
		if b >= 0 {
			n.Busy = scaler.Known(b)
			n.Running, n.Queued = scaler.Known(b*64), scaler.Known(0)
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range starting {
		s.Nodes = append(s.Nodes, scaler.Node{Name: fmt.Sprintf("s%02d", i), Phase: scaler.Starting})
	}
	return s
}

// TestHPAIsKubernetes checks one sync against the formula by hand, at a target of
// one half.
func TestHPAIsKubernetes(t *testing.T) {
	for _, c := range []struct {
		name     string
		starting int
		busy     []float64
		want     int // pods
	}{
		{"on target", 0, []float64{.5, .5}, 2},
		{"within tolerance", 0, []float64{.54, .54}, 2},
		{"up", 0, []float64{.7, .7, .7}, 5},                                   // 3 × 1.4 = 4.2
		{"up to twice", 0, []float64{1, 1}, 4},                                // 2 × 2
		{"starting count as idle", 2, []float64{.9, .9}, 4},                   // 1.8 ÷ 4 ÷ .5 = .9, within tolerance
		{"starting hold a rise", 1, []float64{.9, .9, .9}, 6},                 // 2.7 ÷ 4 ÷ .5 = 1.35: 5.4
		{"starting do not turn a rise into a fall", 6, []float64{.6, .6}, 8},  // 1.2 ÷ 8 ÷ .5 = .3
		{"missing count as on target when it falls", 0, []float64{.1, -1}, 2}, // (.1 + 1) ÷ 2 ÷ .5 = 1.1
		{"missing count as idle when it grows", 0, []float64{.9, .9, -1}, 4},  // 1.8 ÷ 3 ÷ .5 = 1.2: 3.6
		{"down waits five minutes", 0, []float64{.1, .1, .1, .1}, 4},          // 0.8, but four were
		{"nothing known", 0, []float64{-1, -1}, 2},
	} {
		h := newHPA("hpa", busyShare, .5, scenario.Setup{MaxNodes: 20})
		s := fleetOf(100, c.starting, c.busy...)
		o := h.Decide(s)
		got := pods(s) - o.Fewer
		for _, start := range o.Start {
			got += start.Count
		}
		if got != c.want {
			t.Errorf("%s: %d pods, want %d", c.name, got, c.want)
		}
	}
}

// TestHPAShrinksLate wants the highest recommendation of five minutes.
func TestHPAShrinksLate(t *testing.T) {
	h := newHPA("hpa", busyShare, .5, scenario.Setup{MaxNodes: 20})
	var fell []float64
	for second := 0.0; second < 900; second += 15 {
		busy := .5
		if second >= 300 {
			busy = .25
		}
		if o := h.Decide(fleetOf(1000+second, 0, busy, busy, busy, busy)); o.Fewer > 0 {
			fell = append(fell, second)
			break
		}
	}
	// A minute's mean leaves the tolerance some seconds after the fall.
	if len(fell) != 1 || fell[0] < 600 || fell[0] > 660 {
		t.Errorf("fell at %v s, want 300 s after the load did", fell)
	}
}

func TestKEDACountsTheQueue(t *testing.T) {
	for _, c := range []struct {
		queued, held float64
		running      bool
		want         int
	}{
		{4, 0, false, 2},  // 8 ÷ 4
		{10, 0, false, 5}, // 20 ÷ 4
		{0, 12, false, 3}, // what the router holds waits, too
		{4, 0, true, 6},   // 8 + 16 that run; no more than 2 + 4
	} {
		k := newKEDA("keda", c.running, 4, scenario.Setup{MaxNodes: 20})
		s := fleetOf(100, 0, .125, .125)
		for i := range s.Nodes {
			s.Nodes[i].Queued = scaler.Known(c.queued)
		}
		s.Held = c.held
		got := pods(s)
		o := k.Decide(s)
		for _, start := range o.Start {
			got += start.Count
		}
		if got != c.want {
			t.Errorf("%+v: %d pods", c, got)
		}
	}
}

// TestFillCloses compares fill with what it means: a place is raised to a level if
// that level stands on both sides of it within the gap.
func TestFillCloses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfN(rapid.IntRange(0, 5), 1, 30).Draw(t, "list")
		gap := rapid.IntRange(0, 8).Draw(t, "gap")
		got := fill(list, gap)
		for i := range list {
			want := list[i]
			for a := 0; a <= i; a++ {
				for b := i; b < len(list) && b-a <= gap; b++ {
					want = max(want, min(list[a], list[b]))
				}
			}
			if got[i] != want {
				t.Fatalf("%v with gaps of %d: %v, want %d at %d", list, gap, got, want, i)
			}
		}
	})
}

// TestTuneFindsTheEdge tunes a fixed fleet, whose best size can be found by trying.
func TestTuneFindsTheEdge(t *testing.T) {
	d := workload.NewDay("flat", 1)
	d.Hours, d.PeakToTrough, d.PeakPerSecond = .2, 1, 12
	cfg := scenario.Config{Load: d.Make(), MaxNodes: 16}
	family, err := Find("static", 16)
	if err != nil {
		t.Fatal(err)
	}
	best, err := Compare(t.Context(), [][]Spec{family}, cfg, Comparison{Tune: true})
	if err != nil {
		t.Fatal(err)
	}
	tuned := best[0]
	n := int(-tuned.Knob)
	fewer, err := family[0].Run(cfg, -float64(n-1))
	if err != nil {
		t.Fatal(err)
	}
	if !tuned.Attained || tuned.Report.SLOAttainment < .99 || fewer.SLOAttainment >= .99 {
		t.Errorf("%d nodes attain %.4f, one fewer %.4f: want the fewest that attain .99", n, tuned.Report.SLOAttainment, fewer.SLOAttainment)
	}
	for _, name := range []string{"hpa_running", "keda_work", "oracle_linear"} {
		family, err := Find(name, 16)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Tune(t.Context(), family[0], cfg, nil); err != nil || !got.Attained || got.Report.SLOAttainment < .99 {
			t.Errorf("%s: %+v, %v", name, got, err)
		} else {
			t.Logf("%s: %.3f GPU-hours, static %.3f", got.Report.Scaler, got.Report.GPUHours, tuned.Report.GPUHours)
		}
	}
}

func TestNames(t *testing.T) {
	for _, name := range Names() {
		if name == "static:N" {
			name = "static:3"
		}
		if _, err := Find(name, 10); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"nonsense", "static:x", "static:0", "static:11"} {
		if _, err := Find(name, 10); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	if _, err := Case("nonsense", CaseOptions{}); err == nil {
		t.Error("no error for a case that is none")
	}
}

// TestCasesRun runs the beginning of each case.
func TestCasesRun(t *testing.T) {
	azure := filepath.Join(t.TempDir(), "a.csv")
	mooncake := filepath.Join(t.TempDir(), "m.jsonl")
	rows := "TIMESTAMP,ContextTokens,GeneratedTokens\n" + strings.Repeat("2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.6805900,396,109\n", 1)
	for file, text := range map[string]string{azure: rows, mooncake: strings.Repeat(`{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}`+"\n", 3)} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	hpa, err := Find("hpa_running", 32)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range CaseNames() {
		c, err := Case(name, CaseOptions{Seed: 1, AzureFile: azure, MooncakeFile: mooncake, Hours: .1, Peak: 10})
		if err != nil {
			t.Fatal(err)
		}
		r, err := hpa[0].Run(c, .2)
		if err != nil || r.Workload != name || r.Requests == 0 {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if !slices.Contains(CaseNames(), "outage") {
		t.Error("no outage")
	}
}
