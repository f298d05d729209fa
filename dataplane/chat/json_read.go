package chat

import (
	"bytes"
	"math/big"
	"strconv"
)

// mostDigits is the longest int that Python reads from text (3.11 and later,
// sys.set_int_max_str_digits).
const mostDigits = 4300

// ReadJSON reads one JSON value as Python's json.loads does: objects keep the
// order of their keys, the last of equal keys wins in the place of the first,
// ints have any size, floats that are too large become inf. The Value borrows
// raw and the Machine. A lone surrogate escape is Inexact, since Python lets
// it in but no tokenizer; NaN and Infinity, which are no JSON, are Malformed.
//
// That the strings of raw are well-formed was checked before: raw is part of a
// body that package scan has seen to its end.
func (m *Machine) ReadJSON(raw []byte) (Value, error) {
	return m.readJSON(raw, false)
}

func (m *Machine) readJSON(raw []byte, strict bool) (Value, error) {
	m.ready()
	r := jsonReader{m: m, raw: raw, strict: strict}
	values, members := len(m.stack), len(m.entryStack)
	v, err := r.document()
	m.stack, m.entryStack = m.stack[:values], m.entryStack[:members]
	if err != nil {
		return Value{}, err
	}
	return v, nil
}

// ReadJSONText is ReadJSON for the text of a str, such as the arguments of a
// tool call, which nobody has checked.
func (m *Machine) ReadJSONText(v Value) (Value, error) {
	return m.readJSON(m.Bytes(v), true)
}

type jsonReader struct {
	m      *Machine
	raw    []byte
	at     int
	strict bool // check strings too
}

func (r *jsonReader) malformed(what string) error {
	return &Error{Class: Malformed, Message: "JSON at byte " + strconv.Itoa(r.at) + ": " + what}
}

func (r *jsonReader) document() (Value, error) {
	v, err := r.value()
	if err != nil {
		return v, err
	}
	r.space()
	if r.at < len(r.raw) {
		return v, r.malformed("something follows the value")
	}
	return v, r.m.fault
}

