package tokenize

import (
	"github.com/zeebo/xxh3"
)

// byteLevel encodes by byte-pair encoding whose symbols are the bytes of
// pre-tokens: the family of GPT-2.
type byteLevel struct {
	split       splitter
	prefixSpace bool        // a piece that begins with no space gets one
	bytes       [256]uint32 // ids of the single bytes
	merges      *mergeTable
	wholeFirst  bool              // ignore_merges: a pre-token in the vocabulary is one token
	short       *wordTable        // pre-tokens that are one token
	long        map[string]uint32 // the longer ones, if wholeFirst
	cache       *wordCache
}

func (b *byteLevel) appendPiece(ids []uint32, piece []byte, _ bool, s *Scratch) []uint32 {
	if b.prefixSpace && piece[0] != ' ' {
		s.prefixed = append(append(s.prefixed[:0], ' '), piece...)
		piece = s.prefixed
	}
	for pos := 0; pos < len(piece); {
		end := b.split(piece, pos)
		if n := end - pos; n <= shortMost {
			word := shortAt(piece, pos, n)
			hash := word.hash()
			if id, ok := b.short.find(word, hash); ok {
				ids = append(ids, id)
			} else {
				ids = b.appendWord(ids, piece[pos:end], hash, s)
			}
		} else {
			ids = b.appendLong(ids, piece[pos:end], s)
		}
		pos = end
	}
	return ids
}

// appendLong appends the ids of a pre-token that is no short word.
func (b *byteLevel) appendLong(ids []uint32, word []byte, s *Scratch) []uint32 {
	if len(word) <= cachedMost {
		return b.appendWord(ids, word, xxh3.Hash(word), s)
	}
	if b.wholeFirst {
		if id, ok := b.long[string(word)]; ok {
			return append(ids, id)
		}
	}
	return b.appendMerged(ids, word, s)
}

// appendWord appends the ids of a pre-token of at most cachedMost bytes that
// is not among the short words of one token.
func (b *byteLevel) appendWord(ids []uint32, word []byte, hash uint64, s *Scratch) []uint32 {
	before := len(ids)
	ids, known := b.cache.find(ids, word, hash)
	if known {
		return ids
	}
	if id, ok := b.long[string(word)]; ok {
		ids = append(ids, id)
	} else {
		ids = b.appendMerged(ids, word, s)
	}
	b.cache.add(word, hash, ids[before:])
	return ids
}

// appendMerged appends the ids of a pre-token by merging its bytes.
func (b *byteLevel) appendMerged(ids []uint32, word []byte, s *Scratch) []uint32 {
	before := len(ids)
	for _, c := range word {
		ids = append(ids, b.bytes[c])
	}
	return ids[:before+b.merges.merge(ids[before:], s)]
}

// byteRunes is how byte-level files spell bytes: printable ones of Latin-1 as
// themselves, the others in order from U+0100 on (bytes_to_unicode of GPT-2).
var byteRunes = func() (runes [256]rune) {
	next := rune(256)
	for b := range runes {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			runes[b] = rune(b)
		} else {
			runes[b] = next
			next++
		}
	}
	return runes
}()

// runeBytes is byteRunes the other way round; -1 for what spells no byte.
var runeBytes = func() (bytes [324]int16) {
	for i := range bytes {
		bytes[i] = -1
	}
	for b, r := range byteRunes {
		bytes[r] = int16(b)
	}
	return bytes
}()

// appendSpelled appends the bytes that an entry spells; ok is false if it
// holds a character that spells none.
func appendSpelled(dst []byte, entry string) (spelled []byte, ok bool) {
	for _, r := range entry {
		if r >= rune(len(runeBytes)) || runeBytes[r] < 0 {
			return dst, false
		}
		dst = append(dst, byte(runeBytes[r]))
	}
	return dst, true
}

func (b *byteLevel) decode(entry string) string {
	spelled, ok := appendSpelled(nil, entry)
	if !ok {
		return entry
	}
	return string(spelled)
}

// newByteLevel builds the encoder of a model that has been checked by
// bpeModel.check.
func newByteLevel(m *bpeModel, pre *preTokenizer) (*byteLevel, error) {
	b := &byteLevel{split: pre.split, prefixSpace: pre.prefixSpace, wholeFirst: m.IgnoreMerges, long: map[string]uint32{}}
	for c := range b.bytes {
		id, ok := m.vocab[string(byteRunes[c])]
		if !ok && c != 0xC0 && c != 0xC1 && c < 0xF5 { // UTF-8 has no other bytes
			return nil, &Unsupported{"model.vocab", "no entry for byte " + hexByte(c) + ": it would be left out or become unknown"}
		}
		b.bytes[c] = id
	}
	var err error
	if b.merges, err = m.mergeTable(); err != nil {
		return nil, err
	}
	b.indexWords(m)
	b.cache = newWordCache()
	return b, nil
}

// indexWords finds the entries that are one token when they are a pre-token:
// all with ignore_merges, else those that merging gives back.
func (b *byteLevel) indexWords(m *bpeModel) {
	b.short = newWordTable(len(m.vocab))
	var s Scratch
	var spelled, padded []byte
	var ids []uint32
	for entry, id := range m.vocab {
		var ok bool
		spelled, ok = appendSpelled(spelled[:0], entry)
		if !ok || len(spelled) == 0 {
			continue
		}
		if !b.wholeFirst {
			ids = b.appendMerged(ids[:0], spelled, &s)
			if len(spelled) > shortMost || len(ids) != 1 || ids[0] != id {
				continue
			}
		}
		if len(spelled) > shortMost {
			b.long[string(spelled)] = id
			continue
		}
		padded = append(padded[:0], spelled...)
		b.short.add(shortAt(padded, 0, len(padded)), id)
	}
}

func hexByte(c int) string {
	const digits = "0123456789ABCDEF"
	return "0x" + string(digits[c>>4]) + string(digits[c&15])
}
