package chat

import "unicode/utf8"

// stringMethods are the methods of str. Those without a function exist in
// Python only.
func stringMethods() map[string]*function {
	unprovided := func() *function { return &function{} }
	return map[string]*function{
		"capitalize":   fixed(textFilter(toCapitalized), 0),
		"casefold":     unprovided(),
		"center":       fixed(padMethod(padCenter), 1, "", ""),
		"count":        fixed(methodCount, 1, "", "", ""),
		"encode":       unprovided(),
		"endswith":     fixed(affixMethod("endswith", (*Machine).hasSuffix), 1, "", "", ""),
		"expandtabs":   unprovided(),
		"find":         fixed(findMethod(false, false), 1, "", "", ""),
		"format":       variadic(methodFormat),
		"format_map":   unprovided(),
		"index":        fixed(findMethod(false, true), 1, "", "", ""),
		"isalnum":      fixed(textTest(charTest(isAlnum)), 0),
		"isalpha":      fixed(textTest(charTest(isAlpha)), 0),
		"isascii":      fixed(textTest(isASCII), 0),
		"isdecimal":    fixed(textTest(charTest(isDecimalChar)), 0),
		"isdigit":      fixed(textTest(charTest(isDigitChar)), 0),
		"isidentifier": unprovided(),
		"islower":      fixed(textTest(stringIsLower), 0),
		"isnumeric":    fixed(textTest(charTest(isNumericChar)), 0),
		"isprintable":  fixed(textTest(textIsPrintable), 0),
		"isspace":      fixed(textTest(charTest(isSpaceChar)), 0),
		"istitle":      unprovided(),
		"isupper":      fixed(textTest(stringIsUpper), 0),
		"join":         fixed(methodJoin, 1, ""),
		"ljust":        fixed(padMethod(padLeft), 1, "", ""),
		"lower":        fixed(textFilter(toLower), 0),
		"lstrip":       fixed(stripMethod(true, false), 0, ""),
		"maketrans":    unprovided(),
		"partition":    fixed(partitionMethod(false), 1, ""),
		"removeprefix": fixed(methodRemovePrefix, 1, ""),
		"removesuffix": fixed(methodRemoveSuffix, 1, ""),
		"replace":      fixed(methodReplace, 2, "", "", ""),
		"rfind":        fixed(findMethod(true, false), 1, "", "", ""),
		"rindex":       fixed(findMethod(true, true), 1, "", "", ""),
		"rjust":        fixed(padMethod(padRight), 1, "", ""),
		"rpartition":   fixed(partitionMethod(true), 1, ""),
		"rsplit":       fixed(splitMethod(true), 0, "sep", "maxsplit"),
		"rstrip":       fixed(stripMethod(false, true), 0, ""),
		"split":        fixed(splitMethod(false), 0, "sep", "maxsplit"),
		"splitlines":   fixed(methodSplitlines, 0, "keepends"),
		"startswith":   fixed(affixMethod("startswith", (*Machine).hasPrefix), 1, "", "", ""),
		"strip":        fixed(stripMethod(true, true), 0, ""),
		"swapcase":     fixed(textFilter(toSwapped), 0),
		"title":        fixed(textFilter(toTitle), 0),
		"translate":    unprovided(),
		"upper":        fixed(textFilter(toUpper), 0),
		"zfill":        fixed(methodZfill, 1, ""),
	}
}

// textArg returns an argument that must be a str.
func (m *Machine) textArg(what string, v Value) ([]byte, error) {
	if v.kind != KindString {
		return nil, raised("%s must be str, not %s", what, v.typeName())
	}
	if v.form == formMarkup {
		return nil, inexact("Markup as an argument")
	}
	return m.Bytes(v), nil
}

