package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"warmpath/bench/engine"
	"warmpath/controlplane"
	"warmpath/controlplane/config"
	ct "warmpath/controlplane/controltest"
	"warmpath/controlplane/state"
	"warmpath/controlplane/takeover"
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
	"warmpath/dataplane/policy"
)

// heir is a router that takes over from another one of the same test.
type heir struct {
	*ct.Router
	*takeover.Heir
	got controlplane.Inherited
}

// meet starts the control plane of a router that is to take over, which has asked
// and taken nothing yet.
func meet(t *testing.T, old *ct.Router, text string) *heir {
	t.Helper()
	path, sockets := filepath.Join(t.TempDir(), "s"), takeover.NewSockets()
	l, err := sockets.ListenPath(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(old.Log, nil))
	server := takeover.Serve(l, sockets, old.Control.Giver(), "test", log)
	t.Cleanup(func() { server.Stop() })
	h := &heir{Router: ct.StartData(t, text)}
	if h.Heir, err = takeover.Connect(t.Context(), path, "test", takeover.SocketName{For: "takeover", Network: "unix", Address: path}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	c, err := config.Parse("test", []byte("index: {memory: 16MiB}\nhealth: {interval: 200ms, interval_down: 100ms, timeout: 2s, down_after: 2, up_after: 1}\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	seeded := *c
	if seeded.Seed, err = controlplane.Seed(c, h.Offer.Seed); err != nil {
		t.Fatal(err)
	}
	h.Control, err = controlplane.Start(controlplane.Options{
		Config: &seeded, Fleet: h.Fleet, Index: h.Index, Dataplane: h.Data, Log: slog.New(slog.NewTextHandler(h.Log, nil)), Offer: &h.Offer,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Control.Stop)
	return h
}

// inherit has it take what there is.
func (h *heir) inherit(t *testing.T) {
	t.Helper()
	var err error
	if h.got, err = h.Control.Inherit(t.Context(), h.Heir); err != nil {
		t.Fatal(err)
	}
}

// end has it take the place of the old one, and hear of what that still does.
func (h *heir) end(t *testing.T) {
	t.Helper()
	if err := h.Ready(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = h.Follow(h.Control.TakeNote) }()
}

// giveUp ends it before it is ready, and waits until the old one goes on.
func (h *heir) giveUp(t *testing.T, old *ct.Router) {
	t.Helper()
	const goesOn = "this one goes on"
	before := strings.Count(old.Log.String(), goesOn)
	h.Close()
	ct.Eventually(t, "the old one goes on", func() bool { return strings.Count(old.Log.String(), goesOn) > before })
}

// eventfulText configures nodes whose engines report what they hold. more is more
// text of each node's kv_events.
func eventfulText(tokens *ct.Tokens, more string, engines ...*eventful) string {
	text := fmt.Sprintf("models: [{name: m, tokenizer: %q}]\nnodes:\n", tokens.Path)
	for i, e := range engines {
		replay := ""
		if e.ReplayEndpoint() != "" {
			replay = fmt.Sprintf(", replay: %q", e.ReplayEndpoint())
		}
		text += fmt.Sprintf("  - {name: %c, url: %q, kv_events: {endpoint: %q%s%s}}\n", 'a'+i, e.server.URL, e.EventsEndpoint(), replay, more)
	}
	return text
}

// TestInheritEvents: what engines have reported is known at once, to the block,
// in pages of every size, and the streams go on.
func TestInheritEvents(t *testing.T) {
	for name, c := range map[string]engine.Config{
		"with replay": {ReplayEndpoint: "tcp://127.0.0.1:0"},
		"without":     {},
		"ranks":       {ReplayEndpoint: "tcp://127.0.0.1:0", Ranks: 3},
		"small pages": {ReplayEndpoint: "tcp://127.0.0.1:0", BlockTokens: 4, MaxModelLen: 4096},
	} {
		t.Run(name, func(t *testing.T) {
			tokens := ct.TinyTokens(t, "..", "m")
			e := startEventful(t, tokens, c)
			ranks := fmt.Sprintf(", ranks: %d", max(c.Ranks, 1))
			f := follow(t, tokens, ranks, e)
			if c.ReplayEndpoint == "" {
				ct.Eventually(t, "the stream is connected", func() bool { s := f.Control.Streams(); return len(s) == 1 && s[0].Status.Connected })
				for i := range 40 { // beyond the numbers that a new engine could have reached
					f.Ask(t, talk("warming up", fmt.Sprint("Are you there, ", i)), fmt.Sprint("warm", i))
				}
				f.waitTrust("a", fleet.TrustLive)
			}
			for i := range 5 {
				f.Ask(t, talk(fmt.Sprint(10+7*i, " sails"), "Why?"), fmt.Sprint("first", i))
				f.reported(e)
			}
			h := meet(t, f.Router, eventfulText(tokens, ranks, e))
			h.inherit(t)
			h.end(t)
			is := &following{Router: h.Router, t: t}
			if h.got.Left != 0 || h.got.Ranks != max(c.Ranks, 1) || h.Index.Stats().HolderUnits != f.Index.Stats().HolderUnits {
				t.Errorf("%+v; %d entries of %d", h.got, h.Index.Stats().HolderUnits, f.Index.Stats().HolderUnits)
			}
			if n := h.Node("a"); n.Exact != f.Node("a").Exact || !n.Trust[0].Reports() {
				t.Errorf("exact %b, trust %v", n.Exact, n.Trust)
			}
			for i := range 5 {
				id := fmt.Sprint("again", i)
				h.Router.Ask(t, talk(fmt.Sprint(10+7*i, " sails"), "And how, if I may ask?"), id)
				rec, _ := h.Data.RecordOf(id)
				if matched := int64(rec.Candidates[0].MatchedTokens); rec.CachedTokens < 100 || matched > rec.CachedTokens || matched <= rec.CachedTokens-16 || rec.Exactness != dataplane.ExactTokens {
					t.Errorf("topic %d: %d tokens cached, %d matched, %v", i, rec.CachedTokens, matched, rec.Exactness)
				}
			}
			ct.Eventually(t, "both have heard all", func() bool {
				return h.Index.Stats().Speculative == 0 && sumNext(h.Control) == sumNext(f.Control) && h.Index.Stats().HolderUnits == f.Index.Stats().HolderUnits
			})
			if is.total(func(s controlplane.StreamStatus) uint64 {
				return s.Status.Gaps + s.Status.Lost + s.Status.Restarts + s.Status.From
			}) != 0 && c.ReplayEndpoint != "" {
				t.Errorf("%+v", h.Control.Streams())
			}
			if log := h.Log.String(); strings.Contains(log, "level=ERROR") || strings.Contains(log, "level=WARN") {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}

func sumNext(c *controlplane.ControlPlane) (sum uint64) {
	for _, s := range c.Streams() {
		sum += s.Status.Next
	}
	return sum
}

// TestInheritLearned: what was sent to nodes without events is known, also what
// was sent after it was asked for; so are drains, added nodes and speeds.
func TestInheritLearned(t *testing.T) {
	tokens := ct.TinyTokens(t, "..", "m")
	a, b, added := ct.StartExact(t, "m", tokens), ct.StartExact(t, "m", tokens), ct.StartEngine(t, "m")
	text := fmt.Sprintf("node_urls_allowed: [127.0.0.0/8]\nmodels: [{name: m, tokenizer: %q}]\nnodes: [{name: a, url: %q}, {name: b, url: %q}]\n", tokens.Path, a.URL(), b.URL())
	old := ct.Start(t, text)
	if _, err := old.Control.Nodes().Add(state.Spec{Name: "late", URL: added.URL()}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "late"} {
		old.WaitServed(t, name, "m")
	}
	for _, name := range []string{"a", "b"} {
		ct.Eventually(t, name+" is exact", func() bool { return old.Node(name).Exact&1 != 0 && old.Node(name).BlockTokens > 0 })
	}
	old.Control.Send(state.DrainAsked{NowNs: old.Control.NowNs(), Node: "late"})
	old.Control.Send(state.RateSeen{NowNs: old.Control.NowNs(), Node: "b", PrefillTokensPerSecond: fleet.Gauge{Value: 1234, Known: true}})
	ct.Eventually(t, "late drains", func() bool {
		return old.Node("late").State == fleet.Draining && old.Node("b").PrefillTokensPerSecond.Known
	})
	homes := map[int]string{}
	for i := range 6 {
		homes[i] = askFor(t, old, i, "Why?", policy.ReasonLoad)
	}
	h := meet(t, old, text)
	h.inherit(t)
	for i := 6; i < 9; i++ { // nobody has taken over yet
		homes[i] = askFor(t, old, i, "Why?", policy.ReasonLoad)
	}
	h.end(t)
	if n := h.Node("late"); n == nil || n.State != fleet.Draining || h.Node("b").PrefillTokensPerSecond.Value != 1234 {
		t.Errorf("%+v; b: %+v", n, h.Node("b"))
	}
	ct.Eventually(t, "the new one has heard of the last ones", func() bool { return h.Index.Stats().HolderUnits == old.Index.Stats().HolderUnits })
	homes[9] = askFor(t, old, 9, "Why?", policy.ReasonLoad) // by a connection that was there before
	ct.Eventually(t, "and of this one", func() bool { return h.Index.Stats().HolderUnits == old.Index.Stats().HolderUnits })
	for i := range 10 {
		if node := askFor(t, h.Router, i, "And how?", policy.ReasonPrefix); node != homes[i] {
			t.Errorf("conversation %d moved from %s to %s", i, homes[i], node)
		}
	}
}

// askFor asks about a topic and returns the node that answered. The reason must
// be prefix, or must not.
func askFor(t *testing.T, r *ct.Router, topic int, question string, reason policy.Reason) string {
	t.Helper()
	id := fmt.Sprint("q", topic, question[:3], reason)
	status, node := r.Ask(t, talk(fmt.Sprint(10+7*topic, " topics"), question), id)
	if status != http.StatusOK {
		t.Fatalf("%s: %d", id, status)
	}
	rec, ok := r.Data.RecordOf(id)
	if !ok || (rec.Reason == policy.ReasonPrefix) != (reason == policy.ReasonPrefix) {
		t.Errorf("%s: %v, %v", id, rec.Reason, rec.Candidates)
	}
	return node
}

// TestInheritNothing: what does not fit is left, and why is said.
func TestInheritNothing(t *testing.T) {
	e, other := ct.StartEngine(t, "m"), ct.StartEngine(t, "x")
	const seed = "seed: \"0123456789abcdef\"\n"
	nodes := func(list string) string { return seed + "nodes: [" + list + "]\n" }
	whole := fmt.Sprintf("{name: a, url: %q}", e.URL())
	old := ct.Start(t, nodes(whole))
	old.WaitServed(t, "a", "m")
	old.Ask(t, talk("some topics", "Why?"), "one")
	ct.Eventually(t, "it is learned", func() bool { return old.Index.Stats().HolderUnits > 0 })
	for want, text := range map[string]string{
		"the seed is another one":               strings.Replace(nodes(whole), "0123", "9999", 1),
		"does not name the node any more":       nodes(fmt.Sprintf("{name: b, url: %q}", e.URL())),
		"its url is another one":                nodes(fmt.Sprintf("{name: a, url: %q}", other.URL())),
		"another number of ranks":               nodes(fmt.Sprintf("{name: a, url: %q, kv_events: {endpoint: \"tcp://127.0.0.1:1\", ranks: 2}}", e.URL())),
		"its kv_events are others":              nodes(fmt.Sprintf("{name: a, url: %q, kv_events: {endpoint: \"tcp://127.0.0.1:1\"}}", e.URL())),
		`it serves \"other\" here, \"m\" there`: nodes(fmt.Sprintf("{name: a, url: %q, models: [other]}", e.URL())),
	} {
		h := meet(t, old, text)
		h.inherit(t)
		if log := h.Log.String(); !strings.Contains(log, want) || h.got.Units != 0 || h.Index.Stats().HolderUnits != 0 {
			t.Errorf("want %q, %+v: %s", want, h.got, log)
		}
		h.giveUp(t, old)
	}
}

// TestInheritUnits: a node more makes the units smaller.
func TestInheritUnits(t *testing.T) {
	a, b := ct.StartEngine(t, "m"), ct.StartEngine(t, "m")
	a.Block.Store(32)
	b.Block.Store(48)
	text := fmt.Sprintf("nodes: [{name: a, url: %q}", a.URL())
	old := ct.Start(t, text+"]\n")
	ct.Eventually(t, "the unit is known", func() bool { n := old.Node("a"); return n != nil && n.UnitTokens == 32 })
	h := meet(t, old, fmt.Sprintf("%s, {name: b, url: %q}]\n", text, b.URL()))
	ct.Eventually(t, "the other unit is known", func() bool { n := h.Node("b"); return n != nil && n.BlockTokens == 48 && n.UnitTokens == 16 })
	h.inherit(t)
	if log := h.Log.String(); !strings.Contains(log, "has 16 tokens here, 32 there") || h.got.Left != 1 {
		t.Errorf("%+v: %s", h.got, log)
	}
}

// broken is a predecessor that fails at the n-th Fetch, or hands over nonsense.
type broken struct {
	*takeover.Heir
	good  int
	err   error
	piece []byte
}

func (b *broken) Fetch(f takeover.Fetch, take func(takeover.Kind, []byte)) (takeover.Rank, error) {
	if b.good--; b.good >= 0 {
		return b.Heir.Fetch(f, take)
	}
	if b.err == nil {
		take(takeover.Piece, b.piece)
	}
	return takeover.Rank{}, b.err
}

// TestInheritBroken: a rank whose contents make no sense begins anew; if the
// other one ends, what has come counts.
func TestInheritBroken(t *testing.T) {
	tokens := ct.TinyTokens(t, "..", "m")
	replay := engine.Config{ReplayEndpoint: "tcp://127.0.0.1:0"}
	a, b := startEventful(t, tokens, replay), startEventful(t, tokens, replay)
	f := follow(t, tokens, "", a, b)
	for i := range 8 {
		f.ask(talk(fmt.Sprint(10+7*i, " sails"), "Why?"))
	}
	ct.Eventually(t, "all is reported", func() bool { return f.Index.Stats().Speculative == 0 })
	ended := errors.New("ended")
	for name, bad := range map[string]*broken{"nonsense": {good: 1, piece: []byte("nonsense")}, "ended": {good: 1, err: ended}} {
		h := meet(t, f.Router, eventfulText(tokens, "", a, b))
		bad.Heir = h.Heir
		got, err := h.Control.Inherit(t.Context(), bad)
		if !errors.Is(err, bad.err) || got.Ranks != 1 || got.Left > 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		is := &following{Router: h.Router, t: t, n: 200}
		is.waitTrust("a", fleet.TrustLive)
		is.waitTrust("b", fleet.TrustLive) // by its replay
		ct.Eventually(t, name+": all is known", func() bool { return h.Index.Stats().HolderUnits == f.Index.Stats().HolderUnits })
		h.giveUp(t, f.Router)
	}
}

// TestInheritLate: what does not come in time is not known, and begins as ever.
func TestInheritLate(t *testing.T) {
	tokens := ct.TinyTokens(t, "..", "m")
	e := startEventful(t, tokens, engine.Config{ReplayEndpoint: "tcp://127.0.0.1:0"})
	f := follow(t, tokens, "", e)
	f.ask(talk("sails", "Why?"))
	f.reported(e)
	h := meet(t, f.Router, eventfulText(tokens, "", e))
	h.WaitServed(t, "a", "m")
	ct.Eventually(t, "its blocks are known", func() bool { return h.Node("a").BlockTokens > 0 })
	late, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := h.Control.Inherit(late, h.Heir)
	if err != nil || got.Left != 1 || got.Units != 0 || !strings.Contains(h.Log.String(), "the time for it (5s) is over") {
		t.Errorf("%+v, %v: %s", got, err, h.Log)
	}
	is := &following{Router: h.Router, t: t}
	is.waitTrust("a", fleet.TrustLive)
	ct.Eventually(t, "its replay has told all", func() bool { return h.Index.Stats().HolderUnits == f.Index.Stats().HolderUnits })
}

// TestAttachLater: a data plane that is started last serves at once with a fleet
// and proofs that were there before.
func TestAttachLater(t *testing.T) {
	tokens := ct.TinyTokens(t, "..", "m")
	e := ct.StartExact(t, "m", tokens)
	r := &ct.Router{Fleet: fleet.NewHolder(), Index: index.New(index.Options{MemoryBytes: 16 << 20}), Log: &ct.Log{}}
	c, err := config.Parse("test", fmt.Appendf(nil, "models: [{name: m, tokenizer: %q}]\nnodes: [{name: a, url: %q}]\n", tokens.Path, e.URL()))
	if err != nil {
		t.Fatal(err)
	}
	r.Control, err = controlplane.Start(controlplane.Options{Config: c, Fleet: r.Fleet, Index: r.Index, Log: slog.New(slog.NewTextHandler(r.Log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Control.Stop)
	ct.Eventually(t, "a is exact", func() bool { n := r.Node("a"); return n != nil && n.Exact&1 != 0 && n.BlockTokens > 0 })
	settings, err := controlplane.DataplaneSettings(c)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	r.Data, err = dataplane.Start(dataplane.Options{
		Listener: l, Loops: 2, Fleet: r.Fleet, Index: r.Index, Settings: settings, Decisions: 100, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Data.Stop() })
	r.Control.Attach(r.Data)
	askFor(t, r, 1, "Why?", policy.ReasonOnly)
	if rec, _ := r.Data.RecordOf(fmt.Sprint("q", 1, "Why", policy.ReasonOnly)); rec.Exactness != dataplane.ExactTokens {
		t.Errorf("%v: %s", rec.Exactness, rec.Inexact)
	}
	ct.Eventually(t, "its note is heard", func() bool { return r.Index.Stats().HolderUnits > 0 })
	if _, err := r.Control.Reload(); err == nil {
		t.Error("reloaded without a file")
	}
}

// TestHandOverLate: who comes a second time while requests run is not confused
// by what was kept for the first.
func TestHandOverLate(t *testing.T) {
	e := ct.StartEngine(t, "m")
	text := fmt.Sprintf("nodes: [{name: a, url: %q}]\n", e.URL())
	old := ct.Start(t, text)
	old.WaitServed(t, "a", "m")
	for i := range 3 {
		h := meet(t, old, text)
		h.inherit(t)
		old.Ask(t, talk(fmt.Sprint(10+7*i, " topics"), "Why?"), fmt.Sprint("r", i))
		if i < 2 {
			h.giveUp(t, old)
			continue
		}
		h.end(t)
		ct.Eventually(t, "all is known", func() bool {
			return old.Index.Stats().HolderUnits > 0 && h.Index.Stats().HolderUnits == old.Index.Stats().HolderUnits
		})
	}
}

// TestOfferIsJSON: what is known of a node is written and read without loss.
func TestOfferIsJSON(t *testing.T) {
	n := takeover.Node{
		Spec:  state.Spec{Name: "a", URL: "http://h:1", Weight: 2, KVEvents: state.KVEvents{Endpoint: "tcp://h:2", Ranks: 2}},
		Added: true, Ready: true, Drained: true, Engine: "vllm", Exact: 5, Model: "m", UnitTokens: 16,
		Models: []state.Served{{ID: "m", MaxModelLen: 7, Root: "r", Parent: "p"}},
		Sample: state.Sample{KVUse: fleet.Gauge{Value: 0.25, Known: true}, BlockTokens: 16, CacheTokens: 1 << 40},
		Speed:  takeover.Speed{Prefill: fleet.Gauge{Value: 1e5, Known: true}},
	}
	raw, err := json.Marshal(n)
	if err != nil {
		t.Fatal(err)
	}
	var read takeover.Node
	if err := json.Unmarshal(raw, &read); err != nil || fmt.Sprintf("%+v", read) != fmt.Sprintf("%+v", n) {
		t.Errorf("%+v is read as %+v, %v", n, read, err)
	}
}
