package chat

import (
	"bytes"
	"slices"
)

// part returns text[start:end] with Python's meaning of the optional bounds,
// and the number of characters before it. ok is false if start is behind the
// end of the text, where not even an empty text is found.
func part(text []byte, bounds []Value) (piece []byte, before int, ok bool, err error) {
	if !slices.ContainsFunc(bounds, given) {
		return text, 0, true, nil
	}
	n := charCount(text)
	limits := [3]Value{None(), None(), None()}
	for i, v := range bounds {
		if given(v) {
			limits[i] = v
		}
	}
	start, stop, _, err := sliceBounds(limits, n)
	if err != nil {
		return nil, 0, false, err
	}
	if isInteger(limits[0]) && limits[0].ref == nil && limits[0].n > int64(n) || start > stop {
		return nil, 0, false, nil
	}
	from := charOffset(text, start)
	return text[from : from+charOffset(text[from:], stop-start)], start, true, nil
}

// searchWork is what searching a byte for a needle costs, in bytes that are
// copied, where it is worst: a long needle, most of which is there.
const searchWork = 8

func findMethod(last, must bool) boundFunc {
	return func(m *Machine, in Value, p []Value) (Value, error) {
		needle, err := m.textArg("find() argument", p[0])
		if err != nil {
			return in, err
		}
		text := m.Bytes(in)
		m.work(searchWork * len(text))
		piece, before, ok, err := part(text, p[1:])
		if err != nil {
			return in, err
		}
		at := -1
		if ok && last {
			at = bytes.LastIndex(piece, needle)
		} else if ok {
			at = bytes.Index(piece, needle)
		}
		if at < 0 {
			if must {
				return in, raised("substring not found")
			}
			return Int(-1), nil
		}
		return Int(int64(before + charCount(piece[:at]))), nil
	}
}

func methodCount(m *Machine, in Value, p []Value) (Value, error) {
	needle, err := m.textArg("count() argument", p[0])
	if err != nil {
		return in, err
	}
	text := m.Bytes(in)
	m.work(searchWork * len(text))
	piece, _, ok, err := part(text, p[1:])
	if err != nil || !ok {
		return Int(0), err
	}
	return Int(int64(bytes.Count(piece, needle))), nil // of the empty text: characters + 1, as in Python
}

// padding says how many of the fill characters go to the left.
type padding func(fill, width int) int

func padLeft(int, int) int          { return 0 }
func padRight(fill, _ int) int      { return fill }
func padCenter(fill, width int) int { return fill/2 + fill&width&1 }

func padMethod(left padding) boundFunc {
	return func(m *Machine, in Value, p []Value) (Value, error) {
		width, err := intArg(p[0], 0)
		if err != nil {
			return in, err
		}
		fill := []byte(" ")
		if given(p[1]) {
			if fill, err = m.textArg("the fill character", p[1]); err != nil {
				return in, err
			}
			if charCount(fill) != 1 {
				return in, raised("the fill character must be exactly one character long")
			}
		}
		return m.pad(in, width, fill, left)
	}
}

func (m *Machine) pad(v Value, width int, fill []byte, left padding) (Value, error) {
	missing := width - charLen(v)
	if missing <= 0 {
		return v, nil
	}
	if _, err := m.times(len(fill), int64(missing), 1); err != nil {
		return v, err
	}
	before := left(missing, width)
	padded := m.newBytes(missing * len(fill))
	repeatInto(padded, fill)
	cut := before * len(fill)
	return m.concat(m.concat(Text(padded[:cut]), v), Text(padded[cut:])), nil
}

func filterCenter(m *Machine, in Value, p []Value) (Value, error) {
	v, err := m.softText(in)
	if err != nil {
		return in, err
	}
	width, err := intArg(p[0], 80)
	if err != nil {
		return in, err
	}
	return m.pad(v, width, []byte(" "), padCenter)
}

// methodZfill is str.zfill: zeros on the left, behind a sign.
func methodZfill(m *Machine, in Value, p []Value) (Value, error) {
	width, err := intArg(p[0], 0)
	if err != nil {
		return in, err
	}
	text := m.Bytes(in)
	sign := 0
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		sign = 1
	}
	padded, err := m.pad(Text(text[sign:]), width-sign, []byte("0"), padRight)
	if err != nil {
		return in, err
	}
	return m.concat(Text(text[:sign]), padded), nil
}

func dictMethods() map[string]*function {
	view := func(which int64) *function {
		return fixed(func(_ *Machine, in Value, _ []Value) (Value, error) {
			return Value{kind: kindView, n: which, ref: in.ref}, nil
		}, 0)
	}
	return map[string]*function{
		"clear": {unsafe: true}, "pop": {unsafe: true}, "popitem": {unsafe: true},
		"setdefault": {unsafe: true}, "update": {unsafe: true},
		"copy":     fixed(func(_ *Machine, in Value, _ []Value) (Value, error) { return in, nil }, 0),
		"fromkeys": {},
		"get":      fixed(dictGet, 1, "", ""),
		"items":    view(viewItems),
		"keys":     view(viewKeys),
		"values":   view(viewValues),
	}
}

func dictGet(m *Machine, in Value, p []Value) (Value, error) {
	key, err := m.asKey(p[0])
	if err != nil {
		return in, err
	}
	at, err := m.find(in.ref, key)
	switch {
	case err != nil:
		return in, err
	case at >= 0:
		return in.ref.entries[at].value, nil
	case given(p[1]):
		return p[1], nil
	}
	return None(), nil
}

func listMethods() map[string]*function {
	table := tupleMethods()
	for _, name := range []string{"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"} {
		table[name] = &function{unsafe: true}
	}
	table["copy"] = fixed(func(_ *Machine, in Value, _ []Value) (Value, error) { return in, nil }, 0)
	return table
}

func tupleMethods() map[string]*function {
	return map[string]*function{
		"count": fixed(itemsCount, 1, ""),
		"index": fixed(itemsIndex, 1, "", "", ""),
	}
}

func itemsCount(m *Machine, in Value, p []Value) (Value, error) {
	n := 0
	for _, item := range in.ref.items {
		if err := m.step(); err != nil {
			return in, err
		}
		same, err := m.equal(item, p[0])
		if err != nil {
			return in, err
		}
		if same {
			n++
		}
	}
	return Int(int64(n)), nil
}

func itemsIndex(m *Machine, in Value, p []Value) (Value, error) {
	limits := [3]Value{None(), None(), None()}
	for i, v := range p[1:] {
		if given(v) {
			limits[i] = v
		}
	}
	start, stop, _, err := sliceBounds(limits, in.Len())
	if err != nil {
		return in, err
	}
	for i := start; i < stop; i++ {
		if err := m.step(); err != nil {
			return in, err
		}
		if same, err := m.equal(in.ref.items[i], p[0]); same || err != nil {
			return Int(int64(i)), err
		}
	}
	return in, raised("the item is not in the %s", in.typeName())
}
