package prefix

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"

	"warmpath/dataplane/scan"
)

// MaxTextUnits bounds a text chain: 1 MiB of raw prompt, an estimated 262,144
// tokens, as much as the default routing window. What lies beyond it cannot
// tell nodes apart that agree on so much.
const MaxTextUnits = 4096

// The marks between the fields of a prompt. No raw field holds a byte below
// 0x20 other than JSON's white space (tab, line feed, carriage return), so two
// prompts of different structure never make the same bytes.
const (
	markTools byte = 1 + iota
	markSystem
	markMessage // followed by the role
	markText
	markOther
	markWhole // a message whose content is empty, as a whole: tool calls and the like
	markPrompt
	markTokens
)

// TextChain computes text chains, one request at a time. One goroutine uses
// it; the zero value needs a Reset. It keeps at most MaxTextUnits hashes.
type TextChain struct {
	hashes []Hash
	parent uint64
	digest xxhash.Digest
	filled int // bytes of tail in use, always less than its length
	tail   [TextUnitBytes]byte
}

// Reset starts the chain of another request. The chain's start is a hash of
// the fleet's seed, the model's canonical name and the request's cache salt,
// so different models, salts or fleets share nothing. Nothing is kept of model
// and salt. Hashes returned before become invalid.
func (c *TextChain) Reset(seed uint64, model, salt []byte) {
	var length [8]byte // else model and salt could trade bytes
	binary.LittleEndian.PutUint64(length[:], uint64(len(model)))
	c.digest.ResetWithSeed(seed)
	c.digest.Write(length[:])
	c.digest.Write(model)
	c.digest.Write(salt)
	c.parent = c.digest.Sum64()
	c.hashes = c.hashes[:0]
	c.filled = 0
}

// Append adds the prompt that r found in body and returns the chain: one Hash
// for every full unit of TextUnitBytes, at most MaxTextUnits of them. It is
// called once after a Reset. The result is valid until the next Reset.
//
// What is hashed are raw, still escaped bytes: tools, then system, then every
// message (its role, then its parts), then the prompt. A prompt that goes on
// where another ended therefore has the other's chain as the start of its own.
// A prompt of token ids is hashed as little-endian uint32, 64 ids a unit, on a
// chain start of its own.
func (c *TextChain) Append(body []byte, r *scan.Result) []Hash {
	if r.Tools.Len() > 0 {
		c.field(markTools, r.Tools.Of(body))
	}
	if system := r.Parts[r.System.Start:r.System.End]; len(system) > 0 {
		c.mark(markSystem)
		c.parts(body, system)
	}
	for i := range r.Messages {
		if len(c.hashes) == MaxTextUnits {
			return c.hashes
		}
		c.message(body, r, &r.Messages[i])
	}
	for _, p := range r.Parts[r.Prompt.Start:r.Prompt.End] {
		c.field(markPrompt, p.Span.Of(body))
	}
	if len(r.Tokens) > 0 {
		c.tokens(r.Tokens)
	}
	return c.hashes
}

// message adds the role and the content of one message. Where the content is
// empty, what matters stands beside it (tool calls), so the whole is taken.
func (c *TextChain) message(body []byte, r *scan.Result, m *scan.Message) {
	c.field(markMessage, m.Role.Of(body))
	parts := r.Parts[m.Parts.Start:m.Parts.End]
	content := 0
	for i := range parts {
		content += parts[i].Span.Len()
	}
	if content == 0 {
		c.field(markWhole, m.Span.Of(body))
		return
	}
	c.parts(body, parts)
}

func (c *TextChain) parts(body []byte, parts []scan.Part) {
	for i := range parts {
		mark := markText
		if parts[i].Kind != scan.PartText {
			mark = markOther
		}
		c.field(mark, parts[i].Span.Of(body))
	}
}

// tokens adds ids. They start a chain of their own if nothing came before
// them, so that their units fall on the borders of token blocks.
func (c *TextChain) tokens(ids []uint32) {
	if len(c.hashes) == 0 && c.filled == 0 {
		c.digest.ResetWithSeed(c.parent)
		c.digest.Write([]byte{markTokens})
		c.parent = c.digest.Sum64()
	} else {
		c.mark(markTokens)
	}
	for _, id := range ids {
		if len(c.hashes) == MaxTextUnits {
			return
		}
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], id)
		c.write(b[:])
	}
}

func (c *TextChain) field(mark byte, raw []byte) {
	c.mark(mark)
	c.write(raw)
}

func (c *TextChain) mark(m byte) {
	c.tail[c.filled] = m
	if c.filled++; c.filled == len(c.tail) {
		c.emit(c.tail[:])
		c.filled = 0
	}
}

// write adds bytes; units that lie wholly inside raw are hashed where they are.
func (c *TextChain) write(raw []byte) {
	if c.filled > 0 {
		n := copy(c.tail[c.filled:], raw)
		raw = raw[n:]
		if c.filled += n; c.filled < len(c.tail) {
			return
		}
		c.emit(c.tail[:])
		c.filled = 0
	}
	for len(raw) >= TextUnitBytes && len(c.hashes) < MaxTextUnits {
		c.emit(raw[:TextUnitBytes])
		raw = raw[TextUnitBytes:]
	}
	c.filled = copy(c.tail[:TextUnitBytes-1], raw)
}

// emit ends a unit. The parent goes in as the seed of the unit's xxhash64,
// which costs nothing, where hashing it as eight more bytes would force every
// unit through a copy.
func (c *TextChain) emit(unit []byte) {
	if len(c.hashes) == MaxTextUnits {
		return
	}
	c.digest.ResetWithSeed(c.parent)
	c.digest.Write(unit)
	c.parent = nonZero(c.digest.Sum64())
	c.hashes = append(c.hashes, Hash(c.parent))
}
