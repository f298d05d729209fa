package chat

import (
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// number takes an integer or a float as Python writes them.
func (l *lexer) number() error {
	text := l.source[l.at:]
	if n := floatLen(text); n > 0 && (l.at == 0 || l.source[l.at-1] != '.') {
		l.add(tokenFloat, strings.ReplaceAll(text[:n], "_", ""))
		l.at += n
		return nil
	}
	n := integerLen(text)
	l.add(tokenInteger, strings.ReplaceAll(text[:n], "_", ""))
	l.at += n
	return nil
}

// digitsLen returns the length of digits with single underscores between them.
func digitsLen(text string, isDigit func(c byte) bool) int {
	n := 0
	for n < len(text) {
		switch {
		case isDigit(text[n]):
			n++
		case text[n] == '_' && n > 0 && n+1 < len(text) && isDigit(text[n+1]):
			n += 2
		default:
			return n
		}
	}
	return n
}

func isDecimal(c byte) bool { return c-'0' <= 9 }

// floatLen returns the length of the float that text begins with: digits with
// a fraction, an exponent or both. 0 if there is none.
func floatLen(text string) int {
	n := digitsLen(text, isDecimal)
	fraction := 0
	if n < len(text) && text[n] == '.' {
		if fraction = digitsLen(text[n+1:], isDecimal); fraction > 0 {
			fraction++
		}
	}
	exponent := 0
	if rest := text[n+fraction:]; rest != "" && rest[0]|0x20 == 'e' {
		sign := 1
		if len(rest) > 1 && (rest[1] == '+' || rest[1] == '-') {
			sign = 2
		}
		if exponent = digitsLen(rest[sign:], isDecimal); exponent > 0 {
			exponent += sign
		}
	}
	if fraction+exponent == 0 {
		return 0
	}
	return n + fraction + exponent
}

// integerLen returns the length of the integer that text, which begins with a
// digit, begins with. After a zero come only zeros, as in Python.
func integerLen(text string) int {
	if text[0] != '0' {
		return digitsLen(text, isDecimal)
	}
	if len(text) > 2 {
		var digits func(c byte) bool
		switch text[1] | 0x20 {
		case 'b':
			digits = func(c byte) bool { return c == '0' || c == '1' }
		case 'o':
			digits = func(c byte) bool { return c-'0' <= 7 }
		case 'x':
			digits = func(c byte) bool { return isDecimal(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
		}
		if digits != nil {
			start := 2
			if text[2] == '_' {
				start = 3
			}
			if n := digitsLen(text[start:], digits); n > 0 {
				return start + n
			}
		}
	}
	return digitsLen(text, func(c byte) bool { return c == '0' })
}

// integerLiteral returns the value of an integer token.
func integerLiteral(text string) (Value, bool) {
	b, ok := new(big.Int).SetString(text, 0)
	if !ok {
		return Value{}, false
	}
	if b.IsInt64() {
		return Int(b.Int64()), true
	}
	return Value{kind: KindInt, ref: &object{big: b}}, true
}

func floatLiteral(text string) Value {
	f, _ := strconv.ParseFloat(text, 64) // out of range: inf, as in Python
	return Float(f)
}

// str takes a string literal and decodes it.
func (l *lexer) str(quote byte) error {
	end := l.at + 1
	for end < len(l.source) && l.source[end] != quote {
		if l.source[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(l.source) {
		return unsupported(l.line, "a string does not end")
	}
	text, err := l.unescape(l.source[l.at+1 : end])
	if err != nil {
		return err
	}
	l.add(tokenString, text)
	l.skip(end + 1 - l.at)
	return nil
}

// unescape decodes the content of a string literal as jinja2 does, with
// Python's codec unicode-escape: what is no escape stays as it is.
func (l *lexer) unescape(text string) (string, error) {
	var b strings.Builder
	for {
		i := strings.IndexByte(text, '\\')
		if i < 0 {
			b.WriteString(text)
			return b.String(), nil
		}
		b.WriteString(text[:i])
		text = text[i+1:] // not empty: the lexer has skipped the character after a backslash
		c := text[0]
		digits := strings.IndexByte("xuU", c)
		switch {
		case c >= utf8.RuneSelf:
			// jinja2 has replaced the character by an escape before it decodes:
			// the two backslashes become one, the rest of the escape stays.
			r, size := utf8.DecodeRuneInString(text)
			quoted := strconv.QuoteRuneToASCII(r)
			if r < 0x100 {
				quoted = "'\\x" + strconv.FormatInt(int64(r), 16) + "'"
			}
			b.WriteString(quoted[1 : len(quoted)-1])
			text = text[size:]
		case '0' <= c && c <= '7':
			n := 1
			for n < 3 && n < len(text) && '0' <= text[n] && text[n] <= '7' {
				n++
			}
			value, _ := strconv.ParseUint(text[:n], 8, 16)
			b.WriteRune(rune(value))
			text = text[n:]
		case digits >= 0:
			n := 2 << digits
			if len(text) < 1+n {
				return "", unsupported(l.line, "a string has a truncated escape")
			}
			value, err := strconv.ParseUint(text[1:1+n], 16, 32)
			if err != nil || value > utf8.MaxRune || isSurrogate(rune(value)) {
				return "", unsupported(l.line, "a string has the escape \\%s, which is no character", text[:1+n])
			}
			b.WriteRune(rune(value))
			text = text[1+n:]
		case c == 'N':
			return "", unsupported(l.line, `a string has an escape \N{…}`)
		default:
			b.WriteString(simpleLiteralEscape(c))
			text = text[1:]
		}
	}
}

func simpleLiteralEscape(c byte) string {
	switch c {
	case '\n':
		return ""
	case '\\', '\'', '"':
		return string(rune(c))
	case 'a':
		return "\a"
	case 'b':
		return "\b"
	case 'f':
		return "\f"
	case 'n':
		return "\n"
	case 'r':
		return "\r"
	case 't':
		return "\t"
	case 'v':
		return "\v"
	}
	return "\\" + string(rune(c))
}
