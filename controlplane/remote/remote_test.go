package remote

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/controlplane/state"
	"warmpath/scaler"
)

func key(number string) string { return "o-" + epoch + number }

// Both routers get all nodes, and what they say adds up.
func TestTwoRouters(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Publish([]scaler.Owned{owned("1", scaler.StageComing), owned("2", scaler.StageComing)})
		w.pass(1)
		for _, f := range []*fake{w.a, w.b} {
			if got := f.names(); !slices.Equal(got, []string{key("1"), key("2")}) {
				t.Fatalf("a router has %q", got)
			}
		}
		if s := w.signals(); s.Traffic.SpanSeconds != 0 || s.Missing != "" {
			t.Errorf("the first signals: %+v", s)
		}
		w.a.set(func(f *fake) { f.asked, f.nodes[key("1")].InFlight = 10, 2 })
		w.b.set(func(f *fake) { f.asked, f.nodes[key("1")].InFlight = 20, 3 })
		w.pass(2)
		s := w.signals()
		if s.Missing != "" || s.Traffic.Requests != 30 || s.Traffic.SpanSeconds != 2 || len(s.Nodes) != 2 || s.Nodes[0].InFlight != 5 {
			t.Errorf("signals: %+v", s)
		}
		if since := time.Duration(s.NowNs - s.Nodes[0].SinceNs); since < 0 || since > time.Second {
			t.Errorf("a router's time is taken for %v ago", since)
		}
		if n := w.watched(key("1")); n.InFlight != 5 || n.Phase != scaler.Ready || n.Draining {
			t.Errorf("watch: %+v", n)
		}
		if _, ok := w.Watch(); ok {
			t.Error("Watch says the same a second time")
		}
		w.a.set(func(f *fake) { f.asked = 11 })
		if s := w.signals(); s.Traffic.SpanSeconds != 0 || s.Missing != "" {
			t.Errorf("a reading was used twice: %+v", s)
		}
		w.pass(1)
		if s := w.signals(); s.Traffic.Requests != 1 {
			t.Errorf("traffic was lost: %+v", s)
		}
		claim := w.a.claims[len(w.a.claims)-1]
		if claim != (scaler.Claim{ID: epoch, Process: w.mark, Fleet: "f", Model: "m"}) {
			t.Errorf("claim: %+v", claim)
		}
	})
}

// While a router is silent nothing is decided, and nothing of the others' traffic is
// lost.
func TestSilence(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Publish([]scaler.Owned{owned("1", scaler.StageServing)})
		w.pass(2)
		w.signals()
		w.b.set(func(f *fake) { f.silent = true })
		w.a.set(func(f *fake) { f.asked = 50 })
		w.pass(2)
		if s := w.signals(); s.Missing != "" || s.Traffic.SpanSeconds != 0 {
			t.Errorf("frozen too early, or one router alone is believed: %+v", s)
		}
		w.pass(6)
		s := w.signals()
		if !strings.Contains(s.Missing, "http://b has not answered for") || len(s.Nodes) != 1 {
			t.Errorf("signals: %+v", s)
		}
		c := scaler.DefaultConfig()
		if d, _ := scaler.Plan(s, scaler.NewHistory(), &c); d.Action != scaler.ActionFrozen {
			t.Errorf("decision: %+v", d)
		}
		if _, ok := w.Watch(); ok {
			t.Error("Watch is ok")
		}
		if st := w.Status(); st[0].Error != "" || !strings.Contains(st[1].Error, "deadline") {
			t.Errorf("status: %+v", st)
		}
		w.Publish([]scaler.Owned{owned("1", scaler.StageServing), owned("2", scaler.StageComing)})
		w.pass(1)
		if !slices.Contains(w.a.names(), key("2")) {
			t.Error("the other router waits for the silent one")
		}
		w.b.set(func(f *fake) { f.silent, f.asked = false, 5 })
		w.pass(3)
		if s := w.signals(); s.Missing != "" || s.Traffic.Requests < 50 {
			t.Errorf("after it: %+v", s)
		}
		if !slices.Contains(w.b.names(), key("2")) {
			t.Error("the router that was silent lacks a node")
		}
	})
}

