package scan

import "fmt"

// state says what the next byte may be.
type state uint8

const (
	atStart      state = iota // before the top-level object
	atFirstKey                // after '{'
	atKey                     // after ',' in an object
	atColon                   // after a key
	atValue                   // after ':', or after ',' in an array
	atFirstValue              // after '['
	atNext                    // after a value in a container
	atEnd                     // after the top-level object
	inKey                     // in a string that is a key
	inString                  // in a string that is a value
	inNumber
	inLiteral
)

// run takes in as much of b as possible.
func (s *Scanner) run(b []byte) {
	p, ok := s.pos, true
	for ok && p < len(b) {
		switch s.state {
		case inKey:
			p, ok = s.keyBytes(b, p)
		case inString:
			p, ok = s.stringBytes(b, p)
		case inNumber:
			p, ok = s.numberBytes(b, p)
		case inLiteral:
			p, ok = s.literalBytes(b, p)
		default:
			p, ok = s.structure(b, p)
		}
	}
	s.pos = p
}

// structure takes in white space, brackets, commas and colons, and the tokens
// between them as long as they end within b. ok is false when b is used up
// within a token or refused.
func (s *Scanner) structure(b []byte, p int) (next int, ok bool) {
	ok = true
	for ok && p < len(b) {
		c := b[p]
		if c == ' ' || c == '\n' || c == '\r' || c == '\t' {
			p++
			continue
		}
		switch s.state {
		case atNext:
			p, ok = s.next(b, p, c)
		case atKey, atFirstKey:
			switch {
			case c == '"':
				s.state, s.tok, s.escaped = inKey, p, false
				p, ok = s.keyBytes(b, p+1)
			case c == '}' && s.state == atFirstKey:
				p, ok = s.closeContainer(p), s.err == nil
			default:
				s.failByte(b, p, "where an object key must begin")
				return p, false
			}
		case atColon:
			if c != ':' {
				s.failByte(b, p, "after object key")
				return p, false
			}
			s.state = atValue
			p++
		case atValue, atFirstValue:
			p, ok = s.value(b, p, c)
		case atStart:
			if c != '{' {
				s.failByte(b, p, "where a JSON object must begin")
				return p, false
			}
			p, ok = s.openContainer(p, ctxTop, atFirstKey), s.err == nil
		case atEnd:
			s.failByte(b, p, "after the top-level object")
			return p, false
		default: // a token that did not end in b
			return p, true
		}
	}
	return p, ok
}

// next deals with the byte after a value.
func (s *Scanner) next(b []byte, p int, c byte) (int, bool) {
	if s.ctx.isArray() {
		switch c {
		case ',':
			s.state = atValue
			return p + 1, true
		case ']':
			return s.closeContainer(p), s.err == nil
		}
		s.failByte(b, p, "after array element")
		return p, false
	}
	switch c {
	case ',':
		s.state = atKey
		return p + 1, true
	case '}':
		return s.closeContainer(p), s.err == nil
	}
	s.failByte(b, p, "after object value")
	return p, false
}

// value begins a value at p.
func (s *Scanner) value(b []byte, p int, c byte) (int, bool) {
	switch c {
	case '"':
		s.state, s.tok, s.escaped = inString, p, false
		return s.stringBytes(b, p+1)
	case '{':
		return s.openContainer(p, s.childObject(p), atFirstKey), s.err == nil
	case '[':
		return s.openContainer(p, s.childArray(p), atFirstValue), s.err == nil
	case 't':
		return s.beginLiteral(b, p, "true")
	case 'f':
		return s.beginLiteral(b, p, "false")
	case 'n':
		return s.beginLiteral(b, p, "null")
	case ']':
		if s.state == atFirstValue {
			return s.closeContainer(p), s.err == nil
		}
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		if s.ctx == ctxList || s.ctx == ctxTokens {
			if q := s.tokenIDs(b, p); q != p {
				s.state = atValue
				return q, true
			}
		}
		s.state, s.tok, s.num = inNumber, p, numStart
		return s.numberBytes(b, p)
	}
	s.failByte(b, p, "where a value must begin")
	return p, false
}

// openContainer enters a container that begins at p.
func (s *Scanner) openContainer(p int, child context, first state) int {
	if len(s.stack) >= s.Limits.MaxDepth {
		s.fail(p, fmt.Sprintf("more than %d objects and arrays within each other", s.Limits.MaxDepth))
		return p
	}
	s.stack = append(s.stack, s.ctx)
	s.ctx, s.state = child, first
	return p + 1
}

// closeContainer leaves the innermost container, whose last byte is at p.
func (s *Scanner) closeContainer(p int) int {
	left := s.ctx
	top := len(s.stack) - 1
	s.ctx, s.stack = s.stack[top], s.stack[:top]
	s.state = atNext
	if top == 0 {
		s.state = atEnd
	}
	if left > ctxSkipArray {
		s.closed(left, p+1)
	}
	return p + 1
}

// keyBytes goes on within a key.
func (s *Scanner) keyBytes(b []byte, p int) (int, bool) {
	p, ok := s.skip(b, p)
	if !ok {
		return p, false
	}
	if s.ctx != ctxSkipObject {
		s.keyed(b[s.tok+1 : p])
	}
	s.state = atColon
	return p + 1, true
}

// stringBytes goes on within a string value.
func (s *Scanner) stringBytes(b []byte, p int) (int, bool) {
	p, ok := s.skip(b, p)
	if !ok {
		return p, false
	}
	if s.ctx > ctxSkipArray {
		s.stringValue(b, Span{uint32(s.tok + 1), uint32(p)})
	}
	s.state = atNext
	return p + 1, s.err == nil
}

// skip moves to the closing quote of the open string. ok is false when b ends
// before it; p is then where to go on.
func (s *Scanner) skip(b []byte, p int) (int, bool) {
	p, end, escaped := skipString(b, p)
	s.escaped = s.escaped || escaped
	if end == endBad {
		s.failString(b, p)
	}
	return p, end == endQuote
}

func (s *Scanner) beginLiteral(b []byte, p int, lit string) (int, bool) {
	s.state, s.tok, s.lit, s.litPos = inLiteral, p, lit, 0
	return s.literalBytes(b, p)
}

// literalBytes goes on within true, false or null.
func (s *Scanner) literalBytes(b []byte, p int) (int, bool) {
	for s.litPos < len(s.lit) {
		if p == len(b) {
			return p, false
		}
		if b[p] != s.lit[s.litPos] {
			s.failByte(b, p, "in the literal "+s.lit)
			return p, false
		}
		p++
		s.litPos++
	}
	if s.ctx > ctxSkipArray {
		s.literalValue(s.lit, Span{uint32(s.tok), uint32(p)})
	}
	s.state = atNext
	return p, s.err == nil
}
