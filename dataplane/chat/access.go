package chat

import "strings"

// attributeName is the name of an attribute with what it means on each kind,
// looked up once.
type attributeName struct {
	key     Value
	name    string
	methods [kindMissing]*function
}

func newAttributeName(name string) attributeName {
	a := attributeName{key: String(name), name: name}
	for kind, table := range methods {
		a.methods[kind] = table[name]
	}
	return a
}

// private reports whether the sandbox hides the attribute, should it exist.
func (a *attributeName) private() bool { return strings.HasPrefix(a.name, "_") }

func (a *attributeName) undefined() Value { return Value{kind: KindUndefined, text: a.key.text} }

func (a *attributeName) unsafe() Value { return Value{kind: KindUndefined, text: a.key.text, n: 1} }

// method returns the method of a value that the name means, nil if it means
// something else there. asItem is x["name"], where the keys of a dict come
// first.
func (a *attributeName) method(v Value, asItem bool) *function {
	fn := a.methods[v.kind]
	if fn != nil && v.kind == KindDict && asItem && v.ref.findText(a.key.text) >= 0 {
		return nil
	}
	return fn
}

func (e *attributeExpr) eval(m *Machine, f *frame) (Value, error) {
	v, err := e.object.eval(m, f)
	if err != nil {
		return v, err
	}
	v, err = m.attribute(v, &e.name, e.item)
	return v, atLine(err, e.line)
}

// attribute is jinja2's getattr, or its getitem for a name: what is not there
// is Undefined, and what the sandbox refuses as well.
func (m *Machine) attribute(v Value, a *attributeName, asItem bool) (Value, error) {
	if fn := a.method(v, asItem); fn != nil {
		return m.boundMethod(fn, v, a)
	}
	switch v.kind {
	case KindDict:
		at := v.ref.findText(a.key.text)
		if at < 0 {
			return a.undefined(), nil
		}
		if !asItem && strings.HasPrefix(a.name, "__") {
			return v, inexact("the key %s, which may be an attribute of dict", a.name)
		}
		return v.ref.entries[at].value, nil
	case kindNamespace:
		at := v.ref.findText(a.key.text)
		switch {
		case at < 0:
			return a.undefined(), nil
		case a.private():
			return a.unsafe(), nil
		}
		return v.ref.entries[at].value, nil
	case kindLoop:
		return m.loopAttribute(v, a)
	case KindUndefined:
		return v, undefinedError(v)
	case KindTuple:
		if v.ref.aux != nil { // of groupby
			switch a.name {
			case "grouper":
				return v.ref.items[0], nil
			case "list":
				return v.ref.items[1], nil
			}
		}
	case kindMacro:
		switch d := v.ref.aux.(*macroDef); a.name {
		case "name":
			if d.name == "" {
				return None(), nil
			}
			return m.Copy(d.name), nil
		case "arguments":
			names := m.tuple()
			for _, p := range d.params {
				m.Append(names, m.Copy(p.name))
			}
			return names, nil
		}
	case kindCycler:
		if a.name == "current" {
			return v.ref.items[v.ref.position()], nil
		}
	}
	if !a.private() && hasOtherAttribute(v, a.name) {
		return v, inexact("the attribute %s of a %s", a.name, v.typeName())
	}
	return a.undefined(), nil
}

// boundMethod is a method that is not called at once.
func (m *Machine) boundMethod(fn *function, v Value, a *attributeName) (Value, error) {
	switch {
	case fn.unsafe:
		return a.unsafe(), nil
	case v.form == formMarkup:
		return v, inexact("a method of Markup")
	}
	o := m.newObject()
	o.items = m.newValues(1)
	o.items[0], o.aux = v, fn
	return Value{kind: kindMethod, ref: o}, nil
}

// otherAttributes are attributes that exist in Python and are not provided
// here. Those of the kinds in methods are there.
var otherAttributes = map[Kind]string{
	KindBool:     " as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator real to_bytes ",
	KindInt:      " as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator real to_bytes ",
	KindFloat:    " as_integer_ratio conjugate fromhex from_number hex imag is_integer real ",
	kindRange:    " start stop step count index ",
	kindView:     " isdisjoint mapping ",
	kindMacro:    " caller catch_kwargs catch_varargs explicit_caller ",
	kindJoiner:   " sep used ",
	kindCycler:   " items pos ",
	kindIterator: " close send throw gi_code gi_frame gi_running gi_yieldfrom gi_suspended ",
}