// A router that was started again gets the nodes again, but none that leave; until it
// has them nothing is decided.
func TestRestartedRouter(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Publish([]scaler.Owned{owned("1", scaler.StageServing), owned("2", scaler.StageLeaving)})
		w.pass(2)
		if got := w.a.names(); !slices.Equal(got, []string{key("1")}) {
			t.Fatalf("a router has %q: one that leaves was given to it", got)
		}
		w.signals()
		w.a.set(func(f *fake) { f.nodes[key("1")].State = "joining" })
		w.b.set(func(f *fake) { f.asked = 7 })
		w.pass(1)
		if s := w.signals(); s.Missing == "" || s.Traffic.SpanSeconds != 0 {
			t.Errorf("signals beside a node that a router has lost: %+v", s)
		}
		w.a.set(func(f *fake) { f.nodes[key("1")].State = "ready" })
		w.pass(1)
		if s := w.signals(); s.Missing != "" || s.Traffic.Requests != 7 || s.Traffic.SpanSeconds != 2 {
			t.Errorf("the traffic meanwhile: %+v", s)
		}
		w.a.restart()
		w.a.set(func(f *fake) { f.slow = true })
		w.pass(1)
		w.pass(1)
		if s := w.signals(); !strings.Contains(s.Missing, "takes \""+key("1")+"\" in") {
			t.Errorf("signals: %+v", s)
		}
		w.a.set(func(f *fake) { f.nodes[key("1")].State = "ready" })
		w.pass(1)
		if s := w.signals(); s.Missing != "" {
			t.Errorf("the router has it: %q", s.Missing)
		}
		w.a.restart()
		w.pass(2)
		w.pass(15)
		if s := w.signals(); s.Missing != "" {
			t.Errorf("it is not waited for for ever: %q", s.Missing)
		}
	})
}

// A node is empty when both routers say that it drains and that nothing is on it.
func TestDrain(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Publish([]scaler.Owned{owned("1", scaler.StageServing)})
		w.pass(1)
		w.a.set(func(f *fake) { f.nodes[key("1")].InFlight = 1 })
		w.b.set(func(f *fake) { f.nodes[key("1")].InFlight = 1 })
		w.pass(1)
		w.Drain(key("1"), false)
		if _, ok := w.Watch(); ok {
			t.Error("what was seen before the order counts")
		}
		w.Publish([]scaler.Owned{owned("1", scaler.StageLeaving)})
		w.pass(2)
		if n := w.watched(key("1")); !n.Draining || n.InFlight != 2 {
			t.Errorf("both drain: %+v", n)
		}
		w.a.set(func(f *fake) { f.nodes[key("1")].InFlight = 0 })
		w.pass(1)
		if n := w.watched(key("1")); !n.Draining || n.InFlight != 1 {
			t.Errorf("one is empty: %+v", n)
		}
		w.b.set(func(f *fake) { f.nodes[key("1")].InFlight, f.former = 0, true })
		w.pass(1)
		if n := w.watched(key("1")); n.InFlight != 1 {
			t.Errorf("a former process may have requests there: %+v", n)
		}
		w.b.set(func(f *fake) { f.former = false })
		w.pass(1)
		if n := w.watched(key("1")); !n.Draining || n.InFlight != 0 {
			t.Errorf("both are empty: %+v", n)
		}
		// It is down at one, which does not know that it is to drain.
		w.b.set(func(f *fake) { f.nodes[key("1")].Drain, f.nodes[key("1")].State = false, "down" })
		w.pass(1)
		if n := w.watched(key("1")); n.Draining || n.Phase != scaler.Starting {
			t.Errorf("it may come back there: %+v", n)
		}
		w.pass(1)
		if n := w.watched(key("1")); !n.Draining {
			t.Errorf("it was not asked to drain again: %+v", n)
		}
		w.a.set(func(f *fake) { f.nodes[key("1")].Drain, f.nodes[key("1")].State = false, "ready" })
		w.pass(1)
		if n := w.watched(key("1")); n.Draining || n.Phase != scaler.Ready {
			t.Errorf("one sends there: %+v", n)
		}
		w.pass(1)
		w.Drain(key("1"), true)
		w.Publish([]scaler.Owned{owned("1", scaler.StageServing)})
		w.pass(2)
		if n := w.watched(key("1")); n.Draining || n.Phase != scaler.Ready {
			t.Errorf("it was not taken back: %+v", n)
		}
		w.a.set(func(f *fake) { f.nodes[key("1")].Drain = true })
		w.did()
		w.pass(2)
		if calls := w.a.did(); len(calls) > 0 {
			t.Errorf("what an operator drained is undone: %q", calls)
		}
	})
}

func (w *world) did() { w.a.did(); w.b.did() }

