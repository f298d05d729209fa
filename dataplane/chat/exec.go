package chat

// frame holds the variables of a running function.
type frame struct {
	slots []Value
	up    *frame // of the function around, as it was when this one was defined
}

// run is the state of one rendering.
type run struct {
	template *Template
	out      *Rope
	context  []Value // what names from outside stand for
	captures int     // how deep output is being captured
	output   int     // bytes of output left
	usedTime bool
}

// newFrame enters a function.
func (m *Machine) newFrame(fn functionScope, up *frame) *frame {
	m.charge(fn.slots*m.slots.size() + m.frames.size())
	f := &m.frames.take(1)[0]
	f.slots, f.up = m.slots.take(fn.slots), up
	return f
}

// dropFrame leaves a function. Its memory is used again, unless functions were
// defined inside, which may still be called.
func (m *Machine) dropFrame(fn functionScope, f *frame) {
	if fn.keeps {
		return
	}
	m.room += fn.slots*m.slots.size() + m.frames.size()
	m.slots.release(f.slots, len(f.slots))
	chunk := m.frames.chunks[len(m.frames.chunks)-1]
	if &chunk[m.frames.used-1] == f {
		m.frames.release(chunk[:m.frames.used], 1)
	}
}

// get returns the value of a variable, Undefined if it has none.
func (p place) get(m *Machine, f *frame) Value {
	if p.hops == placeContext {
		return m.run.context[p.slot]
	}
	for range p.hops {
		f = f.up
	}
	return f.slots[p.slot]
}

func (p place) set(f *frame, v Value) {
	for range p.hops {
		f = f.up
	}
	f.slots[p.slot] = v
}

// enter begins a scope.
func (s *scope) enter(m *Machine, f *frame) {
	for i := range s.loads {
		l := &s.loads[i]
		if l.none {
			f.slots[l.slot] = Value{}
		} else {
			f.slots[l.slot] = l.from.get(m, f)
		}
	}
}

// leave ends a scope: its variables have no value any more.
func (s *scope) leave(f *frame) {
	for i := range s.loads {
		f.slots[s.loads[i].slot] = Value{}
	}
	for _, slot := range s.parameters {
		f.slots[slot] = ended
	}
}

// ended is the value of a loop's variable after the loop. Only a macro that was
// defined inside can see it; what jinja2 shows there is an internal object.
var ended = Value{kind: kindMissing, n: 1}

// body runs statements until one breaks off.
func (m *Machine) body(list []stmt, f *frame) (flow, error) {
	for _, s := range list {
		if err := m.step(); err != nil {
			return flowNext, err
		}
		if next, err := s.exec(m, f); next != flowNext || err != nil {
			return next, err
		}
	}
	return flowNext, nil
}

// emit appends to the output, or to what captures it.
func (m *Machine) emit(s Segment) {
	if m.run.captures > 0 {
		if len(s.Bytes) > 0 {
			m.pieces = append(m.pieces, s)
		}
		return
	}
	if m.run.output -= len(s.Bytes); m.run.output < 0 {
		m.exceed("the output is too long (Limits.OutputBytes)")
		return
	}
	m.run.out.Append(s)
}

// capture begins to capture output; the result is for captured.
func (m *Machine) capture() (base int) {
	m.run.captures++
	return len(m.pieces)
}

// roomForPieces refuses to capture more pieces than the arena could take.
func (m *Machine) roomForPieces(n int) error {
	m.work(n * m.segments.size())
	if m.run.captures == 0 {
		return nil
	}
	return m.reserve((len(m.pieces) + n) * m.segments.size())
}

// captured ends a capture and returns its text as a str.
func (m *Machine) captured(base int) Value {
	m.run.captures--
	pieces := m.pieces[base:]
	m.pieces = m.pieces[:base]
	switch len(pieces) {
	case 0:
		return Value{kind: KindString}
	case 1:
		return textOf(pieces[0])
	}
	m.charge(len(pieces) * m.segments.size())
	kept := m.segments.take(len(pieces))
	copy(kept, pieces)
	return m.ropeOf(kept)
}

// dropCapture ends a capture whose text nobody wants.
func (m *Machine) dropCapture(base int) {
	m.run.captures--
	m.pieces = m.pieces[:base]
}

func textOf(s Segment) Value {
	if s.Escaped {
		return Escaped(s.Bytes)
	}
	return Text(s.Bytes)
}

// ropeOf returns a str of two or more segments, none of them empty.
func (m *Machine) ropeOf(segments []Segment) Value {
	o := m.newObject()
	o.segments = segments
	return Value{kind: KindString, form: formRope, ref: o}
}

func (s *dataStmt) exec(m *Machine, _ *frame) (flow, error) {
	m.emit(Segment{Bytes: s.text})
	return flowNext, nil
}

func (s *printStmt) exec(m *Machine, f *frame) (flow, error) {
	if chain, ok := s.value.(*addExpr); ok {
		return flowNext, atLine(chain.print(m, f), s.line)
	}
	v, err := s.value.eval(m, f)
	if err == nil {
		err = m.print(v)
	}
	return flowNext, atLine(err, s.line)
}

