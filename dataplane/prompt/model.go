package prompt

import (
	"sync/atomic"

	"warmpath/dataplane/chat"
	"warmpath/dataplane/tokenize"
)

// Memo is what all models of a router remember of text they have seen.
type Memo struct {
	chunks   *memo[[]uint32]
	prefixes *memo[knownPrefix]
}

// prefixShare: one part in so many of the memory is for prefixes, which need an
// eighth of what their chunks need.
const prefixShare = 4

// NewMemo returns a memo of at most so many bytes, buckets not counted: they
// are an eighth more at most.
func NewMemo(bytes int64) *Memo {
	return &Memo{chunks: newMemo[[]uint32](bytes - bytes/prefixShare), prefixes: newMemo[knownPrefix](bytes / prefixShare)}
}

// Stats returns the figures of the memo of chunks and of that of prefixes.
func (m *Memo) Stats() (chunks, prefixes MemoStats) { return m.chunks.stats(), m.prefixes.stats() }

// Tokenizer is what a Walk needs of a tokenizer: a *tokenize.Tokenizer, whose
// methods these are, or one that knows of no cuts.
type Tokenizer interface {
	Append(ids []uint32, text []byte, s *tokenize.Scratch) []uint32
	Wrap() (before, after []uint32)
	FindAdded(text []byte, from int) (start, end int, id uint32, ok bool)
	Solid(id uint32) bool
	NextCut(text []byte, from int) int
	NextCutEscaped(raw []byte, from int) int
	Decode(ids []uint32) string
}

// Options say what the prompts of one model need.
type Options struct {
	Name        string
	Tokenizer   Tokenizer
	Slow        bool          // the tokenizer takes milliseconds for a short prompt: never on a loop
	Fingerprint []byte        // of the tokenizer's file: models with equal ones share what Memo knows
	Dialect     *chat.Dialect // what the engine makes of a request's body; nil: not known
	UnitTokens  int           // of one unit, MinUnit … MaxUnit
	// Clock is the engine's date and time, for templates that write it; nil for
	// others.
	Clock func() chat.Clock
	Memo  *Memo
}

// Model is what the prompts of one model need. Immutable but for what was
// demoted; shared by all loops.
type Model struct {
	Options
	seed    uint64        // of the keys of its chunks
	demoted atomic.Uint32 // bits by Class
}

// NewModel returns a Model of which nothing is demoted.
func NewModel(o Options) *Model {
	if o.UnitTokens < MinUnit || o.UnitTokens > MaxUnit {
		panic("BUG: prompt: unit out of range")
	}
	return &Model{Options: o, seed: seedOf(o.Fingerprint)}
}

func (m *Model) now() (c chat.Clock) {
	if m.Clock != nil {
		c = m.Clock()
	}
	return c
}

// Demote takes the word "exact" from a class of requests until Promote: an
// engine's answer has disagreed. It reports whether the class had it before.
func (m *Model) Demote(c Class) bool {
	bit := uint32(1) << c
	return m.demoted.Or(bit)&bit == 0
}

// Promote gives it back: a probe has agreed.
func (m *Model) Promote(c Class) { m.demoted.And(^(uint32(1) << c)) }

// Demoted reports whether a class lost it.
func (m *Model) Demoted(c Class) bool { return m.demoted.Load()>>c&1 != 0 }
