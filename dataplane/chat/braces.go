package chat

import (
	"bytes"
	"strconv"
)

// methodFormat is str.format as the sandbox has it: string.Formatter, whose
// attributes and items go through the sandbox. Of format specifications it
// knows fill, alignment, sign, zero, width, precision and the types s, d, f, e, %.
func methodFormat(m *Machine, in Value, a arguments) (Value, error) {
	b := bracesFormat{m: m, args: a}
	if err := b.format(m.Bytes(in)); err != nil {
		return in, err
	}
	return Text(m.keep(b.out)), nil
}

type bracesFormat struct {
	m         *Machine
	args      arguments
	out       []byte
	automatic int  // next field without a number
	manual    bool // fields have numbers
}

func (b *bracesFormat) format(text []byte) error {
	for len(text) > 0 {
		if err := b.m.fits(b.out); err != nil {
			return err
		}
		i := bytes.IndexAny(text, "{}")
		if i < 0 {
			b.out = append(b.out, text...)
			return nil
		}
		b.out = append(b.out, text[:i]...)
		brace := text[i]
		text = text[i+1:]
		if len(text) > 0 && text[0] == brace {
			b.out = append(b.out, brace)
			text = text[1:]
			continue
		}
		if brace == '}' {
			return raised("Single '}' encountered in format string")
		}
		end := bytes.IndexByte(text, '}')
		if end < 0 {
			return raised("expected '}' before end of string")
		}
		if bytes.IndexByte(text[:end], '{') >= 0 {
			return inexact("a format field inside a format field")
		}
		if err := b.field(text[:end]); err != nil {
			return err
		}
		text = text[end+1:]
	}
	return nil
}

// field writes one {name!conversion:specification}.
func (b *bracesFormat) field(text []byte) error {
	name, spec, _ := bytes.Cut(text, []byte(":"))
	name, conversion, converted := bytes.Cut(name, []byte("!"))
	v, err := b.lookup(name)
	if err != nil {
		return err
	}
	if converted {
		var text []byte
		switch string(conversion) {
		case "s":
			text, err = b.m.appendStr(nil, v)
		case "r":
			text, err = b.m.appendRepr(nil, v)
		default:
			return inexact("the conversion !%.10s", conversion)
		}
		if err != nil {
			return err
		}
		v = Text(text)
	}
	b.out, err = b.m.appendFormatted(b.out, v, spec)
	return err
}

// lookup returns the value of a field name such as 0.a[b].
func (b *bracesFormat) lookup(name []byte) (Value, error) {
	end := bytes.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	v, err := b.argument(string(name[:end]))
	rest := name[end:]
	for err == nil && len(rest) > 0 {
		if rest[0] == '[' {
			end := bytes.IndexByte(rest, ']')
			if end < 0 {
				return v, raised("Missing ']' in format string")
			}
			key := Text(rest[1:end])
			if n, err := strconv.Atoi(string(rest[1:end])); err == nil && n >= 0 {
				key = Int(int64(n))
			}
			v, err = b.m.item(v, key)
			rest = rest[end+1:]
			if len(rest) > 0 && rest[0] != '.' && rest[0] != '[' {
				return v, raised("Only '.' or '[' may follow ']' in format field specifier")
			}
			continue
		}
		rest = rest[1:]
		end := bytes.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return v, raised("Empty attribute in format string")
		}
		a := newAttributeName(string(rest[:end]))
		v, err = b.m.attribute(v, &a, false)
		rest = rest[end:]
	}
	return v, err
}

func (b *bracesFormat) argument(name string) (Value, error) {
	n, err := strconv.Atoi(name)
	switch {
	case name == "":
		if b.manual {
			return Value{}, raised("cannot switch from manual field specification to automatic field numbering")
		}
		n = b.automatic
		b.automatic++
	case err == nil && n >= 0:
		if b.automatic > 0 {
			return Value{}, raised("cannot switch from automatic field numbering to manual field specification")
		}
		b.manual = true
	default:
		for i, other := range b.args.names {
			if other == name {
				return b.args.named[i], nil
			}
		}
		return Value{}, raised("KeyError: '%.100s'", name)
	}
	if n >= len(b.args.positional) {
		return Value{}, raised("Replacement index %d out of range for positional args tuple", n)
	}
	return b.args.positional[n], nil
}

// formatSpec is a format specification (Python, "Format Specification
// Mini-Language").
type formatSpec struct {
	fill      rune
	align     byte // '<', '>', '^', '=' or 0
	sign      byte
	comma     bool
	width     int
	precision int
	verb      byte // 0 if not given
}

