package controlplane_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"warmpath/controlplane"
	"warmpath/controlplane/config"
	ct "warmpath/controlplane/controltest"
	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
)

// Nodes come up, name their models and their capacity, take requests, and what
// was sent to them is in the index.
func TestFleetComesUp(t *testing.T) {
	a, b := ct.StartEngine(t, "m"), ct.StartEngine(t, "m")
	r := ct.Start(t, fmt.Sprintf("nodes: [{name: a, url: %q}, {name: b, url: %q, weight: 2}]\n", a.URL(), b.URL()))
	if err := r.Control.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.WaitServed(t, "a", "m")
	r.WaitServed(t, "b", "m")
	ct.Eventually(t, "metrics are read", func() bool {
		n := r.Node("a")
		return n.CacheTokens == 16000 && n.BlockTokens == 16 && n.KVUse.Known && n.KVUse.Value == 0.25 && r.Node("b").CacheTokens == 16000
	})
	if n := r.Node("b"); n.Engine != "vllm" || n.CapacityClass != 2 || n.MaxModelLen != 4096 {
		t.Errorf("node b is %+v", n)
	}
	if snap := r.Fleet.Load(); !snap.Asked || len(snap.Models) != 1 || snap.Default != 0 || snap.Seed == 0 {
		t.Errorf("snapshot %+v", snap)
	}
	status, node := r.Ask(t, ct.Chat("m", 4000), "first")
	if status != 200 || node == "" {
		t.Fatalf("status %d from %q", status, node)
	}
	ct.Eventually(t, "the prompt is in the index", func() bool { return r.Index.SlotUnits(r.Node(node).Slot) > 10 })
	if got := r.Index.SlotCapacity(r.Node(node).Slot); got != 16000/64 {
		t.Errorf("capacity %d units", got)
	}
	ct.Eventually(t, "the mean output is learned", func() bool { return r.Fleet.Load().Models[0].MeanOutput == 7 })
}

// An engine without metrics is no failure of the node, and the log does not
// fill with it.
func TestNoMetrics(t *testing.T) {
	e := ct.StartEngine(t, "m")
	e.NoText.Store(true)
	r := ct.Start(t, fmt.Sprintf("nodes: [{name: a, url: %q}]\n", e.URL()))
	r.WaitServed(t, "a", "m")
	ct.Eventually(t, "metrics were asked for", func() bool { return e.Asked.Load() > 0 })
	if n := r.Node("a"); n.State != fleet.Ready || n.Load.Failures.Load() != 0 || n.QueuedRequests.Known {
		t.Errorf("node %+v", n)
	}
	if log := r.Log.String(); strings.Contains(log, "metrics") {
		t.Errorf("log:\n%s", log)
	}
}

// A killed engine is down after its probes failed, and comes back with an empty
// cache; meanwhile requests go to the other node.
func TestEngineDiesAndReturns(t *testing.T) {
	a, b := ct.StartEngine(t, "m"), ct.StartEngine(t, "m")
	r := ct.Start(t, fmt.Sprintf("nodes: [{name: a, url: %q}, {name: b, url: %q}]\n", a.URL(), b.URL()))
	r.WaitServed(t, "a", "m")
	r.WaitServed(t, "b", "m")
	_, node := r.Ask(t, ct.Chat("m", 4000), "before")
	dead, other := a, "b"
	if node == "b" {
		dead, other = b, "a"
	}
	slot := r.Node(node).Slot
	ct.Eventually(t, "the prompt is in the index", func() bool { return r.Index.SlotUnits(slot) > 0 })
	dead.Kill()
	r.WaitState(t, node, "down")
	if status, to := r.Ask(t, ct.Chat("m", 4000), "while"); status != 200 || to != other {
		t.Errorf("status %d from %q while %s is down", status, to, node)
	}
	// A probe that finds nobody while it is down says that its process was away.
	down := r.Control.State().NowNs
	ct.Eventually(t, "it was probed again", func() bool { return r.Control.State().NowNs > down+5e8 })
	dead.Start(t)
	r.WaitState(t, node, "ready")
	ct.Eventually(t, "its entries are gone", func() bool { return r.Index.SlotUnits(slot) == 0 })
	if n := r.Node(node); n.Slot != slot || n.Generation != 1 {
		t.Errorf("it came back as %+v", n)
	}
	// What it may hold from now on is what its engine says, not the default.
	ct.Eventually(t, "its capacity is set again", func() bool { return r.Index.SlotCapacity(slot) == 16000/64 })
}

