package exact

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/prompt"

	"warmpath/scenariotest"
)

// TestScenarios runs testdata/*.txt: commands (see run.line), and what came of
// them. Time is that of a bubble, which begins in the year 2000 at midnight UTC.
func TestScenarios(t *testing.T) {
	scenariotest.Run(t, "testdata/*.txt", func(t *testing.T, c scenariotest.Case) (trace string) {
		t.Run(c.Title, func(t *testing.T) { trace = scenario(t, c.Lines()) })
		return trace
	})
}

// run is a Prover with engines and a State that are played.
type run struct {
	*Prover
	t             *testing.T
	engines       *engines
	disagreements chan dataplane.Disagreement
	zone          *time.Location

	mu    sync.Mutex // guards what follows
	fleet []Node
	units map[string]int
	lags  bool // the State has not taken up what it was told
	told  []func()
	trace []string
}

func scenario(t *testing.T, commands []string) (trace string) {
	synctest.Test(t, func(t *testing.T) {
		var all strings.Builder
		var r *run
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for _, line := range commands {
			words := strings.Fields(line)
			if r == nil {
				r = begin(t, words)
				go r.Run(ctx)
			} else {
				r.line(words)
			}
			synctest.Wait()
			r.flush(&all, strings.Join(words, " "))
		}
		trace = all.String()
	})
	return trace
}

// begin reads the first command: model TEMPLATE [ZONE of the router, ZONE of the
// engines: hours east].
func begin(t *testing.T, words []string) *run {
	t.Helper()
	template := map[string]string{"chatml": chatML, "dated": dated, "plainly": plainly, "strange": strange, "none": ""}[words[1]]
	r := &run{t: t, units: map[string]int{"m": 16}, disagreements: make(chan dataplane.Disagreement, 16), zone: time.UTC}
	theirs := time.UTC
	if len(words) == 4 {
		r.zone, theirs = zone(t, words[2]), zone(t, words[3])
	}
	dir := modelFolder(t, template)
	r.engines = &engines{nodes: map[string]*fakeEngine{}}
	p, err := New(Options{
		Models: []Source{source(dir, template)}, Memo: prompt.NewMemo(1 << 20), Prober: r.engines,
		Log:   slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: withoutTime})),
		Apply: func(*dataplane.ExactModels) { r.say("the data plane's models are made anew") },
		Seen:  r.seen, Disagreements: r.disagreements, Now: func() time.Time { return time.Now().In(r.zone) },
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Prover = p
	r.engines.truth = newEngines(*p.loaded["m"], func() time.Time { return time.Now().In(theirs) }).truth
	return r
}

func zone(t *testing.T, hours string) *time.Location {
	t.Helper()
	h, err := strconv.Atoi(hours)
	if err != nil {
		t.Fatal(err)
	}
	return time.FixedZone(hours, h*3600)
}

func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// Write takes a line of the log.
func (r *run) Write(b []byte) (int, error) {
	r.say(strings.NewReplacer("level=", "", "msg=", "", " model=m", "", " engine_version=1", "", everything, "all").Replace(strings.TrimSpace(string(b))))
	return len(b), nil
}

// everything is what can be proved, as text.
var everything = prompt.ClassNames(1<<prompt.Classes>>8 - 1)

func (r *run) say(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trace = append(r.trace, line)
}

// seen is the State's ear.
func (r *run) seen(node string, incarnation uint64, classes uint32, version string) {
	r.say(fmt.Sprintf("told of %s.%d, version %s: %s", node, incarnation, version, names(classes)))
	shown := func() {
		for i := range r.fleet {
			if r.fleet[i].Name == node && r.fleet[i].Incarnation == incarnation {
				r.fleet[i].Proved = classes
			}
		}
	}
	r.mu.Lock()
	r.told = append(r.told, shown)
	lags := r.lags
	r.mu.Unlock()
	if !lags {
		r.publish()
	}
}

// publish has the State show what it was told.
func (r *run) publish() {
	r.mu.Lock()
	for _, show := range r.told {
		show()
	}
	r.told = nil
	fleet, units := slices.Clone(r.fleet), r.units
	r.mu.Unlock()
	r.Set(fleet, units)
}

func names(classes uint32) string {
	if classes == 0 {
		return "nothing"
	}
	return strings.ReplaceAll(prompt.ClassNames(classes), everything, "all")
}

