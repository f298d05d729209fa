package chat

// loopState is a running loop: jinja2's LoopContext, which the variable loop
// shows.
type loopState struct {
	stmt     *forStmt
	outer    *frame // of the function around the loop
	iterable Value
	source   cursor
	filter   *frame // of the condition, nil without

	index0  int // -1 before the first item
	depth0  int
	length  int // -1 if not known yet
	current Value
	before  Value
	after   Value // looked at already
	ahead   bool  // there is after
	ended   bool  // the source was asked and had no more

	changed    Value // what loop.changed saw last
	hasChanged bool
}

func (s *forStmt) exec(m *Machine, f *frame) (flow, error) {
	iterable, err := s.iterable.eval(m, f)
	if err != nil {
		return flowNext, atLine(err, s.line)
	}
	if !s.recursive {
		return s.run(m, f, f, iterable, 0)
	}
	v, err := s.recurse(m, f, iterable, 0)
	if err == nil {
		err = m.print(v)
	}
	return flowNext, atLine(err, s.line)
}

// recurse runs a recursive loop and returns what it prints.
func (s *forStmt) recurse(m *Machine, outer *frame, iterable Value, depth0 int) (Value, error) {
	if err := m.enter(); err != nil {
		return Value{}, err
	}
	defer m.leave()
	f := m.newFrame(s.function, outer)
	base := m.capture()
	if _, err := s.run(m, f, outer, iterable, depth0); err != nil {
		return Value{}, err
	}
	m.dropFrame(s.function, f)
	return m.captured(base), nil
}

// run runs the loop with the variables of f. flow is what the else branch says
// to the loop around.
func (s *forStmt) run(m *Machine, f, outer *frame, iterable Value, depth0 int) (flow, error) {
	m.charge(m.loops.size())
	chunk := m.loops.take(1)
	l := &chunk[0]
	l.stmt, l.outer, l.iterable, l.index0, l.depth0, l.length = s, outer, iterable, -1, depth0, -1
	var err error
	if l.source, err = m.iterate(iterable); err != nil {
		return flowNext, atLine(err, s.line)
	}
	if s.filter != nil {
		l.filter = m.newFrame(s.filter.function, outer)
		s.filter.scope.enter(m, l.filter)
	}
	if s.extended {
		o := m.newObject()
		o.aux = l
		s.loop.set(f, Value{kind: kindLoop, ref: o})
	}
	// As in jinja2's code, else runs if no round came to its end: a continue
	// does not count.
	completed := false
	for {
		more, err := l.next(m)
		if err != nil {
			return flowNext, atLine(err, s.line)
		}
		if !more {
			break
		}
		if err := s.target.assign(m, f, l.current); err != nil {
			return flowNext, atLine(err, s.line)
		}
		s.scope.enter(m, f)
		next, err := m.body(s.body, f)
		if err != nil {
			return flowNext, err
		}
		if next == flowBreak {
			break
		}
		completed = completed || next == flowNext
	}
	s.scope.leave(f)
	if !s.extended {
		m.room += m.loops.size()
		m.loops.release(chunk, 1)
	}
	if completed || s.otherwise == nil {
		return flowNext, nil
	}
	s.elseScope.enter(m, f)
	next, err := m.body(s.otherwise, f)
	s.elseScope.leave(f)
	return next, err
}

// next goes to the next item.
func (l *loopState) next(m *Machine) (bool, error) {
	item, ok := l.after, l.ahead
	if ok {
		l.after, l.ahead = Value{}, false
	} else {
		var err error
		if item, ok, err = l.pull(m); !ok || err != nil {
			return false, err
		}
	}
	l.index0++
	l.before, l.current = l.current, item
	return true, nil
}

// pull takes an item from the source that fulfils the condition.
func (l *loopState) pull(m *Machine) (Value, bool, error) {
	for {
		item, ok, err := l.source.next(m)
		if !ok || err != nil || l.filter == nil {
			return item, ok, err
		}
		condition := l.stmt.filter
		if err := condition.target.assign(m, l.filter, item); err != nil {
			return item, false, err
		}
		v, err := condition.condition.eval(m, l.filter)
		if err != nil {
			return item, false, err
		}
		if v.Truth() {
			return m.regroup(condition.target, l.filter, item), true, nil
		}
	}
}

