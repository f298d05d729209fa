package state_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"warmpath/controlplane/publish"
	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"

	"warmpath/scenariotest"
)

// TestScenarios runs testdata/*.txt; see run.line for the input lines.
func TestScenarios(t *testing.T) {
	scenariotest.RunScenes(t, "testdata/*.txt", func() scenariotest.Scene {
		r := newRun()
		return scenariotest.Scene{Line: r.line, Trace: &r.trace}
	})
}

type run struct {
	s     state.State
	now   int64
	added []state.Spec      // the set of the API
	auto  map[string]string // node → how its probes are answered
	trace strings.Builder
}

func newRun() *run {
	return &run{s: state.New(state.DefaultSettings()), now: int64(time.Hour), auto: map[string]string{}}
}

// step feeds one event, writes the trace and answers probes that are answered
// by themselves.
func (r *run) step(ev state.Event) error {
	s, effects := state.Step(r.s, ev)
	r.s = s
	for _, e := range effects {
		switch e := e.(type) {
		case state.Publish:
			if _, err := publish.Build(s); err != nil {
				return err
			}
		case state.Probe:
			answer, ok := r.auto[e.Node]
			if !ok {
				r.say("probe %s%s (%s) within %v", e.URL, e.Path, e.Node, time.Duration(e.TimeoutNs))
			} else if answer != "silent" {
				if err := r.step(r.answer(e.Node, e.Incarnation, answer)); err != nil {
					return err
				}
			}
		case state.AskModels:
			if n := s.Find(e.Node); r.auto[e.Node] != "ok" || len(n.Spec.Models) == 0 {
				r.say("ask models of %s", e.Node)
			} else if err := r.step(state.ModelsSeen{NowNs: r.now, Node: e.Node, Incarnation: e.Incarnation}); err != nil {
				return err
			}
		case state.DropSlot:
			r.say("drop slot %d generation %d", e.Slot, e.Generation)
		case state.ClearSlot:
			r.say("clear slot %d generation %d", e.Slot, e.Generation)
		case state.Drained:
			r.say("drained %s timed_out=%v", e.Node, e.TimedOut)
		case state.Log:
			r.sayLog(e)
		}
	}
	return nil
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(&r.trace, "%6.1fs ", time.Duration(r.now-int64(time.Hour)).Seconds())
	fmt.Fprintf(&r.trace, format+"\n", args...)
}

func (r *run) sayLog(e state.Log) {
	attrs := ""
	for _, a := range e.Attrs {
		attrs += " " + a.Key + "=" + strconv.Quote(a.Value.String())
	}
	level := strings.ToLower(e.Level.String())
	if e.Level == slog.LevelInfo {
		level = "info"
	}
	r.say("%s: %s%s", level, e.Message, attrs)
}

func (r *run) answer(node string, incarnation uint64, how string) state.ProbeResult {
	p := state.ProbeResult{NowNs: r.now, Node: node, Incarnation: incarnation}
	switch how {
	case "ok":
		p.OK, p.Status = true, 200
	case "refused":
		p.Err = "connection refused"
	case "short":
		p.Local, p.Err = true, "too many open files"
	default:
		p.Status, _ = strconv.Atoi(how)
	}
	return p
}

