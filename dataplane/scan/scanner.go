package scan

import "fmt"

// MaxBodyBytes is the largest body that Scan takes; spans are 32 bits wide.
const MaxBodyBytes = 1 << 30

// Defaults of Limits.
const (
	// DefaultMaxDepth lies below what Python's json accepts (about 1000
	// containers within each other), above what requests have, and is what a
	// peer that parses recursively can bear.
	DefaultMaxDepth    = 512
	DefaultMaxMessages = 1 << 16
	DefaultMaxParts    = 1 << 18
	DefaultMaxTokenIDs = 1 << 22
)

// What Reset keeps of buffers that one large body made grow, in elements.
const (
	keptMessages = 1 << 12
	keptParts    = 1 << 14
	keptTokens   = 1 << 16
)

// Limits bounds everything that grows with a body. A field of zero or
// less means its default. Elements of a value that a later duplicate key replaced still count.
type Limits struct {
	MaxDepth    int // containers within each other, the top-level object included
	MaxMessages int // messages and input items
	MaxParts    int // texts and other parts of prompt, input, messages and system
	MaxTokenIDs int // token ids that are kept
}

// Error says why a body is refused, and at which byte.
type Error struct {
	Offset int    // bytes from the start of the body
	What   string // for people, e.g. "invalid character '}' after object key"
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("parse JSON body: %s at byte %d", e.What, e.Offset)
}

// Scanner makes one resumable pass over a JSON body. The zero value is ready.
// It is loop-owned: one goroutine at a time, one body between two Resets.
type Scanner struct {
	// Limits may be set before the first Scan after a Reset.
	Limits Limits

	// Where the pass stands.
	pos   int // bytes that are dealt with
	state state
	ctx   context   // of the innermost open container
	stack []context // of the containers around it
	err   *Error

	// The token that is open at pos, if any.
	tok     int // offset of its first byte; -1 = forgotten
	escaped bool
	num     numberState
	lit     string // the literal being matched …
	litPos  int    // … and how much of it was seen

	// What was found; assembled by Result.
	fields
	forgot bool // spans mean nothing any more

	res Result
}

// Reset makes s ready for another body. It keeps buffers up to a bound, and
// Limits. Slices of the former Result must not be used any more.
func (s *Scanner) Reset() {
	limits, stack := s.Limits, s.stack[:0]
	f := fields{messages: s.messages[:0], parts: s.parts[:0], tokens: s.tokens[:0]}
	if cap(f.messages) > keptMessages {
		f.messages = nil
	}
	if cap(f.parts) > keptParts {
		f.parts = nil
	}
	if cap(f.tokens) > keptTokens {
		f.tokens = nil
	}
	*s = Scanner{Limits: limits, stack: stack, fields: f}
}

// Scan goes on where the last call stopped. body is everything received so
// far, from its first byte; final says that no more will come. done is true
// once final was given and the whole body is one valid JSON object followed by
// nothing but white space. An error is final: later calls repeat it. The total
// work of all calls is linear in len(body).
func (s *Scanner) Scan(body []byte, final bool) (done bool, err *Error) {
	if len(body) < s.pos {
		panic("BUG: scan: the body shrank between two calls")
	}
	if s.pos == 0 && !s.forgot {
		s.limitDefaults()
	}
	if s.err == nil && len(body) > MaxBodyBytes {
		s.fail(MaxBodyBytes, "body of more than 1 GiB")
	}
	if s.err == nil {
		s.run(body)
	}
	if s.err != nil {
		return false, s.err
	}
	if !final {
		return false, nil
	}
	if s.state != atEnd {
		s.fail(len(body), s.endMessage())
		return false, s.err
	}
	return true, nil
}

// Result returns what was found so far. Before Scan said done it holds what is
// complete: values of keys whose value has ended, and the ended messages of a
// list that is still open; behind them what has come of the next one, and of a
// prompt, as if it ended there. Not included while they are open are a text of
// system and instructions, one in a list of prompts, and a part whose type is still
// to come. It belongs to s and is valid until the next Scan,
// Result or Reset.
func (s *Scanner) Result() *Result {
	s.assemble(&s.res)
	return &s.res
}

// Seen returns the known top-level keys met so far, with or without a usable
// value. What is decided before the end of a body depends on it.
func (s *Scanner) Seen() Keys { return s.seen }

// Repeated returns the known top-level keys met more than once so far.
func (s *Scanner) Repeated() Keys { return s.repeated }

// Offset returns the number of bytes that are dealt with. It lags behind the
// body by less than six bytes, an escape or a character cut in two.
func (s *Scanner) Offset() int { return s.pos }

// longestHeldToken bounds the keys and numbers that Forget must leave in place.
const longestHeldToken = 64 << 10

// Forget makes the pass go on without the first bytes of the body: all that are
// dealt with, but for a key or a number that has not ended. It returns how many;
// the next body to Scan begins behind them. From then on only what is no span
// counts: errors, whose offsets are in what is left, Seen, Repeated, and the
// numbers of Result.
func (s *Scanner) Forget() (n int) {
	n = s.pos
	switch s.state {
	case inKey, inNumber, inLiteral:
		if n = max(s.tok, 0); s.pos-n > longestHeldToken {
			s.failLimit(s.pos, longestHeldToken, "bytes of a key or number")
		}
		s.tok = 0
	case inString:
		s.tok = -1 // behind its quote there may be anything
	}
	s.pos -= n
	s.forgot = s.forgot || n > 0
	return n
}

func (s *Scanner) limitDefaults() {
	l := &s.Limits
	for _, d := range [...]struct {
		limit *int
		value int
	}{
		{&l.MaxDepth, DefaultMaxDepth},
		{&l.MaxMessages, DefaultMaxMessages},
		{&l.MaxParts, DefaultMaxParts},
		{&l.MaxTokenIDs, DefaultMaxTokenIDs},
	} {
		if *d.limit <= 0 {
			*d.limit = d.value
		}
	}
}

// fail ends the pass. Only the first failure counts.
func (s *Scanner) fail(offset int, what string) {
	if s.err == nil {
		s.err = &Error{Offset: offset, What: what}
	}
}

// failLimit ends the pass at a bound.
func (s *Scanner) failLimit(offset, limit int, of string) {
	s.fail(offset, fmt.Sprintf("more than %d %s", limit, of))
}

// failByte ends the pass at a byte that the grammar does not allow there.
func (s *Scanner) failByte(b []byte, p int, where string) {
	c := b[p]
	switch {
	case c == '\'':
		s.fail(p, `invalid character '\'' `+where)
	case c > ' ' && c < 0x7f:
		s.fail(p, fmt.Sprintf("invalid character '%c' %s", c, where))
	case p == 0 && c == 0xEF:
		s.fail(p, "byte-order mark or invalid byte 0xEF "+where)
	default:
		s.fail(p, fmt.Sprintf("invalid byte 0x%02X %s", c, where))
	}
}

// endMessage says what is missing when the body ends too early.
func (s *Scanner) endMessage() string {
	switch s.state {
	case atStart:
		return "empty body, want a JSON object"
	case inString, inKey:
		return "body ends inside a string"
	case inNumber:
		return "body ends after a number inside an object or array"
	case inLiteral:
		return "body ends inside or after the literal " + s.lit
	default:
		return "body ends inside an object or array"
	}
}
