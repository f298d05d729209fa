package chat

import "warmpath/dataplane/scan"

// Segment is a piece of the rendered prompt.
type Segment struct {
	// Bytes borrows the request's body, the template or the Machine.
	Bytes []byte
	// Escaped says that Bytes are raw content of a JSON string, in which
	// escapes stand, each of them whole. Otherwise they are plain UTF-8.
	Escaped bool
}

// AppendText appends the segment's decoded text to dst.
func (s Segment) AppendText(dst []byte) []byte {
	if s.Escaped {
		return scan.AppendUnescaped(dst, s.Bytes)
	}
	return append(dst, s.Bytes...)
}

// Rope is a text in pieces. It is valid as long as what its segments borrow:
// the body, the Template and the Machine until its Reset. The zero Rope is
// empty and ready; it keeps its memory from one use to the next.
type Rope struct {
	// Segments are never empty and stand in the order of the text.
	Segments []Segment
	size     int
}

// Reset empties the Rope and keeps its memory.
func (r *Rope) Reset() {
	r.Segments, r.size = r.Segments[:0], 0
}

// Size returns the number of bytes of all segments as they lie. It is at least
// the length of the text, which is shorter where escapes are decoded.
func (r *Rope) Size() int { return r.size }

// Append adds a segment; an empty one is left out.
func (r *Rope) Append(s Segment) {
	if len(s.Bytes) == 0 {
		return
	}
	r.Segments = append(r.Segments, s)
	r.size += len(s.Bytes)
}

// AppendText appends the whole decoded text to dst.
func (r *Rope) AppendText(dst []byte) []byte {
	for _, s := range r.Segments {
		dst = s.AppendText(dst)
	}
	return dst
}
