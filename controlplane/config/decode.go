package config

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxProblems bounds what one check reports.
const maxProblems = 1000

// decoder fills a Config from a tree and remembers where each key was given.
type decoder struct {
	config   *Config
	places   map[string]place // by full key; only keys that were given
	defaults map[string]item  // by YAML text
	problems Errors
}

func newDecoder() *decoder {
	return &decoder{config: &Config{}, places: map[string]place{}, defaults: map[string]item{}}
}

// refuse records a problem of the key at path.
func (d *decoder) refuse(path string, at place, value string, c complaint) {
	if len(d.problems) >= maxProblems {
		return
	}
	p := at.problem(c.what, c.remedy)
	p.Key, p.Value = short(path), value
	d.problems = append(d.problems, p)
}

// literal parses the YAML text of a default.
func (d *decoder) literal(text string) item {
	if v, ok := d.defaults[text]; ok {
		return v
	}
	tree, errs := parseTree("default", []byte("v: "+text+"\n"))
	if len(errs) > 0 || len(tree.pairs) != 1 {
		panic(fmt.Sprintf("BUG: default %q is not YAML", text))
	}
	d.defaults[text] = tree.pairs[0].value
	return tree.pairs[0].value
}

// mapping reads the keys of one mapping. at is the place of the mapping.
func (d *decoder) mapping(path string, entries []entry, more *extra, v item) {
	for i := range entries {
		d.reset(join(path, entries[i].key), &entries[i])
	}
	for i := range v.pairs {
		p := &v.pairs[i]
		full := join(path, p.key)
		d.places[full] = p.place
		if p.value.kind == kindRefused {
			continue
		}
		at := slices.IndexFunc(entries, func(e entry) bool { return e.key == p.key })
		switch {
		case at >= 0:
			d.value(full, &entries[at], p)
		case more != nil:
			d.extra(full, more, p)
		default:
			shown := p.value.shown()
			if secretName.MatchString(p.key) {
				shown = "(hidden)"
			}
			d.refuse(full, p.place, shown, unknownKey(p.key, entries))
		}
	}
}

// reset gives a key and all beneath it their defaults.
func (d *decoder) reset(path string, e *entry) {
	for i := range e.children {
		d.reset(join(path, e.children[i].key), &e.children[i])
	}
	if e.read == nil || e.def == "" { // no default: required in its element
		return
	}
	if c := e.read(d.literal(e.def)); !c.none() {
		panic(fmt.Sprintf("BUG: default %q of %s: %s", e.def, path, c.what))
	}
}

// value reads the value of a key of the schema.
func (d *decoder) value(path string, e *entry, p *pair) {
	switch {
	case e.open != nil:
		d.list(path, e.open, p)
	case e.read != nil:
		d.leaf(path, e, p.place, p.value)
	default:
		if p.value.kind != kindMap {
			d.refuse(path, p.place, p.value.shown(), wrongType(p.value, "a mapping", "write its keys below it, indented"))
			return
		}
		d.mapping(path, e.children, e.extra, p.value)
	}
}

// leaf reads one value and refuses what this binary cannot do.
func (d *decoder) leaf(path string, e *entry, at place, v item) {
	shown := v.shown()
	if e.secret && shown != `""` {
		shown = "(hidden)"
	}
	before := e.show()
	if c := e.read(v); !c.none() {
		d.refuse(path, at, shown, c)
		return
	}
	plain := withoutIndexes(path)
	if feature := unavailable[plain]; feature != "" && e.show() != before {
		d.refuse(path, at, shown, notAvailable(feature))
	}
	if feature := unavailableValues[plain][v.text]; feature != "" {
		d.refuse(path, at, shown, notAvailable(feature))
	}
}

// extra hands a key that the schema does not list to who knows it.
func (d *decoder) extra(path string, more *extra, p *pair) {
	if c := more.set(p.key, p.value); !c.none() {
		d.refuse(path, p.place, p.value.shown(), c)
	}
}

// list reads a list of mappings.
func (d *decoder) list(path string, l *list, p *pair) {
	if p.value.kind != kindList {
		d.refuse(path, p.place, p.value.shown(), wrongType(p.value, "a list", "write one - a line below it, or [] for none"))
		return
	}
	most := maxNodes
	if len(p.value.list) > most {
		d.refuse(path, p.place, p.value.shown(), complaint{"too many entries", fmt.Sprintf("use at most %d", most)})
		return
	}
	for range p.value.list { // all at once: the schema of an element points into the slice
		l.grow()
	}
	for i, v := range p.value.list {
		full := fmt.Sprintf("%s[%d]", path, i)
		d.places[full] = v.place
		if v.kind == kindMap && len(v.pairs) > 0 {
			d.places[full] = v.pairs[0].place
		}
		if v.kind == kindRefused {
			continue
		}
		if v.kind != kindMap {
			d.refuse(full, v.place, v.shown(), wrongType(v, "a mapping", "write its keys, such as - name: a"))
			continue
		}
		d.mapping(full, l.elements(i), nil, v)
		for _, e := range l.elements(i) {
			missing, required := l.required[e.key]
			if _, given := d.places[join(full, e.key)]; required && !given {
				d.refuse(join(full, e.key), d.places[full], "", missing)
			}
		}
	}
}

// secretName finds unknown keys whose value should not be shown.
var secretName = regexp.MustCompile(`(?i)token|secret|passw|credential|key|seed`)

// unknownKey suggests the key that was meant.
func unknownKey(key string, entries []entry) complaint {
	names := make([]string, len(entries))
	for i := range entries {
		names[i] = entries[i].key
	}
	if near := nearest(key, names); near != "" {
		return complaint{"unknown key", "did you mean " + near + "?"}
	}
	if elsewhere := homeOf(key); elsewhere != "" {
		return complaint{"unknown key", "did you mean " + elsewhere + "?"}
	}
	return complaint{"unknown key", "remove it; the keys here are " + strings.Join(names, ", ")}
}

// homeOf finds the one place in the schema where key is known; "" if there is
// none or more than one.
func homeOf(key string) string {
	var found []string
	var walk func(path string, entries []entry)
	walk = func(path string, entries []entry) {
		for i := range entries {
			full := join(path, entries[i].key)
			if entries[i].key == key {
				found = append(found, full)
			}
			walk(full, entries[i].children)
		}
	}
	walk("", schema(&Config{}))
	if len(found) == 1 {
		return found[0]
	}
	return ""
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// withoutIndexes turns nodes[2].url into nodes.url.
func withoutIndexes(path string) string {
	for {
		open := strings.IndexByte(path, '[')
		if open < 0 {
			return path
		}
		end := strings.IndexByte(path[open:], ']')
		if end < 0 {
			return path
		}
		path = path[:open] + path[open+end+1:]
	}
}

// sorted returns the problems in the order of the file, those of variables and
// flags last.
func (d *decoder) sorted() Errors {
	slices.SortStableFunc(d.problems, func(a, b Problem) int {
		if (a.Line == 0) != (b.Line == 0) {
			return cmp.Compare(b.Line, a.Line)
		}
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.problems
}
