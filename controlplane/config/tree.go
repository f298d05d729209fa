package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Bounds of a file. A router of 1,024 nodes needs about 300 KiB.
const (
	maxFileBytes = 512 << 10
	maxDepth     = 32 // of nested values; also of brackets opened on one line
)

type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber // as written; the reader decides what kinds of number it takes
	kindText
	kindList
	kindMap
	kindRefused // a problem was already reported
)

var kindNames = [...]string{"nothing", "a boolean", "a number", "text", "a list", "a mapping", "what is not supported"}

// item is one value of a file, with its place.
type item struct {
	kind   kind
	text   string // of scalars: as written, without quotes
	quoted bool
	list   []item
	pairs  []pair
	place  place
}

// pair is one key of a mapping with its value.
type pair struct {
	key   string
	place place // of the key
	value item
}

// place says where a value was given.
type place struct {
	file         string
	line, column int // 0 = not in a file
}

// known reports whether the value was given at all.
func (p place) known() bool { return p.file != "" }

// String names the place as errors do.
func (p place) String() string {
	if p.line == 0 {
		return p.file
	}
	return fmt.Sprintf("%s:%d", p.file, p.line)
}

// problem is a Problem at this place without a key.
func (p place) problem(what, remedy string) Problem {
	return Problem{File: p.file, Line: p.line, Column: p.column, What: what, Remedy: remedy}
}

// shown is the value as an error prints it.
func (v item) shown() string {
	switch v.kind {
	case kindNull:
		return "null"
	case kindList:
		return fmt.Sprintf("[%d values]", len(v.list))
	case kindMap:
		return fmt.Sprintf("{%d keys}", len(v.pairs))
	case kindText:
		return quoteShort(userInfo.ReplaceAllString(v.text, "$1(hidden)@"))
	default:
		return short(v.text)
	}
}

// userInfo is the part of a URL that may hold a password.
var userInfo = regexp.MustCompile(`^([a-z]+://)[^/@]*@`)

// short cuts long values: an error stays one readable line.
func short(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

func quoteShort(s string) string { return fmt.Sprintf("%q", short(s)) }

// parseTree reads data as one YAML document. Only plain mappings, lists and
// scalars are taken: what makes one file mean two things to two readers
// (anchors, aliases, merge keys, tags, several documents) is refused. On
// problems the tree holds what could be read.
func parseTree(name string, data []byte) (item, Errors) {
	if p, bad := checkText(name, data); bad {
		return item{kind: kindRefused, place: p.place()}, Errors{p}
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	file, problem := parseYAML(name, data)
	if problem != nil {
		return item{kind: kindRefused, place: problem.place()}, Errors{*problem}
	}
	b := builder{file: name}
	root := item{kind: kindMap, place: place{name, 1, 1}}
	seen := false
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if seen {
			b.refuse(doc.Body, "", "a second document begins here", "keep one document a file: remove the line ---")
			break
		}
		seen = true
		root = b.build(doc.Body, "", 0)
	}
	return root, b.problems
}

// checkText refuses what is not text, and what would cost the YAML parser
// quadratic time.
func checkText(name string, data []byte) (Problem, bool) {
	if len(data) > maxFileBytes {
		return place{name, 1, 1}.problem(fmt.Sprintf("the file has %d bytes", len(data)), fmt.Sprintf("use at most %d bytes", maxFileBytes)), true
	}
	line, start, depth := 1, 0, 0
	for i := 0; i < len(data); {
		r, size := utf8.DecodeRune(data[i:])
		here := place{name, line, i - start + 1}
		switch {
		case r == utf8.RuneError && size == 1:
			return here.problem(fmt.Sprintf("the byte 0x%02x is not UTF-8", data[i]), "write the file as UTF-8 text"), true
		case r == '\n':
			line, start, depth = line+1, i+1, 0
		case r == '\r' && !bytes.HasPrefix(data[i:], []byte("\r\n")): // YAML would count a line, editors do not
			return here.problem("a carriage return without a line feed is not allowed", "end lines with a line feed"), true
		case r < ' ' && r != '\t' && r != '\r', r == 0x7f:
			return here.problem(fmt.Sprintf("the control character 0x%02x is not allowed", r), "remove it"), true
		case r == '[' || r == '{':
			if depth++; depth > maxDepth {
				return here.problem(fmt.Sprintf("more than %d brackets are open on one line", maxDepth), "close them"), true
			}
		case r == ']' || r == '}':
			depth--
		}
		i += size
	}
	return Problem{}, false
}

// parseYAML calls the library. A panic there is a file that cannot be read,
// not the end of a router that reloads.
func parseYAML(name string, data []byte) (file *ast.File, problem *Problem) {
	fail := func(at place, what string) {
		p := at.problem(what, "correct the YAML here or on the line before")
		file, problem = nil, &p
	}
	defer func() {
		if r := recover(); r != nil {
			fail(place{name, 1, 1}, fmt.Sprintf("not readable as YAML (%v)", r))
		}
	}()
	file, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err == nil {
		return file, nil
	}
	at, what := place{name, 1, 1}, err.Error()
	var ye yaml.Error
	if errors.As(err, &ye) {
		what = ye.GetMessage()
		if t := ye.GetToken(); t != nil {
			at = placeOf(name, t)
		}
	}
	what, _, _ = strings.Cut(what, "\n")
	what = strings.ReplaceAll(what, "\t", `\t`)
	fail(at, "not readable as YAML: "+short(what))
	return file, problem
}

func placeOf(file string, t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{file, 1, 1}
	}
	return place{file, max(1, t.Position.Line), max(1, t.Position.Column)}
}

