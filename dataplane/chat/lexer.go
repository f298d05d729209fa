package chat

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// tokenKind names what the lexer finds. Operators are told apart by their text.
type tokenKind uint8

const (
	tokenEOF tokenKind = iota
	tokenData
	tokenBlockBegin
	tokenBlockEnd
	tokenVariableBegin
	tokenVariableEnd
	tokenName
	tokenString
	tokenInteger
	tokenFloat
	tokenOperator
)

type token struct {
	kind tokenKind
	line int
	text string // of data, names and operators as in the source; of strings decoded
}

func (t token) String() string {
	switch t.kind {
	case tokenEOF:
		return "the end of the template"
	case tokenBlockEnd:
		return "%}"
	case tokenVariableEnd:
		return "}}"
	case tokenString:
		return fmt.Sprintf("the string %.40q", t.text)
	}
	return fmt.Sprintf("%.40q", t.text)
}

// lexer cuts a template into tokens as jinja2.lexer does with trim_blocks and
// lstrip_blocks, without line statements and line comments.
type lexer struct {
	source string
	at     int
	line   int
	tokens []token
	// lineStart says that the last tag ended with a newline.
	lineStart bool
	// open are the brackets that are not closed in the current tag.
	open []byte
}

func unsupported(line int, format string, args ...any) error {
	return &Error{Class: Unsupported, Line: line, Message: fmt.Sprintf(format, args...)}
}

// lex returns all tokens of a template, an EOF last.
func lex(source string) ([]token, error) {
	source = strings.ReplaceAll(source, "\r\n", "\n")
	source = strings.ReplaceAll(source, "\r", "\n")
	l := lexer{source: strings.TrimSuffix(source, "\n"), line: 1, lineStart: true}
	for l.at < len(l.source) {
		if err := l.root(); err != nil {
			return nil, err
		}
	}
	l.add(tokenEOF, "")
	return l.tokens, nil
}

func (l *lexer) add(kind tokenKind, text string) {
	l.tokens = append(l.tokens, token{kind, l.line, text})
}

// skip moves over text and counts its lines.
func (l *lexer) skip(n int) {
	l.line += strings.Count(l.source[l.at:l.at+n], "\n")
	l.at += n
}

// root takes the data up to the next tag, and the tag.
func (l *lexer) root() error {
	begin := l.nextTag()
	if begin < 0 {
		l.add(tokenData, l.source[l.at:])
		l.at = len(l.source)
		return nil
	}
	data, tag := l.source[l.at:begin], l.source[begin:begin+2]
	var sign byte
	if begin+2 < len(l.source) && (l.source[begin+2] == '-' || l.source[begin+2] == '+') {
		sign = l.source[begin+2]
	}
	if kept := l.stripBefore(data, tag, sign); kept != "" {
		l.add(tokenData, kept)
	}
	after := begin + 2
	if sign != 0 {
		after++
	}
	l.skip(after - l.at)
	if tag == "{#" {
		return l.comment()
	}
	if tag == "{{" {
		l.add(tokenVariableBegin, tag)
		return l.tag(tokenVariableEnd)
	}
	if end := matchRaw(l.source[l.at:]); end > 0 {
		l.endTag(l.at + end)
		return l.raw()
	}
	l.add(tokenBlockBegin, tag)
	return l.tag(tokenBlockEnd)
}

// nextTag returns the position of the next {{, {% or {#, -1 if there is none.
func (l *lexer) nextTag() int {
	for i := l.at; ; i++ {
		n := strings.IndexByte(l.source[i:], '{')
		if n < 0 {
			return -1
		}
		i += n
		if i+1 < len(l.source) && strings.IndexByte("{%#", l.source[i+1]) >= 0 {
			return i
		}
	}
}

// stripBefore removes white space before a tag: all of it with a minus, that
// of the line if nothing else is on it and the tag prints nothing.
func (l *lexer) stripBefore(data, tag string, sign byte) string {
	if sign == '-' {
		return strings.TrimRightFunc(data, isSpace)
	}
	if sign == '+' || tag == "{{" {
		return data
	}
	line := strings.LastIndexByte(data, '\n') + 1
	if (line > 0 || l.lineStart) && strings.TrimLeftFunc(data[line:], isSpace) == "" {
		return data[:line]
	}
	return data
}

// matchRaw returns the length of "raw %}" and what belongs to it, 0 if text
// does not begin with that.
func matchRaw(text string) int {
	rest := strings.TrimLeftFunc(text, isSpace)
	rest, ok := strings.CutPrefix(rest, "raw")
	if !ok {
		return 0
	}
	rest = strings.TrimLeftFunc(rest, isSpace)
	if after, ok := strings.CutPrefix(rest, "-%}"); ok {
		rest = strings.TrimLeftFunc(after, isSpace)
	} else if rest, ok = strings.CutPrefix(rest, "%}"); !ok {
		return 0
	}
	return len(text) - len(rest)
}

