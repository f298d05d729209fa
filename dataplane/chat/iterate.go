package chat

// cursor goes over the items of a value. Values do not change, so it needs no
// copy of them.
type cursor struct {
	over Value
	at   int
	text []byte    // of a str
	it   *iterator // of an iterator, which others may advance too
}

// iterator is a Python iterator, such as a generator: it is consumed by
// whoever asks it for items.
type iterator struct {
	// start is called before the first item and sets the source.
	start  func(m *Machine) (cursor, error)
	source cursor
	// step turns an item into another, or drops it; nil leaves all as they are.
	step func(m *Machine, item Value) (out Value, keep bool, err error)
	done bool
}

// newIterator returns a Value that is an iterator.
func (m *Machine) newIterator(it *iterator) Value {
	o := m.newObject()
	o.aux = it
	return Value{kind: kindIterator, ref: o}
}

// iterate is Python's iter(v).
func (m *Machine) iterate(v Value) (cursor, error) {
	switch v.kind {
	case KindList, KindTuple, KindDict, KindUndefined, kindRange, kindView:
		return cursor{over: v}, nil
	case KindString:
		if v.form == formMarkup {
			return cursor{}, inexact("a loop over Markup")
		}
		return cursor{over: v, text: m.Bytes(v)}, nil
	case kindIterator:
		return cursor{over: v, it: v.ref.aux.(*iterator)}, nil
	case kindLoop, kindCycler:
		return cursor{}, inexact("a loop over a %s", v.typeName())
	}
	return cursor{}, raised("'%s' object is not iterable", v.typeName())
}

// next returns the next item; ok is false at the end.
func (c *cursor) next(m *Machine) (v Value, ok bool, err error) {
	if err := m.step(); err != nil {
		return Value{}, false, err
	}
	if c.it != nil {
		return c.it.next(m)
	}
	if c.over.kind == KindString {
		if c.at >= len(c.text) {
			return Value{}, false, nil
		}
		start := c.at
		c.at = charEnd(c.text, start)
		return Text(c.text[start:c.at:c.at]), true, nil
	}
	if c.at >= sequenceLen(c.over) {
		return Value{}, false, nil
	}
	v = m.sequenceAt(c.over, c.at)
	c.at++
	return v, true, nil
}

func (it *iterator) next(m *Machine) (v Value, ok bool, err error) {
	if it.done {
		return Value{}, false, nil
	}
	if err := m.enter(); err != nil {
		return Value{}, false, err
	}
	defer m.leave()
	if it.start != nil {
		start := it.start
		it.start = nil
		if it.source, err = start(m); err != nil {
			it.done = true // a generator that has raised is at its end
			return Value{}, false, err
		}
	}
	for {
		if v, ok, err = it.source.next(m); !ok || err != nil || it.step == nil {
			break
		}
		var keep bool
		if v, keep, err = it.step(m, v); keep || err != nil {
			break
		}
	}
	it.done = !ok || err != nil
	return v, ok, err
}

// sequenceLen is Python's len(v) of all but strings and iterators.
func sequenceLen(v Value) int {
	switch v.kind {
	case kindRange:
		return v.ref.rangeLen()
	case kindView:
		return len(v.ref.entries)
	}
	return v.Len()
}

// sequenceAt returns what iterating over v yields at position i.
func (m *Machine) sequenceAt(v Value, i int) Value {
	switch v.kind {
	case KindList, KindTuple:
		return v.ref.items[i]
	case KindDict:
		return v.ref.entries[i].key
	case kindRange:
		return v.ref.rangeAt(i)
	}
	e := &v.ref.entries[i]
	switch viewOf(v) {
	case viewKeys:
		return e.key
	case viewValues:
		return e.value
	}
	return m.tuple(e.key, e.value)
}

// toStack pushes all items of v onto the stack, of which base is the bottom.
func (m *Machine) toStack(v Value) (base int, err error) {
	base = len(m.stack)
	c, err := m.iterate(v)
	if err != nil {
		return base, err
	}
	for {
		item, ok, err := c.next(m)
		if err != nil {
			return base, err
		}
		if !ok {
			return base, nil
		}
		m.charge(m.values.size())
		m.stack = append(m.stack, item)
	}
}

// toList is Python's list(v).
func (m *Machine) toList(v Value) (Value, error) {
	base, err := m.toStack(v)
	if err != nil {
		return v, err
	}
	list := m.List(m.stack[base:]...)
	m.stack = m.stack[:base]
	return list, nil
}

// A view of a dict shares its object; n says which view it is.
const (
	viewKeys = iota
	viewValues
	viewItems
)

func viewOf(v Value) int { return int(v.n) }

// A range keeps start, step, length and stop in four items.
func (m *Machine) rangeOf(start, stop, step int64, length int) Value {
	o := m.newObject()
	o.items = m.newValues(4)
	o.items[0], o.items[1], o.items[2], o.items[3] = Int(start), Int(step), Int(int64(length)), Int(stop)
	return Value{kind: kindRange, ref: o}
}

func (o *object) rangeStart() int64 { return o.items[0].n }
func (o *object) rangeStep() int64  { return o.items[1].n }
func (o *object) rangeLen() int     { return int(o.items[2].n) }
func (o *object) rangeStop() int64  { return o.items[3].n }

func (o *object) rangeAt(i int) Value {
	return Int(o.rangeStart() + int64(i)*o.rangeStep())
}

// rangeIndex returns the position of n in a range.
func (o *object) rangeIndex(n int64) (int, bool) {
	d := n - o.rangeStart()
	if d%o.rangeStep() != 0 {
		return 0, false
	}
	i := d / o.rangeStep()
	return int(i), 0 <= i && i < int64(o.rangeLen())
}