func hasOtherAttribute(v Value, name string) bool {
	switch v.kind {
	case kindMethod, kindGlobal:
		return true
	case KindString:
		return v.form == formMarkup && strings.Contains(" escape unescape striptags ", " "+name+" ")
	}
	return strings.Contains(otherAttributes[v.kind], " "+name+" ")
}

func (e *itemExpr) eval(m *Machine, f *frame) (Value, error) {
	v, err := e.object.eval(m, f)
	if err != nil {
		return v, err
	}
	key, err := e.key.eval(m, f)
	if err != nil {
		return v, err
	}
	return m.item(v, key)
}

// item is jinja2's getitem: what is not there is Undefined.
func (m *Machine) item(v, key Value) (Value, error) {
	switch v.kind {
	case KindUndefined:
		return v, undefinedError(v)
	case KindDict:
		k, err := m.asKey(key)
		if err != nil && ClassOf(err) == Raised {
			return undefinedItem, nil // jinja2 catches that a list is no key
		}
		if err != nil {
			return v, err
		}
		at, err := m.find(v.ref, k)
		if err != nil {
			return v, err
		}
		if at >= 0 {
			return v.ref.entries[at].value, nil
		}
	case KindList, KindTuple:
		if isInteger(key) {
			if i, ok := indexIn(key, len(v.ref.items)); ok {
				return v.ref.items[i], nil
			}
			return undefinedItem, nil
		}
	case kindRange:
		if isInteger(key) {
			if i, ok := indexIn(key, v.ref.rangeLen()); ok {
				return v.ref.rangeAt(i), nil
			}
			return undefinedItem, nil
		}
	case KindString:
		if isInteger(key) {
			return m.charAt(v, key)
		}
	}
	if key.kind != KindString || v.kind == KindDict && methods[KindDict][string(m.Bytes(key))] == nil {
		return undefinedItem, nil
	}
	a := newAttributeName(string(m.Bytes(key)))
	return m.attribute(v, &a, true)
}

var undefinedItem = undefinedNamed("an element that is not there")

// indexIn returns the position that an int means in a sequence of n.
func indexIn(key Value, n int) (int, bool) {
	i := key.n
	if key.ref != nil {
		return 0, false
	}
	if i < 0 {
		i += int64(n)
	}
	return int(i), 0 <= i && i < int64(n)
}

// charAt returns one character of a str.
func (m *Machine) charAt(v, key Value) (Value, error) {
	if v.form == formMarkup {
		return v, inexact("an item of Markup")
	}
	if key.ref != nil {
		return undefinedItem, nil
	}
	i := key.n
	if v.form != formRope && -stepChars <= i && i < stepChars {
		return nearChar(textSegment(v), int(i)), nil
	}
	text := m.Bytes(v)
	m.work(len(text))
	at, ok := indexIn(key, charCount(text))
	if !ok {
		return undefinedItem, nil
	}
	start := charOffset(text, at)
	return Text(text[start:charEnd(text, start)]), nil
}

func (e *sliceExpr) eval(m *Machine, f *frame) (Value, error) {
	v, err := e.object.eval(m, f)
	if err != nil {
		return v, err
	}
	var parts [3]Value
	for i, part := range [3]expr{e.start, e.stop, e.step} {
		parts[i] = None()
		if part != nil {
			if parts[i], err = part.eval(m, f); err != nil {
				return v, err
			}
		}
	}
	v, err = m.slice(v, parts)
	if err != nil && ClassOf(err) == Raised && !fromName(e.object) {
		// What may be constant jinja2 evaluates when it compiles, and there a
		// slice of what has none is Undefined.
		return v, inexact("a slice of a constant that has none")
	}
	return v, err
}

// fromName reports whether an expression begins with a variable, so that it
// cannot be constant.
func fromName(e expr) bool {
	switch e := e.(type) {
	case *nameExpr:
		return true
	case *attributeExpr:
		return fromName(e.object)
	case *itemExpr:
		return fromName(e.object)
	case *sliceExpr:
		return fromName(e.object)
	case *callExpr:
		return fromName(e.callee)
	case *filterExpr:
		return e.input != nil && fromName(e.input)
	}
	return false
}

