package controlplane_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"warmpath/bench/engine"
	"warmpath/controlplane"
	ct "warmpath/controlplane/controltest"
	"warmpath/controlplane/kvevent"
	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
)

// eventful is a simulated engine that publishes KV-cache events, and whose
// prompts have the tokens that the router makes of them: chats reach the
// simulator as lists of ids.
type eventful struct {
	*engine.Engine
	tokens *ct.Tokens
	server *httptest.Server
}

func startEventful(t *testing.T, tokens *ct.Tokens, c engine.Config) *eventful {
	t.Helper()
	c.Model, c.EventsEndpoint, c.AsFastAsPossible = "m", "tcp://127.0.0.1:0", true
	sim, err := engine.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sim.Close() })
	e := &eventful{Engine: sim, tokens: tokens}
	e.server = httptest.NewServer(e)
	t.Cleanup(e.server.Close)
	return e
}

func (e *eventful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		e.Handler().ServeHTTP(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if r.URL.Path == "/tokenize" {
		e.tokens.Answer(w, body)
		return
	}
	ids := e.tokens.Chat(body)
	body, _ = json.Marshal(object{"model": "m", "max_tokens": 3, "prompt": ids})
	again := r.Clone(r.Context())
	again.URL.Path, again.Body, again.ContentLength = "/v1/completions", io.NopCloser(bytes.NewReader(body)), int64(len(body))
	e.Handler().ServeHTTP(w, again)
}

// following is a router that follows the events of such engines, "a" and on.
type following struct {
	*ct.Router
	t *testing.T
	n int // requests so far
}

// follow starts a router and waits until it relies on all ranks and knows the
// prompts. more is more text of each node's kv_events.
func follow(t *testing.T, tokens *ct.Tokens, more string, engines ...*eventful) *following {
	t.Helper()
	f := &following{Router: ct.Start(t, eventfulText(tokens, more, engines...)), t: t}
	for i, e := range engines {
		name := string(rune('a' + i))
		f.WaitServed(t, name, "m")
		f.waitExact(name)
		if e.ReplayEndpoint() != "" {
			f.waitTrust(name, fleet.TrustLive)
		}
	}
	return f
}

func (f *following) waitExact(name string) {
	f.t.Helper()
	ct.Eventually(f.t, "prompts are exact at "+name, func() bool { n := f.Node(name); return n.Exact&1 != 0 && n.BlockTokens > 0 })
}

// waitTrust waits until all ranks of a node have it.
func (f *following) waitTrust(name string, want fleet.Trust) {
	f.t.Helper()
	ct.Eventually(f.t, fmt.Sprintf("%s is %v", name, want), func() bool {
		for _, trust := range f.Node(name).Trust {
			if trust != want {
				return false
			}
		}
		return true
	})
}

// liveAgain waits after a restart until the streams are live again and prompts
// exact, and until the State has surely heard all that takes both away: of trust
// it is told each 100 ms, and metrics, which show a restart, are read each second.
func (f *following) liveAgain(name string) {
	f.t.Helper()
	const looks = 260 // 5 ms apart
	seen := 0
	ct.Eventually(f.t, name+" is live again", func() bool {
		seen++
		n := f.Node(name)
		for _, s := range f.Control.Streams() {
			if !s.Status.Connected || s.Status.Trust != kvevent.Live || n.Trust[s.Rank] != fleet.TrustLive || n.Exact&1 == 0 {
				seen = 0
			}
		}
		return seen >= looks
	})
}

// talk is a chat of one long system prompt and a question. Those of two topics
// have no block in common, if the topics begin differently.
func talk(topic, question string) []byte {
	body, _ := json.Marshal(object{"model": "m", "messages": []object{
		{"role": "system", "content": strings.Repeat(topic+" are in the handbook: answer from it, and from nothing else. ", 12)},
		{"role": "user", "content": question},
	}})
	return body
}

// ask sends a chat and returns its record. What was matched must be what the
// engine says it took from its cache.
func (f *following) ask(body []byte) dataplane.Record {
	f.t.Helper()
	f.n++
	id := fmt.Sprint("r", f.n)
	if status, _ := f.Ask(f.t, body, id); status != http.StatusOK {
		f.t.Fatalf("%s: status %d", id, status)
	}
	var rec dataplane.Record
	ct.Eventually(f.t, "a record of "+id, func() (ok bool) {
		rec, ok = f.Data.RecordOf(id)
		return ok && rec.Ended
	})
	if rec.Exactness != dataplane.ExactTokens || rec.EnginePrompt != int64(rec.PromptTokens) || int64(rec.Candidates[0].MatchedTokens) != rec.CachedTokens {
		f.t.Errorf("%s: %v (%s), %d tokens, %d matched; the engine counts %d, %d of them cached",
			id, rec.Exactness, rec.Inexact, rec.PromptTokens, rec.Candidates[0].MatchedTokens, rec.EnginePrompt, rec.CachedTokens)
	}
	return rec
}

// reported waits until the blocks of an answered prompt were reported, so that
// nothing is merely expected any more: those of all blocks, prompt and answer.
func (f *following) reported(e *eventful) {
	f.t.Helper()
	ct.Eventually(f.t, "all batches have arrived", func() bool {
		return f.total(func(s controlplane.StreamStatus) uint64 { return s.Status.Batches }) >= e.State().NextSequence
	})
}

// total adds up a figure of all streams.
func (f *following) total(figure func(controlplane.StreamStatus) uint64) (sum uint64) {
	for _, s := range f.Control.Streams() {
		sum += figure(s)
	}
	return sum
}

// TestStreamOfEvents: a node's trust goes from cold to live, its blocks are
// known as it has them, and a restart forgets them.
func TestStreamOfEvents(t *testing.T) {
	for name, c := range map[string]engine.Config{"with replay": {ReplayEndpoint: "tcp://127.0.0.1:0"}, "without": {}} {
		t.Run(name, func(t *testing.T) {
			tokens := ct.TinyTokens(t, "..", "m")
			e := startEventful(t, tokens, c)
			f := follow(t, tokens, "", e)
			if c.ReplayEndpoint == "" { // before the first batch nothing is known
				f.waitTrust("a", fleet.TrustCold)
				ct.Eventually(t, "the stream is connected", func() bool { s := f.Control.Streams(); return len(s) == 1 && s[0].Status.Connected })
				f.Ask(t, talk("warming up", "Are you there?"), "warm")
				f.waitTrust("a", fleet.TrustLive)
			}
			first := f.ask(talk("sails", "Why?"))
			if first.CachedTokens != 0 || first.Reason == policy.ReasonPrefix {
				t.Errorf("the first: %+v", first)
			}
			f.reported(e)
			if again := f.ask(talk("sails", "Why?")); again.CachedTokens < 100 || again.CachedTokens%16 != 0 {
				t.Errorf("again: %d tokens cached", again.CachedTokens)
			}
			if other := f.ask(talk("sails", "A question that is another one?")); other.CachedTokens < 100 {
				t.Errorf("another question: %d tokens cached", other.CachedTokens)
			}
			f.reported(e)
			units := f.Index.SlotUnits(f.Node("a").Slot)
			if held := int64(e.State().BlocksCached); units != held {
				t.Errorf("%d units in the index, %d blocks in the engine's cache", units, held)
			}
			if err := e.Restart(); err != nil {
				t.Fatal(err)
			}
			ct.Eventually(t, "the restart was seen", func() bool {
				return f.total(func(s controlplane.StreamStatus) uint64 { return s.Status.Restarts + s.Status.Reconnects }) > 0
			})
			if c.ReplayEndpoint == "" {
				f.Ask(t, talk("warming up", "Are you there again?"), "warm again")
			}
			f.liveAgain("a")
			if after := f.ask(talk("sails", "Why?")); after.CachedTokens != 0 {
				t.Errorf("after the restart: %d tokens cached", after.CachedTokens)
			}
			f.reported(e)
			f.ask(talk("sails", "Why?"))
			if log := f.Log.String(); strings.Contains(log, "level=ERROR") || !strings.Contains(log, `node=a rank=0 from=cold to=live`) {
				t.Errorf("log:\n%s", log)
			}
		})
	}
}

// TestStreamsOfRanks: each rank has its own stream, and is asked for what it
// holds.
func TestStreamsOfRanks(t *testing.T) {
	tokens := ct.TinyTokens(t, "..", "m")
	e := startEventful(t, tokens, engine.Config{Ranks: 3, ReplayEndpoint: "tcp://127.0.0.1:0"})
	f := follow(t, tokens, ", ranks: 3", e)
	used := 0
	for round := range 3 {
		for topic := range 6 {
			rec := f.ask(talk(fmt.Sprint(10+7*topic, " topics"), fmt.Sprint("question ", round)))
			if (rec.CachedTokens > 100) != (round > 0) {
				t.Errorf("round %d, topic %d: %d tokens cached", round, topic, rec.CachedTokens)
			}
			f.reported(e)
		}
	}
	sum := int64(0)
	for rank := range 3 {
		units := f.Index.SlotUnits(f.Node("a").Slot + rank)
		if sum += units; units > 0 {
			used++
		}
	}
	if held := int64(e.State().BlocksCached); used < 2 || sum != held {
		t.Errorf("%d ranks hold %d units; the engine has %d blocks", used, sum, held)
	}
	for _, s := range f.Control.Streams() {
		if s.Node != "a" || s.Rank < 0 || s.Rank > 2 || s.Status.Gaps != 0 || s.Counts.Stored == 0 && s.Status.Batches > 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestStreamsFollowTheFleet: events that are configured later are followed, and
// what was known is forgotten when they no longer are.
func TestStreamsFollowTheFleet(t *testing.T) {
	tokens := ct.TinyTokens(t, "..", "m")
	e := startEventful(t, tokens, engine.Config{ReplayEndpoint: "tcp://127.0.0.1:0"})
	with := fmt.Sprintf("models: [{name: m, tokenizer: %q}]\nnodes: [{name: a, url: %q, kv_events: {endpoint: %q, replay: %q}}]\n",
		tokens.Path, e.server.URL, e.EventsEndpoint(), e.ReplayEndpoint())
	without := fmt.Sprintf("models: [{name: m, tokenizer: %q}]\nnodes: [{name: a, url: %q}]\n", tokens.Path, e.server.URL)
	f := &following{Router: ct.Start(t, without), t: t}
	f.WaitServed(t, "a", "m")
	f.waitExact("a")
	if trust := f.Node("a").Trust; len(trust) != 1 || trust[0] != fleet.TrustNone || len(f.Control.Streams()) != 0 {
		t.Errorf("trust %v, streams %v", trust, f.Control.Streams())
	}
	f.ask(talk("sails", "Why?"))
	ct.Eventually(t, "the prompt is learned", func() bool { return f.Index.SlotUnits(f.Node("a").Slot) > 5 })
	f.ask(talk("sails", "Why?"))
	reload := func(text string) {
		t.Helper()
		f.Rewrite(text)
		if _, err := f.Control.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	reload(with)
	f.waitTrust("a", fleet.TrustLive)
	f.reported(e)
	if units, held := f.Index.SlotUnits(f.Node("a").Slot), int64(e.State().BlocksCached); units != held {
		t.Errorf("%d units were reported, the engine has %d", units, held)
	}
	f.ask(talk("sails", "How?"))
	reload(without)
	f.waitTrust("a", fleet.TrustNone)
	ct.Eventually(t, "what was reported is forgotten", func() bool { return f.Index.SlotUnits(f.Node("a").Slot) == 0 })
	if s := f.Control.Streams(); len(s) != 0 {
		t.Errorf("streams %+v", s)
	}
}
