package chat

import (
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// percentSpec is one conversion of a printf-style format.
type percentSpec struct {
	left, plus, space, zero bool
	width, precision        int // precision -1 if not given
	verb                    byte
}

// percentArgs are the values that a format takes.
type percentArgs struct {
	items   []Value
	next    int
	mapping Value // of %(key)s; Undefined if there is none
	lenient bool  // values may be left over
}

func (a *percentArgs) take() (Value, error) {
	if a.next >= len(a.items) {
		return Value{}, raised("not enough arguments for format string")
	}
	a.next++
	return a.items[a.next-1], nil
}

// percentFormat is Python's str % value.
func (m *Machine) percentFormat(format, value Value) (Value, error) {
	if format.form == formMarkup {
		return format, inexact("Markup %% a value")
	}
	a := percentArgs{items: []Value{value}}
	switch value.kind {
	case KindTuple:
		a.items = value.ref.items
	case KindDict:
		a.mapping, a.lenient = value, true
	case KindList, KindUndefined, kindRange:
		a.lenient = true // they count as mappings too, for they have subscripts
	}
	return m.formatPercent(m.Bytes(format), &a)
}

// filterFormat is the filter format: str % arguments.
func filterFormat(m *Machine, in Value, a arguments) (Value, error) {
	v, err := m.softText(in)
	if err != nil {
		return in, err
	}
	args := percentArgs{items: slices.Clone(a.positional)}
	if len(a.named) > 0 {
		if len(a.positional) > 0 {
			return in, raised("can't handle positional and keyword arguments at the same time")
		}
		args.mapping, args.lenient = m.Dict(len(a.named)), true
		for i, name := range a.names {
			m.Set(args.mapping, name, a.named[i])
		}
		args.items = []Value{args.mapping}
	}
	return m.formatPercent(m.Bytes(v), &args)
}

func (m *Machine) formatPercent(format []byte, a *percentArgs) (Value, error) {
	var out []byte
	for len(format) > 0 {
		if err := m.fits(out); err != nil {
			return Value{}, err
		}
		i := slices.Index(format, '%')
		if i < 0 {
			i = len(format)
		}
		out = append(out, format[:i]...)
		if format = format[i:]; len(format) == 0 {
			break
		}
		var err error
		if out, format, err = m.percentOne(out, format[1:], a); err != nil {
			return Value{}, err
		}
	}
	if a.next < len(a.items) && !a.lenient {
		return Value{}, raised("not all arguments converted during string formatting")
	}
	return Text(m.keep(out)), nil
}

// percentOne handles one conversion, of which format begins behind the %.
func (m *Machine) percentOne(out, format []byte, a *percentArgs) (_, rest []byte, err error) {
	if len(format) > 0 && format[0] == '%' {
		return append(out, '%'), format[1:], nil
	}
	var named *Value
	if len(format) > 0 && format[0] == '(' {
		end := slices.Index(format, ')')
		if end < 0 || slices.Contains(format[1:end], '(') {
			return nil, nil, inexact("a format with nested brackets")
		}
		if a.mapping.kind != KindDict {
			return nil, nil, raised("format requires a mapping")
		}
		at := a.mapping.ref.findText(format[1:end])
		if at < 0 {
			return nil, nil, raised("KeyError: %.100q", format[1:end])
		}
		named = &a.mapping.ref.entries[at].value
		format = format[end+1:]
	}
	spec, rest, err := parsePercent(format, a)
	if err != nil {
		return nil, nil, err
	}
	if err := m.reserve(spec.width + max(spec.precision, 0)); err != nil {
		return nil, nil, err
	}
	if spec.verb == '%' {
		return append(out, '%'), rest, nil
	}
	var v Value
	if named != nil {
		v = *named
	} else if v, err = a.take(); err != nil {
		return nil, nil, err
	}
	out, err = m.percentValue(out, v, spec)
	return out, rest, err
}

func parsePercent(format []byte, a *percentArgs) (s percentSpec, rest []byte, err error) {
	s.precision = -1
	i := 0
flags:
	for ; i < len(format); i++ {
		switch format[i] {
		case '-':
			s.left = true
		case '+':
			s.plus = true
		case ' ':
			s.space = true
		case '0':
			s.zero = true
		case '#':
			return s, nil, inexact("a format with the flag #")
		default:
			break flags
		}
	}
	number := func() (int, error) {
		if i < len(format) && format[i] == '*' {
			return 0, inexact("a format with *")
		}
		n := 0
		for ; i < len(format) && isDecimal(format[i]); i++ {
			if n = n*10 + int(format[i]-'0'); n > 1<<20 {
				return 0, inexact("a format that wide")
			}
		}
		return n, nil
	}
	if s.width, err = number(); err != nil {
		return s, nil, err
	}
	if i < len(format) && format[i] == '.' {
		i++
		if s.precision, err = number(); err != nil {
			return s, nil, err
		}
	}
	for i < len(format) && (format[i] == 'l' || format[i] == 'h' || format[i] == 'L') {
		i++
	}
	if i >= len(format) {
		return s, nil, raised("incomplete format")
	}
	s.verb = format[i]
	return s, format[i+1:], nil
}

func (m *Machine) percentValue(out []byte, v Value, s percentSpec) ([]byte, error) {
	switch s.verb {
	case 's', 'r':
		var text []byte
		var err error
		if s.verb == 's' {
			text, err = m.appendStr(nil, v)
		} else {
			text, err = m.appendRepr(nil, v)
		}
		if err != nil {
			return nil, err
		}
		if s.precision >= 0 && s.precision < charCount(text) {
			text = text[:charOffset(text, s.precision)]
		}
		return padText(out, text, s.width, s.left, ' '), nil
	case 'c':
		return m.percentChar(out, v, s)
	case 'd', 'i', 'u', 'x', 'X', 'o':
		return m.percentInt(out, v, s)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if v.kind == KindUndefined {
			return nil, undefinedError(v)
		}
		if !isNumber(v) {
			return nil, raised("must be real number, not %s", v.typeName())
		}
		f, err := floatOf(v)
		if err != nil {
			return nil, err
		}
		precision := s.precision
		if precision < 0 {
			precision = 6
		}
		return padNumber(out, formatFloat(f, s.verb, precision), s), nil
	}
	return nil, inexact("the conversion %%%c", s.verb)
}

func (m *Machine) percentChar(out []byte, v Value, s percentSpec) ([]byte, error) {
	var text []byte
	switch {
	case v.kind == KindString && charLen(v) == 1:
		text = m.Bytes(v)
	case isInteger(v) && v.ref == nil && 0 <= v.n && v.n <= utf8.MaxRune && !isSurrogate(rune(v.n)):
		text = utf8.AppendRune(nil, rune(v.n))
	default:
		return nil, raised("%%c requires int or char")
	}
	return padText(out, text, s.width, s.left, ' '), nil
}

func (m *Machine) percentInt(out []byte, v Value, s percentSpec) ([]byte, error) {
	base := 10
	switch s.verb {
	case 'x', 'X':
		base = 16
	case 'o':
		base = 8
	}
	if v.kind == KindUndefined {
		return nil, undefinedError(v)
	}
	if !isNumber(v) || base != 10 && v.kind == KindFloat {
		return nil, raised("%%%c format: a number is required, not %s", s.verb, v.typeName())
	}
	n, ok, err := m.intOf(v)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, raised("cannot convert float NaN to integer")
	}
	digits := bigOf(n).Append(nil, base)
	if s.verb == 'X' {
		for i, c := range digits {
			if c >= 'a' {
				digits[i] = c - 'a' + 'A'
			}
		}
	}
	if s.precision >= 0 {
		sign := 0
		if digits[0] == '-' {
			sign = 1
		}
		for len(digits)-sign < s.precision {
			digits = slices.Insert(digits, sign, '0')
		}
	}
	return padNumber(out, digits, s), nil
}