// What is not wanted is taken away if it is this scaler's, be it of a process before.
func TestRemoved(t *testing.T) {
	inWorld(t, func(w *world) {
		left := func(f *fake) { // by a process before, or by others
			f.nodes["mine"] = &node{Name: "mine", State: "ready", Source: state.APISource}
			f.nodes["o-"+epoch] = &node{Name: "o-" + epoch, State: "ready", Source: state.APISource}
			f.nodes["static-"+epoch+"1"] = &node{Name: "static-" + epoch + "1", State: "ready", Source: "static"}
			f.nodes[key("1")] = &node{Name: key("1"), URL: "http://10.0.0.1:8001", State: "draining", Drain: true, Source: state.APISource}
			f.nodes[key("7")] = &node{Name: key("7"), State: "ready", Source: state.APISource}
		}
		w.a.set(left)
		w.pass(2)
		if calls := w.a.did(); len(calls) > 0 {
			t.Errorf("before anything was published: %q", calls)
		}
		adopted := scaler.Owned{Key: "o-other1", Offer: "o", URL: "http://10.0.0.9:8000", Stage: scaler.StageServing}
		back := owned("1", scaler.StageServing)
		back.Why = "it is needed again"
		w.Publish([]scaler.Owned{back, adopted})
		w.pass(1)
		if got := w.a.names(); !slices.Equal(got, []string{"mine", "o-" + epoch, key("1"), "o-other1", "static-" + epoch + "1"}) {
			t.Errorf("the router has %q", got)
		}
		if w.pass(1); w.a.nodes[key("1")].Drain {
			t.Error("a node that serves was not taken back from a process before")
		}
		// One router has lost what is to be removed now, between two looks.
		w.Publish(nil)
		w.b.restart()
		w.pass(1)
		w.pass(1)
		if got := w.a.names(); !slices.Equal(got, []string{"mine", "o-" + epoch, "static-" + epoch + "1"}) {
			t.Errorf("the router has %q", got)
		}
		if s := w.Status(); s[0].Error != "" || s[1].Error != "" {
			t.Errorf("status: %+v", s)
		}
	})
}

// A node that a router has from elsewhere, or that none can take, is told of.
func TestNotTaken(t *testing.T) {
	inWorld(t, func(w *world) {
		w.a.set(func(f *fake) { f.nodes[key("1")] = &node{Name: key("1"), State: "ready", Source: "static"} })
		bad := owned("2", scaler.StageComing)
		bad.URL = "nowhere"
		w.Publish([]scaler.Owned{owned("1", scaler.StageComing), bad})
		w.pass(1)
		for _, want := range []string{"nowhere", "router http://a: POST /api/nodes: a node of that name exists already", "(409 Conflict)"} {
			if got := w.Refused(); !strings.Contains(got, want) || strings.Contains(got, "http://b") {
				t.Errorf("refused: %q; want %q in it", got, want)
			}
		}
		if n := w.watched(key("1")); n.Phase != scaler.Ready {
			t.Errorf("it serves at the other: %+v", n)
		}
		w.Publish(nil)
		w.pass(1)
		if got := w.Refused(); got != "" {
			t.Errorf("refused: %q", got)
		}
	})
}

// An engine that comes up elsewhere is published there.
func TestMoved(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Publish([]scaler.Owned{owned("1", scaler.StageServing)})
		w.pass(1)
		moved := owned("1", scaler.StageServing)
		moved.URL = "http://10.0.0.2:8000"
		w.Publish([]scaler.Owned{moved})
		w.pass(1)
		if url := w.a.nodes[key("1")].URL; url != moved.URL {
			t.Errorf("it is at %q", url)
		}
	})
}

// A 404 for what is not there any more is no failure; other refusals are said once.
func TestUnknownThere(t *testing.T) {
	inWorld(t, func(w *world) {
		w.Publish([]scaler.Owned{owned("1", scaler.StageServing)})
		w.pass(1)
		r := w.all[0]
		v := &view{nodes: map[string]node{key("9"): {Name: key("9"), Source: state.APISource}, key("1"): {Name: key("1"), URL: "http://10.0.0.1:8001", Source: state.APISource}}}
		w.a.did()
		r.act(w.t.Context(), v)
		if calls := w.a.did(); !slices.Equal(calls, []string{"remove " + key("9")}) || len(r.said) > 0 {
			t.Errorf("%q, said %q", calls, r.said)
		}
	})
}

