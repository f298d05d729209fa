package chat

import (
	"bytes"
	"unicode/utf8"
)

// continueTag is what transformers puts behind the last message to find its
// end in the rendered text (transformers 5.19, render_jinja_template).
const continueTag = "CONTINUE_FINAL_MESSAGE_TAG "

// appendText appends a str to a rope.
func (m *Machine) appendText(out *Rope, v Value) error {
	if v.kind != KindString {
		return inexact("the text is a %s", v.typeName())
	}
	if v.form == formRope {
		for _, s := range v.ref.segments {
			out.Append(s)
		}
		return nil
	}
	out.Append(Segment{Bytes: v.text, Escaped: v.form == formEscaped})
	return nil
}

// joined returns the texts of a list one after the other, with sep between
// them, without copying them.
func (m *Machine) joined(sep string, texts Value) Value {
	if texts.Len() == 1 {
		return texts.At(0)
	}
	between := Segment{Bytes: m.Copy(sep).text}
	base := m.capture()
	for i := range texts.Len() {
		if i > 0 {
			m.emit(between)
		}
		m.emitText(texts.At(i))
	}
	return m.captured(base)
}

// emitText emits a str.
func (m *Machine) emitText(v Value) {
	if v.form == formRope {
		for _, s := range v.ref.segments {
			m.emit(s)
		}
		return
	}
	m.emit(Segment{Bytes: v.text, Escaped: v.form == formEscaped})
}

// cutContinued ends the text where the last message ends: at the last tag, and
// before the white space in front of it if the template has stripped the tag.
func (m *Machine) cutContinued(out *Rope) error {
	tag := []byte(continueTag[:len(continueTag)-1])
	for i := len(out.Segments) - 1; i >= 0; i-- {
		s := &out.Segments[i]
		at := bytes.LastIndex(s.Bytes, tag)
		if at < 0 {
			continue
		}
		stripped := !bytes.HasPrefix(s.Bytes[at:], []byte(continueTag))
		if stripped && at+len(tag) == len(s.Bytes) && i+1 < len(out.Segments) {
			next, _ := firstChar(out.Segments[i+1].Bytes)
			stripped = next != ' '
		}
		out.truncate(i, at)
		if stripped {
			out.trimRight()
		}
		return nil
	}
	return inexact("the template does not show the end of the message that is to be continued in one piece")
}

// truncate keeps the segments before the i-th and n bytes of that one.
func (r *Rope) truncate(i, n int) {
	for _, s := range r.Segments[i:] {
		r.size -= len(s.Bytes)
	}
	s := r.Segments[i]
	r.Segments = r.Segments[:i]
	r.Append(Segment{Bytes: s.Bytes[:n], Escaped: s.Escaped && bytes.IndexByte(s.Bytes[:n], '\\') >= 0})
}

// trimRight takes Python's white space off the end.
func (r *Rope) trimRight() {
	for len(r.Segments) > 0 {
		last := len(r.Segments) - 1
		s := r.Segments[last]
		var char rune
		var size int
		if s.Escaped {
			char, size = lastChar(s.Bytes)
		} else {
			char, size = utf8.DecodeLastRune(s.Bytes)
		}
		if !isSpace(char) {
			return
		}
		r.truncate(last, len(s.Bytes)-size)
	}
}

// keepCommon keeps of r what other begins with too, up to a whole character.
func (r *Rope) keepCommon(other *Rope) {
	var a, b ropeReader
	a.rope, b.rope = r, other
	for {
		if a.sameSegment(&b) {
			continue
		}
		i, n := a.segment, a.offset
		x, okX := a.char()
		y, okY := b.char()
		if !okX {
			return // all of r is there
		}
		if !okY || x != y {
			r.truncate(i, n)
			return
		}
	}
}

// ropeReader reads a rope by characters.
type ropeReader struct {
	rope            *Rope
	segment, offset int
}

// sameSegment skips a whole segment that both ropes borrow from the same place.
func (a *ropeReader) sameSegment(b *ropeReader) bool {
	if a.offset != 0 || b.offset != 0 || a.segment >= len(a.rope.Segments) || b.segment >= len(b.rope.Segments) {
		return false
	}
	x, y := a.rope.Segments[a.segment], b.rope.Segments[b.segment]
	if len(x.Bytes) != len(y.Bytes) || &x.Bytes[0] != &y.Bytes[0] || x.Escaped != y.Escaped {
		return false
	}
	a.segment++
	b.segment++
	return true
}

func (a *ropeReader) char() (char rune, ok bool) {
	if a.segment >= len(a.rope.Segments) {
		return 0, false
	}
	s := a.rope.Segments[a.segment]
	var size int
	if s.Escaped {
		char, size = firstChar(s.Bytes[a.offset:])
	} else {
		char, size = utf8.DecodeRune(s.Bytes[a.offset:])
	}
	a.offset += max(size, 1)
	if a.offset >= len(s.Bytes) {
		a.segment++
		a.offset = 0
	}
	return char, true
}