// line runs one input line:
//
//	at 2s                          tick every 100 ms until then
//	auto a ok|503|refused|short|silent   how probes of a are answered from now on; ok
//	                               also answers for models that are configured;
//	                               without an answer they are shown
//	nodes SOURCE a=http://… …      also a=URL,models=m+n,weight=2,cap=4,events=URL,ranks=2,
//	                               scheme=NAME,prefix=64
//	add a=URL · remove a [force] · drain a · undrain a · swept SLOT GENERATION
//	probe a ok|503|refused
//	models a id[:max_len[:parent]] … | models a error
//	metrics a running=1 gen=10 … [inherited]
//	load a req=1 fail=5 row=5 ok=0 prefill=0
//	caches a=30000 b=0             tokens that the index holds for each
//	said a [0.3] queued=3 kv=0.5   a said so in band, now or so long ago
//	fail a refused|reset|server_error|first_event
//	silence a 0.3 [others]         nothing came from a for so many seconds; of others it did
//	life a [0.3]                   something came from a, now or so long ago
//	latency a P95 SAMPLES [p99=2.5 of=100] · rate a prefill=8000 rtt=0.001
//	show · cap a                    the snapshot; a's breaker, and how many requests it may have
//	history a                      what became of a, here or gone
//	version                        of the snapshot that was published last
//	set failures=5 open=60 probe=10 ejected=0.5 p95=3 p99=2 interval=15 timeout=5
//	trust a RANK live|gapped|… · exact a BITS VERSION
func (r *run) line(text string) error {
	words := strings.Fields(text)
	if len(words) == 0 {
		return errors.New("empty input line")
	}
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch words[0] {
	case "at":
		return r.until(arg(1))
	case "auto":
		if r.auto[arg(1)] = arg(2); arg(2) == "" {
			delete(r.auto, arg(1))
		}
		return nil
	case "show":
		r.show()
		return nil
	case "history":
		return r.history(arg(1))
	case "version":
		r.say("version %d", r.s.Version)
		return nil
	case "cap":
		r.say("%s: breaker %v, cap %d", arg(1), r.s.Find(arg(1)).Breaker, r.s.Find(arg(1)).Cap())
		return nil
	}
	ev, err := r.event(words, arg)
	if err != nil {
		return err
	}
	return r.step(ev)
}

func (r *run) history(node string) error {
	changes := r.s.History(node)
	if changes == nil {
		return fmt.Errorf("no node %q ever was", node)
	}
	for _, c := range changes {
		r.say("%s %6.1fs %s: %s", node, float64(c.AtNs-int64(time.Hour))/1e9, c.To, c.Reason)
	}
	return nil
}

