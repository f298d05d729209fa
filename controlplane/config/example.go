package config

import (
	"strings"
)

// Example is a configuration file with every key at its default and one node
// and one model, each key with its comment. It loads as it is.
func Example() string {
	c := &Config{}
	w := exampleWriter{}
	w.line(0, "# warmpath: every key at its default. Only nodes is required.", "")
	w.keys(0, schema(c))
	return w.b.String()
}

type exampleWriter struct{ b strings.Builder }

// line writes one line, its comment aligned.
func (w *exampleWriter) line(depth int, text, doc string) {
	const column = 44
	text = strings.Repeat("  ", depth) + text
	if doc != "" {
		text += strings.Repeat(" ", max(1, column-len(text))) + "# " + doc
	}
	w.b.WriteString(text + "\n")
}

func (w *exampleWriter) keys(depth int, entries []entry) {
	for i := range entries {
		e := &entries[i]
		path := e.key + ":"
		switch {
		case e.open != nil && e.open.aside:
			w.line(depth, path+" []", e.doc)
			e.open.grow()
			inner := exampleWriter{}
			inner.element(depth+1, e.open)
			for l := range strings.Lines(inner.b.String()) {
				w.b.WriteString("#" + l[1:])
			}
		case e.open != nil:
			w.line(depth, path, e.doc)
			e.open.grow()
			w.element(depth+1, e.open)
		case e.read != nil:
			w.line(depth, path+" "+e.def, e.doc)
		case len(e.children) == 0:
			w.line(depth, path+" {}", e.doc)
		default:
			w.line(depth, path, e.doc)
			w.keys(depth+1, e.children)
		}
	}
}

// element writes one element of a list.
func (w *exampleWriter) element(depth int, l *list) {
	inner := exampleWriter{}
	entries := l.elements(l.length() - 1)
	for i := range entries {
		if value, ok := l.example[entries[i].key]; ok {
			entries[i].def = value
		}
	}
	inner.keys(depth+1, entries)
	dash, first := strings.Repeat("  ", depth)+"- ", strings.Repeat("  ", depth+1)
	w.b.WriteString(dash + strings.TrimPrefix(inner.b.String(), first))
}
