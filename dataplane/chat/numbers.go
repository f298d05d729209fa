package chat

import (
	"math"
	"math/big"
	"math/bits"
)

// operator is a Python operator with two operands.
type operator uint8

const (
	opAdd operator = iota
	opSub
	opMul
	opDiv
	opFloorDiv
	opMod
	opPow
	opEqual
	opNotEqual
	opLess
	opLessEqual
	opGreater
	opGreaterEqual
	opIn
	opNotIn
)

var operatorTexts = [...]string{"+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"}

// mostBits bounds ints that a template computes.
const mostBits = 1 << 16

// isNumber reports whether v is an int, a bool or a float.
func isNumber(v Value) bool {
	return v.kind == KindInt || v.kind == KindBool || v.kind == KindFloat
}

func isInteger(v Value) bool { return v.kind == KindInt || v.kind == KindBool }

// bigOf returns an int or bool as a big.Int, not to be changed.
func bigOf(v Value) *big.Int {
	if v.ref != nil {
		return v.ref.big
	}
	return big.NewInt(v.n)
}

// floatOf converts a number to the nearest float.
func floatOf(v Value) (float64, error) {
	if v.kind == KindFloat {
		return v.float(), nil
	}
	if v.ref == nil {
		return float64(v.n), nil
	}
	f, _ := new(big.Float).SetInt(v.ref.big).Float64()
	if math.IsInf(f, 0) {
		return 0, raised("int too large to convert to float")
	}
	return f, nil
}

// undefinedError is what jinja2 says about an operation on an Undefined.
func undefinedError(v Value) error {
	if v.n != 0 {
		return raised("access to attribute '%s' is unsafe", v.text)
	}
	return raised("'%s' is undefined", v.text)
}

func operandError(op operator, a, b Value) error {
	if a.kind == KindUndefined {
		return undefinedError(a)
	}
	if b.kind == KindUndefined {
		return undefinedError(b)
	}
	return raised("unsupported operand type(s) for %s: '%s' and '%s'", operatorTexts[op], a.typeName(), b.typeName())
}

func (m *Machine) unary(op byte, v Value) (Value, error) {
	switch {
	case v.kind == KindUndefined:
		return v, undefinedError(v)
	case v.kind == KindFloat && op == '-':
		return Float(-v.float()), nil
	case v.kind == KindFloat:
		return v, nil
	case !isInteger(v):
		return v, raised("bad operand type for unary %c: '%s'", op, v.typeName())
	case op == '+' && v.ref != nil:
		return v, nil
	case op == '+':
		return Int(v.n), nil
	case v.ref == nil && v.n != math.MinInt64:
		return Int(-v.n), nil
	}
	return m.bigInt(new(big.Int).Neg(bigOf(v))), nil
}

// binary is Python's left op right for the operators that compute.
func (m *Machine) binary(op operator, a, b Value) (Value, error) {
	if isNumber(a) && isNumber(b) {
		return m.arithmetic(op, a, b)
	}
	switch op {
	case opAdd:
		return m.add(a, b)
	case opMul:
		if isInteger(b) {
			return m.repeat(a, b)
		}
		if isInteger(a) {
			return m.repeat(b, a)
		}
	case opMod:
		if a.kind == KindString {
			return m.percentFormat(a, b)
		}
	}
	return Value{}, operandError(op, a, b)
}

// add is + for what is no number.
func (m *Machine) add(a, b Value) (Value, error) {
	switch {
	case a.kind == KindString && b.kind == KindString:
		if a.form == formMarkup || b.form == formMarkup {
			return m.addMarkup(a, b)
		}
		return m.concat(a, b), nil
	case a.kind == KindList && b.kind == KindList, a.kind == KindTuple && b.kind == KindTuple:
		n := a.Len()
		m.steps -= n + b.Len()
		if err := m.reserve((n + b.Len()) * m.values.size()); err != nil {
			return a, err
		}
		o := m.newObject()
		o.items = m.newValues(n + b.Len())
		copy(o.items, a.ref.items)
		copy(o.items[n:], b.ref.items)
		return Value{kind: a.kind, ref: o}, nil
	}
	return Value{}, operandError(opAdd, a, b)
}

