package tokenize

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

const noID = ^uint32(0)

// symbolTable gives the symbols of a text before any merge: the entries of its
// code points, for those without one the entries of their bytes (byte
// fallback), or else the entry for what is unknown.
type symbolTable struct {
	pages   [(utf8.MaxRune + 1) >> 8]uint16 // of code points, into ids
	ids     [][256]uint32                   // noID for none; the first page has none
	bytes   [256]uint32                     // noID for none
	unknown uint32
	fuse    bool // of unknown code points in a row, one symbol
	closed  bool // none is unknown
}

// newSymbolTable builds the table of a model.
func newSymbolTable(m *bpeModel) (symbolTable, error) {
	t := symbolTable{ids: make([][256]uint32, 1), unknown: noID, fuse: m.FuseUnk}
	for i := range t.bytes {
		t.ids[0][i], t.bytes[i] = noID, noID
	}
	for entry, id := range m.vocab {
		if r, size := utf8.DecodeRuneInString(entry); size == len(entry) && size > 0 {
			t.set(r, id)
		}
		if b, ok := byteEntry(entry); ok && m.ByteFallback {
			t.bytes[b] = id
		}
	}
	t.closed = t.hasAll()
	if t.closed {
		return t, nil
	}
	if m.UnkToken == nil {
		return t, &Unsupported{"model.unk_token", "there is none, and not every byte has an entry: unknown characters would be left out"}
	}
	id, ok := m.vocab[*m.UnkToken]
	if !ok {
		return t, &Unsupported{"model.unk_token", strconv.Quote(*m.UnkToken) + " is not in the vocabulary"}
	}
	t.unknown = id
	return t, nil
}

func (t *symbolTable) set(r rune, id uint32) {
	page := &t.pages[r>>8]
	if *page == 0 {
		*page = uint16(len(t.ids))
		t.ids = append(t.ids, t.ids[0])
	}
	t.ids[*page][r&255] = id
}

// find returns the entry of a code point, noID for none.
func (t *symbolTable) find(r rune) uint32 { return t.ids[t.pages[r>>8]][r&255] }

// hasAll reports whether every code point has a symbol of its own or of its
// bytes. UTF-8 has no bytes 0xC0, 0xC1, or from 0xF5 on.
func (t *symbolTable) hasAll() bool {
	for b, id := range t.bytes {
		if id == noID && (b >= 0x80 && b != 0xC0 && b != 0xC1 && b < 0xF5 || b < 0x80 && t.find(rune(b)) == noID) {
			return false
		}
	}
	return true
}

// append appends the symbols of a text, valid UTF-8, a space read as ▁.
func (t *symbolTable) append(ids []uint32, text []byte) []uint32 {
	pending := false // an unknown code point whose symbol is not there yet
	for pos := 0; pos < len(text); {
		r, size := runeAt(text, pos)
		r = asMetaspace(r)
		pos += size
		if id := t.find(r); id != noID {
			if pending {
				ids, pending = append(ids, t.unknown), false
			}
			ids = append(ids, id)
			continue
		}
		if longer, ok := t.appendBytes(ids, r); ok {
			// The reference does not put a pending symbol before these.
			ids = longer
			continue
		}
		if pending && !t.fuse {
			ids = append(ids, t.unknown)
		}
		pending = true
	}
	if pending {
		ids = append(ids, t.unknown)
	}
	return ids
}

// appendBytes appends the entries of the bytes of a code point, if all of them
// have one.
func (t *symbolTable) appendBytes(ids []uint32, r rune) (longer []uint32, ok bool) {
	var buffer [utf8.UTFMax]byte
	mark := len(ids)
	for _, b := range buffer[:utf8.EncodeRune(buffer[:], r)] {
		if t.bytes[b] == noID {
			return ids[:mark], false
		}
		ids = append(ids, t.bytes[b])
	}
	return ids, true
}

// byteEntry returns the byte that an entry like <0x0A> stands for.
func byteEntry(entry string) (b byte, ok bool) {
	if len(entry) != len("<0x0A>") || entry[:3] != "<0x" || entry[5] != '>' || strings.ToUpper(entry[3:5]) != entry[3:5] {
		return 0, false
	}
	value, err := strconv.ParseUint(entry[3:5], 16, 8)
	return byte(value), err == nil
}

// spaced spells ▁ as a space.
func spaced(entry string) string { return strings.ReplaceAll(entry, string(metaspace), " ") }
