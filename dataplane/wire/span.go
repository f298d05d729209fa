package wire

// Span is a half-open range of bytes of the buffer that was parsed.
type Span struct{ Start, End uint32 }

// Len returns the number of bytes.
func (s Span) Len() int { return int(s.End - s.Start) }

// Of returns the bytes of b that the span covers. They are borrowed from b.
func (s Span) Of(b []byte) []byte { return b[s.Start:s.End] }

// Limits bounds a head. A value of zero or less stands for the default.
type Limits struct {
	HeadBytes   int // whole head with its empty line, and empty lines skipped before it; default 65536
	Fields      int // field lines; default 100
	TargetBytes int // request target; default 16384
}

// Defaults of Limits. TargetBytes is twice what RFC 9112, section 3, asks for.
const (
	DefaultHeadBytes   = 64 << 10
	DefaultFields      = 100
	DefaultTargetBytes = 16 << 10
)

func (l *Limits) headBytes() int {
	if l == nil || l.HeadBytes <= 0 {
		return DefaultHeadBytes
	}
	return min(l.HeadBytes, 1<<30)
}

func (l *Limits) fields() int {
	if l == nil || l.Fields <= 0 {
		return DefaultFields
	}
	return l.Fields
}

func (l *Limits) targetBytes() int {
	if l == nil || l.TargetBytes <= 0 {
		return DefaultTargetBytes
	}
	return l.TargetBytes
}
