package chat

import (
	"math"
	"math/big"
	"unsafe"
)

// Kind is the Python type of a Value.
type Kind uint8

// The kinds that callers of the package meet are exported; the others exist
// only while a template runs.
const (
	KindUndefined Kind = iota // jinja2's Undefined; the zero Value
	KindNone
	KindBool
	KindInt // of any size
	KindFloat
	KindString
	KindList
	KindDict
	KindTuple
	kindRange
	kindView      // dict.keys(), dict.values(), dict.items()
	kindIterator  // a generator or reversed(): can be consumed once
	kindNamespace // jinja2.utils.Namespace
	kindMacro
	kindLoop   // the variable loop
	kindJoiner // jinja2.utils.Joiner
	kindCycler // jinja2.utils.Cycler
	kindMethod // a bound method, which can only be called
	kindGlobal // a function such as range
	kindMissing
)

// form says how the text of a string lies.
type form uint8

const (
	formPlain   form = iota // text is UTF-8
	formEscaped             // text is the raw content of a JSON string, with escapes
	formRope                // ref.segments, at least two
	formMarkup              // text is UTF-8, of type markupsafe.Markup
)

// What n says about an escaped str: once it is known, which escapes may be in
// it besides the short ones.
const (
	escapesKnown   = 1 << iota
	escapesUnicode // \uXXXX
	escapesSlash   // \/
)

// Value is a Python value, made to be copied. It borrows the request's body,
// the Template and the Machine that made it, and is valid until that Machine's
// Reset. All values but dicts and lists under construction are immutable, and
// may be read by several goroutines as long as nobody calls Set or Append.
type Value struct {
	kind Kind
	form form
	// n is an int that fits, a bool as 0 or 1, the bits of a float, what is
	// known of the escapes of a str, or what distinguishes values of the other
	// kinds.
	n    int64
	text []byte
	// ref is what does not fit; nil for scalars.
	ref *object
}

// object is the part of a Value that does not fit into it: one struct for all
// kinds, so that one slab of memory serves all.
type object struct {
	items    []Value   // list, tuple
	entries  []entry   // dict, namespace
	index    []int32   // dict: open addressing, position in entries + 1
	segments []Segment // rope
	big      *big.Int  // int that does not fit 64 bits
	aux      any       // pointer to what else the kind needs
	frame    *frame    // macro: where it was defined
}

// entry is a member of a dict, in order of insertion. Keys are never lazy:
// strings among them are plain.
type entry struct {
	key, value Value
}

// None is Python's None.
func None() Value { return Value{kind: KindNone} }

// Bool is Python's True or False.
func Bool(b bool) Value {
	v := Value{kind: KindBool}
	if b {
		v.n = 1
	}
	return v
}

// Int is a Python int.
func Int(n int64) Value { return Value{kind: KindInt, n: n} }

// Float is a Python float.
func Float(f float64) Value { return Value{kind: KindFloat, n: int64(math.Float64bits(f))} }

// Text is a Python str that borrows b, which must be valid UTF-8. It does not
// allocate.
func Text(b []byte) Value { return Value{kind: KindString, text: b} }

// String is a Python str with its own copy of s, for constants: it allocates.
func String(s string) Value { return Text([]byte(s)) }

// Escaped is a Python str whose text is the decoded content of a JSON string.
// It borrows raw, the content without its quotes, in which each escape must be
// whole and surrogates paired.
func Escaped(raw []byte) Value { return Value{kind: KindString, form: formEscaped, text: raw} }

// Kind returns the type of v.
func (v Value) Kind() Kind { return v.kind }

// IsNone reports whether v is None.
func (v Value) IsNone() bool { return v.kind == KindNone }

// IsString reports whether v is a str.
func (v Value) IsString() bool { return v.kind == KindString }

// IsTrue reports whether v is the bool True. It is not Python's truth of v;
// see Truth.
func (v Value) IsTrue() bool { return v.kind == KindBool && v.n != 0 }

// Int64 returns an int or bool that fits.
func (v Value) Int64() (n int64, ok bool) {
	return v.n, v.kind == KindBool || v.kind == KindInt && v.ref == nil
}

// Float64 returns the float that v is; ok is false for all other kinds.
func (v Value) Float64() (f float64, ok bool) {
	return v.float(), v.kind == KindFloat
}

func (v Value) float() float64 { return math.Float64frombits(uint64(v.n)) }

// Raw returns the text of a str that lies in one piece, without decoding it;
// ok is false for other values, and for strings that a template put together.
func (v Value) Raw() (s Segment, ok bool) {
	if v.kind != KindString || v.form == formRope {
		return Segment{}, false
	}
	return Segment{Bytes: v.text, Escaped: v.form == formEscaped}, true
}

// Len returns the number of members of a list, tuple or dict, 0 for all else.
func (v Value) Len() int {
	switch v.kind {
	case KindList, KindTuple:
		return len(v.ref.items)
	case KindDict:
		return len(v.ref.entries)
	}
	return 0
}

// At returns the i-th item of a list or tuple, 0 ≤ i < Len.
func (v Value) At(i int) Value { return v.ref.items[i] }

// Entry returns the i-th key and value of a dict in order of insertion,
// 0 ≤ i < Len.
func (v Value) Entry(i int) (key, value Value) {
	e := &v.ref.entries[i]
	return e.key, e.value
}

// Get returns the value of a key of a dict; ok is false if there is none or v
// is no dict.
func (v Value) Get(key string) (value Value, ok bool) {
	if v.kind != KindDict {
		return Value{}, false
	}
	i := v.ref.findString(key)
	if i < 0 {
		return Value{}, false
	}
	return v.ref.entries[i].value, true
}

// Is reports whether v is a str of exactly this text.
func (v Value) Is(text string) bool {
	return v.kind == KindString && equalText(v, Text(unsafe.Slice(unsafe.StringData(text), len(text))))
}

// Truth is Python's bool(v). A lazy or iterator value is true.
func (v Value) Truth() bool {
	switch v.kind {
	case KindUndefined, KindNone, kindMissing:
		return false
	case KindBool:
		return v.n != 0
	case KindInt:
		return v.n != 0 || v.ref != nil
	case KindFloat:
		return v.float() != 0
	case KindString:
		return len(v.text) > 0 || v.form == formRope
	case KindList, KindTuple, KindDict:
		return v.Len() > 0
	case kindRange, kindView:
		return sequenceLen(v) > 0
	}
	return true
}

// typeName is Python's name of the type, as its error messages have it.
func (v Value) typeName() string {
	switch v.kind {
	case KindUndefined, kindMissing:
		return "Undefined"
	case KindNone:
		return "NoneType"
	case KindBool:
		return "bool"
	case KindInt:
		return "int"
	case KindFloat:
		return "float"
	case KindString:
		if v.form == formMarkup {
			return "Markup"
		}
		return "str"
	case KindList:
		return "list"
	case KindDict:
		return "dict"
	case KindTuple:
		return "tuple"
	case kindRange:
		return "range"
	case kindNamespace:
		return "Namespace"
	case kindMacro:
		return "Macro"
	case kindLoop:
		return "LoopContext"
	}
	return "object"
}