// concat joins two strings without copying their text.
func (m *Machine) concat(a, b Value) Value {
	if !a.Truth() {
		return b
	}
	if !b.Truth() {
		return a
	}
	var one, other [1]Segment
	left, right := m.segmentsOf(a, &one), m.segmentsOf(b, &other)
	if m.reserve((len(left)+len(right))*m.segments.size()) != nil {
		return a // no step will follow
	}
	m.charge(len(right) * m.segments.size())
	room := m.segments.extend(left, len(right))
	if &room[0] != &left[0] {
		m.charge(len(left) * m.segments.size())
	}
	copy(room[len(left):], right)
	return m.ropeOf(room)
}

// segmentsOf returns the pieces of a str that is not empty; one is room for a
// single one.
func (m *Machine) segmentsOf(v Value, one *[1]Segment) []Segment {
	if v.form == formRope {
		return v.ref.segments
	}
	one[0] = Segment{Bytes: v.text, Escaped: v.form == formEscaped}
	return one[:]
}

// repeat is str * int, list * int and tuple * int.
func (m *Machine) repeat(v, times Value) (Value, error) {
	if times.ref != nil {
		return v, raised("cannot fit 'int' into an index-sized integer")
	}
	n := max(0, times.n)
	switch v.kind {
	case KindString:
		if v.form == formMarkup {
			return v, inexact("Markup times an int")
		}
		text := m.Bytes(v)
		size, err := m.times(len(text), n, 1)
		if err != nil {
			return v, err
		}
		repeated := m.newBytes(size)
		repeatInto(repeated, text)
		return Text(repeated), nil
	case KindList, KindTuple:
		size, err := m.times(v.Len(), n, m.values.size())
		if err != nil {
			return v, err
		}
		o := m.newObject()
		o.items = m.newValues(size)
		repeatInto(o.items, v.ref.items)
		return Value{kind: v.kind, ref: o}, nil
	}
	return v, operandError(opMul, v, times)
}

// repeatInto fills all with repetitions of one, which is not empty unless all is.
func repeatInto[T any](all, one []T) {
	for n := copy(all, one); n < len(all); {
		n += copy(all[n:], all[:n])
	}
}

// times returns n·count, if that many elements of that size may be made.
func (m *Machine) times(n int, count int64, size int) (int, error) {
	if n == 0 || count == 0 {
		return 0, nil
	}
	high, total := bits.Mul64(uint64(n), uint64(count))
	if high != 0 || total > uint64(m.limits.ArenaBytes) {
		return 0, m.reserve(-1)
	}
	m.work(int(total) * size)
	return int(total), m.reserve(int(total) * size)
}

func (m *Machine) arithmetic(op operator, a, b Value) (Value, error) {
	if a.kind == KindFloat || b.kind == KindFloat {
		x, err := floatOf(a)
		if err != nil {
			return a, err
		}
		y, err := floatOf(b)
		if err != nil {
			return b, err
		}
		return floatArithmetic(op, x, y)
	}
	if a.ref == nil && b.ref == nil {
		if v, ok := smallArithmetic(op, a.n, b.n); ok {
			return v, nil
		}
	}
	return m.bigArithmetic(op, a, b)
}

// smallArithmetic computes with ints whose result is sure to fit.
func smallArithmetic(op operator, a, b int64) (Value, bool) {
	switch op {
	case opAdd:
		c := a + b
		return Int(c), (c > a) == (b > 0)
	case opSub:
		c := a - b
		return Int(c), (c < a) == (b > 0)
	case opMul:
		if a == 0 || b == 0 {
			return Int(0), true
		}
		c := a * b
		return Int(c), c/b == a && !(a == -1 && b == math.MinInt64) && !(b == -1 && a == math.MinInt64)
	case opFloorDiv:
		if b == 0 || b == -1 {
			return Value{}, false
		}
		c := a / b
		if a%b != 0 && (a < 0) != (b < 0) {
			c--
		}
		return Int(c), true
	case opMod:
		if b == 0 || b == -1 {
			return Value{}, false
		}
		c := a % b
		if c != 0 && (c < 0) != (b < 0) {
			c += b
		}
		return Int(c), true
	case opDiv:
		const exact = 1 << 53
		if b == 0 || a < -exact || a > exact || b < -exact || b > exact {
			return Value{}, false
		}
		return Float(float64(a) / float64(b)), true
	}
	return Value{}, false
}

