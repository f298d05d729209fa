package controlplane_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	ct "warmpath/controlplane/controltest"
	"warmpath/scaler"
)

// scaled is the configuration of a router whose scaler acts in seconds. more are
// further keys of scaler, each on a line of its own.
func scaled(folder string, more string, offers ...string) string {
	return fmt.Sprintf("nodes: []\nstate_dir: %q\nscaler:\n  enabled: true\n  interval: 1s\n  stabilise_down: 1s\n  cool_down: 1s\n  offers: [%s]\n%s",
		folder, strings.Join(offers, ", "), more)
}

// lastDecision is what the scaler decided last.
func lastDecision(r *ct.Router) scaler.Decided {
	if s, _ := r.Control.Scaler(); s != nil {
		return s.Last
	}
	return scaler.Decided{}
}

// From no node to one for the request that waits, and back to none; and once more.
func TestScaleFromZero(t *testing.T) {
	t.Parallel()
	e := ct.StartEngine(t, "m")
	p := ct.StartProvider(t, e.URL())
	r := ct.Start(t, scaled(t.TempDir(), "  min: 0\n  idle: 1s\n", p.Offer("hook")))
	for turn := range 2 {
		ct.Eventually(t, "a request would wait", func() bool { return r.Fleet.Load().Expects(-1) })
		status, node := r.Ask(t, ct.Chat("m", 1000), fmt.Sprint("held-", turn))
		if status != http.StatusOK || !strings.HasPrefix(node, "hook-") {
			t.Fatalf("turn %d: %d from %q, %+v", turn, status, node, lastDecision(r))
		}
		rec, ok := r.Data.RecordOf(fmt.Sprint("held-", turn))
		if !ok || rec.Node != node {
			t.Errorf("turn %d: its record is %+v", turn, rec)
		}
		ct.Eventually(t, "the node is given back", func() bool { return len(p.Made()) == 0 })
		r.WaitState(t, node, "")
		if d := lastDecision(r); d.Target != 0 {
			t.Errorf("turn %d: %+v", turn, d)
		}
	}
	if n := p.Asked("create"); n < 2 || n > 3 {
		t.Errorf("%d nodes were asked for", n)
	}
}

// When no offer gives a node any more, new requests are told so at once; those that
// wait have their time, in which one may yet.
func TestHeldInVain(t *testing.T) {
	t.Parallel()
	p := ct.StartProvider(t) // it has none
	r := ct.Start(t, "timeouts: {hold: 5s}\n"+scaled(t.TempDir(), "  min: 0\n", p.Offer("hook")))
	ct.Eventually(t, "a request would wait", func() bool { return r.Fleet.Load().Expects(-1) })
	held := make(chan int, 1)
	go func() {
		status, _ := r.Ask(t, ct.Chat("m", 1000), "held")
		held <- status
	}()
	ct.Eventually(t, "the offer is withheld", func() bool {
		s, _ := r.Control.Scaler()
		return strings.HasSuffix(s.Offers[0].Withheld, "refused for capacity: none is left") && !r.Fleet.Load().Expects(-1)
	})
	if r.Data.Holds()[""].Now != 1 {
		t.Error("the request that came first does not wait")
	}
	if status, _ := r.Ask(t, ct.Chat("m", 1000), "after"); status != http.StatusServiceUnavailable {
		t.Errorf("a request that came then: %d", status)
	}
	if h := r.Data.Holds()[""]; h.Ever != 1 {
		t.Errorf("it was held: %+v", h)
	}
	if status := <-held; status != http.StatusServiceUnavailable {
		t.Errorf("the request that waited: %d", status)
	}
	if n := p.Asked("create"); n != 1 {
		t.Errorf("%d nodes were asked for", n)
	}
}

// While nothing is known of the engines nothing is changed, and it is said.
func TestMissingSignalsFreeze(t *testing.T) {
	t.Parallel()
	a, b := ct.StartEngine(t, "m"), ct.StartEngine(t, "m")
	p := ct.StartProvider(t, a.URL(), b.URL())
	r := ct.Start(t, scaled(t.TempDir(), "  min: 1\n  replace_down: 1s\n", p.Offer("hook")))
	ct.Eventually(t, "a node serves and says how it is", func() bool {
		reading := r.Control.Reading("")
		return len(reading.Nodes) == 1 && reading.Nodes[0].KVUse.Known
	})
	a.Mute.Store(true)
	b.Mute.Store(true)
	ct.Eventually(t, "the scaler is frozen", func() bool { return lastDecision(r).Action == scaler.ActionFrozen })
	d := lastDecision(r)
	if d.Reason != "signals" || d.Target != 1 || !strings.Contains(d.Words, "nothing is changed: this router: the engines of 1 of 1 nodes have not said how they are for 5s") {
		t.Errorf("frozen: %+v", d)
	}
	if len(p.Made()) != 1 {
		t.Errorf("nodes while it is frozen: %q", p.Made())
	}
	a.Mute.Store(false)
	b.Mute.Store(false)
	ct.Eventually(t, "it thaws", func() bool { return lastDecision(r).Action == scaler.ActionHold })
}

