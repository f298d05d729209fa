package chat

import (
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// jsonStyle are the arguments of Python's json.dumps.
type jsonStyle struct {
	ascii    bool // ensure_ascii
	sortKeys bool
	indent   []byte // for one level; nil for all in one line
	item     []byte // between items
	key      []byte // between key and value
}

// appendJSON appends json.dumps(v). depth is how far v is indented.
func (m *Machine) appendJSON(dst []byte, v Value, style *jsonStyle, depth int) ([]byte, error) {
	if err := m.fits(dst); err != nil {
		return dst, err
	}
	switch v.kind {
	case KindNone:
		return append(dst, "null"...), nil
	case KindBool:
		return strconv.AppendBool(dst, v.n != 0), nil
	case KindInt:
		return appendInt(dst, v)
	case KindFloat:
		return appendJSONFloat(dst, v.float()), nil
	case KindString:
		return m.appendJSONString(dst, v, style.ascii), nil
	case KindList, KindTuple, KindDict:
		if v.Len() == 0 {
			if v.kind == KindDict {
				return append(dst, "{}"...), nil
			}
			return append(dst, "[]"...), nil
		}
		if err := m.enter(); err != nil {
			return dst, err
		}
		defer m.leave()
		if v.kind == KindDict {
			return m.appendJSONObject(dst, v.ref, style, depth+1)
		}
		return m.appendJSONArray(dst, v.ref.items, style, depth+1)
	}
	return dst, raised("Object of type %s is not JSON serializable", v.typeName())
}

func (s *jsonStyle) newLine(dst []byte, depth int) []byte {
	if s.indent == nil {
		return dst
	}
	dst = append(dst, '\n')
	for range depth {
		dst = append(dst, s.indent...)
	}
	return dst
}

func (m *Machine) appendJSONArray(dst []byte, items []Value, style *jsonStyle, depth int) ([]byte, error) {
	dst = append(dst, '[')
	for i, item := range items {
		if i > 0 {
			dst = append(dst, style.item...)
		}
		var err error
		if dst, err = m.appendJSON(style.newLine(dst, depth), item, style, depth); err != nil {
			return dst, err
		}
	}
	return append(style.newLine(dst, depth-1), ']'), nil
}

func (m *Machine) appendJSONObject(dst []byte, o *object, style *jsonStyle, depth int) ([]byte, error) {
	entries := o.entries
	if style.sortKeys {
		var err error
		if entries, err = m.sortEntries(entries); err != nil {
			return dst, err
		}
	}
	dst = append(dst, '{')
	for i := range entries {
		if i > 0 {
			dst = append(dst, style.item...)
		}
		dst = style.newLine(dst, depth)
		var err error
		if dst, err = m.appendJSONKey(dst, entries[i].key, style); err != nil {
			return dst, err
		}
		dst = append(dst, style.key...)
		if dst, err = m.appendJSON(dst, entries[i].value, style, depth); err != nil {
			return dst, err
		}
	}
	return append(style.newLine(dst, depth-1), '}'), nil
}

// appendJSONKey writes a key: numbers, bools and None become strings.
func (m *Machine) appendJSONKey(dst []byte, key Value, style *jsonStyle) ([]byte, error) {
	switch key.kind {
	case KindString:
		return m.appendJSONString(dst, key, style.ascii), nil
	case KindNone, KindBool, KindInt, KindFloat:
		dst, err := m.appendJSON(append(dst, '"'), key, style, 0)
		return append(dst, '"'), err
	}
	return dst, raised("keys must be str, int, float, bool or None, not %s", key.typeName())
}

// sortEntries sorts the members of a dict by key, as Python's sorted does.
func (m *Machine) sortEntries(entries []entry) ([]entry, error) {
	sorted := slices.Clone(entries)
	var failed error
	slices.SortStableFunc(sorted, func(a, b entry) int {
		if failed != nil {
			return 0
		}
		order, _, err := m.order(opLess, a.key, b.key)
		if err == nil {
			err = m.step()
		}
		failed = err
		return order
	})
	return sorted, failed
}

func appendJSONFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	return appendFloat(dst, f)
}

// appendJSONString writes a str: quotes, backslashes and control characters
// escaped, and with ascii all that is not ASCII.
func (m *Machine) appendJSONString(dst []byte, v Value, ascii bool) []byte {
	dst = append(dst, '"')
	var t textReader
	if v.Truth() {
		t.open(v)
	}
	for {
		piece := t.piece()
		if len(piece) == 0 {
			return append(dst, '"')
		}
		m.work(len(piece))
		dst = appendJSONText(dst, piece, ascii)
		t.skip(len(piece))
	}
}

func appendJSONText(dst, text []byte, ascii bool) []byte {
	done := 0
	for i := 0; i < len(text); {
		c := text[i]
		if c >= 0x20 && c != '"' && c != '\\' && (c < utf8.RuneSelf && c != 0x7f || !ascii) {
			i++
			continue
		}
		dst = append(dst, text[done:i]...)
		size := 1
		switch e := shortEscape(c); {
		case e != 0:
			dst = append(dst, '\\', e)
		case c < utf8.RuneSelf:
			dst = appendUnit(dst, rune(c))
		default:
			var r rune
			r, size = utf8.DecodeRune(text[i:])
			if r > 0xffff {
				r -= 0x10000
				dst = appendUnit(appendUnit(dst, 0xd800+r>>10), 0xdc00+r&0x3ff)
			} else {
				dst = appendUnit(dst, r)
			}
		}
		i += size
		done = i
	}
	return append(dst, text[done:]...)
}

// appendUnit appends \uXXXX.
func appendUnit(dst []byte, unit rune) []byte {
	const hex = "0123456789abcdef"
	return append(dst, '\\', 'u', hex[unit>>12&0xf], hex[unit>>8&0xf], hex[unit>>4&0xf], hex[unit&0xf])
}

// filterToJSON is the filter tojson as transformers defines it.
func filterToJSON(m *Machine, in Value, p []Value) (Value, error) {
	ensureASCII, indent, separators, sortKeys := p[0], p[1], p[2], p[3]
	style := jsonStyle{
		ascii:    given(ensureASCII) && ensureASCII.Truth(),
		sortKeys: given(sortKeys) && sortKeys.Truth(),
		item:     []byte(", "), key: []byte(": "),
	}
	if given(indent) && !indent.IsNone() {
		style.item = []byte(",")
		switch {
		case isInteger(indent) && indent.ref == nil && indent.n <= 100:
			style.indent = make([]byte, max(0, indent.n))
			for i := range style.indent {
				style.indent[i] = ' '
			}
		case isPlainString(indent):
			style.indent = append([]byte{}, m.Bytes(indent)...)
		default:
			return in, inexact("tojson with an indent of type %s", indent.typeName())
		}
	}
	if given(separators) && !separators.IsNone() {
		if separators.Len() != 2 || separators.kind == KindDict || !isPlainString(separators.At(0)) || !isPlainString(separators.At(1)) {
			return in, inexact("tojson with separators that are no pair of strings")
		}
		style.item, style.key = m.Bytes(separators.At(0)), m.Bytes(separators.At(1))
	}
	text, err := m.appendJSON(m.scratch[:0], in, &style, 0)
	m.scratch = text
	if err != nil {
		return in, err
	}
	return Text(m.keep(text)), nil
}