func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, began: time.Now(), a: newFake(), b: newFake()}
		w.b.token, w.a.token = "right", "right"
		opt := options(w)
		opt.Token = "wrong"
		err := New(opt).Check(t.Context())
		for _, want := range []string{"http://a", "http://b", "401", "scaler.router_token", "admin.token"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a wrong token: %v; want %q in it", err, want)
			}
		}
		opt.Token = "right"
		if err := New(opt).Check(t.Context()); err != nil {
			t.Errorf("the right token: %v", err)
		}
		w.a.other = true
		w.b.silent = true
		if err := New(opt).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "another scaler") || strings.Contains(err.Error(), "http://b") {
			t.Errorf("another scaler, and a router that is silent: %v", err)
		}
	})
	inWorld(t, func(w *world) {
		w.pass(1)
		w.b.set(func(f *fake) { f.other = true })
		w.pass(1)
		if s := w.signals(); !strings.Contains(s.Missing, "router http://b refuses: POST /api/scaler/claim: another scaler") {
			t.Errorf("signals: %+v", s)
		}
	})
}

// TestTwin: a process before that was killed is waited for, one that lives is not; whoever
// ends says so.
func TestTwin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, began: time.Now(), a: newFake(), b: newFake()}
		began := time.Now()
		w.a.twin, w.b.twin = began.Add(3500*time.Millisecond), began.Add(time.Second)
		if err := New(options(w)).Check(t.Context()); err != nil || time.Since(began) != 4*time.Second {
			t.Errorf("it was killed: %v after %v", err, time.Since(began))
		}
		began = time.Now()
		w.a.twin = began.Add(time.Hour)
		if err := New(options(w)).Check(t.Context()); err == nil || !strings.Contains(err.Error(), "with this journal") || time.Since(began) > 2*scaler.TwinSeconds*time.Second {
			t.Errorf("it lives: %v after %v", err, time.Since(began))
		}
		w.a.twin = time.Time{}
		ctx, cancel := context.WithCancel(t.Context())
		rs, ended := New(options(w)), make(chan struct{})
		go func() { defer close(ended); rs.Run(ctx) }()
		w.pass(1)
		cancel()
		<-ended
		if claim := w.a.claims[len(w.a.claims)-1]; !claim.Ends || claim.Process != rs.mark {
			t.Errorf("it has not said that it ends: %+v", claim)
		}
	})
}

// TestOthersName: a router has the node from a source of its own, under another name. It
// is the scaler's all the same, in what is known of it and what is done with it.
func TestOthersName(t *testing.T) {
	inWorld(t, func(w *world) {
		n := owned("1", scaler.StageServing)
		w.a.set(func(f *fake) {
			f.nodes["pod"] = &node{Name: "pod", URL: n.URL, State: "ready", Source: "kubernetes", InFlight: 7}
		})
		w.Publish([]scaler.Owned{n})
		w.pass(2)
		w.did()
		w.pass(1)
		if got, calls := w.a.names(), w.a.did(); !slices.Equal(got, []string{"pod"}) || len(calls) > 0 || w.Refused() != "" {
			t.Errorf("it has %q, was asked %q and refuses %q", got, calls, w.Refused())
		}
		if s := w.signals(); s.Missing != "" || len(s.Nodes) != 1 || s.Nodes[0].Name != n.Key || s.Nodes[0].Phase != scaler.Ready || s.Nodes[0].InFlight != 7 {
			t.Errorf("signals: %+v", s)
		}
		if got := w.watched(n.Key); got.Draining || got.InFlight != 7 || got.Phase != scaler.Ready {
			t.Errorf("a router sends to it: %+v", got)
		}
		w.pass(1)
		w.Drain(n.Key, false)
		n.Stage = scaler.StageLeaving
		w.Publish([]scaler.Owned{n})
		w.pass(2)
		if got := w.watched(n.Key); !got.Draining || got.InFlight != 7 {
			t.Errorf("it was told to leave: %+v", got)
		}
		w.Drain(n.Key, true)
		n.Stage = scaler.StageServing
		w.Publish([]scaler.Owned{n})
		w.pass(2)
		if got := w.watched(n.Key); got.Draining || got.Phase != scaler.Ready {
			t.Errorf("it was taken back: %+v", got)
		}
	})
}

// TestDrainOutlivesRestart: what an operator drains stays drained when the scaler is started
// again.
func TestDrainOutlivesRestart(t *testing.T) {
	inWorld(t, func(w *world) {
		n := owned("1", scaler.StageServing)
		n.Why = "it serves"
		w.a.set(func(f *fake) {
			f.nodes[n.Key] = &node{Name: n.Key, URL: n.URL, State: "draining", Drain: true, Source: state.APISource}
		})
		w.Publish([]scaler.Owned{n})
		w.pass(3)
		w.a.set(func(f *fake) {
			if !f.nodes[n.Key].Drain {
				t.Error("it was taken back")
			}
		})
	})
}
