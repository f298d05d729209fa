package prefix

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"

	"warmpath/dataplane/scan"
)

// MaxTextUnits bounds a text chain: 1 MiB of raw prompt, an estimated 262,144
// tokens, as much as the default routing window. What lies beyond it cannot
// tell nodes apart that agree on so much.
const MaxTextUnits = shortUnits + mediumUnits + (1<<20-shortBytes-mediumBytes)/(longWeight*TextUnitBytes)

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

// tokenStart begins chains of token ids.
var tokenStart = []byte{markTokens}

// TextChain computes text chains, one request at a time. One goroutine uses
// it; the zero value needs a Reset. It keeps at most MaxTextUnits hashes.
type TextChain struct {
	hashes []Hash
	parent uint64
	filled int // bytes of tail in use, always less than the unit's
	tail   *Tail
}

// Tail is scratch: the beginning of a unit that lies in several fields.
type Tail [longWeight * TextUnitBytes]byte

// Borrow makes c use tail, of which it needs nothing between Append and Reset, so
// that many chains can share one. Without it a chain has one of its own.
func (c *TextChain) Borrow(tail *Tail) { c.tail = tail }

// Reset starts the chain of another request. The chain's start is a hash of
// the fleet's seed, the model's canonical name and the request's cache salt,
// so different models, salts or fleets share nothing. Nothing is kept of model
// and salt. Hashes returned before become invalid.
func (c *TextChain) Reset(seed uint64, model, salt []byte) {
	var length [8]byte // else model and salt could trade bytes
	binary.LittleEndian.PutUint64(length[:], uint64(len(model)))
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	d.Write(length[:])
	d.Write(model)
	d.Write(salt)
	c.parent = d.Sum64()
	if c.tail == nil {
		c.tail = new(Tail)
	}
	c.hashes = c.hashes[:0]
	c.filled = 0
}

// Append adds the prompt that r found in body and returns the chain: one Hash
// for every full unit, at most MaxTextUnits of them. It is
// called once after a Reset. The result is valid until the next Reset.
//
// What is hashed are raw, still escaped bytes: tools, then system, then every
// message (its role, then its parts), then the prompt. A prompt that goes on
// where another ended therefore has the other's chain as the start of its own.
// A prompt of token ids is hashed as little-endian uint32, 64 ids in TextUnitBytes,
// on a chain start of its own.
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
		c.parent = nonZero(xxh3.HashSeed(tokenStart, c.parent))
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

// unit is the length of the unit that is being made.
func (c *TextChain) unit() int { return TextUnitWeight(len(c.hashes)) * TextUnitBytes }

func (c *TextChain) mark(m byte) {
	unit := c.unit()
	c.tail[c.filled] = m
	if c.filled++; c.filled == unit {
		c.emit(c.tail[:unit])
		c.filled = 0
	}
}

// write adds bytes; units that lie wholly inside raw are hashed where they are.
func (c *TextChain) write(raw []byte) {
	unit := c.unit()
	if c.filled > 0 {
		n := copy(c.tail[c.filled:unit], raw)
		raw = raw[n:]
		if c.filled += n; c.filled < unit {
			return
		}
		c.emit(c.tail[:unit])
		c.filled, unit = 0, c.unit()
	}
	for len(raw) >= unit && len(c.hashes) < MaxTextUnits {
		c.emit(raw[:unit])
		raw = raw[unit:]
		unit = c.unit()
	}
	c.filled = copy(c.tail[:unit-1], raw)
}

// emit ends a unit: XXH3-64 of its bytes, and of that seeded by the parent. To
// seed the hash of the bytes would cost a fifth of the time of a short unit.
func (c *TextChain) emit(unit []byte) {
	if len(c.hashes) == MaxTextUnits {
		return
	}
	var own [8]byte
	binary.LittleEndian.PutUint64(own[:], xxh3.Hash(unit))
	c.parent = nonZero(xxh3.HashSeed(own[:], c.parent))
	c.hashes = append(c.hashes, Hash(c.parent))
}
