package chat

import (
	"bytes"
	"unicode/utf8"
)

// Searching in text that is still escaped. It is done on the raw bytes where
// that is exact: where each character of the needle can be written in one way
// only. Otherwise the text is decoded.

// haystack is a text with a pattern that can be found in its bytes.
type haystack struct {
	text    Segment
	pattern []byte // not empty
}

// prepare makes a needle searchable in v. The needle must not be empty.
func (m *Machine) prepare(v Value, needle []byte) haystack {
	m.work(len(v.text))
	if v.form == formEscaped {
		if pattern, ok := m.escapedPattern(v, needle); ok {
			return haystack{textSegment(v), pattern}
		}
	}
	return haystack{Segment{Bytes: m.Bytes(v)}, needle}
}

// escapedPattern returns how needle must be written in v, if there is only one
// way.
func (m *Machine) escapedPattern(v Value, needle []byte) (pattern []byte, ok bool) {
	raw := v.text
	mayHave := func(kind int64) bool { return v.n&escapesKnown == 0 || v.n&kind != 0 }
	var plain, control, slash, high bool
	special := 0
	for _, c := range needle {
		switch {
		case c >= utf8.RuneSelf:
			high = true
		case c < 0x20:
			control = true
			special++
			if shortEscape(c) == 0 {
				return nil, false // written as \u00XX
			}
		case c == '"' || c == '\\':
			plain = true
			special++
		case c == '/':
			slash, plain = true, true
		default:
			plain = true
		}
	}
	if slash && mayHave(escapesSlash) && bytes.Contains(raw, slashEscape) {
		return nil, false
	}
	if mayHave(escapesUnicode) && (high && bytes.Contains(raw, unicodeEscape) || hasASCIIEscape(raw, plain, control)) {
		return nil, false
	}
	if special == 0 {
		return needle, true
	}
	pattern = m.newBytes(len(needle) + special)[:0]
	for _, c := range needle {
		if e := shortEscape(c); e != 0 {
			pattern = append(pattern, '\\', e)
		} else {
			pattern = append(pattern, c)
		}
	}
	return pattern, true
}

var (
	slashEscape   = []byte(`\/`)
	unicodeEscape = []byte(`\u`)
	asciiEscape   = []byte(`\u00`)
)

// hasASCIIEscape reports whether raw may hold a character of ASCII as \u00XX:
// a printable one or a control character, whichever is asked for.
func hasASCIIEscape(raw []byte, printable, control bool) bool {
	for {
		i := bytes.Index(raw, asciiEscape)
		if i < 0 || i+4 >= len(raw) {
			return false
		}
		if c := raw[i+4]; c <= '1' && control || '2' <= c && c <= '7' && printable {
			return true
		}
		raw = raw[i+4:]
	}
}

// shortEscape returns the letter of the escape that stands for c, 0 if c needs
// no escape or has no short one.
func shortEscape(c byte) byte {
	switch c {
	case '"', '\\':
		return c
	case '\b':
		return 'b'
	case '\f':
		return 'f'
	case '\n':
		return 'n'
	case '\r':
		return 'r'
	case '\t':
		return 't'
	}
	return 0
}

// index returns the first match at or after from, -1 if there is none.
func (h *haystack) index(from int) int {
	for from <= len(h.text.Bytes) {
		i := bytes.Index(h.text.Bytes[from:], h.pattern)
		if i < 0 {
			return -1
		}
		if from += i; !h.text.Escaped || !insideEscape(h.text.Bytes, from) {
			return from
		}
		from++
	}
	return -1
}

// lastIndex returns the last match that ends at or before end.
func (h *haystack) lastIndex(end int) int {
	for {
		i := bytes.LastIndex(h.text.Bytes[:end], h.pattern)
		if i < 0 || !h.text.Escaped || !insideEscape(h.text.Bytes, i) {
			return i
		}
		end = i + len(h.pattern) - 1
	}
}

// insideEscape reports whether position i of raw is not the begin of a
// character.
func insideEscape(raw []byte, i int) bool {
	if backslashesBefore(raw, i)%2 == 1 {
		return true
	}
	for back := 2; back <= 5 && back <= i; back++ {
		if raw[i-back] == '\\' && raw[i-back+1] == 'u' && backslashesBefore(raw, i-back)%2 == 0 {
			return true
		}
	}
	return false
}

