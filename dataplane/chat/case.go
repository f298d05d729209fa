package chat

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Upper and lower case. Go maps one character to one character, as Python does
// for all but those below. The tables of both are those of Unicode 15.

// expansions are the characters whose upper case has several characters, each
// followed by it (Unicode 15, SpecialCasing; none has a condition).
const expansions = "" +
	"\u00df SS \u0149 \u02bcN \u01f0 J\u030c \u0390 \u0399\u0308\u0301 \u03b0 \u03a5\u0308\u0301 " +
	"\u0587 \u0535\u0552 \u1e96 H\u0331 \u1e97 T\u0308 \u1e98 W\u030a \u1e99 Y\u030a \u1e9a A\u02be " +
	"\u1f50 \u03a5\u0313 \u1f52 \u03a5\u0313\u0300 \u1f54 \u03a5\u0313\u0301 \u1f56 \u03a5\u0313\u0342 " +
	"\u1f80 \u1f08\u0399 \u1f81 \u1f09\u0399 \u1f82 \u1f0a\u0399 \u1f83 \u1f0b\u0399 \u1f84 \u1f0c\u0399 " +
	"\u1f85 \u1f0d\u0399 \u1f86 \u1f0e\u0399 \u1f87 \u1f0f\u0399 \u1f88 \u1f08\u0399 \u1f89 \u1f09\u0399 " +
	"\u1f8a \u1f0a\u0399 \u1f8b \u1f0b\u0399 \u1f8c \u1f0c\u0399 \u1f8d \u1f0d\u0399 \u1f8e \u1f0e\u0399 " +
	"\u1f8f \u1f0f\u0399 \u1f90 \u1f28\u0399 \u1f91 \u1f29\u0399 \u1f92 \u1f2a\u0399 \u1f93 \u1f2b\u0399 " +
	"\u1f94 \u1f2c\u0399 \u1f95 \u1f2d\u0399 \u1f96 \u1f2e\u0399 \u1f97 \u1f2f\u0399 \u1f98 \u1f28\u0399 " +
	"\u1f99 \u1f29\u0399 \u1f9a \u1f2a\u0399 \u1f9b \u1f2b\u0399 \u1f9c \u1f2c\u0399 \u1f9d \u1f2d\u0399 " +
	"\u1f9e \u1f2e\u0399 \u1f9f \u1f2f\u0399 \u1fa0 \u1f68\u0399 \u1fa1 \u1f69\u0399 \u1fa2 \u1f6a\u0399 " +
	"\u1fa3 \u1f6b\u0399 \u1fa4 \u1f6c\u0399 \u1fa5 \u1f6d\u0399 \u1fa6 \u1f6e\u0399 \u1fa7 \u1f6f\u0399 " +
	"\u1fa8 \u1f68\u0399 \u1fa9 \u1f69\u0399 \u1faa \u1f6a\u0399 \u1fab \u1f6b\u0399 \u1fac \u1f6c\u0399 " +
	"\u1fad \u1f6d\u0399 \u1fae \u1f6e\u0399 \u1faf \u1f6f\u0399 \u1fb2 \u1fba\u0399 \u1fb3 \u0391\u0399 " +
	"\u1fb4 \u0386\u0399 \u1fb6 \u0391\u0342 \u1fb7 \u0391\u0342\u0399 \u1fbc \u0391\u0399 \u1fc2 \u1fca\u0399 " +
	"\u1fc3 \u0397\u0399 \u1fc4 \u0389\u0399 \u1fc6 \u0397\u0342 \u1fc7 \u0397\u0342\u0399 \u1fcc \u0397\u0399 " +
	"\u1fd2 \u0399\u0308\u0300 \u1fd3 \u0399\u0308\u0301 \u1fd6 \u0399\u0342 \u1fd7 \u0399\u0308\u0342 " +
	"\u1fe2 \u03a5\u0308\u0300 \u1fe3 \u03a5\u0308\u0301 \u1fe4 \u03a1\u0313 \u1fe6 \u03a5\u0342 " +
	"\u1fe7 \u03a5\u0308\u0342 \u1ff2 \u1ffa\u0399 \u1ff3 \u03a9\u0399 \u1ff4 \u038f\u0399 \u1ff6 \u03a9\u0342 " +
	"\u1ff7 \u03a9\u0342\u0399 \u1ffc \u03a9\u0399 \ufb00 FF \ufb01 FI \ufb02 FL \ufb03 FFI \ufb04 FFL \ufb05 ST " +
	"\ufb06 ST \ufb13 \u0544\u0546 \ufb14 \u0544\u0535 \ufb15 \u0544\u053b \ufb16 \u054e\u0546 \ufb17 \u0544\u053d "

// expanded maps those characters to their upper case.
var expanded = func() map[rune]string {
	table := map[rune]string{}
	fields := strings.Fields(expansions)
	for i := 0; i < len(fields); i += 2 {
		r, _ := utf8.DecodeRuneInString(fields[i])
		table[r] = fields[i+1]
	}
	return table
}()

// casing appends a character in another case.
type casing func(dst []byte, r rune) ([]byte, error)

func upper(dst []byte, r rune) ([]byte, error) {
	if long, ok := expanded[r]; ok {
		return append(dst, long...), nil
	}
	return utf8.AppendRune(dst, unicode.ToUpper(r)), nil
}

// title leaves characters whose upper case is long, but for the German one, to
// Python.
func title(dst []byte, r rune) ([]byte, error) {
	if r == 'ß' {
		return append(dst, "Ss"...), nil
	}
	if _, special := expanded[r]; special {
		return dst, inexact("the title case of %q", r)
	}
	return utf8.AppendRune(dst, unicode.ToTitle(r)), nil
}

