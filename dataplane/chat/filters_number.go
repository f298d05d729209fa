package chat

import (
	"bytes"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"
)

func filterAbs(m *Machine, in Value, _ []Value) (Value, error) {
	switch {
	case in.kind == KindFloat:
		return Float(math.Abs(in.float())), nil
	case isInteger(in) && bigOf(in).Sign() < 0:
		return m.unary('-', in)
	case isInteger(in):
		return m.unary('+', in)
	}
	return in, raised("bad operand type for abs(): '%s'", in.typeName())
}

// asciiNumber trims the text of a number as Python's int and float do.
// Characters outside of ASCII may be digits there too.
func asciiNumber(text []byte) ([]byte, error) {
	text = bytes.TrimFunc(text, isSpace)
	for _, c := range text {
		if c >= utf8.RuneSelf {
			return nil, inexact("a number with characters outside of ASCII")
		}
	}
	return text, nil
}

// dropUnderscores removes underscores between digits; ok is false if there are
// others.
func dropUnderscores(text []byte, isDigit func(c byte) bool) (clean []byte, ok bool) {
	if bytes.IndexByte(text, '_') < 0 {
		return text, true
	}
	for i, c := range text {
		if c != '_' {
			clean = append(clean, c)
			continue
		}
		if i == 0 || i+1 == len(text) || !isDigit(text[i-1]) || !isDigit(text[i+1]) {
			return nil, false
		}
	}
	return clean, true
}

// parseInt is Python's int(text, base); ok is false where Python raises a
// ValueError.
func (m *Machine) parseInt(text []byte, base int) (v Value, ok bool, err error) {
	m.work(len(text))
	if text, err = asciiNumber(text); err != nil {
		return v, false, err
	}
	negative := false
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		negative = text[0] == '-'
		text = text[1:]
	}
	if base != 10 {
		if base != 2 && base != 8 && base != 16 {
			return v, false, inexact("int with base %d", base)
		}
		letter := map[int]byte{2: 'b', 8: 'o', 16: 'x'}[base]
		if len(text) > 2 && text[0] == '0' && text[1]|0x20 == letter {
			text = text[2:]
			if text[0] == '_' {
				text = text[1:]
			}
		}
	}
	isDigit := func(c byte) bool {
		if c >= 'a' {
			c -= 'a' - 'A'
		}
		if c >= 'A' {
			return int(c-'A')+10 < base
		}
		return c >= '0' && int(c-'0') < min(base, 10)
	}
	text, ok = dropUnderscores(text, isDigit)
	if !ok || len(text) == 0 {
		return v, false, nil
	}
	for _, c := range text {
		if !isDigit(c) {
			return v, false, nil
		}
	}
	if len(text) > mostDigits {
		return v, false, nil // a ValueError as well, if base is 10
	}
	b, _ := new(big.Int).SetString(string(text), base)
	if negative {
		b.Neg(b)
	}
	return m.bigInt(b), true, nil
}

// parseFloat is Python's float(text); ok is false where Python raises a
// ValueError.
func (m *Machine) parseFloat(text []byte) (f float64, ok bool, err error) {
	m.work(len(text))
	if text, err = asciiNumber(text); err != nil {
		return 0, false, err
	}
	if text, ok = dropUnderscores(text, isDecimal); !ok || len(text) == 0 {
		return 0, false, nil
	}
	for _, c := range text {
		if c == 'x' || c == 'X' || c == 'p' || c == 'P' {
			return 0, false, nil // Go reads hexadecimal floats, Python's float does not
		}
	}
	f, err = strconv.ParseFloat(string(text), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false, nil
	}
	return f, true, nil
}

// intOf is Python's int(v) of a number; ok is false where it raises a
// ValueError.
func (m *Machine) intOf(v Value) (n Value, ok bool, err error) {
	if isInteger(v) {
		n, err = m.unary('+', v)
		return n, true, err
	}
	f := v.float()
	switch {
	case math.IsNaN(f):
		return n, false, nil
	case math.IsInf(f, 0):
		return n, false, raised("cannot convert float infinity to integer")
	}
	b, _ := new(big.Float).SetFloat64(f).Int(nil)
	return m.bigInt(b), true, nil
}

// filterInt is jinja2's int: what cannot be converted is the default.
func filterInt(m *Machine, in Value, p []Value) (Value, error) {
	otherwise := Int(0)
	if given(p[0]) {
		otherwise = p[0]
	}
	base, err := intArg(p[1], 10)
	if err != nil {
		return in, err
	}
	switch {
	case in.kind == KindUndefined:
		return in, undefinedError(in)
	case isNumber(in):
		v, ok, err := m.intOf(in)
		if !ok && err == nil {
			v = otherwise
		}
		return v, err
	case in.kind != KindString:
		return otherwise, nil
	}
	text := m.Bytes(in)
	if v, ok, err := m.parseInt(text, base); ok || err != nil {
		return v, err
	}
	f, ok, err := m.parseFloat(text)
	if !ok || err != nil || math.IsInf(f, 0) || math.IsNaN(f) {
		return otherwise, err
	}
	v, _, err := m.intOf(Float(f))
	return v, err
}

func filterFloat(m *Machine, in Value, p []Value) (Value, error) {
	otherwise := Float(0)
	if given(p[0]) {
		otherwise = p[0]
	}
	switch {
	case in.kind == KindUndefined:
		return in, undefinedError(in)
	case isNumber(in):
		f, err := floatOf(in)
		return Float(f), err
	case in.kind != KindString:
		return otherwise, nil
	}
	f, ok, err := m.parseFloat(m.Bytes(in))
	if !ok {
		return otherwise, err
	}
	return Float(f), err
}

func filterRound(m *Machine, in Value, p []Value) (Value, error) {
	precision, err := intArg(p[0], 0)
	if err != nil {
		return in, err
	}
	method := "common"
	if given(p[1]) {
		method = string(m.Bytes(p[1]))
	}
	switch {
	case method != "common" && method != "ceil" && method != "floor":
		return in, raised("method must be common, ceil or floor")
	case in.kind == KindUndefined:
		return in, undefinedError(in)
	case !isNumber(in):
		return in, raised("type %s doesn't define __round__ method", in.typeName())
	case precision < 0 || precision > 300:
		return in, inexact("round to %d digits", precision)
	}
	if method == "common" {
		if isInteger(in) {
			return m.unary('+', in)
		}
		return Float(roundFloat(in.float(), precision)), nil
	}
	scale, err := m.power(big.NewInt(10), big.NewInt(int64(precision)))
	if err != nil {
		return in, err
	}
	v, err := m.binary(opMul, in, scale)
	if err != nil {
		return in, err
	}
	if v.kind == KindFloat {
		f := v.float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return in, raised("cannot convert float %v to integer", f)
		}
		if method == "ceil" {
			f = math.Ceil(f)
		} else {
			f = math.Floor(f)
		}
		if v, _, err = m.intOf(Float(f)); err != nil {
			return in, err
		}
	}
	return m.binary(opDiv, v, scale)
}

// roundFloat rounds to digits behind the point: the decimal number that is
// nearest to the exact value of f, half to even.
func roundFloat(f float64, digits int) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return f
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
	return rounded
}
