package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Params are a policy's parameters as the configuration gives them: key →
// value, where a value is a string or any of Go's integer and float types. A key that is absent takes its default. The key that names the policy
// is not among them.
type Params map[string]any

// Kind is the type of a parameter's value.
type Kind uint8

const (
	KindNumber  Kind = iota // a finite number; integers are accepted
	KindInteger             // a whole number
	KindChoice              // one of ParamInfo.Choices
)

var kindNames = [...]string{"number", "integer", "choice"}

// String returns the word used in error messages and generated documentation.
func (k Kind) String() string { return kindNames[k] }

// ParamInfo describes one parameter of a policy.
type ParamInfo struct {
	Name    string
	Kind    Kind
	Default any // float64, int or string, after Kind
	Doc     string
	Min     float64  // of numbers and integers, inclusive
	Max     float64  // of numbers and integers, inclusive
	Choices []string // of KindChoice
}

// Want says in words what values the parameter takes.
func (i ParamInfo) Want() string {
	bounds := " from " + number(i.Min) + " to " + number(i.Max)
	switch i.Kind {
	case KindChoice:
		return "one of " + strings.Join(i.Choices, ", ")
	case KindInteger:
		return "a whole number" + bounds
	default:
		return "a number" + bounds
	}
}

// number formats a bound without an exponent where people would not write one.
func number(v float64) string {
	if math.Abs(v) < 1e12 {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// ParamError is one bad key or value in Params. New joins all of them, so that
// a check of the configuration can show every one with its line.
type ParamError struct {
	Policy string
	Key    string
	Value  any
	Remedy string
}

// Error names the policy, the key, the value and the remedy.
func (e *ParamError) Error() string {
	return fmt.Sprintf("set policy key %q of %q to %v: %s", e.Key, e.Policy, e.Value, e.Remedy)
}

// field binds a ParamInfo to the typed place its value goes to.
type field struct {
	info ParamInfo
	set  func(value any) bool // false: not a value that info allows
}

// numberField declares a number with bounds and sets its default.
func numberField(to *float64, name string, def, lo, hi float64, doc string) field {
	*to = def
	return field{
		info: ParamInfo{Name: name, Kind: KindNumber, Default: def, Doc: doc, Min: lo, Max: hi},
		set: func(value any) bool {
			v, ok := toFloat(value)
			if !ok || !(v >= lo && v <= hi) {
				return false
			}
			*to = v
			return true
		},
	}
}

// integerField declares a whole number with bounds and sets its default.
func integerField(to *int64, name string, def, lo, hi int64, doc string) field {
	*to = def
	return field{
		info: ParamInfo{Name: name, Kind: KindInteger, Default: int(def), Doc: doc, Min: float64(lo), Max: float64(hi)},
		set: func(value any) bool {
			v, ok := toFloat(value)
			if !ok || v != math.Trunc(v) || !(v >= float64(lo) && v <= float64(hi)) {
				return false
			}
			*to = int64(v)
			return true
		},
	}
}

// choiceField declares one of several words; to receives the word's index.
func choiceField(to *int, name string, choices []string, doc string) field {
	*to = 0
	return field{
		info: ParamInfo{Name: name, Kind: KindChoice, Default: choices[0], Doc: doc, Choices: choices},
		set: func(value any) bool {
			v, _ := value.(string)
			i := slices.Index(choices, v)
			if i < 0 {
				return false
			}
			*to = i
			return true
		},
	}
}

// toFloat accepts what a YAML or JSON decoder may give for a number. NaN and
// infinities are refused by the callers' bounds.
func toFloat(value any) (float64, bool) {
	switch v := value.(type) {
	case float64:
		return v, true
	case float32:
		return float64(v), true
	case int:
		return float64(v), true
	case int64:
		return float64(v), true
	case int32:
		return float64(v), true
	case uint:
		return float64(v), true
	case uint64:
		return float64(v), true
	case uint32:
		return float64(v), true
	}
	return 0, false
}
