package chat

import "slices"

// predicate makes a test of one that needs only the value.
func predicate(f func(v Value) bool) *function {
	return fixed(func(_ *Machine, in Value, _ []Value) (Value, error) { return Bool(f(in)), nil }, 0)
}

// comparing makes a test of an operator.
func comparing(op operator) *function {
	return fixed(func(m *Machine, in Value, p []Value) (Value, error) {
		is, err := m.compare(op, in, p[0])
		return Bool(is), err
	}, 1, "")
}

func testTable() map[string]*function {
	return map[string]*function{
		"odd":         fixed(testRemainder(2, 1), 0),
		"even":        fixed(testRemainder(2, 0), 0),
		"divisibleby": fixed(testDivisible, 1, "num"),
		"defined":     predicate(func(v Value) bool { return v.kind != KindUndefined }),
		"undefined":   predicate(func(v Value) bool { return v.kind == KindUndefined }),
		"none":        predicate(Value.IsNone),
		"boolean":     predicate(func(v Value) bool { return v.kind == KindBool }),
		"false":       predicate(func(v Value) bool { return v.kind == KindBool && v.n == 0 }),
		"true":        predicate(Value.IsTrue),
		"integer":     predicate(func(v Value) bool { return v.kind == KindInt }),
		"float":       predicate(func(v Value) bool { return v.kind == KindFloat }),
		"string":      predicate(Value.IsString),
		"mapping":     predicate(func(v Value) bool { return v.kind == KindDict }),
		"number":      predicate(isNumber),
		"sequence":    predicate(isSequence),
		"iterable":    predicate(isIterable),
		"escaped":     predicate(func(v Value) bool { return v.kind == KindString && v.form == formMarkup }),
		"callable":    predicate(isCallable),
		"lower":       fixed(caseTest(stringIsLower), 0),
		"upper":       fixed(caseTest(stringIsUpper), 0),
		"filter":      fixed(testFilter, 0),
		"test":        fixed(testTest, 0),
		"sameas":      fixed(testSameas, 1, "other"),
		"in":          fixed(testIn, 1, "seq"),
		"==":          comparing(opEqual), "eq": comparing(opEqual), "equalto": comparing(opEqual),
		"!=": comparing(opNotEqual), "ne": comparing(opNotEqual),
		">": comparing(opGreater), "gt": comparing(opGreater), "greaterthan": comparing(opGreater),
		">=": comparing(opGreaterEqual), "ge": comparing(opGreaterEqual),
		"<": comparing(opLess), "lt": comparing(opLess), "lessthan": comparing(opLess),
		"<=": comparing(opLessEqual), "le": comparing(opLessEqual),
	}
}

// isSequence reports whether Python has len() and subscripts for v.
func isSequence(v Value) bool {
	switch v.kind {
	case KindUndefined, KindString, KindList, KindTuple, KindDict, kindRange:
		return true
	}
	return false
}

func isIterable(v Value) bool {
	switch v.kind {
	case kindView, kindIterator, kindLoop:
		return true
	}
	return isSequence(v)
}

func isCallable(v Value) bool {
	switch v.kind {
	case KindUndefined, kindMacro, kindMethod, kindGlobal, kindLoop, kindJoiner:
		return true
	}
	return false
}

func testRemainder(of, want int64) boundFunc {
	return func(m *Machine, in Value, _ []Value) (Value, error) {
		rest, err := m.binary(opMod, in, Int(of))
		if err != nil {
			return in, err
		}
		is, err := m.equal(rest, Int(want))
		return Bool(is), err
	}
}

func testDivisible(m *Machine, in Value, p []Value) (Value, error) {
	rest, err := m.binary(opMod, in, p[0])
	if err != nil {
		return in, err
	}
	is, err := m.equal(rest, Int(0))
	return Bool(is), err
}

// caseTest tests str(v).
func caseTest(is func(text []byte) (bool, error)) boundFunc {
	return func(m *Machine, in Value, _ []Value) (Value, error) {
		v, err := m.str(in)
		if err != nil {
			return in, err
		}
		yes, err := is(m.Bytes(v))
		return Bool(yes), err
	}
}

func testFilter(m *Machine, in Value, _ []Value) (Value, error) {
	name := string(m.Bytes(in))
	return Bool(filters[name] != nil || slices.Contains(otherFilters, name)), unhashable(in)
}

func testTest(m *Machine, in Value, _ []Value) (Value, error) {
	return Bool(tests[string(m.Bytes(in))] != nil), unhashable(in)
}

func unhashable(v Value) error {
	if v.kind == KindList || v.kind == KindDict {
		return raised("unhashable type: '%s'", v.typeName())
	}
	return nil
}

// testSameas is Python's "is". Of most values it is not known whether two
// are one object or two equal ones.
func testSameas(_ *Machine, in Value, p []Value) (Value, error) {
	other := p[0]
	switch {
	case in.kind != other.kind:
		return Bool(false), nil
	case in.kind == KindNone:
		return Bool(true), nil
	case in.kind == KindBool:
		return Bool(in.n == other.n), nil
	}
	return in, inexact("whether two values of type %s are the same object", in.typeName())
}

func testIn(m *Machine, in Value, p []Value) (Value, error) {
	is, err := m.contains(p[0], in)
	return Bool(is), err
}
