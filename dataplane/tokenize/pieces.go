package tokenize

import "strings"

// pieceTable holds the entries of the vocabulary by id, as the file spells
// them. An id without one has the empty entry.
type pieceTable struct {
	text  string
	start []uint32 // of each id in text, and the end of the last
}

// newPieceTable lays out a vocabulary whose ids are below size.
func newPieceTable(vocab map[string]uint32, size int) pieceTable {
	byID := make([]string, size)
	total := 0
	for entry, id := range vocab {
		byID[id] = entry
		total += len(entry)
	}
	var text strings.Builder
	text.Grow(total)
	start := make([]uint32, 0, size+1)
	for _, entry := range byID {
		start = append(start, uint32(text.Len()))
		text.WriteString(entry)
	}
	return pieceTable{text.String(), append(start, uint32(text.Len()))}
}

func (p *pieceTable) size() int { return len(p.start) - 1 }

func (p *pieceTable) entry(id uint32) string {
	if int(id) >= p.size() {
		return ""
	}
	return p.text[p.start[id]:p.start[id+1]]
}
