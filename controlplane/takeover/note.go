package takeover

import (
	"errors"
	"fmt"

	"github.com/tinylib/msgp/msgp"

	"warmpath/dataplane"
	"warmpath/dataplane/prefix"
)

// Note is a dataplane.Note on its way to another process.
type Note struct {
	Fetch   int // which of the fetched ranks it is about, counted from 0
	Kind    dataplane.NoteKind
	AheadNs int64 // Note.AtNs, from now on
	Chain   []prefix.Hash
	IDs     []uint32
}

// maxNoteValues bounds a chain and its ids: prompts of a million tokens.
const maxNoteValues = 1 << 16

var errNote = errors.New("not what one router writes for another")

// AppendNote appends a frame with a note, unless that would be too long: then it
// is left out, and false returned.
func AppendNote(dst []byte, n *Note) ([]byte, bool) {
	if len(n.Chain)+len(n.IDs) > maxNoteValues {
		return dst, false
	}
	b := msgp.AppendArrayHeader(nil, 5)
	b = msgp.AppendInt(b, n.Fetch)
	b = msgp.AppendUint8(b, uint8(n.Kind))
	b = msgp.AppendInt64(b, n.AheadNs)
	b = msgp.AppendArrayHeader(b, uint32(len(n.Chain)))
	for _, h := range n.Chain {
		b = msgp.AppendUint64(b, uint64(h))
	}
	b = msgp.AppendArrayHeader(b, uint32(len(n.IDs)))
	for _, id := range n.IDs {
		b = msgp.AppendUint32(b, id)
	}
	return AppendFrame(dst, Notes, b), true
}

// DecodeNote reads a note. It trusts nothing; nothing of b is kept.
func DecodeNote(b []byte) (n Note, err error) {
	if n, err = decodeNote(b); err != nil {
		return Note{}, fmt.Errorf("read a note: %w", err)
	}
	return n, nil
}

func decodeNote(b []byte) (n Note, err error) {
	size, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return n, err
	}
	if size != 5 {
		return n, errNote
	}
	if n.Fetch, b, err = msgp.ReadIntBytes(b); err != nil {
		return n, err
	}
	kind, b, err := msgp.ReadUint8Bytes(b)
	if err != nil {
		return n, err
	}
	n.Kind = dataplane.NoteKind(kind)
	if n.AheadNs, b, err = msgp.ReadInt64Bytes(b); err != nil {
		return n, err
	}
	chain, b, err := readValues(b, msgp.ReadUint64Bytes)
	if err != nil {
		return n, err
	}
	for _, h := range chain {
		n.Chain = append(n.Chain, prefix.Hash(h))
	}
	if n.IDs, b, err = readValues(b, msgp.ReadUint32Bytes); err != nil {
		return n, err
	}
	if len(b) > 0 || n.Fetch < 0 || n.Kind > dataplane.NoteLearnedText {
		return n, errNote
	}
	return n, nil
}

func readValues[T any](b []byte, read func([]byte) (T, []byte, error)) (values []T, rest []byte, err error) {
	count, b, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, b, err
	}
	if count > maxNoteValues || int(count) > len(b) {
		return nil, b, errNote
	}
	for range count {
		var v T
		if v, b, err = read(b); err != nil {
			return nil, b, err
		}
		values = append(values, v)
	}
	return values, b, nil
}