// A health route that fails takes the node out although requests would do.
func TestSickEngine(t *testing.T) {
	e := ct.StartEngine(t, "m")
	r := ct.Start(t, fmt.Sprintf("nodes: [{name: a, url: %q}]\n", e.URL()))
	r.WaitServed(t, "a", "m")
	e.Sick.Store(true)
	r.WaitState(t, "a", "down")
	if r.Control.Ready() {
		t.Error("ready without a node")
	}
	e.Sick.Store(false)
	r.WaitState(t, "a", "ready")
}

// Draining stops new requests and can be taken back.
func TestDrain(t *testing.T) {
	e := ct.StartEngine(t, "m")
	r := ct.Start(t, fmt.Sprintf("nodes: [{name: a, url: %q}]\n", e.URL()))
	r.WaitServed(t, "a", "m")
	r.Control.Send(state.DrainAsked{NowNs: r.Control.NowNs(), Node: "a"})
	r.WaitState(t, "a", "draining")
	if status, _ := r.Ask(t, ct.Chat("m", 100), "drained"); status != 503 {
		t.Errorf("status %d", status)
	}
	ct.Eventually(t, "it is logged", func() bool { return strings.Contains(r.Log.String(), `msg="node is drained" node=a`) })
	r.Control.Send(state.UndrainAsked{NowNs: r.Control.NowNs(), Node: "a"})
	r.WaitState(t, "a", "ready")
}

// Nodes come and go at run time; a slot is given to the next one when the
// index has swept it.
func TestAddAndRemove(t *testing.T) {
	a, b := ct.StartEngine(t, "m"), ct.StartEngine(t, "n")
	r := ct.Start(t, "node_urls_allowed: [127.0.0.0/8]\nnodes: []\n")
	if r.Control.Ready() {
		t.Error("ready without a node")
	}
	add := func(name, url string) {
		t.Helper()
		if _, err := r.Control.Nodes().Add(state.Spec{Name: name, URL: url}); err != nil {
			t.Fatal(err)
		}
	}
	add("a", a.URL())
	r.WaitServed(t, "a", "m")
	if _, node := r.Ask(t, ct.Chat("m", 4000), "one"); node != "a" {
		t.Errorf("sent to %q", node)
	}
	ct.Eventually(t, "the prompt is in the index", func() bool { return r.Index.SlotUnits(0) > 0 })
	if !r.Control.Nodes().Remove("a") {
		t.Fatal("a was not there")
	}
	r.WaitState(t, "a", "")
	ct.Eventually(t, "its slot is swept", func() bool {
		s := r.Control.State()
		return r.Index.SlotUnits(0) == 0 && !s.Slots[0].Resting
	})
	add("b", b.URL())
	r.WaitServed(t, "b", "n")
	if n := r.Node("b"); n.Slot != 0 || n.Generation != 2 {
		t.Errorf("b is %+v", n)
	}
}

// Every failure becomes one event: three refused connections mean that the
// node is down long before its probes would say so.
func TestFailuresAreReported(t *testing.T) {
	e := ct.StartEngine(t, "m")
	r := ct.Start(t, fmt.Sprintf("health: {interval: 1h, interval_down: 1h, down_after: 100}\nnodes: [{name: a, url: %q}]\n", e.URL()))
	r.WaitServed(t, "a", "m")
	load := r.Node("a").Load
	fail := func() {
		load.Refused.Add(1)
		load.Consecutive.Add(1)
		load.Failures.Add(1)
	}
	e.Sick.Store(true) // its own probe after a refusal must not forgive
	fail()
	fail()
	ct.Eventually(t, "two failures were read", func() bool { return r.Node("a").ErrorShare.Known })
	probed := r.Control.State()
	ct.Eventually(t, "more ticks have passed", func() bool { return r.Control.State().NowNs > probed.NowNs+3e8 })
	if r.Node("a").State != fleet.Ready {
		t.Fatal("a failure was reported more than once")
	}
	fail()
	r.WaitState(t, "a", "down")
	// The snapshot is published before it is said.
	ct.Eventually(t, "it is logged", func() bool { return strings.Contains(r.Log.String(), "connections are refused") })
}

