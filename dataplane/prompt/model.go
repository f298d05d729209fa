package prompt

import (
	"math/rand/v2"
	"sync/atomic"

	"warmpath/dataplane/chat"
	"warmpath/dataplane/tokenize"
)

// Memo is what all models of a router remember of text they have seen.
type Memo struct {
	chunks   *memo[[]uint32]
	prefixes *memo[knownPrefix]
	requests *memo[knownRequest]
}

// unitsShare: one part in so many of the memory is for prefixes, and for whole
// requests: they need an eighth of what their chunks need.
const unitsShare = 8

// NewMemo returns a memo of at most so many bytes, buckets not counted: they
// are an eighth more at most.
func NewMemo(bytes int64) *Memo {
	units := bytes / unitsShare
	return &Memo{
		chunks:   newMemo[[]uint32](bytes - 2*units),
		prefixes: newMemo[knownPrefix](units),
		requests: newMemo[knownRequest](units),
	}
}

// MemoNames are what Memo.Stats is about, in its order: stretches of text, the
// beginnings of prompts up to the end of a message, and whole requests.
var MemoNames = [...]string{"chunks", "prefixes", "requests"}

// Stats returns the figures of each.
func (m *Memo) Stats() [len(MemoNames)]MemoStats {
	return [...]MemoStats{m.chunks.stats(), m.prefixes.stats(), m.requests.stats()}
}

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
	own     uint64        // … and of its requests, which no other model shares
	demoted atomic.Uint32 // bits by Class
}

// NewModel returns a Model of which nothing is demoted.
func NewModel(o Options) *Model {
	if o.UnitTokens < MinUnit || o.UnitTokens > MaxUnit {
		panic("BUG: prompt: unit out of range")
	}
	return &Model{Options: o, seed: seedOf(o.Fingerprint), own: rand.Uint64()}
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