// intArg returns an argument that must be an int, otherwise if it is not given.
func intArg(v Value, otherwise int) (int, error) {
	switch {
	case !given(v):
		return otherwise, nil
	case !isInteger(v):
		return 0, raised("'%s' object cannot be interpreted as an integer", v.typeName())
	case v.ref != nil || v.n > 1<<40 || v.n < -1<<40:
		return 0, inexact("an int of that size as an argument")
	}
	return int(v.n), nil
}

// textTest makes a method of a test of text.
func textTest(is func(text []byte) (bool, error)) boundFunc {
	return func(m *Machine, in Value, _ []Value) (Value, error) {
		text := m.Bytes(in)
		m.work(4 * len(text))
		yes, err := is(text)
		return Bool(yes), err
	}
}

func isASCII(text []byte) (bool, error) {
	for _, c := range text {
		if c >= 0x80 {
			return false, nil
		}
	}
	return true, nil
}

func stripMethod(left, right bool) boundFunc {
	return func(m *Machine, in Value, p []Value) (Value, error) {
		var set trimSet
		if given(p[0]) && !p[0].IsNone() {
			chars, err := m.textArg("strip arg", p[0])
			if err != nil {
				return in, err
			}
			set.chars = chars
		}
		return m.strip(in, set, left, right), nil
	}
}

func splitMethod(fromRight bool) boundFunc {
	return func(m *Machine, in Value, p []Value) (Value, error) {
		limit, err := intArg(p[1], -1)
		if err != nil {
			return in, err
		}
		if !given(p[0]) || p[0].IsNone() {
			return m.splitSpace(in, limit, fromRight), nil
		}
		separator, err := m.textArg("sep", p[0])
		if err != nil {
			return in, err
		}
		if len(separator) == 0 {
			return in, raised("empty separator")
		}
		return m.splitText(in, separator, limit, fromRight)
	}
}

// splitSpace is split without a separator: at runs of white space.
func (m *Machine) splitSpace(v Value, limit int, fromRight bool) Value {
	text := m.Bytes(v)
	m.work(2 * len(text))
	base := len(m.stack)
	space := trimSet{}
	rest := space.trim(Segment{Bytes: text}, !fromRight, fromRight)
	for len(rest.Bytes) > 0 && limit != 0 {
		word := rest
		if fromRight {
			for {
				r, size := rest.last()
				if size == 0 || isSpace(r) {
					break
				}
				rest.Bytes = rest.Bytes[:len(rest.Bytes)-size]
			}
			word.Bytes = word.Bytes[len(rest.Bytes):]
		} else {
			for {
				r, size := rest.first()
				if size == 0 || isSpace(r) {
					break
				}
				rest.Bytes = rest.Bytes[size:]
			}
			word.Bytes = word.Bytes[:len(word.Bytes)-len(rest.Bytes)]
		}
		m.stack = append(m.stack, Text(word.Bytes))
		rest = space.trim(rest, !fromRight, fromRight)
		limit--
	}
	if len(rest.Bytes) > 0 { // beyond the limit, with the white space at its far end
		m.stack = append(m.stack, Text(rest.Bytes))
	}
	if fromRight {
		reverse(m.stack[base:])
	}
	m.steps -= len(m.stack) - base
	list := m.List(m.stack[base:]...)
	m.stack = m.stack[:base]
	return list
}

// affixMethod makes startswith or endswith, whose argument may be a tuple of
// several texts.
func affixMethod(name string, has func(m *Machine, v Value, affix []byte) bool) boundFunc {
	what := name + " first arg"
	return func(m *Machine, in Value, p []Value) (Value, error) {
		if given(p[1]) || given(p[2]) {
			return in, inexact("%s with a position", name)
		}
		affixes := p[:1]
		if p[0].kind == KindTuple {
			affixes = p[0].ref.items
		}
		for _, affix := range affixes {
			text, err := m.textArg(what, affix)
			if err != nil {
				return in, err
			}
			if has(m, in, text) {
				return Bool(true), nil
			}
		}
		return Bool(false), nil
	}
}

