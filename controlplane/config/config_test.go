package config

import (
	"bytes"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Variables of different keys have different names, and every key has a
// default that reads.
func TestVariablesAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, key := range Keys() {
		name := VariableOf(key)
		if other, taken := seen[name]; taken {
			t.Errorf("%s overrides both %s and %s", name, other, key)
		}
		seen[name] = key
		if strings.HasPrefix(name, "WARMPATH_POLICY_") && key != "policy.name" {
			t.Errorf("%s looks like a parameter of a policy", name)
		}
	}
}

// Every line of the table of missing features names a key.
func TestUnavailableKeysExist(t *testing.T) {
	known := map[string]bool{}
	var walk func(path string, entries []entry)
	walk = func(path string, entries []entry) {
		for i := range entries {
			full := join(path, entries[i].key)
			known[full] = entries[i].read != nil
			walk(full, entries[i].children)
			if l := entries[i].open; l != nil {
				l.grow()
				walk(full, l.elements(0))
			}
		}
	}
	walk("", schema(&Config{}))
	for key := range unavailable {
		if !known[key] {
			t.Errorf("no key %s", key)
		}
	}
	for key := range unavailableValues {
		if !known[key] {
			t.Errorf("no key %s", key)
		}
	}
}

func TestDefaults(t *testing.T) {
	c := Default()
	if c.Listen != "127.0.0.1:8080" || c.Limits.BodyBytes != 256<<20 || c.Timeouts.Connect != time.Second || !c.Timeouts.FirstEvent.Auto ||
		c.Breaker.MaxEjected != 0.5 || c.Policy.Name != "cost" || !c.Retry.HoldStreamHead || c.Kernel.Mode != "auto" {
		t.Errorf("defaults: %s", c.Redacted())
	}
	s := c.StateSettings(9)
	if s.Seed != 9 || s.ProbeIntervalNs != 15e9 || s.BreakerOpenNs != 60e9 || s.DrainNodeNs != 1800e9 || s.DownAfter != 3 {
		t.Errorf("settings %+v", s)
	}
}

