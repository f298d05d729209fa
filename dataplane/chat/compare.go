package chat

import (
	"bytes"
	"math"
	"math/big"
)

// compare is Python's left op right for the operators that answer with a bool.
func (m *Machine) compare(op operator, a, b Value) (bool, error) {
	switch op {
	case opEqual:
		return m.equal(a, b)
	case opNotEqual:
		same, err := m.equal(a, b)
		return !same, err
	case opIn:
		return m.contains(b, a)
	case opNotIn:
		in, err := m.contains(b, a)
		return !in, err
	}
	order, ordered, err := m.order(op, a, b)
	if err != nil || !ordered {
		return false, err
	}
	switch op {
	case opLess:
		return order < 0, nil
	case opLessEqual:
		return order <= 0, nil
	case opGreater:
		return order > 0, nil
	}
	return order >= 0, nil
}

// equal is Python's a == b.
func (m *Machine) equal(a, b Value) (bool, error) {
	if isNumber(a) && isNumber(b) {
		order, ordered := orderNumbers(a, b)
		return ordered && order == 0, nil
	}
	if a.kind != b.kind {
		if a.kind == kindView || b.kind == kindView {
			return false, inexact("a comparison with keys() or items()")
		}
		return false, nil
	}
	switch a.kind {
	case KindUndefined, KindNone:
		return true, nil
	case KindString:
		m.work(min(len(a.text), len(b.text)))
		return equalText(a, b), nil
	case KindList, KindTuple:
		return m.equalItems(a.ref, b.ref)
	case KindDict:
		return m.equalDicts(a.ref, b.ref)
	case kindRange, kindView:
		return false, inexact("a comparison of two %ss", a.typeName())
	case kindMethod, kindGlobal:
		return false, inexact("a comparison of two functions")
	}
	return a.ref == b.ref, nil // compared by identity
}

func (m *Machine) equalItems(a, b *object) (bool, error) {
	if len(a.items) != len(b.items) {
		return false, nil
	}
	if err := m.enter(); err != nil {
		return false, err
	}
	defer m.leave()
	for i := range a.items {
		if err := m.step(); err != nil {
			return false, err
		}
		if same, err := m.equal(a.items[i], b.items[i]); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (m *Machine) equalDicts(a, b *object) (bool, error) {
	if len(a.entries) != len(b.entries) {
		return false, nil
	}
	if err := m.enter(); err != nil {
		return false, err
	}
	defer m.leave()
	for i := range a.entries {
		if err := m.step(); err != nil {
			return false, err
		}
		at, err := m.find(b, a.entries[i].key)
		if at < 0 || err != nil {
			return false, err
		}
		if same, err := m.equal(a.entries[i].value, b.entries[at].value); !same || err != nil {
			return false, err
		}
	}
	return true, nil
}

// order compares two values that have an order; ordered is false if a NaN is
// among them. op is only for the message.
func (m *Machine) order(op operator, a, b Value) (order int, ordered bool, err error) {
	switch {
	case isNumber(a) && isNumber(b):
		order, ordered = orderNumbers(a, b)
		return order, ordered, nil
	case a.kind == KindString && b.kind == KindString:
		// The order of UTF-8 is that of code points.
		x, y := m.Bytes(a), m.Bytes(b)
		m.work(min(len(x), len(y)))
		return bytes.Compare(x, y), true, nil
	case a.kind == KindList && b.kind == KindList, a.kind == KindTuple && b.kind == KindTuple:
		return m.orderItems(op, a.ref.items, b.ref.items)
	case a.kind == KindUndefined:
		return 0, false, undefinedError(a)
	case b.kind == KindUndefined:
		return 0, false, undefinedError(b)
	case a.kind == kindView || b.kind == kindView:
		return 0, false, inexact("a comparison with keys() or items()")
	}
	return 0, false, raised("'%s' not supported between instances of '%s' and '%s'", operatorTexts[op], a.typeName(), b.typeName())
}

func (m *Machine) orderItems(op operator, a, b []Value) (order int, ordered bool, err error) {
	if err := m.enter(); err != nil {
		return 0, false, err
	}
	defer m.leave()
	for i := range min(len(a), len(b)) {
		if err := m.step(); err != nil {
			return 0, false, err
		}
		same, err := m.equal(a[i], b[i])
		if err != nil {
			return 0, false, err
		}
		if !same {
			return m.order(op, a[i], b[i])
		}
	}
	return len(a) - len(b), true, nil
}

// orderNumbers compares the exact values of two numbers.
func orderNumbers(a, b Value) (order int, ordered bool) {
	if a.kind != KindFloat && b.kind != KindFloat {
		if a.ref == nil && b.ref == nil {
			return compareInts(a.n, b.n), true
		}
		return bigOf(a).Cmp(bigOf(b)), true
	}
	if a.kind == KindFloat && b.kind == KindFloat {
		x, y := a.float(), b.float()
		switch {
		case x < y:
			return -1, true
		case x > y:
			return 1, true
		}
		return 0, x == y
	}
	if b.kind == KindFloat {
		return orderIntFloat(a, b.float())
	}
	order, ordered = orderIntFloat(b, a.float())
	return -order, ordered
}

func compareInts(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func orderIntFloat(v Value, f float64) (order int, ordered bool) {
	switch {
	case math.IsNaN(f):
		return 0, false
	case math.IsInf(f, 1):
		return -1, true
	case math.IsInf(f, -1):
		return 1, true
	case f == math.Trunc(f) && math.Abs(f) < 1<<62 && v.ref == nil:
		return compareInts(v.n, int64(f)), true
	}
	x := new(big.Float).SetPrec(0).SetInt(bigOf(v))
	return x.Cmp(new(big.Float).SetFloat64(f)), true
}

// contains is Python's item in container.
func (m *Machine) contains(container, item Value) (bool, error) {
	switch container.kind {
	case KindString:
		if item.kind != KindString {
			if item.kind == KindUndefined {
				return false, raised("'in <string>' requires string as left operand, not Undefined")
			}
			return false, raised("'in <string>' requires string as left operand, not %s", item.typeName())
		}
		return m.containsText(container, item), nil
	case KindDict:
		key, err := m.asKey(item)
		if err != nil {
			return false, err
		}
		at, err := m.find(container.ref, key)
		return at >= 0, err
	case kindRange:
		if isInteger(item) && item.ref == nil {
			_, ok := container.ref.rangeIndex(item.n)
			return ok, nil
		}
		if isNumber(item) {
			return false, inexact("a float in a range")
		}
		return false, nil
	case kindView:
		if viewOf(container) == viewKeys {
			return m.contains(Value{kind: KindDict, ref: container.ref}, item)
		}
	case KindUndefined:
		return false, nil
	case KindList, KindTuple, kindIterator:
	case kindLoop:
		return false, inexact("in a loop")
	default:
		return false, raised("argument of type '%s' is not iterable", container.typeName())
	}
	it, err := m.iterate(container)
	if err != nil {
		return false, err
	}
	for {
		v, ok, err := it.next(m)
		if !ok || err != nil {
			return false, err
		}
		if same, err := m.equal(v, item); same || err != nil {
			return same, err
		}
	}
}
