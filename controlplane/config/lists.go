package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

func showInt[T int | int64](n T) string { return strconv.FormatInt(int64(n), 10) }

func showBool(b bool) string { return strconv.FormatBool(b) }

func asIs(s string) string { return s }

// zeroOr takes 0 beside what read takes.
func zeroOr(read func(item) (float64, complaint)) func(item) (float64, complaint) {
	return func(v item) (float64, complaint) {
		f, c := read(v)
		if zero, _ := number(0, 0)(v); !c.none() && v.kind == kindNumber && zero == 0 && v.text == "0" {
			return 0, complaint{}
		}
		if !c.none() {
			c.remedy += ", or 0 for off"
		}
		return f, c
	}
}

// texts is a list of short texts. Its default is empty.
func texts[T comparable](key, doc string, to *[]T, parse func(string) (T, complaint), show func(T) string) entry {
	return entry{
		key: key, def: "[]", doc: doc,
		read: func(v item) complaint {
			if v.kind != kindList {
				return wrongType(v, "a list", "write [a, b] or [] for none")
			}
			if len(v.list) > maxStrings {
				return complaint{"too many values", fmt.Sprintf("use at most %d", maxStrings)}
			}
			out := make([]T, 0, len(v.list))
			for i, e := range v.list {
				if e.kind == kindRefused {
					continue
				}
				if e.kind != kindText {
					return complaint{fmt.Sprintf("value %d is %s where text is wanted", i+1, kindNames[e.kind]), "put it in quotes"}
				}
				t, c := parse(e.text)
				if !c.none() {
					return complaint{fmt.Sprintf("value %d (%s): %s", i+1, quoteShort(e.text), c.what), c.remedy}
				}
				if slices.Contains(out, t) {
					return complaint{fmt.Sprintf("value %d (%s) is given twice", i+1, quoteShort(e.text)), "keep one of the two"}
				}
				out = append(out, t)
			}
			*to = out
			return complaint{}
		},
		show: func() string {
			words := make([]string, len(*to))
			for i, t := range *to {
				words[i] = quote(show(t))
			}
			return "[" + strings.Join(words, ", ") + "]"
		},
	}
}

// emptyList is a list of a feature that this binary does not have.
func emptyList(key, doc, feature string) entry {
	return entry{
		key: key, def: "[]", doc: doc,
		read: func(v item) complaint {
			switch {
			case v.kind != kindList:
				return wrongType(v, "a list", "write [] for none")
			case len(v.list) > 0:
				return notAvailable(feature)
			}
			return complaint{}
		},
		show: func() string { return "[]" },
	}
}

// scalar reads a value whose type only its reader knows.
func scalar(v item) (any, complaint) {
	switch v.kind {
	case kindBool:
		b, c := boolean(v)
		return b, c
	case kindText:
		s, c := text("a word")(v)
		return s, c
	case kindNumber:
		if n, err := strconv.ParseInt(v.text, 10, 64); err == nil && decimal.MatchString(v.text) {
			return n, complaint{}
		}
		f, c := number(-math.MaxFloat64, math.MaxFloat64)(v)
		if !c.none() {
			c.remedy = "write a decimal number"
		}
		return f, c
	}
	return nil, wrongType(v, "a boolean, a number or a word", "write one")
}

func showScalar(v any) string {
	switch v := v.(type) {
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return showNumber(v)
	case string:
		return quote(v)
	}
	panic(fmt.Sprintf("BUG: policy parameter of type %T", v))
}

// unwrapAll flattens joined errors.
func unwrapAll(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		var out []error
		for _, e := range joined.Unwrap() {
			out = append(out, unwrapAll(e)...)
		}
		return out
	}
	return []error{err}
}
