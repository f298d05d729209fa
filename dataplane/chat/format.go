package chat

import (
	"math"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// str is Python's str(v), in the arena unless it is there already.
func (m *Machine) str(v Value) (Value, error) {
	if v.kind == KindString {
		if v.form == formMarkup {
			v.form = formPlain
		}
		return v, nil
	}
	text, err := m.appendStr(m.scratch[:0], v)
	m.scratch = text
	if err != nil {
		return v, err
	}
	return Text(m.keep(text)), nil
}

// appendStr appends str(v). dst must not be in use elsewhere.
func (m *Machine) appendStr(dst []byte, v Value) ([]byte, error) {
	switch v.kind {
	case KindString:
		return appendText(dst, v), nil
	case KindUndefined:
		return dst, nil
	}
	return m.appendRepr(dst, v)
}

// appendText appends the decoded text of a str.
func appendText(dst []byte, v Value) []byte {
	if v.form != formRope {
		return textSegment(v).AppendText(dst)
	}
	for _, s := range v.ref.segments {
		dst = s.AppendText(dst)
	}
	return dst
}

// appendRepr appends Python's repr(v).
func (m *Machine) appendRepr(dst []byte, v Value) ([]byte, error) {
	if err := m.fits(dst); err != nil {
		return dst, err
	}
	switch v.kind {
	case KindUndefined:
		return append(dst, "Undefined"...), nil
	case KindNone:
		return append(dst, "None"...), nil
	case KindBool:
		if v.n != 0 {
			return append(dst, "True"...), nil
		}
		return append(dst, "False"...), nil
	case KindInt:
		return appendInt(dst, v)
	case KindFloat:
		return appendFloat(dst, v.float()), nil
	case KindString:
		return m.reprText(dst, v)
	case KindList, KindTuple, KindDict, kindNamespace, kindView:
		if err := m.enter(); err != nil {
			return dst, err
		}
		defer m.leave()
		return m.reprContainer(dst, v)
	case kindRange:
		dst = strconv.AppendInt(append(dst, "range("...), v.ref.rangeStart(), 10)
		dst = strconv.AppendInt(append(dst, ", "...), v.ref.rangeStop(), 10)
		if step := v.ref.rangeStep(); step != 1 {
			dst = strconv.AppendInt(append(dst, ", "...), step, 10)
		}
		return append(dst, ')'), nil
	case kindLoop:
		l := v.ref.aux.(*loopState)
		n, err := l.size(m)
		dst = strconv.AppendInt(append(dst, "<LoopContext "...), int64(l.index0+1), 10)
		return append(strconv.AppendInt(append(dst, '/'), int64(n), 10), '>'), err
	case kindMacro:
		if name := v.ref.aux.(*macroDef).name; name != "" {
			return append(append(append(dst, "<Macro '"...), name...), "'>"...), nil
		}
		return append(dst, "<Macro anonymous>"...), nil
	}
	return dst, inexact("the text of a %s, which holds its address", v.typeName())
}

// fits counts a step for text under construction and bounds it.
func (m *Machine) fits(text []byte) error {
	if len(text) > m.limits.ArenaBytes {
		return m.reserve(-1)
	}
	return m.step()
}

func (m *Machine) reprContainer(dst []byte, v Value) ([]byte, error) {
	switch v.kind {
	case KindList:
		return m.reprItems(dst, v.ref.items, "[", "]")
	case KindTuple:
		if len(v.ref.items) == 1 {
			return m.reprItems(dst, v.ref.items, "(", ",)")
		}
		return m.reprItems(dst, v.ref.items, "(", ")")
	case KindDict:
		return m.reprDict(dst, v.ref.entries)
	case kindNamespace:
		dst, err := m.reprDict(append(dst, "<Namespace "...), v.ref.entries)
		return append(dst, '>'), err
	}
	name := [...]string{"dict_keys([", "dict_values([", "dict_items(["}[viewOf(v)]
	base, err := m.toStack(v)
	if err != nil {
		return dst, err
	}
	dst, err = m.reprItems(dst, m.stack[base:], name, "])")
	m.stack = m.stack[:base]
	return dst, err
}

func (m *Machine) reprItems(dst []byte, items []Value, begin, end string) ([]byte, error) {
	dst = append(dst, begin...)
	for i, item := range items {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		var err error
		if dst, err = m.appendRepr(dst, item); err != nil {
			return dst, err
		}
	}
	return append(dst, end...), nil
}

func (m *Machine) reprDict(dst []byte, entries []entry) ([]byte, error) {
	dst = append(dst, '{')
	for i := range entries {
		if i > 0 {
			dst = append(dst, ", "...)
		}
		var err error
		if dst, err = m.appendRepr(dst, entries[i].key); err != nil {
			return dst, err
		}
		if dst, err = m.appendRepr(append(dst, ": "...), entries[i].value); err != nil {
			return dst, err
		}
	}
	return append(dst, '}'), nil
}

func appendInt(dst []byte, v Value) ([]byte, error) {
	if v.ref == nil {
		return strconv.AppendInt(dst, v.n, 10), nil
	}
	before := len(dst)
	dst = v.ref.big.Append(dst, 10)
	if len(dst)-before > mostDigits+1 || len(dst)-before > mostDigits && v.ref.big.Sign() > 0 {
		return dst, raised("exceeds the limit (%d digits) for integer string conversion", mostDigits)
	}
	return dst, nil
}

// appendFloat appends Python's repr of a float: the shortest digits that mean
// this float, with an exponent below 1e-4 and from 1e16 on.
func appendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	}
	if a := math.Abs(f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	before := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	for _, c := range dst[before:] {
		if c == '.' {
			return dst
		}
	}
	return append(dst, ".0"...)
}

// reprText appends the repr of a str: in single quotes, unless there are
// single quotes in it and no double quotes.
func (m *Machine) reprText(dst []byte, v Value) ([]byte, error) {
	if v.form == formMarkup {
		return dst, inexact("the repr of Markup")
	}
	text := m.Bytes(v)
	m.work(4 * len(text))
	quote := byte('\'')
	single, double := false, false
	for _, c := range text {
		single = single || c == '\''
		double = double || c == '"'
	}
	if single && !double {
		quote = '"'
	}
	dst = append(dst, quote)
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == rune(quote) || r == '\\':
			dst = append(dst, '\\', byte(r))
		case r == '\n':
			dst = append(dst, `\n`...)
		case r == '\r':
			dst = append(dst, `\r`...)
		case r == '\t':
			dst = append(dst, `\t`...)
		case isPrintable(r):
			dst = append(dst, text[:size]...)
		default:
			dst = appendEscapedRune(dst, r)
		}
		text = text[size:]
	}
	return append(dst, quote), nil
}

// appendEscapedRune appends the escape that Python's repr has for r.
func appendEscapedRune(dst []byte, r rune) []byte {
	const hex = "0123456789abcdef"
	letter, digits := byte('x'), 2
	switch {
	case r > 0xffff:
		letter, digits = 'U', 8
	case r > 0xff:
		letter, digits = 'u', 4
	}
	dst = append(dst, '\\', letter)
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		dst = append(dst, hex[r>>shift&0xf])
	}
	return dst
}

// isPrintable is Python's str.isprintable of one character.
func isPrintable(r rune) bool {
	if r < 0x7f {
		return r >= 0x20
	}
	return unicode.IsPrint(r)
}
