package chat

func (e *literalExpr) eval(*Machine, *frame) (Value, error) { return e.value, nil }

func (n *nameExpr) eval(m *Machine, f *frame) (Value, error) {
	v := n.at.get(m, f)
	switch {
	case v.kind == KindUndefined && v.text == nil:
		return n.undefined, nil
	case v.kind == kindMissing && v.n != 0:
		return v, inexact("%s, the variable of a loop that has ended", n.name)
	case v.kind == kindMissing:
		return n.undefined, nil
	}
	return v, nil
}

func (e *notExpr) eval(m *Machine, f *frame) (Value, error) {
	v, err := e.operand.eval(m, f)
	return Bool(!v.Truth()), err
}

func (e *andExpr) eval(m *Machine, f *frame) (Value, error) {
	v, err := e.left.eval(m, f)
	if err != nil || !v.Truth() {
		return v, err
	}
	return e.right.eval(m, f)
}

func (e *orExpr) eval(m *Machine, f *frame) (Value, error) {
	v, err := e.left.eval(m, f)
	if err != nil || v.Truth() {
		return v, err
	}
	return e.right.eval(m, f)
}

func (e *condExpr) eval(m *Machine, f *frame) (Value, error) {
	v, err := e.condition.eval(m, f)
	switch {
	case err != nil:
		return v, err
	case v.Truth():
		return e.then.eval(m, f)
	case e.otherwise != nil:
		return e.otherwise.eval(m, f)
	}
	return undefinedElse, nil
}

// undefinedElse is the value of an inline if without an else.
var undefinedElse = undefinedNamed("an inline if without else")

// evalAll evaluates expressions onto the stack.
func (m *Machine) evalAll(list []expr, f *frame) error {
	for _, e := range list {
		v, err := e.eval(m, f)
		if err != nil {
			return err
		}
		m.stack = append(m.stack, v)
	}
	return nil
}

func (e *listExpr) eval(m *Machine, f *frame) (Value, error) {
	base := len(m.stack)
	if err := m.evalAll(e.items, f); err != nil {
		return Value{}, err
	}
	v := m.List(m.stack[base:]...)
	m.stack = m.stack[:base]
	return v, nil
}

func (e *tupleExpr) eval(m *Machine, f *frame) (Value, error) {
	base := len(m.stack)
	if err := m.evalAll(e.items, f); err != nil {
		return Value{}, err
	}
	v := m.tuple(m.stack[base:]...)
	m.stack = m.stack[:base]
	return v, nil
}

func (e *dictExpr) eval(m *Machine, f *frame) (Value, error) {
	d := m.Dict(len(e.keys))
	for i, k := range e.keys {
		key, err := k.eval(m, f)
		if err != nil {
			return d, err
		}
		v, err := e.values[i].eval(m, f)
		if err != nil {
			return d, err
		}
		if err := m.SetValue(d, key, v); err != nil {
			return d, err
		}
	}
	return d, nil
}

// isPlainString reports whether v is a str and not its subclass Markup.
func isPlainString(v Value) bool { return v.kind == KindString && v.form != formMarkup }

// eval adds from left to right. Strings make one rope.
func (e *addExpr) eval(m *Machine, f *frame) (Value, error) {
	v, err := e.terms[0].eval(m, f)
	if err != nil {
		return v, err
	}
	return m.addAll(v, e.terms[1:], f)
}

func (m *Machine) addAll(v Value, terms []expr, f *frame) (Value, error) {
	for _, term := range terms {
		right, err := term.eval(m, f)
		if err != nil {
			return v, err
		}
		if v, err = m.binary(opAdd, v, right); err != nil {
			return v, err
		}
	}
	return v, nil
}

// print is eval and print without a value in between: as long as the terms are
// str, they need not be joined. Nothing is printed before all is evaluated.
func (e *addExpr) print(m *Machine, f *frame) error {
	base := len(m.stack)
	for i, term := range e.terms {
		v, err := term.eval(m, f)
		if err != nil {
			return err
		}
		if !isPlainString(v) {
			if i > 0 {
				if v, err = m.binary(opAdd, m.concatAll(m.stack[base:]), v); err != nil {
					return err
				}
			}
			m.stack = m.stack[:base]
			if v, err = m.addAll(v, e.terms[i+1:], f); err != nil {
				return err
			}
			return m.print(v)
		}
		m.stack = append(m.stack, v)
	}
	for _, v := range m.stack[base:] {
		if err := m.print(v); err != nil {
			return err
		}
	}
	m.stack = m.stack[:base]
	return nil
}

// concatAll is the concatenation of strings.
func (m *Machine) concatAll(parts []Value) Value {
	v := parts[0]
	for _, part := range parts[1:] {
		v = m.concat(v, part)
	}
	return v
}

func (e *concatExpr) eval(m *Machine, f *frame) (Value, error) {
	stack := len(m.stack)
	if err := m.evalAll(e.terms, f); err != nil {
		return Value{}, err
	}
	base := m.capture()
	for _, v := range m.stack[stack:] {
		if err := m.print(v); err != nil {
			return v, err
		}
	}
	m.stack = m.stack[:stack]
	return m.captured(base), nil
}

func (e *unaryExpr) eval(m *Machine, f *frame) (Value, error) {
	v, err := e.operand.eval(m, f)
	if err != nil {
		return v, err
	}
	return m.unary(e.op, v)
}

func (e *binaryExpr) eval(m *Machine, f *frame) (Value, error) {
	left, err := e.left.eval(m, f)
	if err != nil {
		return left, err
	}
	right, err := e.right.eval(m, f)
	if err != nil {
		return right, err
	}
	return m.binary(e.op, left, right)
}

// eval compares the neighbours of a chain until one comparison is false.
func (e *compareExpr) eval(m *Machine, f *frame) (Value, error) {
	left, err := e.first.eval(m, f)
	if err != nil {
		return left, err
	}
	for i := range e.rest {
		right, err := e.rest[i].operand.eval(m, f)
		if err != nil {
			return right, err
		}
		same, err := m.compare(e.rest[i].op, left, right)
		if err != nil || !same {
			return Bool(false), err
		}
		left = right
	}
	return Bool(true), nil
}