func parseFormatSpec(text []byte) (s formatSpec, err error) {
	s.fill, s.precision = ' ', -1
	refuse := func() (formatSpec, error) { return s, inexact("the format specification %.40q", text) }
	rest := text
	isAlign := func(at int) bool { return at < len(rest) && bytes.IndexByte([]byte("<>^="), rest[at]) >= 0 }
	if size := charEnd(rest, 0); len(rest) > 0 && isAlign(size) {
		s.fill, s.align = bytes.Runes(rest[:size])[0], rest[size]
		rest = rest[size+1:]
	} else if isAlign(0) {
		s.align, rest = rest[0], rest[1:]
	}
	if len(rest) > 0 && (rest[0] == '+' || rest[0] == '-' || rest[0] == ' ') {
		s.sign, rest = rest[0], rest[1:]
	}
	if len(rest) > 0 && rest[0] == '0' {
		if s.align != 0 {
			return refuse()
		}
		s.fill, s.align, rest = '0', '=', rest[1:]
	}
	number := func() (n int) {
		for ; len(rest) > 0 && isDecimal(rest[0]) && n < 1<<20; rest = rest[1:] {
			n = n*10 + int(rest[0]-'0')
		}
		return n
	}
	s.width = number()
	if len(rest) > 0 && rest[0] == ',' {
		s.comma, rest = true, rest[1:]
	}
	if len(rest) > 1 && rest[0] == '.' && isDecimal(rest[1]) {
		rest = rest[1:]
		s.precision = number()
	}
	if len(rest) > 0 {
		s.verb, rest = rest[0], rest[1:]
	}
	if len(rest) > 0 || s.width >= 1<<20 || s.precision >= 1<<20 {
		return refuse()
	}
	return s, nil
}

// appendFormatted is Python's format(v, spec).
func (m *Machine) appendFormatted(out []byte, v Value, text []byte) ([]byte, error) {
	if len(text) == 0 {
		return m.appendStr(out, v)
	}
	s, err := parseFormatSpec(text)
	if err != nil {
		return out, err
	}
	if err := m.reserve(4 * (s.width + max(0, s.precision))); err != nil {
		return out, err
	}
	switch {
	case v.kind == KindString:
		if s.verb != 0 && s.verb != 's' || s.sign != 0 || s.comma || s.align == '=' {
			return out, inexact("the format specification %.40q of a str", text)
		}
		body := m.Bytes(v)
		if s.precision >= 0 && s.precision < charCount(body) {
			body = body[:charOffset(body, s.precision)]
		}
		return s.pad(out, nil, body, '<'), nil
	case !isNumber(v):
		return out, raised("unsupported format string passed to %s.__format__", v.typeName())
	}
	body, err := m.formatNumber(v, s)
	if err != nil {
		return out, err
	}
	var sign []byte
	switch {
	case body[0] == '-':
		sign, body = body[:1], body[1:]
	case s.sign == '+' || s.sign == ' ':
		sign = []byte{s.sign}
	}
	if s.comma {
		if s.align == '=' && s.fill == '0' {
			return out, inexact("the format specification %.40q", text)
		}
		body = groupThousands(body)
	}
	return s.pad(out, sign, body, '>'), nil
}

func (m *Machine) formatNumber(v Value, s formatSpec) ([]byte, error) {
	verb, precision := s.verb, s.precision
	if verb == 0 && v.kind == KindFloat && precision < 0 {
		return appendFloat(nil, v.float()), nil
	}
	if isInteger(v) && (verb == 0 || verb == 'd') && precision < 0 {
		return bigOf(v).Append(nil, 10), nil
	}
	if precision < 0 {
		precision = 6
	}
	f, err := floatOf(v)
	if err != nil {
		return nil, err
	}
	switch verb {
	case 'f', 'e':
		return formatFloat(f, verb, precision), nil
	case '%':
		return append(formatFloat(100*f, 'f', precision), '%'), nil
	}
	return nil, inexact("the format type %q of a %s", verb, v.typeName())
}

// groupThousands puts commas between groups of three digits before the point.
func groupThousands(digits []byte) []byte {
	whole := 0
	for whole < len(digits) && isDecimal(digits[whole]) {
		whole++
	}
	var out []byte
	for i, c := range digits {
		if i > 0 && i < whole && (whole-i)%3 == 0 {
			out = append(out, ',')
		}
		out = append(out, c)
	}
	return out
}

func (s *formatSpec) pad(out, sign, body []byte, align byte) []byte {
	if s.align != 0 {
		align = s.align
	}
	missing := max(0, s.width-charCount(sign)-charCount(body))
	left := missing
	switch align {
	case '<':
		left = 0
	case '^':
		left = missing / 2
	case '=':
		out, sign = append(out, sign...), nil
	}
	for range left {
		out = append(out, string(s.fill)...)
	}
	out = append(append(out, sign...), body...)
	for range missing - left {
		out = append(out, string(s.fill)...)
	}
	return out
}
