package chat

import "unicode/utf8"

// softText is what jinja2's text filters make of their input: a str as it is,
// the str of all else.
func (m *Machine) softText(v Value) (Value, error) {
	if v.kind == KindString {
		if v.form == formMarkup {
			return v, inexact("a filter on Markup")
		}
		return v, nil
	}
	return m.str(v)
}

// textFilter makes a filter of a function of plain text. It serves as a method
// too.
func textFilter(f func(m *Machine, text []byte) (Value, error)) boundFunc {
	return func(m *Machine, in Value, _ []Value) (Value, error) {
		v, err := m.softText(in)
		if err != nil {
			return in, err
		}
		return f(m, m.Bytes(v))
	}
}

func filterString(m *Machine, in Value, _ []Value) (Value, error) {
	if in.kind == KindString {
		return in, nil
	}
	return m.str(in)
}

func filterTrim(m *Machine, in Value, p []Value) (Value, error) {
	v, err := m.softText(in)
	if err != nil {
		return in, err
	}
	var set trimSet
	if given(p[0]) && !p[0].IsNone() {
		chars, err := m.textArg("strip arg", p[0])
		if err != nil {
			return in, err
		}
		set.chars = chars
	}
	return m.strip(v, set, true, true), nil
}

func filterReplace(m *Machine, in Value, p []Value) (Value, error) {
	var texts [3]Value
	for i, v := range [3]Value{in, p[0], p[1]} {
		var err error
		if texts[i], err = m.str(v); err != nil {
			return in, err
		}
	}
	limit := -1
	if given(p[2]) && !p[2].IsNone() {
		var err error
		if limit, err = intArg(p[2], -1); err != nil {
			return in, err
		}
	}
	return m.replaceText(texts[0], texts[1], texts[2], limit)
}

func filterJoin(m *Machine, in Value, p []Value) (Value, error) {
	separator := Value{kind: KindString}
	if given(p[0]) {
		var err error
		if separator, err = m.str(p[0]); err != nil {
			return in, err
		}
	}
	path, err := m.attributePath(p[1])
	if err != nil {
		return in, err
	}
	c, err := m.iterate(in)
	if err != nil {
		return in, err
	}
	base := m.capture()
	for first := true; ; first = false {
		item, ok, err := c.next(m)
		if err != nil {
			return in, err
		}
		if !ok {
			return m.captured(base), nil
		}
		if item, err = path.get(m, item); err != nil {
			return in, err
		}
		if !first {
			if err := m.print(separator); err != nil {
				return in, err
			}
		}
		if err := m.print(item); err != nil {
			return in, err
		}
	}
}

func filterIndent(m *Machine, in Value, p []Value) (Value, error) {
	if in.kind != KindString {
		return in, operandError(opAdd, in, String(""))
	}
	if in.form == formMarkup {
		return in, inexact("indent of Markup")
	}
	indent := spaces[:4]
	switch width := p[0]; {
	case !given(width):
	case width.kind == KindString:
		var err error
		if indent, err = m.textArg("width", width); err != nil {
			return in, err
		}
	default:
		n, err := intArg(width, 4)
		if err != nil {
			return in, err
		}
		if n > len(spaces) {
			return in, inexact("indent by more than %d", len(spaces))
		}
		indent = spaces[:max(0, n)]
	}
	first := given(p[1]) && p[1].Truth()
	blank := given(p[2]) && p[2].Truth()

	// jinja2 adds a newline before it cuts into lines.
	lines := m.splitLines(m.Bytes(m.concat(in, Text(newLine))), false)
	base := m.capture()
	for i, line := range m.stack[lines:] {
		if i > 0 {
			m.emit(Segment{Bytes: newLine})
		}
		if i == 0 && first || i > 0 && (blank || line.Truth()) {
			m.emit(Segment{Bytes: indent})
		}
		m.emit(Segment{Bytes: line.text})
	}
	m.stack = m.stack[:lines]
	return m.captured(base), nil
}

var (
	newLine = []byte("\n")
	spaces  = []byte("                                                                ")
)