func (r *run) until(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	for end := int64(time.Hour + d); r.now < end; {
		r.now += int64(100 * time.Millisecond)
		if err := r.step(state.Tick{NowNs: r.now}); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) event(words []string, arg func(int) string) (state.Event, error) {
	v := values(words)
	n := func(key string) int64 { return int64(v[key].Value) }
	switch words[0] {
	case "nodes":
		ev := state.NodesSeen{NowNs: r.now, Source: arg(1)}
		for _, w := range words[min(2, len(words)):] {
			ev.Specs = append(ev.Specs, spec(w))
		}
		return ev, nil
	case "add":
		r.added = append(r.added, spec(arg(1)))
		return state.NodesSeen{NowNs: r.now, Source: state.APISource, Specs: slices.Clone(r.added)}, nil
	case "remove":
		r.added = slices.DeleteFunc(r.added, func(s state.Spec) bool { return s.Name == arg(1) })
		return state.NodeRemoved{NowNs: r.now, Node: arg(1), Force: arg(2) == "force"}, nil
	case "drain":
		return state.DrainAsked{NowNs: r.now, Node: arg(1)}, nil
	case "undrain":
		return state.UndrainAsked{NowNs: r.now, Node: arg(1)}, nil
	case "swept":
		slot, _ := strconv.Atoi(arg(1))
		generation, _ := strconv.Atoi(arg(2))
		return state.SlotSwept{NowNs: r.now, Slot: slot, Generation: uint32(generation)}, nil
	case "probe":
		return r.answer(arg(1), 0, arg(2)), nil
	case "models":
		return r.models(words), nil
	case "set":
		return r.set(v), nil
	case "metrics":
		return state.MetricsSeen{NowNs: r.now, Node: arg(1), Inherited: slices.Contains(words, "inherited"), Sample: state.Sample{
			Engine: "vllm", Queued: v["queued"], Running: v["running"], KVUse: v["kv"], PromptTokens: v["prompt"],
			GeneratedTokens: v["gen"], BlockTokens: int(n("block")), CacheTokens: n("cache"),
		}}, nil
	case "said":
		said := state.LoadSaid{Node: arg(1), AtNs: r.now - ago(arg(2)), Queued: v["queued"], KVUse: v["kv"]}
		return state.LoadsSaid{NowNs: r.now, Loads: []state.LoadSaid{said}}, nil
	case "load":
		return state.LoadsSeen{NowNs: r.now, Loads: []state.LoadSeen{{
			Node: arg(1), Requests: n("req"), PrefillTokens: n("prefill"), Failures: n("fail"), Consecutive: n("row"), Successes: n("ok"),
		}}}, nil
	case "caches":
		ev := state.CachesSeen{NowNs: r.now}
		for _, n := range r.s.Nodes {
			if tokens, ok := v[n.Spec.Name]; ok {
				ev.Caches = append(ev.Caches, state.CacheSeen{Node: n.Spec.Name, Tokens: int64(tokens.Value)})
			}
		}
		return ev, nil
	case "fail":
		for c := state.Refused; c <= state.FirstEvent; c++ {
			if c.String() == arg(2) {
				return state.Failure{NowNs: r.now, Node: arg(1), Class: c}, nil
			}
		}
	case "silence":
		return state.SilenceSeen{NowNs: r.now, Node: arg(1), SinceNs: r.now - ago(arg(2)), OthersHeard: arg(3) == "others", Evidence: "5 sentinels"}, nil
	case "life":
		return state.LifeSeen{NowNs: r.now, Node: arg(1), AtNs: r.now - ago(arg(2))}, nil
	case "latency":
		p95, _ := strconv.ParseFloat(arg(2), 64)
		samples, _ := strconv.Atoi(arg(3))
		return state.LatencySeen{NowNs: r.now, Node: arg(1), P95Seconds: p95, Samples: samples, P99Seconds: v["p99"].Value, P99Samples: int(n("of"))}, nil
	case "trust":
		rank, _ := strconv.Atoi(arg(2))
		for trust := fleet.TrustNone; trust <= fleet.TrustStale; trust++ {
			if trust.String() == arg(3) {
				return state.TrustSeen{NowNs: r.now, Node: arg(1), Rank: rank, Trust: trust, Why: "told so"}, nil
			}
		}
	case "exact":
		classes, _ := strconv.ParseUint(arg(2), 2, 32)
		return state.ExactSeen{NowNs: r.now, Node: arg(1), Classes: uint32(classes), Version: arg(3)}, nil
	case "rate":
		return state.RateSeen{NowNs: r.now, Node: arg(1), PrefillTokensPerSecond: v["prefill"], DecodeTokensPerSecond: v["decode"], RoundTripSeconds: v["rtt"], PrefillSamples: int(n("samples"))}, nil
	}
	return nil, fmt.Errorf("unknown input line %q", strings.Join(words, " "))
}

// ago is a number of seconds in nanoseconds, 0 for "".
func ago(seconds string) int64 {
	s, _ := strconv.ParseFloat(seconds, 64)
	return int64(s * 1e9)
}

func (r *run) models(words []string) state.Event {
	ev := state.ModelsSeen{NowNs: r.now, Node: words[1], Engine: "vllm"}
	for _, w := range words[2:] {
		if w == "error" {
			return state.ModelsSeen{NowNs: r.now, Node: words[1], Err: "status 500"}
		}
		parts := strings.Split(w+"::", ":")
		length, _ := strconv.Atoi(parts[1])
		ev.Models = append(ev.Models, state.Served{ID: parts[0], MaxModelLen: length, Parent: parts[2]})
	}
	return ev
}

// set changes keys of the configuration under breaker, and its probe's.
func (r *run) set(v map[string]fleet.Gauge) state.Event {
	s := r.s.Settings
	s.BreakerFailures = int(v["failures"].Or(float64(s.BreakerFailures)))
	for key, to := range map[string]*int64{"open": &s.BreakerOpenNs, "probe": &s.BreakerProbeNs, "interval": &s.ProbeIntervalNs, "timeout": &s.ProbeTimeoutNs} {
		*to = int64(v[key].Or(float64(*to)*1e-9) * 1e9)
	}
	for key, to := range map[string]*float64{"ejected": &s.MaxEjected, "p95": &s.SlowP95OverBaseline, "p99": &s.SlowP99OverBaseline} {
		*to = v[key].Or(*to)
	}
	return state.ConfigChanged{NowNs: r.now, Settings: s}
}

// values reads key=number words.
func values(words []string) map[string]fleet.Gauge {
	out := map[string]fleet.Gauge{}
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		if f, err := strconv.ParseFloat(value, 64); err == nil {
			out[key] = fleet.Gauge{Value: f, Known: true}
		}
	}
	return out
}