func TestDiff(t *testing.T) {
	parse := func(text string) *Config {
		c, err := Parse("f", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	old := parse("listen: 127.0.0.1:1\nadmin: {token: one}\nlog: {level: debug}\nnodes: [{name: a, url: \"http://h:1\"}]\n")
	now := parse("listen: 127.0.0.1:2\nadmin: {token: two}\nlog: {level: info}\nloops: 3\nnodes: []\n")
	var keys []string
	for _, change := range now.Diff(old) {
		keys = append(keys, change.Key)
		if strings.Contains(change.Old+change.New, "one") || strings.Contains(change.Old+change.New, "two") {
			t.Errorf("a token is shown: %v", change)
		}
	}
	if !slices.IsSorted(keys[:0]) || !slices.Equal(keys[:4], []string{"listen", "admin.token", "loops", "log.level"}) || keys[4] != "nodes[0].name" {
		t.Errorf("changes %q", keys)
	}
	if got := RestartKeys(old, now); !slices.Equal(got, []string{"listen", "admin.token", "loops", "log.level"}) {
		t.Errorf("restart keys %q", got)
	}
	if len(old.Diff(old)) != 0 || RestartKeys(old, old) != nil {
		t.Error("a configuration differs from itself")
	}
	if text := old.Redacted(); strings.Contains(text, "one") || !strings.Contains(text, "admin.token: (hidden)\n") {
		t.Errorf("redacted:\n%s", text)
	}
}

// The default number of connections is lowered to what the host allows; a
// number that was given and cannot fit is refused.
func TestLimitsOfTheHost(t *testing.T) {
	given, err := Parse("f", []byte("nodes: []\nlimits: {connections: 20000}\n"))
	if err != nil || !given.Limits.ConnectionsGiven {
		t.Fatalf("%+v, %v", given, err)
	}
	need := given.DescriptorsNeeded()
	if need != 2*20000+512 {
		t.Errorf("needs %d", need)
	}
	for _, c := range []struct {
		name   string
		config *Config
		hard   uint64
		want   int    // connections after FitLimits
		remedy string // of the problem; "" = none
	}{
		{"default, fits", Default(), need, 20000, ""},
		{"default, no limit", Default(), math.MaxUint64, 20000, ""},
		{"default, one short", Default(), need - 1, 19999, ""},
		{"default, a common container", Default(), 4096, 1792, ""},
		{"default, one connection", Default(), 514, 1, ""},
		{"default, none", Default(), 513, 20000, "raise the hard limit"},
		{"given, fits", given, need, 20000, ""},
		{"given, one short", given, need - 1, 20000, "at most 19999"},
		{"given, room for one", given, 514, 20000, "at most 1,"},
		{"given, none", given, 100, 20000, "raise the hard limit"},
	} {
		before := *c.config
		fitted, problems := c.config.FitLimits(c.hard), c.config.CheckLimits(c.hard)
		if fitted.Limits.Connections != c.want || c.config.Limits != before.Limits {
			t.Errorf("%s: %d connections, want %d", c.name, fitted.Limits.Connections, c.want)
		}
		if refused := len(problems) > 0; refused != (c.remedy != "") || refused && (problems[0].Key != "limits.connections" || !strings.Contains(problems[0].Remedy, c.remedy)) {
			t.Errorf("%s: problems %v", c.name, problems)
		}
	}
}

// What a variable or a flag says was given, too.
func TestConnectionsGiven(t *testing.T) {
	for _, o := range []Option{WithEnvironment([]string{"WARMPATH_LIMITS_CONNECTIONS=20000"}), WithFlags(map[string]string{"limits.connections": "20000"})} {
		if c, err := Parse("f", []byte("nodes: []\n"), o); err != nil || !c.Limits.ConnectionsGiven {
			t.Errorf("%+v, %v", c, err)
		}
	}
	if Default().Limits.ConnectionsGiven {
		t.Error("the default was not given")
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.yaml")
	if _, err := Load(path, nil, nil); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
	if err := os.WriteFile(path, []byte("nodes: []\nloops: -1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path, Environ(), nil)
	var problems Errors
	if !errors.As(err, &problems) || problems[0].Key != "loops" || problems[0].File != path || problems[0].Line != 2 {
		t.Errorf("error %v", err)
	}
}

// Bounds of what a file may hold.
func TestBounds(t *testing.T) {
	node := "  - {name: n%, url: \"http://h:%\"}\n"
	many := func(n int) string {
		var b strings.Builder
		b.WriteString("nodes:\n")
		for i := range n {
			b.WriteString(strings.ReplaceAll(node, "%", showInt(i+1)))
		}
		return b.String()
	}
	for name, c := range map[string]struct{ text, want string }{
		"nodes":   {many(maxNodes), ""},
		"nodes+1": {many(maxNodes + 1), "too many entries"},
		"bytes":   {"nodes: []\n#" + strings.Repeat("x", maxFileBytes), "the file has"},
		"depth":   {"nodes: " + strings.Repeat("[", 100), "brackets are open"},
		"deep":    {"nodes: []\n" + deep(100), "nested too deeply"},
		"texts":   {"nodes: []\nnode_urls_allowed: [" + strings.Repeat("a,", maxStrings) + "b]", "too many values"},
		"binary":  {"nodes: []\n\x00\x01", "control character"},
		"utf8":    {"nodes: []\nlisten: \xff", "not UTF-8"},
	} {
		_, err := Parse("f", []byte(c.text))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

func deep(n int) string {
	var b strings.Builder
	b.WriteString("x:\n")
	for i := range n {
		b.WriteString(strings.Repeat(" ", i+1) + "x:\n")
	}
	return b.String()
}

// FuzzParse: never a panic; what is refused has places and no secret; what is
// accepted can be listed.
func FuzzParse(f *testing.F) {
	f.Add([]byte(Example()))
	f.Add([]byte("nodes: [{name: a, url: http://h:1}]\nlisten: 1\n"))
	f.Add([]byte("a: &x [*x]\n"))
	f.Add([]byte("? a\n: b\n"))
	f.Add([]byte("a: |\n  b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("f", data)
		if err == nil {
			if len(c.Settings()) < len(Keys()) {
				t.Fatal("keys are missing")
			}
			return
		}
		checkProblems(t, data, err)
	})
}

// checkProblems wants a place inside the file and something to read in every
// problem.
func checkProblems(t *testing.T, data []byte, err error) {
	t.Helper()
	var problems Errors
	if !errors.As(err, &problems) || len(problems) == 0 {
		t.Fatalf("error of another type: %v", err)
	}
	lines := bytes.Count(data, []byte("\n")) + 2
	for _, p := range problems {
		if p.File != "f" || p.Line < 1 || p.Line > lines || p.Column < 1 || p.What == "" || strings.ContainsAny(p.Error(), "\n") {
			t.Fatalf("problem %+v of %q", p, data)
		}
	}
}
