package chat

import "slices"

// arguments are the values that a call passes. They lie on the Machine's
// stack: a function that keeps them copies them.
type arguments struct {
	positional []Value
	names      []string
	named      []Value
}

// function is a filter, a test, a method or a global function.
type function struct {
	name string
	// params are the names of its parameters, without the input of filters and
	// tests. An empty name can only be given by position.
	params   []string
	required int // of params
	// bound is called with a value for each parameter, kindMissing for those
	// that are not given.
	bound func(m *Machine, in Value, p []Value) (Value, error)
	// variadic is called with the arguments as they are; params does not count.
	variadic func(m *Machine, in Value, a arguments) (Value, error)
	// unsafe says that the sandbox refuses the method. Without bound and
	// variadic, the function exists in Python only.
	unsafe bool
}

// given reports whether an argument was passed.
func given(v Value) bool { return v.kind != kindMissing }

// call calls a function, of which in is the object, or the input.
func (m *Machine) call(fn *function, in Value, a arguments) (Value, error) {
	switch {
	case fn.unsafe:
		return in, raised("access to attribute '%s' of '%s' object is unsafe", fn.name, in.typeName())
	case fn.variadic != nil:
		return fn.variadic(m, in, a)
	case fn.bound == nil:
		return in, inexact("%s, which is not provided here", fn.name)
	case len(a.positional) > len(fn.params):
		return in, raised("%s() takes %d positional arguments but %d were given", fn.name, len(fn.params), len(a.positional))
	}
	base := len(m.stack)
	m.stack = append(m.stack, a.positional...)
	for range fn.params[len(a.positional):] {
		m.stack = append(m.stack, Value{kind: kindMissing})
	}
	p := m.stack[base:]
	for i, name := range a.names {
		at := slices.Index(fn.params, name)
		if at < 0 || name == "" {
			return in, raised("%s() got an unexpected keyword argument '%s'", fn.name, name)
		}
		if given(p[at]) {
			return in, raised("%s() got multiple values for argument '%s'", fn.name, name)
		}
		p[at] = a.named[i]
	}
	for i := range fn.required {
		if !given(p[i]) {
			return in, raised("%s() missing required argument '%s'", fn.name, fn.params[i])
		}
	}
	v, err := fn.bound(m, in, p)
	m.stack = m.stack[:base]
	return v, err
}

// eval evaluates arguments onto the stack; the caller takes them back.
func (c *callArgs) eval(m *Machine, f *frame) (arguments, error) {
	a := arguments{names: c.names}
	base := len(m.stack)
	if err := m.evalAll(c.positional, f); err != nil {
		return a, err
	}
	if c.star != nil {
		v, err := c.star.eval(m, f)
		if err != nil {
			return a, err
		}
		if _, err := m.toStack(v); err != nil {
			return a, err
		}
	}
	middle := len(m.stack)
	if err := m.evalAll(c.named, f); err != nil {
		return a, err
	}
	if c.starStar != nil {
		v, err := c.starStar.eval(m, f)
		if err == nil {
			a.names, err = m.unpackNames(v, c.names)
		}
		if err != nil {
			return a, err
		}
	}
	a.positional, a.named = m.stack[base:middle:middle], m.stack[middle:]
	return a, nil
}

// namesPerStep is how many names cost as much to compare as one step.
const namesPerStep = 8

// unpackNames pushes the values of **v and returns all names.
func (m *Machine) unpackNames(v Value, names []string) ([]string, error) {
	if v.kind != KindDict {
		return nil, raised("argument after ** must be a mapping, not %s", v.typeName())
	}
	names = slices.Clone(names)
	for _, e := range v.ref.entries {
		if err := m.stepN(1 + len(names)/namesPerStep); err != nil {
			return nil, err
		}
		if e.key.kind != KindString {
			return nil, raised("keywords must be strings")
		}
		name := string(e.key.text)
		if slices.Contains(names, name) {
			return nil, raised("got multiple values for keyword argument '%s'", name)
		}
		names = append(names, name)
		m.stack = append(m.stack, e.value)
	}
	return names, nil
}