func filterTruncate(m *Machine, in Value, p []Value) (Value, error) {
	length, err := intArg(p[0], 255)
	if err != nil {
		return in, err
	}
	killWords := given(p[1]) && p[1].Truth()
	end := []byte("...")
	if given(p[2]) {
		if end, err = m.textArg("end", p[2]); err != nil {
			return in, err
		}
	}
	leeway := 5 // jinja2's policy truncate.leeway
	if given(p[3]) && !p[3].IsNone() {
		if leeway, err = intArg(p[3], 5); err != nil {
			return in, err
		}
	}
	if length < charCount(end) || leeway < 0 {
		return in, raised("truncate to a length shorter than its end")
	}
	if in.kind == KindUndefined {
		return in, nil
	}
	if in.kind != KindString {
		return in, inexact("truncate of a %s", in.typeName())
	}
	text, err := m.textArg("truncate", in)
	if err != nil {
		return in, err
	}
	m.work(len(text))
	if charCount(text) <= length+leeway {
		return in, nil
	}
	text = text[:charOffset(text, length-charCount(end))]
	if !killWords {
		for i := len(text) - 1; i >= 0; i-- {
			if text[i] == ' ' {
				text = text[:i]
				break
			}
		}
	}
	return m.concat(Text(text), Text(end)), nil
}

// filterWordcount counts matches of \w+.
func filterWordcount(m *Machine, in Value, _ []Value) (Value, error) {
	v, err := m.softText(in)
	if err != nil {
		return in, err
	}
	text := m.Bytes(v)
	m.work(4 * len(text))
	words, inside := 0, false
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		is, err := isAlnum(r)
		if err != nil {
			return in, err
		}
		is = is || r == '_'
		if is && !inside {
			words++
		}
		inside = is
		text = text[size:]
	}
	return Int(int64(words)), nil
}

// filterURLEncode quotes text for a URL.
func filterURLEncode(m *Machine, in Value, _ []Value) (Value, error) {
	if in.kind != KindString && isIterable(in) {
		return in, inexact("urlencode of a %s", in.typeName())
	}
	v, err := m.softText(in)
	if err != nil {
		return in, err
	}
	text := m.Bytes(v)
	m.work(4 * len(text))
	const hex = "0123456789ABCDEF"
	out := m.scratch[:0]
	for _, c := range text {
		if isNameByte(c) || c == '.' || c == '-' || c == '~' || c == '/' {
			out = append(out, c)
		} else {
			out = append(out, '%', hex[c>>4], hex[c&0xf])
		}
	}
	m.scratch = out
	return Text(m.keep(out)), nil
}

// Markup is a str that counts as HTML. Chat templates have no use for it, but
// some say safe. It can be printed, added and compared; all else is Inexact.

func markupOf(text []byte) Value { return Value{kind: KindString, form: formMarkup, text: text} }

func filterSafe(m *Machine, in Value, _ []Value) (Value, error) {
	v, err := m.str(in)
	if err != nil {
		return in, err
	}
	return markupOf(m.Bytes(v)), nil
}

// filterEscape is markupsafe.escape.
func filterEscape(m *Machine, in Value, _ []Value) (Value, error) {
	if in.kind == KindString && in.form == formMarkup {
		return in, nil
	}
	v, err := m.str(in)
	if err != nil {
		return in, err
	}
	text := m.Bytes(v)
	m.work(2 * len(text))
	out := m.scratch[:0]
	for _, c := range text {
		switch c {
		case '&':
			out = append(out, "&amp;"...)
		case '<':
			out = append(out, "&lt;"...)
		case '>':
			out = append(out, "&gt;"...)
		case '\'':
			out = append(out, "&#39;"...)
		case '"':
			out = append(out, "&#34;"...)
		default:
			out = append(out, c)
		}
	}
	m.scratch = out
	return markupOf(m.keep(out)), nil
}

// addMarkup is + where one side is Markup: the other one is escaped.
func (m *Machine) addMarkup(a, b Value) (Value, error) {
	left, err := filterEscape(m, a, nil)
	if err != nil {
		return a, err
	}
	right, err := filterEscape(m, b, nil)
	if err != nil {
		return b, err
	}
	left.form, right.form = formPlain, formPlain
	return markupOf(m.Bytes(m.concat(left, right))), nil
}