// A scaler that was halted changes nothing any more, and its nodes serve on; what it
// owns is free for a successor only when it has stopped.
func TestScalerHalts(t *testing.T) {
	t.Parallel()
	e := ct.StartEngine(t, "m")
	p, folder := ct.StartProvider(t, e.URL()), t.TempDir()
	r := ct.Start(t, scaled(folder, "  min: 0\n  idle: 1s\n", p.Offer("hook")))
	ct.Eventually(t, "a request would wait", func() bool { return r.Fleet.Load().Expects(-1) })
	if status, _ := r.Ask(t, ct.Chat("m", 100), "first"); status != http.StatusOK {
		t.Fatal(status)
	}
	r.Control.HaltScaler()
	asked, made := [3]int{p.Asked("create"), p.Asked("delete"), p.Asked("list")}, p.Made()
	at := r.Control.State().NowNs
	ct.Eventually(t, "it would have given the node back", func() bool { return r.Control.State().NowNs > at+3e9 })
	if now := [3]int{p.Asked("create"), p.Asked("delete"), p.Asked("list")}; now != asked || len(made) > 1 {
		t.Errorf("after it was halted its provider was asked: %v, before %v", now, asked)
	}
	if _, err := scaler.OpenJournal(folder); err == nil {
		t.Error("the journal was free while it may still have requests on its nodes")
	}
	r.Control.HaltScaler() // twice is no error
	r.Control.Stop()
	r.Control.Stop()
	if log := r.Log.String(); strings.Contains(log, "close journal") || strings.Contains(log, "a provider's end") {
		t.Errorf("log:\n%s", log)
	}
	j, err := scaler.OpenJournal(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

// While another process has the journal the scaler waits, and says for what.
func TestScalerWaits(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	j, err := scaler.OpenJournal(folder)
	if err != nil {
		t.Fatal(err)
	}
	p := ct.StartProvider(t)
	r := ct.Start(t, scaled(folder, "", p.Offer("hook")))
	ct.Eventually(t, "it waits", func() bool {
		s, waits := r.Control.Scaler()
		return s == nil && strings.Contains(waits, "another scaler has this journal")
	})
	at := r.Control.State().NowNs
	ct.Eventually(t, "it has tried again", func() bool { return r.Control.State().NowNs > at+25e8 })
	if n := strings.Count(r.Log.String(), "waits until the process before has ended"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
	if p.Asked("list") != 0 {
		t.Error("it asked its provider while it waits")
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	ct.Eventually(t, "it runs", func() bool { s, waits := r.Control.Scaler(); return s != nil && waits == "" })
}

// A journal that cannot be read is not overwritten; it is said until it is mended.
func TestScalerDamagedJournal(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := folder + "/scaler.journal"
	if err := os.WriteFile(path, []byte("{\"epoch\":\"a\"}\nnonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := ct.StartProvider(t)
	r := ct.Start(t, scaled(folder, "", p.Offer("hook")))
	ct.Eventually(t, "it says what is wrong", func() bool {
		s, waits := r.Control.Scaler()
		return s == nil && strings.Contains(waits, "line 2") && strings.Contains(waits, "mend the line")
	})
	if err := os.WriteFile(path, []byte("{\"epoch\":\"a\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ct.Eventually(t, "it runs", func() bool { s, _ := r.Control.Scaler(); return s != nil })
}

// A node whose address no node can have is not taken in; it is said why, once.
func TestScalerRefused(t *testing.T) {
	t.Parallel()
	p := ct.StartProvider(t, "https://secure.example:8000")
	r := ct.Start(t, scaled(t.TempDir(), "  min: 1\n  max: 1\n", p.Offer("hook")))
	ct.Eventually(t, "it is refused", func() bool { return strings.Contains(r.Control.ScalerRefused(), "https to nodes is not available") })
	at := time.Now()
	ct.Eventually(t, "it was seen again", func() bool { return p.Asked("list") > 1 && time.Since(at) > 3*time.Second })
	if n := strings.Count(r.Log.String(), "nodes cannot be taken in"); n != 1 {
		t.Errorf("the log says it %d times", n)
	}
}

// Nodes of the scaler that the router has from another source, under other names, are the
// scaler's all the same: they are counted once, and given back.
func TestScalerNodesOfOtherNames(t *testing.T) {
	t.Parallel()
	one, two := ct.StartEngine(t, "m"), ct.StartEngine(t, "m")
	p, folder := ct.StartProvider(t, one.URL(), two.URL()), t.TempDir()
	start := func(limits string) *ct.Router {
		nodes := fmt.Sprintf("nodes: [{name: mine, url: %q}, {name: yours, url: %q}]", one.URL(), two.URL())
		return ct.Start(t, strings.Replace(scaled(folder, limits, p.Offer("hook")), "nodes: []", nodes, 1))
	}
	r := start("  min: 3\n  max: 3\n")
	ct.Eventually(t, "both are the scaler's, and a third one is lacking", func() bool {
		s, _ := r.Control.Scaler()
		return s != nil && len(p.Made()) == 2 && s.Offers[0].Withheld != "" && len(s.Nodes) == 2 &&
			s.Nodes[0].Stage == scaler.StageServing && s.Nodes[1].Stage == scaler.StageServing
	})
	r.Control.Stop()
	start("  min: 1\n  max: 1\n")
	ct.Eventually(t, "one is given back", func() bool { return len(p.Made()) == 1 })
}

// A router without a scaler has none to ask.
func TestNoScaler(t *testing.T) {
	t.Parallel()
	r := ct.Start(t, "nodes: []\n")
	r.Control.HaltScaler()
	if s, waits := r.Control.Scaler(); s != nil || waits != "" || r.Control.ScalerRefused() != "" || r.Control.ScalerCallback("x") != nil {
		t.Errorf("%+v, %q", s, waits)
	}
}