// regroup returns the item as jinja2's generated condition passes it on: what
// was unpacked becomes a tuple.
func (m *Machine) regroup(t target, f *frame, item Value) Value {
	switch t := t.(type) {
	case *nameExpr:
		return t.at.get(m, f)
	case *tupleTarget:
		base := len(m.stack)
		for _, goal := range t.items {
			m.stack = append(m.stack, m.regroup(goal, f, item))
		}
		v := m.tuple(m.stack[base:]...)
		m.stack = m.stack[:base]
		return v
	}
	return item
}

// peek looks at the next item without going there.
func (l *loopState) peek(m *Machine) (Value, bool, error) {
	if !l.ahead && !l.ended {
		var err error
		if l.after, l.ahead, err = l.pull(m); err != nil {
			return Value{}, false, err
		}
		// A generator would be asked again, and has nothing then either.
		l.ended = !l.ahead
	}
	return l.after, l.ahead, nil
}

// size returns the number of items; an iterator is emptied to count them.
func (l *loopState) size(m *Machine) (int, error) {
	switch {
	case l.length >= 0:
	case l.filter == nil && l.iterable.kind == KindString:
		l.length = charCount(l.source.text)
	case l.filter == nil && l.iterable.kind != kindIterator:
		l.length = sequenceLen(l.iterable)
	default:
		base := len(m.stack)
		for {
			item, ok, err := l.pull(m)
			if err != nil {
				return 0, err
			}
			if !ok {
				break
			}
			m.charge(m.values.size())
			m.stack = append(m.stack, item)
		}
		rest := m.List(m.stack[base:]...)
		m.stack = m.stack[:base]
		l.length = rest.Len() + l.index0 + 1
		if l.ahead {
			l.length++
		}
		l.source, l.filter, l.ended = cursor{over: rest}, nil, false
	}
	return l.length, nil
}

// loopAttribute is an attribute of the variable loop.
func (m *Machine) loopAttribute(v Value, a *attributeName) (Value, error) {
	l := v.ref.aux.(*loopState)
	switch a.name {
	case "index":
		return Int(int64(l.index0 + 1)), nil
	case "index0":
		return Int(int64(l.index0)), nil
	case "first":
		return Bool(l.index0 == 0), nil
	case "last":
		_, more, err := l.peek(m)
		return Bool(!more), err
	case "depth":
		return Int(int64(l.depth0 + 1)), nil
	case "depth0":
		return Int(int64(l.depth0)), nil
	case "length", "revindex", "revindex0":
		n, err := l.size(m)
		switch a.name {
		case "revindex":
			n -= l.index0
		case "revindex0":
			n -= l.index0 + 1
		}
		return Int(int64(n)), err
	case "previtem":
		if l.index0 == 0 {
			return noPrevious, nil
		}
		return l.before, nil
	case "nextitem":
		next, more, err := l.peek(m)
		if err != nil || more {
			return next, err
		}
		return noNext, nil
	}
	return a.undefined(), nil
}

var (
	noPrevious = undefinedNamed("the item before the first")
	noNext     = undefinedNamed("the item after the last")
)

// loopCycle is loop.cycle(…).
func loopCycle(m *Machine, v Value, a arguments) (Value, error) {
	if len(a.named) > 0 {
		return v, raised("cycle() got an unexpected keyword argument")
	}
	if len(a.positional) == 0 {
		return v, raised("no items for cycling given")
	}
	return a.positional[v.ref.aux.(*loopState).index0%len(a.positional)], nil
}

// loopChanged is loop.changed(…): whether its arguments differ from last time.
func loopChanged(m *Machine, v Value, a arguments) (Value, error) {
	if len(a.named) > 0 {
		return v, raised("changed() got an unexpected keyword argument")
	}
	l := v.ref.aux.(*loopState)
	seen := m.tuple(a.positional...)
	if l.hasChanged {
		if same, err := m.equal(l.changed, seen); same || err != nil {
			return Bool(false), err
		}
	}
	l.changed, l.hasChanged = seen, true
	return Bool(true), nil
}