func (m *Machine) bigArithmetic(op operator, a, b Value) (Value, error) {
	x, y := bigOf(a), bigOf(b)
	z := new(big.Int)
	if (op == opDiv || op == opFloorDiv || op == opMod) && y.Sign() == 0 {
		if op == opDiv {
			return a, raised("division by zero")
		}
		return a, raised("integer division or modulo by zero")
	}
	switch op {
	case opAdd:
		z.Add(x, y)
	case opSub:
		z.Sub(x, y)
	case opMul:
		z.Mul(x, y)
	case opFloorDiv, opMod:
		remainder := new(big.Int)
		z.QuoRem(x, y, remainder)
		if remainder.Sign() != 0 && remainder.Sign() != y.Sign() {
			z.Sub(z, big.NewInt(1))
			remainder.Add(remainder, y)
		}
		if op == opMod {
			z = remainder
		}
	case opDiv:
		f, _ := new(big.Rat).SetFrac(x, y).Float64()
		if math.IsInf(f, 0) {
			return a, raised("integer division result too large for a float")
		}
		return Float(f), nil
	case opPow:
		return m.power(x, y)
	}
	if z.BitLen() > mostBits {
		m.exceed("an int has too many digits")
		return a, m.fault
	}
	m.steps -= z.BitLen() / 64
	return m.bigInt(z), nil
}

// power is int ** int.
func (m *Machine) power(x, y *big.Int) (Value, error) {
	if y.Sign() < 0 {
		if x.Sign() == 0 {
			return Value{}, raised("0.0 cannot be raised to a negative power")
		}
		return exactInverse(x, y)
	}
	if x.BitLen() > 1 && (!y.IsInt64() || y.Int64() > mostBits || int64(x.BitLen())*y.Int64() > mostBits) {
		m.exceed("an int has too many digits")
		return Value{}, m.fault
	}
	if x.BitLen() <= 1 { // 0, 1 and -1
		switch {
		case y.Sign() == 0, x.Sign() < 0 && y.Bit(0) == 0:
			return Int(1), nil
		}
		return Int(x.Int64()), nil
	}
	m.work(mostBits)
	return m.bigInt(new(big.Int).Exp(x, y, nil)), nil
}

// exactInverse is x ** y for a negative y, if the result is a float without
// rounding: how C's pow rounds is not known.
func exactInverse(x, y *big.Int) (Value, error) {
	if x.IsInt64() && y.IsInt64() && -y.Int64() < 1100 && int64(x.BitLen())*-y.Int64() < 1100 {
		power := new(big.Int).Exp(x, new(big.Int).Neg(y), nil)
		if f, exact := new(big.Rat).SetFrac(big.NewInt(1), power).Float64(); exact {
			return Float(f), nil
		}
	}
	return Value{}, inexact("a negative power")
}

// floatArithmetic follows CPython's Objects/floatobject.c.
func floatArithmetic(op operator, x, y float64) (Value, error) {
	switch op {
	case opAdd:
		return Float(x + y), nil
	case opSub:
		return Float(x - y), nil
	case opMul:
		return Float(x * y), nil
	case opPow:
		return Value{}, inexact("a power of floats")
	}
	if y == 0 {
		switch op {
		case opFloorDiv:
			return Value{}, raised("float floor division by zero")
		case opMod:
			return Value{}, raised("float modulo")
		}
		return Value{}, raised("float division by zero")
	}
	if op == opDiv {
		return Float(x / y), nil
	}
	mod := math.Mod(x, y)
	div := (x - mod) / y
	if mod != 0 {
		if (y < 0) != (mod < 0) {
			mod += y
			div--
		}
	} else {
		mod = math.Copysign(0, y)
	}
	if op == opMod {
		return Float(mod), nil
	}
	if div == 0 {
		return Float(math.Copysign(0, x/y)), nil
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return Float(floor), nil
}
