package chat

import "unicode/utf8"

// Python counts characters of a str, not bytes. This file finds characters in
// UTF-8 text.

// stepChars is how far an index goes at most by stepping over characters,
// instead of decoding the whole text.
const stepChars = 16

// textSegment returns the one piece of a str that is no rope.
func textSegment(v Value) Segment {
	return Segment{Bytes: v.text, Escaped: v.form == formEscaped}
}

// charCount returns the number of characters.
func charCount(text []byte) int { return utf8.RuneCount(text) }

// charEnd returns the end of the character that begins at start.
func charEnd(text []byte, start int) int {
	_, size := utf8.DecodeRune(text[start:])
	return start + size
}

// charOffset returns the byte at which the n-th character begins.
func charOffset(text []byte, n int) int {
	at := 0
	for ; n > 0; n-- {
		at = charEnd(text, at)
	}
	return at
}

// charLen returns the number of characters of a str of any form.
func charLen(v Value) int {
	if v.form == formPlain || v.form == formMarkup {
		return charCount(v.text)
	}
	var t textReader
	t.open(v)
	n := 0
	for {
		piece := t.piece()
		if len(piece) == 0 {
			return n
		}
		n += charCount(piece)
		t.skip(len(piece))
	}
}

// first and last take one character off a segment; size is 0 if it is empty.
func (s Segment) first() (r rune, size int) {
	if s.Escaped {
		return firstChar(s.Bytes)
	}
	return utf8.DecodeRune(s.Bytes)
}

func (s Segment) last() (r rune, size int) {
	if s.Escaped {
		return lastChar(s.Bytes)
	}
	return utf8.DecodeLastRune(s.Bytes)
}

// nearChar returns the i-th character, from the end if i is negative.
func nearChar(s Segment, i int) Value {
	for ; i > 0; i-- {
		_, size := s.first()
		s.Bytes = s.Bytes[size:]
	}
	for ; i < -1; i++ {
		_, size := s.last()
		s.Bytes = s.Bytes[:len(s.Bytes)-size]
	}
	size := 0
	if i == 0 {
		_, size = s.first()
		s.Bytes = s.Bytes[:size]
	} else {
		_, size = s.last()
		s.Bytes = s.Bytes[len(s.Bytes)-size:]
	}
	if size == 0 {
		return undefinedItem
	}
	return textOf(s)
}

// trimSet says which characters to strip: white space, or those of chars.
type trimSet struct {
	chars []byte // nil for white space
}

func (t trimSet) has(r rune) bool {
	if t.chars == nil {
		return isSpace(r)
	}
	for chars := t.chars; len(chars) > 0; {
		c, size := utf8.DecodeRune(chars)
		if c == r {
			return true
		}
		chars = chars[size:]
	}
	return false
}

// trim strips characters off the ends of a segment.
func (t trimSet) trim(s Segment, left, right bool) Segment {
	for left {
		r, size := s.first()
		if size == 0 || !t.has(r) {
			break
		}
		s.Bytes = s.Bytes[size:]
	}
	for right {
		r, size := s.last()
		if size == 0 || !t.has(r) {
			break
		}
		s.Bytes = s.Bytes[:len(s.Bytes)-size]
	}
	return s
}

// strip is Python's strip, lstrip and rstrip: it moves the ends and copies no
// text.
func (m *Machine) strip(v Value, set trimSet, left, right bool) Value {
	if len(set.chars) > stepChars {
		m.work(len(set.chars) * len(m.Bytes(v)))
	}
	if v.form != formRope {
		s := set.trim(textSegment(v), left, right)
		v.text = s.Bytes
		return v
	}
	segments := v.ref.segments
	var head, tail Segment
	for left && len(segments) > 0 {
		if head = set.trim(segments[0], true, false); len(head.Bytes) > 0 {
			break
		}
		segments = segments[1:]
	}
	for right && len(segments) > 0 {
		if tail = set.trim(segments[len(segments)-1], false, true); len(tail.Bytes) > 0 {
			break
		}
		segments = segments[:len(segments)-1]
	}
	switch n := len(segments); n {
	case 0:
		return Value{kind: KindString}
	case 1:
		return textOf(set.trim(segments[0], left, right))
	default:
		m.charge(n * m.segments.size())
		kept := m.segments.take(n)
		copy(kept, segments)
		if left {
			kept[0] = head
		}
		if right {
			kept[n-1] = tail
		}
		return m.ropeOf(kept)
	}
}