// flush writes what a command led to. What several nodes did at once has no
// order.
func (r *run) flush(out *strings.Builder, command string) {
	r.mu.Lock()
	lines := r.trace
	r.trace = nil
	r.mu.Unlock()
	r.engines.mu.Lock()
	for name, n := range r.engines.nodes {
		if len(n.asked) > 0 {
			lines = append(lines, fmt.Sprintf("%s was asked %d times", name, len(n.asked)))
		}
		n.asked = nil
	}
	r.engines.mu.Unlock()
	if m := r.models["m"]; m != nil {
		bits := uint32(0)
		for class := range prompt.Classes {
			if m.Demoted(class) {
				bits |= 1 << class
			}
		}
		if bits != 0 {
			lines = append(lines, "the model lacks: "+names(bits))
		}
	}
	slices.Sort(lines)
	fmt.Fprintf(out, "%s\n", command)
	for len(lines) > 0 {
		same := 1
		for same < len(lines) && lines[same] == lines[0] {
			same++
		}
		fmt.Fprintf(out, "  %s", lines[0])
		if same > 1 {
			fmt.Fprintf(out, " (%d times)", same)
		}
		out.WriteString("\n")
		lines = lines[same:]
	}
}

// line carries out one command:
//
//	nodes NAME[/KIND][@INCARNATION][!] …   the fleet; KIND is the engine, ? = not known; ! = not ready
//	unit TOKENS                            of the model
//	wait DURATION
//	down|up|mute|busy|hang|go NODE         its engine
//	wrong|right NODE CLASS                 … makes other tokens of the class
//	version NODE TEXT
//	usage NODE CLASS [lost]                an answer has another count; lost: nobody is told
//	echo NODE CLASS yes|no
//	restart NODE                           the State takes all proofs from it
//	lag, publish                           the State is slow; … and comes round
//	asked NODE                             what it was asked last
func (r *run) line(w []string) {
	r.t.Helper()
	switch w[0] {
	case "nodes":
		r.nodesAre(w[1:])
	case "unit":
		n, _ := strconv.Atoi(w[1])
		r.mu.Lock()
		r.units = map[string]int{"m": n}
		r.mu.Unlock()
		r.publish()
	case "wait":
		d, err := time.ParseDuration(w[1])
		if err != nil {
			r.t.Fatal(err)
		}
		<-time.After(d) // in the bubble
	case "usage":
		r.usage(w[1], classOf(r.t, w[2]), len(w) > 3)
	case "echo":
		r.Echo(w[1], classOf(r.t, w[2]), w[3] == "yes")
	case "restart":
		r.mu.Lock()
		for i := range r.fleet {
			if r.fleet[i].Name == w[1] {
				r.fleet[i].Proved = 0
			}
		}
		r.mu.Unlock()
		r.publish()
	case "lag":
		r.lags = true
	case "publish":
		r.publish()
	default:
		r.engine(w)
	}
}

// engine changes one.
func (r *run) engine(w []string) {
	r.t.Helper()
	r.engines.mu.Lock()
	defer r.engines.mu.Unlock()
	n := r.engines.of(w[1])
	switch w[0] {
	case "down", "up":
		n.down = w[0] == "down"
	case "mute":
		n.mute = true
	case "busy":
		n.busy = true
	case "hang":
		n.hang = make(chan struct{})
	case "go":
		close(n.hang)
		n.hang = nil
	case "wrong", "right":
		n.wrong[classOf(r.t, w[2])] = w[0] == "wrong"
	case "version":
		n.version = w[2]
	default:
		r.t.Fatalf("unknown command %q", w)
	}
}

// nodesAre sets the fleet. What was proved of a node stays, unless it has
// another incarnation.
func (r *run) nodesAre(list []string) {
	r.mu.Lock()
	was := r.fleet
	r.fleet = nil
	for _, text := range list {
		n := Node{Engine: "vllm", Model: "m", Incarnation: 1}
		text, n.Ready = strings.CutSuffix(text, "!")
		n.Ready = !n.Ready
		text, number, ok := strings.Cut(text, "@")
		if ok {
			n.Incarnation, _ = strconv.ParseUint(number, 10, 64)
		}
		name, kind, ok := strings.Cut(text, "/")
		if ok {
			n.Engine = strings.Trim(kind, "?")
		}
		n.Name, n.URL = name, "http://"+name
		for _, old := range was {
			if old.Name == n.Name && old.Incarnation == n.Incarnation {
				n.Proved = old.Proved
			}
		}
		r.fleet = append(r.fleet, n)
	}
	r.mu.Unlock()
	r.publish()
}

// usage does what the data plane does when an engine has counted a prompt
// otherwise.
func (r *run) usage(node string, class prompt.Class, lost bool) {
	synctest.Wait()
	r.models["m"].Demote(class)
	if lost {
		return
	}
	body := `{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"An unlucky prompt."}]`
	switch class {
	case prompt.ClassTools:
		body += `,"tools":[{"type":"function","function":{"name":"f"}}]`
	case prompt.ClassOptions:
		body += `,"chat_template_kwargs":{"enable_thinking":false}`
	}
	r.disagreements <- dataplane.Disagreement{
		Model: "m", Class: class, Node: node, Form: prompt.FormChat, Body: []byte(body + "}"), Ours: 10, Engine: 11,
	}
}

func classOf(t *testing.T, name string) prompt.Class {
	t.Helper()
	for class := range prompt.Classes {
		if class.String() == name {
			return class
		}
	}
	t.Fatalf("no class %q", name)
	return 0
}
