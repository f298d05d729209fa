package prompt

import (
	"unsafe"

	"github.com/zeebo/xxh3"

	"warmpath/dataplane/chat"
)

const (
	// contentChunkBytes is where a segment's text is cut: at the first place
	// that allows it after so many bytes. Short enough that an insertion
	// spoils little, long enough that a look-up costs little a byte.
	contentChunkBytes = 512
	// borderChunkBytes keeps the few bytes between two special tokens together
	// with the text behind them.
	borderChunkBytes = 64
	// cutWindowBytes is how far behind contentChunkBytes a place to cut is looked
	// for: text without any (base64, scripts without spaces) is not searched to
	// its end, on a loop that others wait for. cutMarginBytes at the window's
	// end are only looked at, so that no place is judged by half a character.
	cutWindowBytes = 2048
	cutMarginBytes = 16
	// maxSearchedBytes is the longest text that is searched for special tokens.
	maxSearchedBytes = 256
)

// place is where in a rope something stands.
type place struct{ segment, offset int32 }

// chunk is a stretch of the rope whose ids do not depend on what stands around
// it. It ends where the next one begins.
type chunk struct {
	from   place
	bytes  int32        // raw, as they stand in the rope
	border bool         // it ends behind a special token of the template
	key    xxh3.Uint128 // of its segments' bytes
	prefix xxh3.Uint128 // of all chunks up to its end
}

// cutter divides a rope into chunks. It belongs to a Walk.
type cutter struct {
	tok      Tokenizer
	chunks   []chunk
	stop     place // where the last chunk ends
	open     chunk // the chunk that is being filled
	prefix   xxh3.Uint128
	literals literalCache
}

// cut divides segments. Of a text that is only the beginning of another the
// last chunk is left out, since its last token may reach beyond. start seeds every prefix key, so that prefixes of other
// chains are never found; seed does so for chunk keys and other tokenizers.
func (c *cutter) cut(tok Tokenizer, seed uint64, start xxh3.Uint128, segments []chat.Segment, beginning bool) {
	if c.tok != tok {
		c.tok, c.literals = tok, literalCache{}
	}
	c.chunks, c.prefix = c.chunks[:0], start
	c.begin(seed, place{})
	for i := range segments {
		s := &segments[i]
		if s.Escaped {
			c.escaped(seed, int32(i), s.Bytes)
		} else {
			c.plain(seed, int32(i), s.Bytes)
		}
	}
	c.stop = c.open.from
	if c.open.bytes > 0 && !beginning {
		c.stop = place{segment: int32(len(segments))}
		c.end(seed, c.stop, false)
	}
}

func (c *cutter) begin(seed uint64, at place) {
	c.open = chunk{from: at, key: xxh3.Uint128{Lo: seed}}
}

// end closes the open chunk.
func (c *cutter) end(seed uint64, next place, border bool) {
	c.prefix = mix(c.prefix, c.open.key)
	c.open.prefix, c.open.border = c.prefix, border
	c.chunks = append(c.chunks, c.open)
	c.begin(seed, next)
}

// add hashes a piece of a segment into the open chunk.
func (c *cutter) add(piece []byte, escaped bool) {
	if len(piece) == 0 {
		return
	}
	seed := c.open.key.Lo
	if escaped {
		seed = ^seed // the same bytes mean something else
	}
	h := xxh3.Hash128Seed(piece, seed)
	c.open.key = xxh3.Uint128{Hi: h.Hi ^ (c.open.key.Hi<<23 | c.open.key.Hi>>41), Lo: h.Lo}
	c.open.bytes += int32(len(piece))
}

// mix makes the key of a prefix from that of the prefix before and of the
// chunk that follows it.
func mix(prefix, key xxh3.Uint128) xxh3.Uint128 {
	const odd = 0x9e3779b97f4a7c15
	lo := (prefix.Lo ^ key.Lo) * odd
	hi := (prefix.Hi<<31 | prefix.Hi>>33) * odd
	return xxh3.Uint128{Lo: lo ^ lo>>29 ^ key.Hi, Hi: hi ^ key.Hi ^ lo<<17 ^ key.Lo}
}

// escaped takes text of the request's body.
func (c *cutter) escaped(seed uint64, segment int32, raw []byte) {
	at := 0
	for len(raw)-at > contentChunkBytes {
		window := min(len(raw), at+contentChunkBytes+cutWindowBytes)
		end := c.tok.NextCutEscaped(raw[:window], at+contentChunkBytes)
		if end < 0 || window < len(raw) && end > window-cutMarginBytes {
			break
		}
		c.add(raw[at:end], true)
		c.end(seed, place{segment, int32(end)}, false)
		at = end
	}
	c.add(raw[at:], true)
}

// plain takes text of the template, text that rendering has made, and text of
// the body without escapes. What looks like a special token there is one,
// whoever wrote it; only short texts are searched for them, since what a
// template writes between two messages is short.
func (c *cutter) plain(seed uint64, segment int32, text []byte) {
	var tokens []int32
	if len(text) <= maxSearchedBytes {
		tokens = c.literals.look(c.tok, text)
	}
	at, since := 0, 0 // since: where the last cut was
	for _, end := range tokens {
		at = c.stretch(seed, segment, text, at, int(end), &since)
		if c.open.bytes >= borderChunkBytes {
			c.end(seed, place{segment, end}, true)
			since = at
		}
	}
	c.stretch(seed, segment, text, at, len(text), &since)
}

// stretch takes text[at:end], cut by length.
func (c *cutter) stretch(seed uint64, segment int32, text []byte, at, end int, since *int) int {
	for end-*since > contentChunkBytes {
		from := max(*since+contentChunkBytes, at+1)
		window := min(end, from+cutWindowBytes)
		cut := c.tok.NextCut(text[:window], from)
		if cut < 0 || window < end && cut > window-cutMarginBytes {
			break
		}
		c.add(text[at:cut], false)
		c.end(seed, place{segment, int32(cut)}, false)
		at, *since = cut, cut
	}
	c.add(text[at:end], false)
	return end
}

// Bounds of what is remembered of literals. Templates have a few dozen that
// are short; longer ones are searched each time.
const (
	literalSlots = 64
	literalBytes = 48
	literalEnds  = 6
)

// literalCache remembers where special tokens end in short texts, found by
// their address: the template's literals come with every request. The bytes
// are compared, because text that rendering has made changes in its place.
type literalCache struct {
	slots [literalSlots]literal
	ends  []int32 // the answer for texts that are not kept
}

type literal struct {
	length, count uint8
	text          [literalBytes]byte
	ends          [literalEnds]int32
}

// look returns the ends of all solid tokens in text, valid until the next call.
func (l *literalCache) look(tok Tokenizer, text []byte) []int32 {
	if len(text) == 0 {
		return nil
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(text)))
	s := &l.slots[(at>>2^at>>8^uintptr(len(text)))%literalSlots]
	if string(s.text[:s.length]) == string(text) {
		return s.ends[:s.count]
	}
	l.ends = solidEnds(l.ends[:0], tok, text)
	if len(text) <= literalBytes && len(l.ends) <= literalEnds {
		s.length, s.count = uint8(copy(s.text[:], text)), uint8(copy(s.ends[:], l.ends))
	}
	return l.ends
}

func solidEnds(ends []int32, tok Tokenizer, text []byte) []int32 {
	for from := 0; from < len(text); {
		_, end, id, ok := tok.FindAdded(text, from)
		if !ok {
			break
		}
		if tok.Solid(id) {
			ends = append(ends, int32(end))
		}
		from = end
	}
	return ends
}