// lower leaves the Greek sigma to Python: its lower case depends on what stands
// around it.
func lower(dst []byte, r rune) ([]byte, error) {
	switch r {
	case 'Σ':
		return dst, inexact("the lower case of %q", r)
	case 'İ':
		return append(dst, "i\u0307"...), nil
	}
	return utf8.AppendRune(dst, unicode.ToLower(r)), nil
}

// Python's properties Lowercase, Uppercase and Cased (Unicode,
// DerivedCoreProperties).
func isLower(r rune) bool { return unicode.IsLower(r) || unicode.Is(unicode.Other_Lowercase, r) }
func isUpper(r rune) bool { return unicode.IsUpper(r) || unicode.Is(unicode.Other_Uppercase, r) }
func isCased(r rune) bool { return isLower(r) || isUpper(r) || unicode.IsTitle(r) }

// mapCase returns text with each character put into the case that choose says.
func (m *Machine) mapCase(text []byte, choose func(r rune) casing) (Value, error) {
	m.work(4 * len(text))
	out := m.scratch[:0]
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		var err error
		if out, err = choose(r)(out, r); err != nil {
			return Value{}, err
		}
		text = text[size:]
	}
	m.scratch = out
	return Text(m.keep(out)), nil
}

func toUpper(m *Machine, text []byte) (Value, error) {
	return m.mapCase(text, func(rune) casing { return upper })
}

func toLower(m *Machine, text []byte) (Value, error) {
	return m.mapCase(text, func(rune) casing { return lower })
}

// toCapitalized is str.capitalize.
func toCapitalized(m *Machine, text []byte) (Value, error) {
	first := true
	return m.mapCase(text, func(rune) casing {
		if first {
			first = false
			return title
		}
		return lower
	})
}

// toTitleWords is the filter title: upper case behind white space and opening
// brackets, lower case elsewhere.
func toTitleWords(m *Machine, text []byte) (Value, error) {
	begin := true
	return m.mapCase(text, func(r rune) casing {
		separator := isSpace(r)
		switch r {
		case '-', '(', '{', '[', '<':
			separator = true
		}
		start := begin
		begin = separator
		if start && !separator {
			return upper
		}
		return lower
	})
}

// toTitle is str.title: title case at the begin of each run of letters that
// have a case.
func toTitle(m *Machine, text []byte) (Value, error) {
	inside := false
	return m.mapCase(text, func(r rune) casing {
		start := !inside
		inside = isCased(r)
		if start {
			return title
		}
		return lower
	})
}

// toSwapped is str.swapcase.
func toSwapped(m *Machine, text []byte) (Value, error) {
	return m.mapCase(text, func(r rune) casing {
		switch {
		case isLower(r):
			return upper
		case isUpper(r):
			return lower
		}
		return sameCase
	})
}

func sameCase(dst []byte, r rune) ([]byte, error) { return utf8.AppendRune(dst, r), nil }

// stringIsLower is str.islower: there is a lower case letter, and none in
// another case.
func stringIsLower(text []byte) (bool, error) { return allOfCase(text, isLower, isUpper), nil }

// stringIsUpper is str.isupper.
func stringIsUpper(text []byte) (bool, error) { return allOfCase(text, isUpper, isLower), nil }

func allOfCase(text []byte, want, other func(r rune) bool) bool {
	found := false
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if other(r) || unicode.IsTitle(r) {
			return false
		}
		found = found || want(r)
		text = text[size:]
	}
	return found
}

// charTest makes a test of a str that holds if all characters fulfil it and
// there is one.
func charTest(is func(r rune) (bool, error)) func(text []byte) (bool, error) {
	return func(text []byte) (bool, error) {
		if len(text) == 0 {
			return false, nil
		}
		for len(text) > 0 {
			r, size := utf8.DecodeRune(text)
			if yes, err := is(r); !yes || err != nil {
				return false, err
			}
			text = text[size:]
		}
		return true, nil
	}
}

func isAlpha(r rune) (bool, error) { return unicode.IsLetter(r), nil }

func isDecimalChar(r rune) (bool, error) { return unicode.Is(unicode.Nd, r), nil }

// isDigitChar is str.isdigit: digits also in forms such as superscripts, which
// Go has no table of.
func isDigitChar(r rune) (bool, error) {
	if unicode.Is(unicode.No, r) {
		return false, inexact("isdigit of %q", r)
	}
	return unicode.Is(unicode.Nd, r), nil
}

// isNumericChar is str.isnumeric, which some ideographs fulfil too.
func isNumericChar(r rune) (bool, error) {
	if r >= utf8.RuneSelf && !unicode.Is(unicode.Nd, r) {
		return false, inexact("isnumeric of %q", r)
	}
	return unicode.Is(unicode.Nd, r), nil
}

// isAlnum is str.isalnum.
func isAlnum(r rune) (bool, error) {
	if unicode.Is(unicode.No, r) || unicode.Is(unicode.Nl, r) {
		return false, inexact("isalnum of %q", r)
	}
	return unicode.IsLetter(r) || unicode.Is(unicode.Nd, r), nil
}

func isSpaceChar(r rune) (bool, error) { return isSpace(r), nil }

// textIsPrintable is str.isprintable, which holds for no text too.
func textIsPrintable(text []byte) (bool, error) {
	yes, err := charTest(func(r rune) (bool, error) { return isPrintable(r), nil })(text)
	return yes || len(text) == 0, err
}
