package config

import (
	"maps"
	"slices"
	"strings"
)

// envPrefix begins the names of all variables that are ours.
const envPrefix = "WARMPATH_"

// notKeys are variables of ours that override no key.
var notKeys = []string{
	"WARMPATH_CONFIG", // the file's path, for the command line
	// Marks of nodes that the scaler started (package scaler/actuate/process): a node may
	// run this program.
	"WARMPATH_FLEET", "WARMPATH_NODE", "WARMPATH_PORT", "WARMPATH_INSTANCE",
}

// VariableOf is the name of the variable that overrides key.
func VariableOf(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// environment overrides keys by variables.
func (d *decoder) environment(env []string) {
	byVariable := map[string]string{}
	var names []string
	for _, key := range Keys() {
		byVariable[VariableOf(key)] = key
		names = append(names, strings.ToLower(VariableOf(key)))
	}
	last := map[string]string{} // of a variable given twice, the last counts
	for _, line := range env {
		if name, value, ok := strings.Cut(line, "="); ok && strings.HasPrefix(name, envPrefix) {
			last[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		at := place{file: "environment variable " + short(name)}
		key, known := byVariable[name]
		param, isParam := strings.CutPrefix(name, VariableOf("policy")+"_")
		switch {
		case slices.Contains(notKeys, name):
		case known:
			d.override(key, last[name], at)
		case isParam:
			d.override("policy."+strings.ToLower(param), last[name], at)
		default:
			remedy := "unset it; only single keys outside lists can be overridden"
			if near := nearest(name, names); near != "" {
				remedy = "did you mean " + strings.ToUpper(near) + "?"
			}
			d.refuse("", at, "", complaint{"no key has this name", remedy})
		}
	}
}

// flags overrides keys by flags.
func (d *decoder) flags(flags map[string]string) {
	keys := Keys()
	for _, key := range slices.Sorted(maps.Keys(flags)) {
		at := place{file: "flag --" + short(key)}
		if slices.Contains(keys, key) || strings.HasPrefix(key, "policy.") {
			d.override(key, flags[key], at)
			continue
		}
		remedy := "remove it; only single keys outside lists can be overridden"
		if near := nearest(key, keys); near != "" {
			remedy = "did you mean --" + near + "?"
		}
		d.refuse(key, at, "", complaint{"unknown key", remedy})
	}
}

// override reads raw as the value of key.
func (d *decoder) override(key, raw string, at place) {
	if !strings.HasPrefix(key, "policy.") || key == "policy.name" {
		e := find(schema(d.config), key)
		d.places[key] = at
		v := overriding(e, raw, at)
		d.reset(key, e) // leaf compares with the default, not with the file's value
		d.leaf(key, e, at, v)
		return
	}
	d.places[key] = at
	v := parsed(raw, at)
	d.extra(key, policyParams(&d.config.Policy), &pair{key: strings.TrimPrefix(key, "policy."), place: at, value: v})
}

// overriding finds what raw means to a leaf: its text if the leaf takes text,
// else what YAML makes of it, else a list separated by commas.
func overriding(e *entry, raw string, at place) item {
	asText := item{kind: kindText, text: raw, place: at}
	if e.read(asText).none() {
		return asText
	}
	v := parsed(raw, at)
	if v.kind != kindText || e.def != "[]" {
		return v
	}
	v = item{kind: kindList, place: at}
	for word := range strings.SplitSeq(raw, ",") {
		v.list = append(v.list, item{kind: kindText, text: strings.TrimSpace(word), place: at})
	}
	return v
}

// parsed is what YAML makes of raw, or raw as text.
func parsed(raw string, at place) item {
	tree, errs := parseTree(at.file, []byte("v: "+raw+"\n"))
	if len(errs) > 0 || tree.kind != kindMap || len(tree.pairs) != 1 || tree.pairs[0].value.kind == kindMap || tree.pairs[0].value.kind == kindNull {
		return item{kind: kindText, text: raw, place: at}
	}
	v := tree.pairs[0].value
	v.place = at
	return v
}

// Keys are the dotted keys that variables and flags can override, in the order
// of the schema.
func Keys() []string {
	var keys []string
	walkLeaves("", schema(&Config{}), func(path string, _ *entry) { keys = append(keys, path) })
	return keys
}

// walkLeaves visits every leaf outside lists.
func walkLeaves(path string, entries []entry, visit func(string, *entry)) {
	for i := range entries {
		full := join(path, entries[i].key)
		if entries[i].read != nil {
			visit(full, &entries[i])
		}
		walkLeaves(full, entries[i].children, visit)
	}
}

// find returns the leaf with this key.
func find(entries []entry, key string) *entry {
	var found *entry
	walkLeaves("", entries, func(path string, e *entry) {
		if path == key {
			found = e
		}
	})
	if found == nil {
		panic("BUG: no key " + key)
	}
	return found
}