// A reload is taken whole or not at all, and keeps the seed.
func TestReload(t *testing.T) {
	a, b := ct.StartEngine(t, "m"), ct.StartEngine(t, "m")
	first := fmt.Sprintf("nodes: [{name: a, url: %q}]\n", a.URL())
	r := ct.Start(t, first)
	r.WaitServed(t, "a", "m")
	seed := r.Fleet.Load().Seed
	if restart, err := r.Control.Reload(); err != nil || len(restart) != 0 {
		t.Errorf("the same again needs %q, %v", restart, err)
	}

	r.Rewrite("nodes: [{name: a, url: nowhere}]\n")
	if _, err := r.Control.Reload(); err == nil || !strings.Contains(err.Error(), "nodes[0].url") || r.Control.ReloadOK() {
		t.Errorf("a bad file: %v", err)
	}
	if r.Node("a").State != fleet.Ready {
		t.Error("the last good configuration is not in force")
	}

	second := fmt.Sprintf("seed: other\nmodels: [{name: m, aliases: [alias]}]\npolicy: {name: p2c}\nlimits: {connections: 7}\nnodes: [{name: a, url: %q}, {name: b, url: %q}]\n", a.URL(), b.URL())
	for range 2 { // what waits for a restart waits after the next reload too
		r.Rewrite(second)
		restart, err := r.Control.Reload()
		if err != nil || strings.Join(restart, " ") != "seed limits.connections" || !r.Control.ReloadOK() {
			t.Errorf("needs %q, %v", restart, err)
		}
	}
	r.WaitServed(t, "b", "alias")
	if r.Fleet.Load().Seed != seed || r.Control.Config().Limits.Connections != 20000 {
		t.Error("what needs a restart is in force")
	}
	status, _ := r.Ask(t, ct.Chat("alias", 100), "reloaded")
	rec, ok := r.Data.RecordOf("reloaded")
	if status != 200 || !ok || rec.Policy != "p2c" {
		t.Errorf("status %d, record %+v", status, rec)
	}
	r.Rewrite(first)
	if _, err := r.Control.Reload(); err != nil {
		t.Error(err)
	}
	r.WaitState(t, "b", "")
}

// Nodes that were added leave when their URLs are no longer allowed.
func TestReloadAllowed(t *testing.T) {
	e := ct.StartEngine(t, "m")
	r := ct.Start(t, "node_urls_allowed: [127.0.0.1]\nnodes: []\n")
	if _, err := r.Control.Nodes().Add(state.Spec{Name: "a", URL: e.URL()}); err != nil {
		t.Fatal(err)
	}
	r.WaitState(t, "a", "ready")
	r.Rewrite("node_urls_allowed: [10.0.0.0/8]\nnodes: []\n")
	if _, err := r.Control.Reload(); err != nil {
		t.Fatal(err)
	}
	r.WaitState(t, "a", "")
	if !strings.Contains(r.Log.String(), "no longer allowed") {
		t.Error("it is not logged")
	}
}

// Without a file there is nothing to reload.
func TestReloadWithoutFile(t *testing.T) {
	r := ct.StartData(t, "nodes: []\n")
	c, err := controlplane.Start(controlplane.Options{Config: config.Default(), Fleet: r.Fleet, Index: r.Index, Dataplane: r.Data, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	if _, err := c.Reload(); err == nil {
		t.Error("reloaded nothing")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := c.WaitReady(ctx); err == nil {
		t.Error("ready without nodes")
	}
}

// The seed outlives the process if there is a folder for it.
func TestSeed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	seed := func(seed, dir string) string {
		t.Helper()
		s, err := controlplane.Seed(&config.Config{Seed: seed, StateDir: dir}, "")
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := seed("", dir)
	if len(first) != 32 || seed("", dir) != first || seed("given", dir) != "given" || seed("", dir) != first {
		t.Errorf("seed %q is not kept", first)
	}
	if a, b := seed("", ""), seed("", ""); a == b {
		t.Errorf("two processes without a folder have the same seed %q", a)
	}
	if info, err := os.Stat(filepath.Join(dir, "seed")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "seed"), nil, 0o600); err != nil { // cut off while it was made
		t.Fatal(err)
	}
	if again := seed("", dir); len(again) != 32 {
		t.Errorf("after an empty file: %q", again)
	}
	for _, c := range []struct{ configured, inherited, want string }{{"", "theirs", "theirs"}, {"given", "theirs", "given"}, {"", "", "theirs"}} {
		if s, err := controlplane.Seed(&config.Config{Seed: c.configured, StateDir: dir}, c.inherited); err != nil || s != c.want {
			t.Errorf("%+v: %q, %v", c, s, err)
		}
	}
	if s, err := controlplane.Seed(&config.Config{}, "theirs"); err != nil || s != "theirs" {
		t.Errorf("without a folder: %q, %v", s, err)
	}
	file := filepath.Join(dir, "seed")
	if _, err := controlplane.Seed(&config.Config{StateDir: file}, ""); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file as folder: %v", err)
	}
}

// Stop leaves nothing running.
func TestStopLeavesNothing(t *testing.T) {
	e := ct.StartEngine(t, "m")
	r := ct.StartData(t, fmt.Sprintf("nodes: [{name: a, url: %q}]\n", e.URL()))
	before := runtime.NumGoroutine()
	r.StartControl(t)
	r.WaitServed(t, "a", "m")
	r.Control.Stop()
	r.Control.Stop() // twice is no error
	r.Control.Send(state.Tick{NowNs: r.Control.NowNs()})
	ct.Eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}
