package controlplane_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"testing"

	"warmpath/controlplane"
	"warmpath/controlplane/config"
	ct "warmpath/controlplane/controltest"
)

// empty is a report that says nothing.
func empty(seq int) object { return object{"epoch": "e", "seq": seq, "blocks": []object{}} }

// Who is there but not known yet is told to come again; who is not there, or
// followed by the router itself, is not.
func TestWhoMayReport(t *testing.T) {
	r := &reporting{t: t, tokens: ct.TinyTokens(t, "..", "m"), engines: map[string]*ct.Engine{"a": ct.StartEngine(t, "m"), "b": ct.StartEngine(t, "m")}, file: t.TempDir() + "/tokens"}
	r.writeTokens("a: " + tokenOf("a") + "\nnobody: " + tokenOf("nobody") + "\n")
	r.engines["a"].Kill()
	r.Router = ct.Start(t, r.config("", ""))
	if status, a := r.post("a", tokenOf("a"), "stored", empty(1)); status != http.StatusServiceUnavailable {
		t.Errorf("a node that was not asked yet: %d %+v", status, a)
	}
	if status, a := r.post("nobody", tokenOf("nobody"), "stored", empty(1)); status != http.StatusNotFound || a.Error.Code != "unknown_worker" {
		t.Errorf("no node: %d %+v", status, a)
	}
	r.engines["a"].Start(t)
	r.WaitServed(t, "a", "m")
	if status, a := r.post("a", tokenOf("a"), "stored", object{"epoch": "e", "seq": 1, "model": "other", "blocks": []object{}}); status != http.StatusBadRequest || !strings.Contains(a.Error.Message, "model") {
		t.Errorf("another model: %d %+v", status, a)
	}
	r.report("a", "stored", object{"epoch": "e", "seq": 1, "model": "m", "blocks": []object{}})
	r.waitTrust("a", "live")

	// The router follows the events itself, then no longer: its own view counts
	// meanwhile, and the reporter's from then on.
	r.Rewrite(r.config("", `, kv_events: {endpoint: "tcp://127.0.0.1:9"}`))
	if _, err := r.Control.Reload(); err != nil {
		t.Fatal(err)
	}
	r.waitTrust("a", "cold")
	if status, a := r.post("a", tokenOf("a"), "stored", empty(2)); status != http.StatusNotFound || !strings.Contains(a.Error.Message, "kv_events") {
		t.Errorf("its events are followed: %d %+v", status, a)
	}
	r.Rewrite(r.config("", ""))
	if _, err := r.Control.Reload(); err != nil {
		t.Fatal(err)
	}
	ct.Eventually(t, "reports are taken again", func() bool {
		status, _ := r.post("a", tokenOf("a"), "stored", empty(2))
		return status == http.StatusOK
	})
	r.waitTrust("a", "live")
}

// When an engine says that its blocks are larger than was thought, units are
// made anew, and so is all that was reported.
func TestUnitsChange(t *testing.T) {
	r := startReporting(t, "", "")
	body := question("Units?")
	blocks, hashes := r.blocks(body)
	r.report("a", "stored", object{"epoch": "e", "seq": 1, "blocks": blocks})
	slot := r.Node("a").Slot
	if units := r.Index.SlotUnits(slot); units != int64(len(blocks)) {
		t.Fatalf("%d units of %d blocks", units, len(blocks))
	}
	for _, e := range r.engines {
		e.Block.Store(32)
	}
	ct.Eventually(t, "units have 32 tokens", func() bool { return r.Node("a").UnitTokens == 32 })
	if a := r.report("a", "sync", object{"epoch": "e", "seq": 2, "blocks": []object{}}); a.Want != "full" {
		t.Errorf("the next report: %+v", a)
	}
	r.report("a", "sync", object{"epoch": "e", "seq": 3, "full": true, "active_hashes": hashes})
	r.report("a", "sync", object{"epoch": "e", "seq": 4, "blocks": blocks})
	if units := r.Index.SlotUnits(slot); units != int64(len(blocks)/2) {
		t.Errorf("%d units of %d blocks, want half as many", units, len(blocks))
	}
	ct.Eventually(t, "the prompt is found again", func() bool {
		rec := r.explain(body)
		return rec.Node == "a" && rec.Candidates[0].MatchedTokens >= 32*(len(blocks)/2-1)
	})
}

