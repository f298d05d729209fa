package config

import (
	"fmt"
	"slices"
	"strings"
)

// Setting is one key and its value as YAML text; secrets are hidden.
type Setting struct{ Key, Value string }

// Change is one key whose value differs between two configurations. An empty
// Old or New means that the key was not there (an element of a list).
type Change struct{ Key, Old, New string }

// flat is one value of a configuration.
type flat struct {
	Setting
	raw     string // compared; secrets are not hidden here
	restart bool
}

// flatten lists every value of c in the order of the schema. It only reads c.
func flatten(c *Config) []flat {
	var out []flat
	add := func(key, raw string, e *entry) {
		shown := raw
		if e.secret && raw != `""` {
			shown = "(hidden)"
		}
		out = append(out, flat{Setting{key, shown}, raw, e.restart})
	}
	var walk func(path string, entries []entry)
	walk = func(path string, entries []entry) {
		for i := range entries {
			e := &entries[i]
			full := join(path, e.key)
			if e.read != nil {
				add(full, e.show(), e)
			}
			walk(full, e.children)
			if e.extra != nil {
				for _, kv := range e.extra.show() {
					add(join(full, kv[0]), kv[1], e)
				}
			}
			if e.open != nil {
				for j := range e.open.length() {
					walk(fmt.Sprintf("%s[%d]", full, j), e.open.elements(j))
				}
			}
		}
	}
	walk("", schema(c))
	return out
}

// Settings lists every key with its value, in the order of the documentation.
// Secrets are hidden: the result may be logged.
func (c *Config) Settings() []Setting {
	all := flatten(c)
	out := make([]Setting, len(all))
	for i := range all {
		out[i] = all[i].Setting
	}
	return out
}

// Redacted is Settings as text, one key: value a line.
func (c *Config) Redacted() string {
	var b strings.Builder
	for _, s := range c.Settings() {
		b.WriteString(s.Key + ": " + s.Value + "\n")
	}
	return b.String()
}

// Diff lists the keys whose values differ from old to c, in the order of the
// documentation; keys that c no longer has come last. Secrets are hidden, but
// a changed secret is listed.
func (c *Config) Diff(old *Config) []Change {
	changes, _ := compare(old, c)
	return changes
}

// RestartKeys names the keys that differ from old to c and take effect only
// after a restart; everything else may be published at once.
func RestartKeys(old, c *Config) []string {
	_, keys := compare(old, c)
	return keys
}

func compare(old, c *Config) (changes []Change, restart []string) {
	before := map[string]flat{}
	was := flatten(old)
	for _, f := range was {
		before[f.Key] = f
	}
	for _, f := range flatten(c) {
		b, had := before[f.Key]
		delete(before, f.Key)
		if had && b.raw == f.raw {
			continue
		}
		changes = append(changes, Change{f.Key, b.Value, f.Value})
		if f.restart {
			restart = append(restart, f.Key)
		}
	}
	for _, f := range was {
		if _, left := before[f.Key]; left {
			changes = append(changes, Change{f.Key, f.Value, ""})
			if f.restart {
				restart = append(restart, f.Key)
			}
		}
	}
	return changes, slices.Clip(restart)
}