// formatFloat formats as C's printf does; inf and nan are written as Python
// writes them.
func formatFloat(f float64, verb byte, precision int) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		text := appendFloat(nil, f)
		if verb < 'a' {
			for i, c := range text {
				if c >= 'a' {
					text[i] = c - 'a' + 'A'
				}
			}
		}
		return text
	}
	if verb == 'F' {
		verb = 'f'
	}
	if precision == 0 && verb|0x20 == 'g' {
		precision = 1
	}
	return strconv.AppendFloat(nil, f, verb, precision, 64)
}

// padNumber writes a number with its sign and padding.
func padNumber(out, digits []byte, s percentSpec) []byte {
	sign := ""
	switch {
	case digits[0] == '-':
		sign, digits = "-", digits[1:]
	case s.plus:
		sign = "+"
	case s.space:
		sign = " "
	}
	if s.zero && !s.left {
		out = append(out, sign...)
		return padText(out, digits, s.width-len(sign), false, '0')
	}
	return padText(out, append([]byte(sign), digits...), s.width, s.left, ' ')
}

func padText(out, text []byte, width int, left bool, fill byte) []byte {
	missing := width - charCount(text)
	if left {
		out = append(out, text...)
	}
	for ; missing > 0; missing-- {
		out = append(out, fill)
	}
	if !left {
		out = append(out, text...)
	}
	return out
}