// A reload reads the tokens too, whole or not at all; where they are, and where
// reports are taken, waits for a restart.
func TestReloadTokens(t *testing.T) {
	r := startReporting(t, "", "")
	r.report("a", "stored", empty(1))
	r.writeTokens("a: another-token-of-a\n")
	if restart, err := r.Control.Reload(); err != nil || len(restart) != 0 {
		t.Fatalf("%v, needs %q", err, restart)
	}
	if status, _ := r.post("a", tokenOf("a"), "stored", empty(2)); status != http.StatusUnauthorized {
		t.Errorf("the old token: %d", status)
	}
	if status, a := r.post("a", "another-token-of-a", "stored", empty(2)); status != http.StatusOK {
		t.Errorf("the new token: %d %+v", status, a)
	}
	r.writeTokens("a another-token-of-a\n")
	if _, err := r.Control.Reload(); err == nil || !strings.Contains(err.Error(), "line 1") || !strings.Contains(err.Error(), r.file) || strings.Contains(err.Error(), "another-token") {
		t.Errorf("a bad file: %v", err)
	}
	if status, a := r.post("a", "another-token-of-a", "stored", empty(3)); status != http.StatusOK {
		t.Errorf("the last good tokens: %d %+v", status, a)
	}
	r.writeTokens("a: another-token-of-a\n")
	r.Rewrite(strings.NewReplacer("127.0.0.1:0", "127.0.0.1:8082", r.file, r.file+"-2").Replace(r.config("", "")))
	if restart, err := r.Control.Reload(); err != nil || fmt.Sprint(restart) != "[reports.listen reports.tokens_file]" {
		t.Errorf("%v, needs %q", err, restart)
	}
}

// What check says of a file of tokens is what serve would say.
func TestCheckTokens(t *testing.T) {
	file := t.TempDir() + "/tokens"
	check := func(text string, mode os.FileMode) (string, error) {
		t.Helper()
		_ = os.Remove(file)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		c, err := config.Parse("f", fmt.Appendf(nil, "reports: {listen: \"127.0.0.1:0\", tokens_file: %q}\nnodes: [{name: a, url: \"http://h\", hash_scheme: sglang}, {name: b, url: \"http://i\"}]\n", file))
		if err != nil {
			t.Fatal(err)
		}
		notes, err := controlplane.CheckFiles(c)
		return strings.Join(notes, "; "), err
	}
	for _, c := range []struct {
		text string
		mode os.FileMode
		note string
		err  string
	}{
		{"a: 0123456789abcdef\n", 0o600, "", ""},
		{"a: 0123456789abcdef\nb: 0123456789abcdeg\na: 0123456789abcdeh\n", 0o640, "", ""},
		{"b: 0123456789abcdef\nc: 0123456789abcdeg\n", 0o600, `node "a": hash_scheme is set and reports.tokens_file has no token for it; reports.tokens_file has a token for "c"`, ""},
		{"# none yet\n", 0o600, "nobody can report", ""},
		{"a: 0123456789abcdef\n", 0o644, "", "use 0600"},
		{"a: short\n", 0o600, "", "line 1: the token has 5 characters"},
		{"a b: 0123456789abcdef\n", 0o600, "", "line 1: worker_id"},
		{"a: 0123456789abcdef\nb: 0123456789abcdef\n", 0o600, "", "line 2: the token of line 1 stands again"},
	} {
		notes, err := check(c.text, c.mode)
		if (err == nil) != (c.err == "") || err != nil && (!strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), file) || strings.Count(err.Error(), "reports.tokens_file") != 1) {
			t.Errorf("%q: error %v, want %q", c.text, err, c.err)
		}
		if !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
			t.Errorf("%q: notes %q, want %q", c.text, notes, c.note)
		}
	}
	file += "-missing/x"
	c, _ := config.Parse("f", fmt.Appendf(nil, "reports: {listen: \"127.0.0.1:0\", tokens_file: %q}\nnodes: []\n", file))
	if _, err := controlplane.CheckFiles(c); err == nil || !strings.Contains(err.Error(), "open reports.tokens_file: open "+file) {
		t.Errorf("no file: %v", err)
	}
}

// Stop ends the listener first, and leaves nothing running; a listener that
// cannot be had is an error of the start.
func TestReportsStop(t *testing.T) {
	e := ct.StartEngine(t, "m")
	file := t.TempDir() + "/tokens"
	if err := os.WriteFile(file, []byte("a: "+tokenOf("a")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("reports: {listen: \"127.0.0.1:0\", tokens_file: %q}\nnodes: [{name: a, url: %q}]\n", file, e.URL())
	data := ct.StartData(t, text)
	r := &reporting{t: t, Router: data}
	before := runtime.NumGoroutine()
	r.StartControl(t)
	r.WaitServed(t, "a", "m")
	r.report("a", "stored", empty(1))
	address := r.Control.ReportsAddr()
	r.Control.Stop()
	r.Control.Stop() // twice is no error
	ct.Eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("the address is not free after Stop: %v", err)
	}
	defer l.Close()
	c, err := config.Parse("f", []byte(strings.Replace(text, "127.0.0.1:0", address, 1)))
	if err != nil {
		t.Fatal(err)
	}
	fresh := ct.StartData(t, text)
	_, err = controlplane.Start(controlplane.Options{Config: c, Fleet: fresh.Fleet, Index: fresh.Index, Dataplane: fresh.Data, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "reports.listen") || !strings.Contains(err.Error(), address) {
		t.Errorf("a taken address: %v", err)
	}
}