// print appends str(v) to the output.
func (m *Machine) print(v Value) error {
	switch v.kind {
	case KindUndefined:
		return nil
	case KindString:
		if v.form == formRope {
			if err := m.roomForPieces(len(v.ref.segments)); err != nil {
				return err
			}
			for _, s := range v.ref.segments {
				m.emit(s)
			}
			return nil
		}
		m.emit(Segment{Bytes: v.text, Escaped: v.form == formEscaped})
		return nil
	}
	s, err := m.str(v)
	if err == nil {
		m.emit(Segment{Bytes: s.text})
	}
	return err
}

// printText prints what a filter or call block made, which jinja2 does not
// convert: it must be a str.
func (m *Machine) printText(v Value) error {
	if v.kind != KindString {
		return raised("expected str instance, %s found", v.typeName())
	}
	return m.print(v)
}

func (s *setStmt) exec(m *Machine, f *frame) (flow, error) {
	if err := checkNamespaces(m, f, s.target); err != nil {
		return flowNext, atLine(err, s.line)
	}
	v, err := s.value.eval(m, f)
	if err == nil {
		err = s.target.assign(m, f, v)
	}
	return flowNext, atLine(err, s.line)
}

// checkNamespaces refuses a target x.y whose x is no namespace, before the
// value is evaluated, as jinja2 does.
func checkNamespaces(m *Machine, f *frame, t target) error {
	switch t := t.(type) {
	case *attributeTarget:
		if t.object.at.get(m, f).kind != kindNamespace {
			return raised("cannot assign attribute on non-namespace object")
		}
	case *tupleTarget:
		for _, item := range t.items {
			if err := checkNamespaces(m, f, item); err != nil {
				return err
			}
		}
	}
	return nil
}

func (n *nameExpr) assign(_ *Machine, f *frame, v Value) error {
	n.at.set(f, v)
	return nil
}

func (t *attributeTarget) assign(m *Machine, f *frame, v Value) error {
	o := t.object.at.get(m, f)
	if o.kind != kindNamespace {
		return inexact("a set block that assigns to an attribute of a %s", o.typeName())
	}
	if i := o.ref.findText(t.attribute.text); i >= 0 {
		o.ref.entries[i].value = v
	} else {
		m.addEntry(o.ref, Text(t.attribute.text), v)
	}
	return nil
}

// assign unpacks v, which must have as many items as there are targets.
func (t *tupleTarget) assign(m *Machine, f *frame, v Value) error {
	base := len(m.stack)
	defer func() { m.stack = m.stack[:base] }()
	it, err := m.iterate(v)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		item, ok, err := it.next(m)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if n == len(t.items) {
			return raised("too many values to unpack (expected %d)", len(t.items))
		}
		m.stack = append(m.stack, item)
	}
	items := m.stack[base:]
	if len(items) < len(t.items) {
		return raised("not enough values to unpack (expected %d, got %d)", len(t.items), len(items))
	}
	for i, goal := range t.items {
		if err := goal.assign(m, f, items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *captureStmt) exec(m *Machine, f *frame) (flow, error) {
	s.scope.enter(m, f)
	base := m.capture()
	next, err := m.body(s.body, f)
	if next != flowNext || err != nil {
		m.dropCapture(base)
		return next, err
	}
	v := m.captured(base)
	if s.filter != nil {
		if v, err = m.filterText(s.filter, f, v); err != nil {
			return flowNext, atLine(err, s.line)
		}
	}
	err = s.target.assign(m, f, v)
	s.scope.leave(f)
	return flowNext, atLine(err, s.line)
}

func (s *ifStmt) exec(m *Machine, f *frame) (flow, error) {
	for i := range s.branches {
		b := &s.branches[i]
		v, err := b.condition.eval(m, f)
		if err != nil {
			return flowNext, atLine(err, b.line)
		}
		if v.Truth() {
			return m.body(b.body, f)
		}
	}
	return m.body(s.otherwise, f)
}

func (s *filterStmt) exec(m *Machine, f *frame) (flow, error) {
	s.scope.enter(m, f)
	base := m.capture()
	next, err := m.body(s.body, f)
	if next != flowNext || err != nil {
		m.dropCapture(base)
		return next, err
	}
	v, err := m.filterText(s.filter, f, m.captured(base))
	if err == nil {
		err = m.printText(v)
	}
	s.scope.leave(f)
	return flowNext, atLine(err, s.line)
}

func (s *withStmt) exec(m *Machine, f *frame) (flow, error) {
	s.scope.enter(m, f)
	for i, t := range s.targets {
		v, err := s.values[i].eval(m, f)
		if err == nil {
			err = t.assign(m, f, v)
		}
		if err != nil {
			return flowNext, atLine(err, s.line)
		}
	}
	next, err := m.body(s.body, f)
	s.scope.leave(f)
	return next, err
}

func (*breakStmt) exec(*Machine, *frame) (flow, error)    { return flowBreak, nil }
func (*continueStmt) exec(*Machine, *frame) (flow, error) { return flowContinue, nil }