// containsText is needle in text.
func (m *Machine) containsText(text, needle Value) bool {
	if !needle.Truth() {
		return true
	}
	h := m.prepare(text, m.Bytes(needle))
	return h.index(0) >= 0
}

// hasPrefix and hasSuffix compare the ends of a str with plain text.
func (m *Machine) hasPrefix(v Value, prefix []byte) bool {
	var t textReader
	if v.Truth() {
		t.open(v)
	}
	for len(prefix) > 0 {
		piece := t.piece()
		n := min(len(piece), len(prefix))
		if n == 0 || string(piece[:n]) != string(prefix[:n]) {
			return false
		}
		prefix = prefix[n:]
		t.skip(n)
	}
	return true
}

func (m *Machine) hasSuffix(v Value, suffix []byte) bool {
	if v.form != formEscaped {
		return bytes.HasSuffix(m.Bytes(v), suffix)
	}
	s := textSegment(v)
	for len(suffix) > 0 {
		want, n := utf8.DecodeLastRune(suffix)
		got, size := s.last()
		if size == 0 || got != want {
			return false
		}
		suffix, s.Bytes = suffix[:len(suffix)-n], s.Bytes[:len(s.Bytes)-size]
	}
	return true
}

// splitText is Python's split and rsplit with a separator: at most limit cuts,
// any number if limit is negative. The parts refer to the text.
func (m *Machine) splitText(v Value, separator []byte, limit int, fromRight bool) (Value, error) {
	h := m.prepare(v, separator)
	base := len(m.stack)
	rest := h.text
	part := func(s Segment) {
		piece := textOf(s)
		if s.Escaped {
			piece.n = v.n
		}
		m.stack = append(m.stack, piece)
	}
	if fromRight {
		for ; limit != 0; limit-- {
			i := h.lastIndex(len(rest.Bytes))
			if i < 0 {
				break
			}
			part(Segment{rest.Bytes[i+len(h.pattern):], rest.Escaped})
			rest.Bytes = rest.Bytes[:i]
		}
		part(rest)
		reverse(m.stack[base:])
	} else {
		at := 0
		for ; limit != 0; limit-- {
			i := h.index(at)
			if i < 0 {
				break
			}
			part(Segment{h.text.Bytes[at:i], rest.Escaped})
			at = i + len(h.pattern)
		}
		part(Segment{h.text.Bytes[at:], rest.Escaped})
	}
	m.steps -= len(m.stack) - base
	list := m.List(m.stack[base:]...)
	m.stack = m.stack[:base]
	return list, m.stepN(0)
}

func reverse(list []Value) {
	for i, j := 0, len(list)-1; i < j; i, j = i+1, j-1 {
		list[i], list[j] = list[j], list[i]
	}
}

// replaceText is Python's replace: at most limit times, always if limit is
// negative. The result refers to both texts.
func (m *Machine) replaceText(v, old, with Value, limit int) (Value, error) {
	if !old.Truth() {
		return m.insertBetween(m.Bytes(v), with, limit)
	}
	h := m.prepare(v, m.Bytes(old))
	i := h.index(0)
	if i < 0 || limit == 0 {
		return v, nil
	}
	base := m.capture()
	at := 0
	for ; i >= 0 && limit != 0; limit-- {
		if err := m.step(); err != nil {
			return v, err
		}
		m.emit(Segment{h.text.Bytes[at:i], h.text.Escaped})
		if err := m.print(with); err != nil {
			return v, err
		}
		at = i + len(h.pattern)
		i = h.index(at)
	}
	m.emit(Segment{h.text.Bytes[at:], h.text.Escaped})
	return m.captured(base), nil
}

// insertBetween is replace of the empty string: before each character and at
// the end.
func (m *Machine) insertBetween(text []byte, with Value, limit int) (Value, error) {
	base := m.capture()
	for ; limit != 0; limit-- {
		if err := m.step(); err != nil {
			return with, err
		}
		if err := m.print(with); err != nil {
			return with, err
		}
		if len(text) == 0 {
			break
		}
		n := charEnd(text, 0)
		m.emit(Segment{Bytes: text[:n]})
		text = text[n:]
	}
	m.emit(Segment{Bytes: text})
	return m.captured(base), nil
}