// raw takes what stands between raw and endraw as data.
func (l *lexer) raw() error {
	for i := l.at; ; {
		n := strings.Index(l.source[i:], "{%")
		if n < 0 {
			return unsupported(l.line, "raw without endraw")
		}
		i += n
		rest := l.source[i+2:]
		var sign byte
		if rest != "" && (rest[0] == '-' || rest[0] == '+') {
			sign, rest = rest[0], rest[1:]
		}
		rest, ok := strings.CutPrefix(strings.TrimLeftFunc(rest, isSpace), "endraw")
		if ok {
			rest, ok = cutBlockEnd(strings.TrimLeftFunc(rest, isSpace))
		}
		if !ok {
			i += 2
			continue
		}
		if kept := l.stripBefore(l.source[l.at:i], "{%", sign); kept != "" {
			l.add(tokenData, kept)
		}
		l.endTag(len(l.source) - len(rest))
		return nil
	}
}

// cutBlockEnd removes the end of a block with the white space that belongs to
// it.
func cutBlockEnd(text string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(text, "+%}"); ok {
		return rest, true
	}
	if rest, ok = strings.CutPrefix(text, "-%}"); ok {
		return strings.TrimLeftFunc(rest, isSpace), true
	}
	if rest, ok = strings.CutPrefix(text, "%}"); ok {
		return strings.TrimPrefix(rest, "\n"), true
	}
	return text, false
}

// endTag moves behind a tag.
func (l *lexer) endTag(end int) {
	l.lineStart = l.source[end-1] == '\n'
	l.skip(end - l.at)
}

func (l *lexer) comment() error {
	text := l.source[l.at:]
	n := strings.Index(text, "#}")
	if n < 0 {
		return unsupported(l.line, "a comment does not end")
	}
	rest := text[n+2:]
	switch {
	case n > 0 && text[n-1] == '-':
		rest = strings.TrimLeftFunc(rest, isSpace)
	case n > 0 && text[n-1] == '+':
	default:
		rest = strings.TrimPrefix(rest, "\n")
	}
	l.endTag(len(l.source) - len(rest))
	return nil
}

// tag takes the tokens of a tag up to its end.
func (l *lexer) tag(end tokenKind) error {
	l.open = l.open[:0]
	for l.at < len(l.source) {
		if len(l.open) == 0 {
			if done := l.tagEnd(end); done {
				return nil
			}
		}
		r, size := utf8.DecodeRuneInString(l.source[l.at:])
		if isSpace(r) {
			l.lineStart = r == '\n'
			l.skip(size)
			continue
		}
		if err := l.expression(r); err != nil {
			return err
		}
	}
	if len(l.open) > 0 {
		return unsupported(l.line, "a bracket is not closed")
	}
	return nil // the parser will miss the end of the tag
}

func (l *lexer) tagEnd(kind tokenKind) bool {
	text := l.source[l.at:]
	if kind == tokenBlockEnd {
		rest, ok := cutBlockEnd(text)
		if ok {
			l.add(kind, "%}")
			l.endTag(len(l.source) - len(rest))
		}
		return ok
	}
	rest, ok := strings.CutPrefix(text, "}}")
	if !ok {
		if rest, ok = strings.CutPrefix(text, "-}}"); ok {
			rest = strings.TrimLeftFunc(rest, isSpace)
		}
	}
	if ok {
		l.add(kind, "}}")
		l.endTag(len(l.source) - len(rest))
	}
	return ok
}

// expression takes one token of an expression, which begins with r.
func (l *lexer) expression(r rune) error {
	l.lineStart = false
	switch {
	case '0' <= r && r <= '9':
		return l.number()
	case r == '_' || 'a' <= r|0x20 && r|0x20 <= 'z':
		end := l.at
		for end < len(l.source) && isNameByte(l.source[end]) {
			end++
		}
		if end < len(l.source) && l.source[end] >= utf8.RuneSelf {
			return unsupported(l.line, "a name with a character outside of ASCII")
		}
		l.add(tokenName, l.source[l.at:end])
		l.at = end
		return nil
	case r == '\'' || r == '"':
		return l.str(byte(r))
	}
	return l.operator()
}

func isNameByte(c byte) bool {
	return c == '_' || c-'0' <= 9 || c|0x20 >= 'a' && c|0x20 <= 'z'
}

var operators = []string{ // longest first
	"**", "//", "==", "!=", ">=", "<=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
}

func (l *lexer) operator() error {
	text := l.source[l.at:]
	for _, op := range operators {
		if !strings.HasPrefix(text, op) {
			continue
		}
		switch op {
		case "(":
			l.open = append(l.open, ')')
		case "[":
			l.open = append(l.open, ']')
		case "{":
			l.open = append(l.open, '}')
		case ")", "]", "}":
			if len(l.open) == 0 || l.open[len(l.open)-1] != op[0] {
				return unsupported(l.line, "unexpected %q", op)
			}
			l.open = l.open[:len(l.open)-1]
		}
		l.add(tokenOperator, op)
		l.at += len(op)
		return nil
	}
	r, _ := utf8.DecodeRuneInString(text)
	return unsupported(l.line, "unexpected character %q", r)
}