// slice is Python's v[start:stop:step].
func (m *Machine) slice(v Value, parts [3]Value) (Value, error) {
	switch v.kind {
	case KindString, KindList, KindTuple, kindRange:
	case KindUndefined:
		return v, undefinedError(v)
	case KindDict:
		return v, raised("unhashable type: 'slice'")
	case kindView, kindIterator, KindNone, KindBool, KindInt, KindFloat:
		return v, raised("'%s' object is not subscriptable", v.typeName())
	default:
		return v, inexact("a slice of a %s", v.typeName())
	}
	if v.form == formMarkup {
		return v, inexact("a slice of Markup")
	}
	var text []byte
	n := 0
	if v.kind == KindString {
		text = m.Bytes(v)
		m.work(len(text))
		n = charCount(text)
	} else {
		n = sequenceLen(v)
	}
	start, stop, step, err := sliceBounds(parts, n)
	if err != nil {
		return v, err
	}
	count := 0
	if step > 0 && start < stop {
		count = (stop-start-1)/step + 1
	} else if step < 0 && stop < start {
		count = (start-stop-1)/-step + 1
	}
	switch v.kind {
	case KindString:
		return m.sliceText(text, n, start, step, count)
	case kindRange:
		at := func(i int) int64 { return v.ref.rangeStart() + int64(i)*v.ref.rangeStep() }
		return m.rangeOf(at(start), at(stop), v.ref.rangeStep()*int64(step), count), nil
	}
	m.steps -= count / 16
	o := m.newObject()
	if step == 1 {
		o.items = v.ref.items[start : start+count : start+count]
	} else {
		o.items = m.newValues(count)
		for i := range o.items {
			o.items[i] = v.ref.items[start+i*step]
		}
	}
	return Value{kind: v.kind, ref: o}, nil
}

// sliceBounds follows CPython's PySlice_Unpack and PySlice_AdjustIndices.
func sliceBounds(parts [3]Value, n int) (start, stop, step int, err error) {
	var given [3]bool
	var numbers [3]int
	for i, v := range parts {
		switch {
		case v.kind == KindNone:
			continue
		case !isInteger(v):
			return 0, 0, 0, raised("slice indices must be integers or None or have an __index__ method")
		case v.ref != nil:
			numbers[i] = v.ref.big.Sign() * (1 << 40)
		default:
			numbers[i] = int(max(-1<<40, min(1<<40, v.n)))
		}
		given[i] = true
	}
	step = 1
	if given[2] {
		step = numbers[2]
	}
	if step == 0 {
		return 0, 0, 0, raised("slice step cannot be zero")
	}
	low, high := 0, n
	if step < 0 {
		low, high = -1, n-1
	}
	clamp := func(i, otherwise int) int {
		if !given[i] {
			return otherwise
		}
		at := numbers[i]
		if at < 0 {
			at += n
		}
		return max(low, min(high, at))
	}
	if step > 0 {
		return clamp(0, low), clamp(1, high), step, nil
	}
	return clamp(0, high), clamp(1, low), step, nil
}

func (m *Machine) sliceText(text []byte, n, start, step, count int) (Value, error) {
	if count == 0 {
		return Value{kind: KindString}, nil
	}
	ascii := n == len(text)
	if step == 1 {
		if ascii {
			return Text(text[start : start+count]), nil
		}
		from := charOffset(text, start)
		return Text(text[from : from+charOffset(text[from:], count)]), nil
	}
	if ascii {
		picked := m.newBytes(count)
		for i := range picked {
			picked[i] = text[start+i*step]
		}
		return Text(picked), nil
	}
	offsets := make([]int, 0, n)
	for i := 0; i < len(text); i = charEnd(text, i) {
		offsets = append(offsets, i)
	}
	m.scratch = m.scratch[:0]
	for i := range count {
		at := offsets[start+i*step]
		m.scratch = append(m.scratch, text[at:charEnd(text, at)]...)
	}
	return Text(m.keep(m.scratch)), nil
}