func methodReplace(m *Machine, in Value, p []Value) (Value, error) {
	for i := range 2 {
		if _, err := m.textArg("replace() argument", p[i]); err != nil {
			return in, err
		}
	}
	limit, err := intArg(p[2], -1)
	if err != nil {
		return in, err
	}
	return m.replaceText(in, p[0], p[1], limit)
}

func methodJoin(m *Machine, in Value, p []Value) (Value, error) {
	c, err := m.iterate(p[0])
	if err != nil {
		return in, err
	}
	base := m.capture()
	for n := 0; ; n++ {
		item, ok, err := c.next(m)
		if err != nil {
			return in, err
		}
		if !ok {
			return m.captured(base), nil
		}
		if item.kind != KindString {
			return in, raised("sequence item %d: expected str instance, %s found", n, item.typeName())
		}
		if item.form == formMarkup {
			return in, inexact("join of Markup")
		}
		if n > 0 {
			if err := m.print(in); err != nil {
				return in, err
			}
		}
		if err := m.print(item); err != nil {
			return in, err
		}
	}
}

func methodRemovePrefix(m *Machine, in Value, p []Value) (Value, error) {
	prefix, err := m.textArg("removeprefix() argument", p[0])
	if err != nil || !m.hasPrefix(in, prefix) {
		return in, err
	}
	return Text(m.Bytes(in)[len(prefix):]), nil
}

func methodRemoveSuffix(m *Machine, in Value, p []Value) (Value, error) {
	suffix, err := m.textArg("removesuffix() argument", p[0])
	if err != nil || !m.hasSuffix(in, suffix) {
		return in, err
	}
	text := m.Bytes(in)
	return Text(text[:len(text)-len(suffix)]), nil
}

func partitionMethod(fromRight bool) boundFunc {
	return func(m *Machine, in Value, p []Value) (Value, error) {
		separator, err := m.textArg("must be str", p[0])
		if err != nil {
			return in, err
		}
		if len(separator) == 0 {
			return in, raised("empty separator")
		}
		h := m.prepare(in, separator)
		i := h.index(0)
		if fromRight {
			i = h.lastIndex(len(h.text.Bytes))
		}
		empty := Value{kind: KindString}
		switch {
		case i >= 0:
			left, right := h.text, h.text
			left.Bytes, right.Bytes = left.Bytes[:i], right.Bytes[i+len(h.pattern):]
			return m.tuple(textOf(left), p[0], textOf(right)), nil
		case fromRight:
			return m.tuple(empty, empty, in), nil
		}
		return m.tuple(in, empty, empty), nil
	}
}

// isLineEnd reports whether str.splitlines cuts behind r.
func isLineEnd(r rune) bool {
	return '\n' <= r && r <= '\r' || 0x1c <= r && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

// splitLines pushes the lines of text onto the stack, of which base is the
// bottom.
func (m *Machine) splitLines(text []byte, keepEnds bool) (base int) {
	m.work(2 * len(text))
	base = len(m.stack)
	for len(text) > 0 {
		line, end := len(text), len(text)
		for i, size := 0, 0; i < len(text); i += size {
			var r rune
			if r, size = utf8.DecodeRune(text[i:]); isLineEnd(r) {
				line, end = i, i+size
				if r == '\r' && end < len(text) && text[end] == '\n' {
					end++
				}
				break
			}
		}
		if keepEnds {
			line = end
		}
		m.stack = append(m.stack, Text(text[:line:line]))
		text = text[end:]
	}
	m.steps -= len(m.stack) - base
	return base
}

func methodSplitlines(m *Machine, in Value, p []Value) (Value, error) {
	keep := false
	if given(p[0]) {
		n, err := intArg(p[0], 0)
		if err != nil {
			return in, err
		}
		keep = n != 0
	}
	base := m.splitLines(m.Bytes(in), keep)
	list := m.List(m.stack[base:]...)
	m.stack = m.stack[:base]
	return list, nil
}