func (e *callExpr) eval(m *Machine, f *frame) (Value, error) {
	base := len(m.stack)
	v, err := e.evalCall(m, f, nil)
	m.stack = m.stack[:base]
	return v, atLine(err, e.line)
}

// evalCall calls with a caller if there is one.
func (e *callExpr) evalCall(m *Machine, f *frame, caller *Value) (Value, error) {
	var callee Value
	var method *function
	if attribute, ok := e.callee.(*attributeExpr); ok {
		object, err := attribute.object.eval(m, f)
		if err != nil {
			return object, err
		}
		callee = object
		if method = attribute.name.method(object, attribute.item); method == nil {
			if callee, err = m.attribute(object, &attribute.name, attribute.item); err != nil {
				return callee, err
			}
		} else if object.form == formMarkup {
			return object, inexact("a method of Markup")
		}
	} else {
		var err error
		if callee, err = e.callee.eval(m, f); err != nil {
			return callee, err
		}
	}
	a, err := e.args.eval(m, f)
	if err != nil {
		return callee, err
	}
	if caller != nil {
		if slices.Contains(a.names, "caller") {
			return callee, raised("got multiple values for keyword argument 'caller'")
		}
		m.stack = append(m.stack, *caller)
		a.names = append(slices.Clone(a.names), "caller")
		a.named = m.stack[len(m.stack)-len(a.names):]
	}
	if method != nil {
		return m.call(method, callee, a)
	}
	return m.callValue(callee, a)
}

// callValue is Python's v(…) as the sandbox lets it through.
func (m *Machine) callValue(v Value, a arguments) (Value, error) {
	switch v.kind {
	case kindMacro:
		return m.callMacro(v, a)
	case kindGlobal, kindMethod:
		fn := v.ref.aux.(*function)
		var in Value
		if v.kind == kindMethod {
			in = v.ref.items[0]
		}
		return m.call(fn, in, a)
	case kindLoop:
		l := v.ref.aux.(*loopState)
		if len(a.positional) != 1 || len(a.named) > 0 {
			return v, raised("loop() takes one argument, the items of the inner loop")
		}
		if !l.stmt.recursive {
			return v, raised("the loop must have the 'recursive' marker to be called recursively")
		}
		return l.stmt.recurse(m, l.outer, a.positional[0], l.depth0+1)
	case kindJoiner:
		if len(a.positional)+len(a.named) > 0 {
			return v, raised("a joiner takes no arguments")
		}
		o := v.ref
		if o.items[1].n == 0 {
			o.items[1] = Bool(true)
			return Value{kind: KindString}, nil
		}
		return o.items[0], nil
	case KindUndefined:
		return v, undefinedError(v)
	}
	return v, raised("'%s' object is not callable", v.typeName())
}

func (s *macroStmt) exec(m *Machine, f *frame) (flow, error) {
	s.name.at.set(f, m.macroOf(s.macro, f))
	return flowNext, nil
}

func (m *Machine) macroOf(d *macroDef, f *frame) Value {
	o := m.newObject()
	o.aux, o.frame = d, f
	return Value{kind: kindMacro, ref: o}
}

func (s *callStmt) exec(m *Machine, f *frame) (flow, error) {
	caller := m.macroOf(s.caller, f)
	var v Value
	var err error
	if s.call == nil {
		v, err = m.callMacro(caller, arguments{})
	} else {
		base := len(m.stack)
		v, err = s.call.evalCall(m, f, &caller)
		m.stack = m.stack[:base]
	}
	if err == nil {
		err = m.printText(v)
	}
	return flowNext, atLine(err, s.line)
}