// builder turns the library's nodes into items.
type builder struct {
	file     string
	problems Errors
}

func (b *builder) refuse(n ast.Node, path, what, remedy string) {
	p := placeOf(b.file, n.GetToken()).problem(what, remedy)
	p.Key = short(path)
	b.problems = append(b.problems, p)
}

// build makes the item of n, the value of the key at path.
func (b *builder) build(n ast.Node, path string, depth int) item {
	v := item{place: placeOf(b.file, n.GetToken())}
	if depth > maxDepth {
		b.refuse(n, path, "values are nested too deeply", "no key needs this; remove the value")
		v.kind = kindRefused
		return v
	}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		v.kind, v.text = kindBool, n.Token.Value
	case *ast.IntegerNode:
		v.kind, v.text = kindNumber, n.Token.Value
	case *ast.FloatNode:
		v.kind, v.text = kindNumber, n.Token.Value
	case *ast.InfinityNode:
		v.kind, v.text = kindNumber, n.Token.Value
	case *ast.NanNode:
		v.kind, v.text = kindNumber, n.Token.Value
	case *ast.StringNode:
		v.kind, v.text = kindText, n.Value
		v.quoted = n.Token.Type == token.SingleQuoteType || n.Token.Type == token.DoubleQuoteType
	case *ast.LiteralNode:
		v.kind, v.quoted = kindText, true
		if n.Value != nil {
			v.text = n.Value.Value
		}
	case *ast.SequenceNode:
		v.kind = kindList
		for i, e := range n.Values {
			v.list = append(v.list, b.build(e, fmt.Sprintf("%s[%d]", path, i), depth+1))
		}
	case *ast.MappingNode:
		v.kind = kindMap
		for _, p := range n.Values {
			b.addPair(&v, p, path, depth)
		}
	case *ast.MappingValueNode:
		v.kind = kindMap
		b.addPair(&v, n, path, depth)
	default:
		b.refuse(n, path, fmt.Sprintf("%s are not supported", construct(n)), "write the value out")
		v.kind = kindRefused
	}
	return v
}

// addPair adds one key of a mapping and finds keys that are given twice.
func (b *builder) addPair(to *item, p *ast.MappingValueNode, path string, depth int) {
	if p.Key == nil || p.Value == nil {
		b.refuse(p, path, "a key or its value is missing", "write key: value")
		return
	}
	var key string
	switch k := p.Key.(type) {
	case *ast.StringNode:
		key = k.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		key = k.GetToken().Value
	default:
		b.refuse(p.Key, path, fmt.Sprintf("%s are not supported", construct(p.Key)), "write a plain key")
		return
	}
	at := placeOf(b.file, p.Key.GetToken())
	for i := range to.pairs {
		if to.pairs[i].key == key {
			problem := at.problem(fmt.Sprintf("the key is given a second time; the first is on line %d", to.pairs[i].place.line), "keep one of the two")
			problem.Key = short(join(path, key))
			b.problems = append(b.problems, problem)
			return
		}
	}
	to.pairs = append(to.pairs, pair{key: key, place: at, value: b.build(p.Value, join(path, key), depth+1)})
}

// construct names what the file may not use.
func construct(n ast.Node) string {
	switch n.(type) {
	case *ast.AnchorNode:
		return "anchors (&name)"
	case *ast.AliasNode:
		return "aliases (*name)"
	case *ast.MergeKeyNode:
		return "merge keys (<<)"
	case *ast.TagNode:
		return "tags (!name)"
	case *ast.DirectiveNode:
		return "directives (%NAME)"
	default:
		return "complex keys and values of this kind"
	}
}
