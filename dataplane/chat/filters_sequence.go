package chat

import "slices"

// attributePath is what "a.b.0" means to the filters that look at an attribute
// of each item (jinja2.filters.make_attrgetter).
type attributePath []Value

func (m *Machine) attributePath(v Value) (attributePath, error) {
	switch {
	case !given(v), v.IsNone():
		return nil, nil
	case v.kind == KindString:
		return m.splitPath(m.Bytes(v))
	}
	return attributePath{v}, nil
}

func (m *Machine) splitPath(text []byte) (attributePath, error) {
	var path attributePath
	start := 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && text[i] != '.' {
			continue
		}
		name := text[start:i]
		start = i + 1
		digits, err := charTest(isDigitChar)(name)
		if err != nil {
			return nil, err
		}
		if !digits {
			path = append(path, Text(name))
			continue
		}
		n, ok, err := m.parseInt(name, 10)
		if err != nil || !ok {
			return nil, inexact("the attribute %.40q", name)
		}
		path = append(path, n)
	}
	return path, nil
}

func (p attributePath) get(m *Machine, item Value) (Value, error) {
	for _, key := range p {
		var err error
		if item, err = m.item(item, key); err != nil {
			return item, err
		}
	}
	return item, nil
}

// getOr is get with a default for what is undefined on the way.
func (p attributePath) getOr(m *Machine, item, otherwise Value) (Value, error) {
	for _, key := range p {
		var err error
		if item, err = m.item(item, key); err != nil {
			return item, err
		}
		if item.kind == KindUndefined && given(otherwise) && !otherwise.IsNone() {
			item = otherwise
		}
	}
	return item, nil
}

// folded is what values are compared by: strings without their case, unless
// that matters.
func (m *Machine) folded(v Value, caseSensitive bool) (Value, error) {
	if v.kind != KindString {
		return v, nil
	}
	text := m.Bytes(v)
	if caseSensitive {
		return Text(text), nil
	}
	return toLower(m, text)
}

func truthOf(v Value) bool { return given(v) && v.Truth() }

func filterLength(m *Machine, in Value, _ []Value) (Value, error) {
	switch in.kind {
	case KindString:
		m.work(len(in.text))
		return Int(int64(charLen(in))), nil
	case KindUndefined, KindList, KindTuple, KindDict, kindRange, kindView:
		return Int(int64(sequenceLen(in))), nil
	case kindLoop:
		n, err := in.ref.aux.(*loopState).size(m)
		return Int(int64(n)), err
	}
	return in, raised("object of type '%s' has no len()", in.typeName())
}

func filterDefault(_ *Machine, in Value, p []Value) (Value, error) {
	if in.kind != KindUndefined && (!truthOf(p[1]) || in.Truth()) {
		return in, nil
	}
	if given(p[0]) {
		return p[0], nil
	}
	return Value{kind: KindString}, nil
}

func filterFirst(m *Machine, in Value, _ []Value) (Value, error) {
	if in.kind == KindString && in.form != formMarkup && in.Truth() {
		return m.charAt(in, Int(0))
	}
	c, err := m.iterate(in)
	if err != nil {
		return in, err
	}
	v, ok, err := c.next(m)
	if !ok && err == nil {
		return noFirst, nil
	}
	return v, err
}

var (
	noFirst = undefinedNamed("the first item of nothing")
	noLast  = undefinedNamed("the last item of nothing")
)

func filterLast(m *Machine, in Value, _ []Value) (Value, error) {
	switch in.kind {
	case KindString:
		if in.form == formMarkup {
			return in, inexact("last of Markup")
		}
		if !in.Truth() {
			return noLast, nil
		}
		return m.charAt(in, Int(-1))
	case KindUndefined, KindList, KindTuple, KindDict, kindRange, kindView:
		if n := sequenceLen(in); n > 0 {
			return m.sequenceAt(in, n-1), nil
		}
		return noLast, nil
	}
	return in, raised("'%s' object is not reversible", in.typeName())
}

func filterList(m *Machine, in Value, _ []Value) (Value, error) { return m.toList(in) }

// filterReverse turns a str around; all else becomes an iterator.
func filterReverse(m *Machine, in Value, _ []Value) (Value, error) {
	if in.kind == KindString {
		return m.slice(in, [3]Value{None(), None(), Int(-1)})
	}
	list, err := m.toList(in)
	if err != nil {
		return in, err
	}
	reverse(list.ref.items)
	if in.kind == kindIterator {
		return list, nil
	}
	c, err := m.iterate(list)
	return m.newIterator(&iterator{source: c}), err
}