func spec(word string) state.Spec {
	parts := strings.Split(word, ",")
	name, url, _ := strings.Cut(parts[0], "=")
	s := state.Spec{Name: name, URL: url}
	for _, p := range parts[1:] {
		key, value, _ := strings.Cut(p, "=")
		switch key {
		case "models":
			s.Models = strings.Split(value, "+")
		case "weight":
			s.Weight, _ = strconv.ParseFloat(value, 64)
		case "cap":
			s.MaxInFlight, _ = strconv.Atoi(value)
		case "events":
			s.KVEvents.Endpoint = value
		case "ranks":
			s.KVEvents.Ranks, _ = strconv.Atoi(value)
		case "scheme":
			s.HashScheme = value
		case "prefix":
			s.PrefixTokens, _ = strconv.Atoi(value)
		}
	}
	return s
}

// show prints the snapshot that would be published.
func (r *run) show() {
	snap, err := publish.Build(r.s)
	if err != nil {
		fmt.Fprintln(&r.trace, "error:", err)
		return
	}
	gauge := func(g fleet.Gauge) string {
		if !g.Known {
			return "?"
		}
		return strconv.FormatFloat(g.Value, 'g', 4, 64)
	}
	for i, n := range snap.Nodes {
		if n == nil && snap.Owner(i) != nil {
			fmt.Fprintf(&r.trace, "slot %d: rank %d of %s\n", i, i-snap.Owner(i).Slot, snap.Owner(i).Name)
			continue
		}
		if n == nil {
			fmt.Fprintf(&r.trace, "slot %d: empty, resting=%v\n", i, r.s.Slots[i].Resting)
			continue
		}
		where := n.State.String()
		if n.Cause != fleet.CauseNone {
			where += " (" + n.Cause.String() + ")"
		}
		queued := ""
		if n.QueuedRequests.Known {
			queued = "queued " + gauge(n.QueuedRequests) + ", "
		}
		fmt.Fprintf(&r.trace, "slot %d: %s generation %d %s, breaker %s, class %g, weight %.2f, max len %d, running %s, %skv %s, errors %s\n",
			i, n.Name, n.Generation, where, n.Breaker, n.CapacityClass, n.Weight, n.MaxModelLen, gauge(n.RunningRequests), queued, gauge(n.KVUse), gauge(n.ErrorShare))
	}
	for _, n := range r.s.Nodes {
		if n.Filling || n.Proof.Known || n.Warmth.Known && n.Warmth.Value != 1 {
			fmt.Fprintf(&r.trace, "%s: holds %s tokens, warmth %s, filling %v, proof %s\n", n.Spec.Name, gauge(n.Cached), gauge(n.Warmth), n.Filling, gauge(n.Proof))
		}
		if n.Spec.KVEvents.Configured() || n.Exact != 0 {
			fmt.Fprintf(&r.trace, "%s: trust %v, exact %b %s\n", n.Spec.Name, n.Trust, n.Exact, n.Version)
		}
	}
	for _, m := range snap.Models {
		fmt.Fprintf(&r.trace, "model %s: slots %v unit %d\n", m.Name, m.Slots, m.UnitTokens)
	}
	fmt.Fprintf(&r.trace, "asked %v, default %d\n", snap.Asked, snap.Default)
	if names := r.s.Nodes; !slices.IsSortedFunc(names, func(a, b *state.Node) int { return strings.Compare(a.Spec.Name, b.Spec.Name) }) {
		fmt.Fprintln(&r.trace, "BUG: nodes are not sorted")
	}
}
