package config

import (
	"strings"
)

// complaint says why a value was not taken; the zero complaint is none.
type complaint struct{ what, remedy string }

func (c complaint) none() bool { return c == complaint{} }

// entry is one key of the schema. A schema is bound to one Config: its entries
// hold pointers into it. Exactly one of read, children and open is set.
type entry struct {
	key     string
	def     string // YAML text of the default
	doc     string // one line
	restart bool   // a change needs a restart
	secret  bool   // never printed

	read     func(v item) complaint // a leaf: reads one value into the Config
	show     func() string          // a leaf: the value in the Config as YAML text
	children []entry                // a mapping with fixed keys
	open     *list                  // a list of mappings
	extra    *extra                 // beside children: keys that another package knows
}

// list is a list of mappings, such as nodes.
type list struct {
	length   func() int
	grow     func()               // adds one element with zero values
	elements func(i int) []entry  // the schema of element i
	example  map[string]string    // values of keys that have no default
	aside    bool                 // the example file is to have no element, but show one
	required map[string]complaint // keys that every element needs
}

// extra takes the keys of a mapping that its schema does not list.
type extra struct {
	set  func(key string, v item) complaint
	show func() [][2]string // key and value, ascending
}

// leaf binds a key to a place in the Config. parse reads a value; show prints
// one so that parse reads it back.
func leaf[T comparable](key, def, doc string, to *T, parse func(item) (T, complaint), show func(T) string) entry {
	return entry{
		key: key, def: def, doc: doc,
		read: func(v item) complaint {
			t, c := parse(v)
			if c.none() {
				*to = t
			}
			return c
		},
		show: func() string { return show(*to) },
	}
}

func group(key, doc string, children ...entry) entry {
	return entry{key: key, doc: doc, children: children}
}

// atRestart marks a key whose change needs a restart.
func (e entry) atRestart() entry { e.restart = true; return e }

// hidden marks a key whose value is never printed.
func (e entry) hidden() entry { e.secret = true; return e }

// nearest finds the candidate closest to word by edit distance, "" if none is
// close.
func nearest(word string, candidates []string) string {
	best, least := "", 1+max(1, min(3, len(word)/2))
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), c, least); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance is the number of single edits (insert, delete, replace, swap of
// neighbours) from a to b, or most if it is at least that.
func distance(a, b string, most int) int {
	if len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := last[j-1]
			if a[i-1] != b[j-1] {
				replace++
			}
			row[j] = min(replace, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(most, last[len(b)])
}