func (r *jsonReader) space() {
	for r.at < len(r.raw) {
		switch r.raw[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// next skips white space and returns the byte that follows, 0 at the end.
func (r *jsonReader) next() byte {
	r.space()
	if r.at < len(r.raw) {
		return r.raw[r.at]
	}
	return 0
}

func (r *jsonReader) value() (Value, error) {
	if err := r.m.step(); err != nil {
		return Value{}, err
	}
	switch c := r.next(); c {
	case '"':
		return r.str()
	case '{':
		return r.object()
	case '[':
		return r.array()
	case 't':
		return Bool(true), r.word("true")
	case 'f':
		return Bool(false), r.word("false")
	case 'n':
		return None(), r.word("null")
	case 0:
		return Value{}, r.malformed("a value is missing")
	default:
		return r.number()
	}
}

func (r *jsonReader) word(word string) error {
	if !bytes.HasPrefix(r.raw[r.at:], []byte(word)) {
		return r.malformed("no value begins like this")
	}
	r.at += len(word)
	return nil
}

func (r *jsonReader) array() (Value, error) {
	m := r.m
	if err := m.enter(); err != nil {
		return Value{}, err
	}
	defer m.leave()
	r.at++
	base := len(m.stack)
	if r.next() == ']' {
		r.at++
		return m.List(), nil
	}
	for {
		v, err := r.value()
		if err != nil {
			return v, err
		}
		m.stack = append(m.stack, v)
		switch r.next() {
		case ',':
			r.at++
		case ']':
			r.at++
			list := m.List(m.stack[base:]...)
			m.stack = m.stack[:base]
			return list, nil
		default:
			return v, r.malformed("want a comma or the end of the array")
		}
	}
}

func (r *jsonReader) object() (Value, error) {
	m := r.m
	if err := m.enter(); err != nil {
		return Value{}, err
	}
	defer m.leave()
	r.at++
	if r.next() == '}' {
		r.at++
		return m.Dict(0), nil
	}
	base := len(m.entryStack)
	for {
		e, err := r.member()
		if err != nil {
			return Value{}, err
		}
		m.entryStack = append(m.entryStack, e)
		switch r.next() {
		case ',':
			r.at++
		case '}':
			r.at++
			members := m.entryStack[base:]
			dict := m.Dict(len(members))
			for i := range members {
				// A repeated key: the last value in the place of the first.
				if at := dict.ref.findText(members[i].key.text); at >= 0 {
					dict.ref.entries[at].value = members[i].value
					continue
				}
				m.addEntry(dict.ref, members[i].key, members[i].value)
			}
			m.entryStack = m.entryStack[:base]
			return dict, nil
		default:
			return Value{}, r.malformed("want a comma or the end of the object")
		}
	}
}

func (r *jsonReader) member() (entry, error) {
	if r.next() != '"' {
		return entry{}, r.malformed("want a key in quotes")
	}
	key, err := r.str()
	if err != nil {
		return entry{}, err
	}
	if key.form == formEscaped {
		key = Text(r.m.Bytes(key))
	}
	if r.next() != ':' {
		return entry{}, r.malformed("want a colon")
	}
	r.at++
	v, err := r.value()
	return entry{key, v}, err
}

// str reads a string without decoding it.
func (r *jsonReader) str() (Value, error) {
	r.at++
	rest := r.raw[r.at:]
	end := 0
	for {
		i := bytes.IndexByte(rest[end:], '"')
		if i < 0 {
			return Value{}, r.malformed("the string does not end")
		}
		end += i
		if backslashesBefore(rest, end)%2 == 0 {
			break
		}
		end++
	}
	text := rest[:end:end]
	r.m.work(end)
	if r.strict {
		if err := r.refuseControl(text); err != nil {
			return Value{}, err
		}
	}
	first := bytes.IndexByte(text, '\\')
	if first < 0 {
		r.at += end + 1
		return Text(text), nil
	}
	v := Escaped(text)
	if err := r.escapes(&v, first); err != nil {
		return Value{}, err
	}
	r.at += end + 1
	return v, nil
}

// refuseControl finds control characters, which must be escaped in JSON.
func (r *jsonReader) refuseControl(text []byte) error {
	for _, c := range text {
		if c < 0x20 {
			return r.malformed("a string has a control character")
		}
	}
	return nil
}

// escapes goes through the escapes of a str from the first on, notes which
// kinds there are, and refuses surrogates without their other half; if strict,
// also escapes that are none.
func (r *jsonReader) escapes(v *Value, at int) error {
	text := v.text
	v.n = escapesKnown
	for at < len(text) {
		if text[at] != '\\' { // escapes often follow each other at once
			next := bytes.IndexByte(text[at:], '\\')
			if next < 0 {
				return nil
			}
			at += next
		}
		if at+1 >= len(text) {
			return nil
		}
		switch c := text[at+1]; {
		case c == 'u':
			char, size := firstChar(text[at:])
			switch {
			case size == 0:
				return r.malformed("a string has an escape that is none")
			case isSurrogate(char):
				return &Error{Class: Inexact, Message: "the text has half of a surrogate pair, which is no character"}
			}
			v.n |= escapesUnicode
			at += size
			continue
		case c == '/':
			v.n |= escapesSlash
		case r.strict && simpleEscape(c) == 0:
			return r.malformed("a string has an escape that is none")
		}
		at += 2
	}
	return nil
}

// number reads an int or a float (RFC 8259, section 6).
func (r *jsonReader) number() (Value, error) {
	start := r.at
	if r.at < len(r.raw) && r.raw[r.at] == '-' {
		r.at++
	}
	first := r.at
	if r.digits() == 0 {
		r.at = start
		return Value{}, r.malformed("no value begins like this")
	}
	if r.raw[first] == '0' && r.at > first+1 {
		return Value{}, r.malformed("a number begins with 0")
	}
	float := false
	if r.at < len(r.raw) && r.raw[r.at] == '.' {
		r.at++
		float = true
		if r.digits() == 0 {
			return Value{}, r.malformed("digits are missing after the point")
		}
	}
	if r.at < len(r.raw) && r.raw[r.at]|0x20 == 'e' {
		r.at++
		float = true
		if r.at < len(r.raw) && (r.raw[r.at] == '+' || r.raw[r.at] == '-') {
			r.at++
		}
		if r.digits() == 0 {
			return Value{}, r.malformed("digits are missing in the exponent")
		}
	}
	return r.m.parseNumber(r.raw[start:r.at], float)
}

func (r *jsonReader) digits() int {
	start := r.at
	for r.at < len(r.raw) && r.raw[r.at]-'0' <= 9 {
		r.at++
	}
	return r.at - start
}

// parseNumber turns the text of a number, known to be one, into its value.
func (m *Machine) parseNumber(text []byte, float bool) (Value, error) {
	if float {
		f, _ := strconv.ParseFloat(string(text), 64) // out of range: inf, as in Python
		return Float(f), nil
	}
	if len(text) <= 18 {
		n, _ := strconv.ParseInt(string(text), 10, 64)
		return Int(n), nil
	}
	digits := len(text)
	if text[0] == '-' {
		digits--
	}
	if digits > mostDigits {
		return Value{}, raised("exceeds the limit (%d digits) for integer string conversion", mostDigits)
	}
	b, _ := new(big.Int).SetString(string(text), 10)
	return m.bigInt(b), nil
}

// bigInt returns an int of any size, small if it fits.
func (m *Machine) bigInt(b *big.Int) Value {
	if b.IsInt64() {
		return Int(b.Int64())
	}
	m.charge(b.BitLen() / 8)
	o := m.newObject()
	o.big = b
	return Value{kind: KindInt, ref: o}
}