// callMacro runs a macro and returns what it prints.
func (m *Machine) callMacro(v Value, a arguments) (Value, error) {
	if err := m.enter(); err != nil {
		return v, err
	}
	defer m.leave()
	d := v.ref.aux.(*macroDef)
	f := m.newFrame(d.function, v.ref.frame)
	if err := m.bindMacro(d, f, a); err != nil {
		return v, err
	}
	d.scope.enter(m, f)
	first := len(d.params) - len(d.defaults)
	for i, p := range d.params {
		if p.at.get(m, f).kind != kindMissing {
			continue
		}
		value := p.undefined
		if i >= first {
			// A default may mention parameters to its right, which have no value yet.
			var err error
			if value, err = d.defaults[i-first].eval(m, f); err != nil {
				return v, atLine(err, d.line)
			}
		}
		p.at.set(f, value)
	}
	base := m.capture()
	if _, err := m.body(d.body, f); err != nil {
		return v, err
	}
	m.dropFrame(d.function, f)
	return m.captured(base), nil
}

var noCaller = undefinedNamed("caller")

// bindMacro gives the parameters of a macro their values, in the way of
// jinja2's Macro: what is left over is an error unless the body asks for it.
func (m *Machine) bindMacro(d *macroDef, f *frame, a arguments) error {
	n := min(len(a.positional), len(d.params))
	for i, p := range d.params {
		value := Value{kind: kindMissing}
		if i < n {
			value = a.positional[i]
		} else if at := slices.Index(a.names, p.name); at >= 0 {
			value = a.named[at]
		}
		p.at.set(f, value)
	}
	isParam := func(name string) bool {
		return slices.ContainsFunc(d.params[n:], func(p *nameExpr) bool { return p.name == name })
	}
	if d.caller >= 0 {
		f.slots[d.caller] = noCaller
	}
	var kwargs Value
	if d.kwargs >= 0 {
		kwargs = m.Dict(len(a.names))
		f.slots[d.kwargs] = kwargs
	}
	for i, name := range a.names {
		switch {
		case isParam(name):
		case name == "caller" && d.caller >= 0:
			if !a.named[i].IsNone() {
				f.slots[d.caller] = a.named[i]
			}
		case d.kwargs >= 0:
			m.Set(kwargs, name, a.named[i])
		case name == "caller":
			return raised("macro '%s' was invoked with two values for the special caller argument", d.name)
		default:
			return raised("macro '%s' takes no keyword argument '%s'", d.name, name)
		}
	}
	if d.varargs >= 0 {
		f.slots[d.varargs] = m.tuple(a.positional[n:]...)
	} else if len(a.positional) > len(d.params) {
		return raised("macro '%s' takes not more than %d argument(s)", d.name, len(d.params))
	}
	return nil
}

func (e *filterExpr) eval(m *Machine, f *frame) (Value, error) {
	in, err := e.input.eval(m, f)
	if err != nil {
		return in, err
	}
	return e.apply(m, f, in)
}

// apply filters a value.
func (e *filterExpr) apply(m *Machine, f *frame, in Value) (Value, error) {
	base := len(m.stack)
	a, err := e.args.eval(m, f)
	if err == nil {
		in, err = m.call(e.filter, in, a)
	}
	m.stack = m.stack[:base]
	return in, atLine(err, e.line)
}

// filterText applies the chain of filters of a filter block to its text.
func (m *Machine) filterText(e expr, f *frame, text Value) (Value, error) {
	filter := e.(*filterExpr)
	if filter.input != nil {
		var err error
		if text, err = m.filterText(filter.input, f, text); err != nil {
			return text, err
		}
	}
	return filter.apply(m, f, text)
}

func (e *testExpr) eval(m *Machine, f *frame) (Value, error) {
	in, err := e.input.eval(m, f)
	if err != nil {
		return in, err
	}
	base := len(m.stack)
	a, err := e.args.eval(m, f)
	if err == nil {
		in, err = m.call(e.test, in, a)
	}
	m.stack = m.stack[:base]
	return in, atLine(err, e.line)
}