func filterItems(m *Machine, in Value, _ []Value) (Value, error) {
	return m.newIterator(&iterator{start: func(m *Machine) (cursor, error) {
		switch in.kind {
		case KindUndefined:
			return cursor{}, nil
		case KindDict:
			return cursor{over: Value{kind: kindView, n: viewItems, ref: in.ref}}, nil
		}
		return cursor{}, raised("Can only get item pairs from a mapping.")
	}}), nil
}

func filterAttr(m *Machine, in Value, p []Value) (Value, error) {
	if p[0].kind != KindString {
		return in, raised("attribute name must be string, not '%s'", p[0].typeName())
	}
	a := newAttributeName(string(m.Bytes(p[0])))
	if in.kind == KindDict && a.methods[KindDict] == nil {
		return a.undefined(), nil
	}
	return m.attribute(in, &a, false)
}

// filterMap applies a filter to each item, or takes an attribute of it.
func filterMap(m *Machine, in Value, a arguments) (Value, error) {
	positional, names, named := slices.Clone(a.positional), a.names, slices.Clone(a.named)
	it := &iterator{}
	it.start = func(m *Machine) (cursor, error) {
		if !in.Truth() {
			return cursor{}, nil
		}
		var err error
		if len(positional) == 0 && slices.Contains(names, "attribute") {
			it.step, err = m.mapAttribute(names, named)
		} else {
			it.step, err = m.mapFilter(positional, names, named)
		}
		if err != nil {
			return cursor{}, err
		}
		return m.iterate(in)
	}
	return m.newIterator(it), nil
}

type stepFunc = func(m *Machine, item Value) (Value, bool, error)

func (m *Machine) mapAttribute(names []string, named []Value) (stepFunc, error) {
	var attribute, otherwise Value
	otherwise.kind = kindMissing
	for i, name := range names {
		switch name {
		case "attribute":
			attribute = named[i]
		case "default":
			otherwise = named[i]
		default:
			return nil, raised("Unexpected keyword argument '%s'", name)
		}
	}
	path, err := m.attributePath(attribute)
	return func(m *Machine, item Value) (Value, bool, error) {
		v, err := path.getOr(m, item, otherwise)
		return v, true, err
	}, err
}

func (m *Machine) mapFilter(positional []Value, names []string, named []Value) (stepFunc, error) {
	if len(positional) == 0 {
		return nil, raised("map requires a filter argument")
	}
	fn, err := m.functionNamed("filter", filters, positional[0])
	if err != nil {
		return nil, err
	}
	return func(m *Machine, item Value) (Value, bool, error) {
		v, err := m.call(fn, item, arguments{positional[1:], names, named})
		return v, true, err
	}, nil
}

// functionNamed returns a filter or a test by the name that a template gives
// as a value.
func (m *Machine) functionNamed(what string, table map[string]*function, name Value) (*function, error) {
	text := string(m.Bytes(name))
	if fn := table[text]; fn != nil {
		return fn, nil
	}
	if slices.Contains(otherFilters, text) && what == "filter" {
		return nil, inexact("the filter %s, which is not provided here", text)
	}
	return nil, raised("No %s named '%.100s'.", what, text)
}

// selection makes select, reject, selectattr and rejectattr.
func selection(keep, byAttribute bool) func(m *Machine, in Value, a arguments) (Value, error) {
	return func(m *Machine, in Value, a arguments) (Value, error) {
		args := arguments{slices.Clone(a.positional), a.names, slices.Clone(a.named)}
		it := &iterator{}
		it.start = func(m *Machine) (cursor, error) {
			if !in.Truth() {
				return cursor{}, nil
			}
			var err error
			if it.step, err = m.selector(args, keep, byAttribute); err != nil {
				return cursor{}, err
			}
			return m.iterate(in)
		}
		return m.newIterator(it), nil
	}
}

func (m *Machine) selector(a arguments, keep, byAttribute bool) (stepFunc, error) {
	var path attributePath
	if byAttribute {
		if len(a.positional) == 0 {
			return nil, raised("Missing parameter for attribute name")
		}
		var err error
		if path, err = m.attributePath(a.positional[0]); err != nil {
			return nil, err
		}
		a.positional = a.positional[1:]
	}
	var test *function
	if len(a.positional) > 0 {
		var err error
		if test, err = m.functionNamed("test", tests, a.positional[0]); err != nil {
			return nil, err
		}
		a.positional = a.positional[1:]
	}
	return func(m *Machine, item Value) (Value, bool, error) {
		v, err := path.get(m, item)
		if err == nil && test != nil {
			v, err = m.call(test, v, a)
		}
		return item, v.Truth() == keep, err
	}, nil
}
