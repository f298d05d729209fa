package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Trials take long and both cores, so they run when they are asked for (make
// dead-trials).
var (
	trials        = flag.Int("e2e.trials", 0, "trials of dead against hung with simulated engines, for each way to tell")
	trialsCompare = flag.Int("e2e.trials.compare", 10, "… for the ways that are there to compare with")
	trialsSeed    = flag.Uint64("e2e.trials.seed", 1, "order of the trials")
)

// A way is what a router has to tell dead from hung by.
type way struct {
	name      string
	kernel    string // kernel.mode
	sentinels bool
}

var ways = []way{
	{"kernel and sentinels", "auto", true},
	{"sentinels", "off", true},
	{"kernel", "auto", false},
	{"time-outs", "off", false},
}

// trialSettings have half of all requests go to either node however many wait
// there, and let a hang be found out in seconds, and be over as soon.
const trialSettings = settings + "policy: {name: prefix_hash, load_margin: 1000}\ntimeouts: {first_event: %s}\nbreaker: {open: 1s}\nkernel: {mode: %s}\n"

// TestTrials: a node's host dies or its engine hangs, in random order. Which of
// the two it was is said rightly in 99 of 100 trials.
func TestTrials(t *testing.T) {
	if *trials == 0 {
		t.Skip("runs with -e2e.trials: make dead-trials")
	}
	blind := withoutSentinels(t)
	fmt.Printf("simulated engines; %d trials each way, %d where there are no sentinels; first_event 1.5s; requests: one stream that has begun, two that wait, 100 new ones a second\n", *trials, *trialsCompare)
	for _, w := range ways {
		t.Run(strings.ReplaceAll(w.name, " ", "-"), func(t *testing.T) {
			many, path := *trials, program("warmpath")
			if !w.sentinels {
				many, path = *trialsCompare, blind
			}
			cells := makeCells(t, 2)
			sims, urls := make([]*engines, len(cells)), make([]string, len(cells))
			for i, c := range cells {
				sims[i] = startEnginesAt(t, c.by(), c.address, 1)
				urls[i] = sims[i].urls[0]
			}
			r := launchProgram(t, path, configure(t, fmt.Sprintf(trialSettings, "1500ms", w.kernel), nodeList(urls...))).allReady(t)
			seen := r.trials(t, simulated(t, cells[0], sims[0]), "simulated engines, "+w.name, many)
			if w.sentinels {
				seen.judge(t)
			}
		})
	}
}

// simulated is a patient of enginesim in a cell.
func simulated(t *testing.T, c *cell, sim *engines) *patient {
	t.Helper()
	return &patient{
		every: 10 * time.Millisecond, within: 10 * time.Second,
		ailments: append(deadly(t, c),
			ailment{"process stopped", false, func() { sim.signal(t, syscall.SIGSTOP) }, func() { sim.signal(t, syscall.SIGCONT) }},
			ailment{"engine stopped", false, func() { sim.fault(t, 0, `{"kind":"core_stopped"}`) }, func() {}}), // and clear ends it
		waiting: []waiting{
			{`,"max_tokens":4`, func() { sim.fault(t, 0, `{"kind":"hang_before_headers","count":1}`) }},
			{`,"max_tokens":4` + streaming, func() { sim.fault(t, 0, `{"kind":"hang_after_headers","count":1}`) }},
		},
		clear: func() { sim.clear(t, 0) },
	}
}

// deadly are the ways for a host to die: its packets vanish in the midst of the
// link, or its end of it goes.
func deadly(t *testing.T, c *cell) []ailment {
	t.Helper()
	loss := c.loss(t)
	return []ailment{
		{"packets dropped", true, func() { loss.Set(1000) }, func() { loss.Set(0) }},
		{"link down", true, func() { c.cut(t) }, func() { c.join(t) }},
	}
}

// withoutSentinels builds a router that is the same but for one constant: it
// never asks a silent node.
func withoutSentinels(t *testing.T) (path string) {
	t.Helper()
	source, err := filepath.Abs("../../controlplane/sentinel/sentinel.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	const was, never = "= int64(100e6)    // from a node", "= int64(1e18)    // from a node"
	if err != nil || !strings.Contains(string(text), was) {
		t.Fatalf("no %q in %s, %v", was, source, err)
	}
	dir := t.TempDir()
	other, overlay, path := filepath.Join(dir, "sentinel.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "warmpath")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {source: other}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{other: strings.Replace(string(text), was, never, 1), overlay: string(replace)} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-o", path, ".")
	build.Env = append(build.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build a router without sentinels: %v\n%s", err, out)
	}
	return path
}

// series is the outcome of trials.
type series []findings

// trials runs as many of dead as of hung, in random order, prints each and a
// summary.
func (r *serving) trials(t *testing.T, p *patient, name string, many int) (seen series) {
	t.Helper()
	fmt.Printf("\n# %s\n\n", name)
	var of [2][]*ailment // hung, dead
	for i := range p.ailments {
		a := &p.ailments[i]
		which := 0
		if a.dead {
			which = 1
		}
		of[which] = append(of[which], a)
	}
	order := make([]*ailment, many)
	for i := range order {
		kinds := of[i%2]
		order[i] = kinds[i/2%len(kinds)]
	}
	random := rand.New(rand.NewPCG(*trialsSeed, 0))
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	began := time.Now()
	defer func() { // what is known if a trial ends the test as well
		fmt.Printf("\n%s: %d trials in %v\n%s", name, len(seen), time.Since(began).Round(time.Second), seen.summary())
	}()
	for n, a := range order {
		before := len(r.err.String())
		seen = append(seen, r.trial(t, p, a, n))
		fmt.Printf("%3d %v\n", n+1, &seen[n])
		if seen[n].wrong() {
			fmt.Print(r.err.String()[before:])
		}
	}
	return seen
}

// judge expects that dead and hung were told apart.
func (s series) judge(t *testing.T) {
	t.Helper()
	wrong := 0
	for i := range s {
		wrong += truth(s[i].wrong())
		if s[i].dead && s[i].failed > 0 { // of those that time out at a hung node the retry budget may keep some
			t.Errorf("trial %d: %d requests failed", i+1, s[i].failed)
		}
	}
	if wrong*100 > len(s) {
		t.Errorf("%d of %d trials were judged wrongly", wrong, len(s))
	}
}

// summary is the confusion matrix, and the times.
func (s series) summary() string {
	var b strings.Builder
	said := []string{"dead", "hung", "refused", "unhealthy", ""}
	fmt.Fprintf(&b, "%-10s %10s %10s %10s %10s %10s %14s\n", "it was", "said dead", "said hung", "refused", "unhealthy", "nothing", "then another")
	for _, truth := range []string{"dead", "hung"} {
		counts, also := make([]int, len(said)), 0
		for i := range s {
			if s[i].truth() == truth {
				counts[slices.Index(said, s[i].said)]++
				also += min(1, len(s[i].also))
			}
		}
		fmt.Fprintf(&b, "%-10s %10d %10d %10d %10d %10d %14d\n", truth, counts[0], counts[1], counts[2], counts[3], counts[4], also)
	}
	column := func(name string, dead bool, of func(*findings) (time.Duration, bool)) {
		var all []time.Duration
		more := 0
		for i := range s {
			d, ok := of(&s[i])
			switch {
			case s[i].dead != dead:
			case ok:
				all = append(all, d)
			default:
				more++
			}
		}
		ms := func(q float64) int64 { return quantile(all, q).Milliseconds() }
		fmt.Fprintf(&b, "%-44s p50 %5d  p95 %5d  max %5d ms of %d", name, ms(0.5), ms(0.95), ms(1), len(all))
		if more > 0 {
			fmt.Fprintf(&b, "; %d not within the trial", more)
		}
		b.WriteString("\n")
	}
	column("dead: said", true, func(f *findings) (time.Duration, bool) { return f.saidAfter, f.said != "" })
	column("dead: the last new request that went there", true, func(f *findings) (time.Duration, bool) { return f.avoided, true })
	column("dead: all without a byte answered elsewhere", true, func(f *findings) (time.Duration, bool) { return f.moved, f.kept+f.left == 0 })
	column("dead: of which serving", true, func(f *findings) (time.Duration, bool) { return f.service, true })
	column("dead: the machine stalled", true, func(f *findings) (time.Duration, bool) { return f.stall, true })
	column("hung: said", false, func(f *findings) (time.Duration, bool) { return f.saidAfter, f.said != "" })
	strictly, allowed, dead, moved, failed := 0, 0, 0, 0, 0
	for i := range s {
		failed += s[i].failed
		if s[i].dead {
			a, b := s[i].inTime()
			dead, moved = dead+1, moved+s[i].others
			strictly, allowed = strictly+truth(a), allowed+truth(b)
		}
	}
	fmt.Fprintf(&b, "dead: avoided within %v and moved within %v in %d of %d, and in %d but for serving and stalls; %d requests moved\n", avoidedWithin, movedWithin, strictly, dead, allowed, moved)
	fmt.Fprintf(&b, "requests that failed, in all trials: %d\n", failed)
	return b.String()
}

func truth(b bool) int {
	if b {
		return 1
	}
	return 0
}
