package tokenize

import (
	"github.com/zeebo/xxh3"
)

// sentencePiece encodes by byte-pair encoding whose symbols are the code points
// of a whole piece, in which ▁ stands for a space: the family of models that
// were trained with SentencePiece (Llama 2, Gemma, Mistral 7B).
//
// Nothing divides a piece into words beforehand, and merging it as a whole is
// slow and has nothing to remember. But merging can be done in parts wherever
// no merge can ever join the two code points beside a place (joins), and that
// is the case at nearly every space and at many other places. The parts
// between those, segments, are looked up like the pre-tokens of byteLevel.
//
// Spaces stay as they are: a segment is known by its raw bytes, and only its
// symbols are those of ▁. A ▁ that stood in the text makes another segment
// with the same ids.
type sentencePiece struct {
	prefix  prefixRule
	symbols symbolTable
	merges  *mergeTable
	joins   joins
	short   *wordTable // segments that are one token, ▁ spelled as a space
	whole   wholeWords
	cache   *wordCache
}

// metaspace is what these models write for a space: U+2581.
const metaspace = '▁'

// prefixRule says which pieces get a space in front.
type prefixRule uint8

const (
	prefixNever  prefixRule = iota
	prefixEach              // every piece (normalizer Prepend)
	prefixAbsent            // every piece that begins with none (Metaspace, always)
	prefixFirst             // the piece that begins the text, likewise (Metaspace, first)
)

// wanted reports whether a piece gets a space in front.
func (r prefixRule) wanted(piece []byte, start bool) bool {
	switch r {
	case prefixEach:
		return true
	case prefixAbsent:
		return !beginsWithSpace(piece)
	case prefixFirst:
		return start && !beginsWithSpace(piece)
	}
	return false
}

func beginsWithSpace(piece []byte) bool {
	return piece[0] == ' ' || len(piece) >= 3 && string(piece[:3]) == string(metaspace)
}

func (p *sentencePiece) appendPiece(ids []uint32, piece []byte, start bool, s *Scratch) []uint32 {
	prefixed := p.prefix.wanted(piece, start)
	if len(p.whole.words) > 0 {
		return p.appendWholes(ids, piece, prefixed, s)
	}
	if prefixed {
		// Only the first segment of the piece can change by what is put before.
		end := p.joins.end(piece, 0)
		s.prefixed = append(append(s.prefixed[:0], ' '), piece[:end]...)
		ids = p.appendSegments(ids, s.prefixed, s)
		piece = piece[end:]
	}
	return p.appendSegments(ids, piece, s)
}

// appendSegments appends the ids of text that begins and ends at places that
// no merge joins.
func (p *sentencePiece) appendSegments(ids []uint32, text []byte, s *Scratch) []uint32 {
	for pos := 0; pos < len(text); {
		end := p.joins.end(text, pos)
		if n := end - pos; n <= shortMost {
			word := shortAt(text, pos, n)
			hash := word.hash()
			if id, ok := p.short.find(word, hash); ok {
				ids = append(ids, id)
			} else {
				ids = p.appendSegment(ids, text[pos:end], hash, s)
			}
		} else if n <= cachedMost {
			ids = p.appendSegment(ids, text[pos:end], xxh3.Hash(text[pos:end]), s)
		} else {
			ids = p.appendMerged(ids, text[pos:end], s)
		}
		pos = end
	}
	return ids
}

// appendSegment appends the ids of a segment of at most cachedMost bytes that
// is not among the short ones of one token.
func (p *sentencePiece) appendSegment(ids []uint32, segment []byte, hash uint64, s *Scratch) []uint32 {
	mark := len(ids)
	ids, known := p.cache.find(ids, segment, hash)
	if known {
		return ids
	}
	ids = p.appendMerged(ids, segment, s)
	if len(ids)-mark <= cachedMost { // a space may become the three bytes of ▁
		p.cache.add(segment, hash, ids[mark:])
	}
	return ids
}

// appendMerged appends the ids of a segment by merging its symbols.
func (p *sentencePiece) appendMerged(ids []uint32, segment []byte, s *Scratch) []uint32 {
	mark := len(ids)
	ids = p.symbols.append(ids, segment)
	return ids[:mark+p.merges.merge(ids[mark:], s)]
}

// decode returns the text of an entry. The space that a prefixRule has put in
// front of a text is not taken away again.
func (p *sentencePiece) decode(entry string) string {
	if b, ok := byteEntry(entry); ok {
		return string([]byte{b})
	}
	return spaced(entry)
}
