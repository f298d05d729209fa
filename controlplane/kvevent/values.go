package kvevent

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/tinylib/msgp/msgp"
)

var (
	errType  = errors.New("value of another type")
	errShort = errors.New("payload ends inside a value")
)

// skip returns what follows the next value. It does not recurse, so that the
// depth of what a peer nests costs nothing.
func skip(b []byte) ([]byte, error) {
	for wanted := uint64(1); wanted > 0; wanted-- {
		if wanted > uint64(len(b)) { // each value takes a byte or more
			return nil, errShort
		}
		switch msgp.NextType(b) {
		case msgp.ArrayType:
			n, rest, err := msgp.ReadArrayHeaderBytes(b)
			if err != nil {
				return nil, err
			}
			wanted, b = wanted+uint64(n), rest
		case msgp.MapType:
			n, rest, err := msgp.ReadMapHeaderBytes(b)
			if err != nil {
				return nil, err
			}
			wanted, b = wanted+2*uint64(n), rest
		default:
			rest, err := msgp.Skip(b)
			if err != nil {
				return nil, err
			}
			b = rest
		}
	}
	return b, nil
}

// readArray reads an array's length, which is never more than the values that
// b could hold.
func readArray(b []byte) (n int, rest []byte, err error) {
	if msgp.NextType(b) != msgp.ArrayType {
		return 0, b, errType
	}
	size, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return 0, b, err
	}
	if uint64(size) > uint64(len(rest)) {
		return 0, b, errShort
	}
	return int(size), rest, nil
}

// readMap is readArray for a map's pairs.
func readMap(b []byte) (pairs int, rest []byte, err error) {
	if msgp.NextType(b) != msgp.MapType {
		return 0, b, errType
	}
	size, rest, err := msgp.ReadMapHeaderBytes(b)
	if err != nil {
		return 0, b, err
	}
	if 2*uint64(size) > uint64(len(rest)) {
		return 0, b, errShort
	}
	return int(size), rest, nil
}

// readBits reads an integer as its 64 bits, whatever its sign.
func readBits(b []byte) (uint64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.UintType:
		return msgp.ReadUint64Bytes(b)
	case msgp.IntType:
		v, rest, err := msgp.ReadInt64Bytes(b)
		return uint64(v), rest, err
	}
	return 0, b, errType
}

// readNumber reads a size, a rank or the like; ok is false for nil.
func readNumber(b []byte) (v int, ok bool, rest []byte, err error) {
	if msgp.IsNil(b) {
		return 0, false, b[1:], nil
	}
	bits, rest, err := readBits(b)
	if err != nil {
		return 0, false, b, err
	}
	if bits > math.MaxInt32 {
		return 0, false, b, errType
	}
	return int(bits), true, rest, nil
}

// readToken reads a token id. SGLang's EAGLE heads publish pairs of a token and
// the next one; the first is meant. Ids beyond 32 bits stand for images and
// are folded: no prompt has them, and they stay distinct.
func readToken(b []byte) (uint32, []byte, error) {
	if n, inner, err := readArray(b); err == nil && n > 0 {
		id, _, err := readToken32(inner)
		if err != nil {
			return 0, b, err
		}
		rest, err := skip(b)
		return id, rest, err
	}
	return readToken32(b)
}

func readToken32(b []byte) (uint32, []byte, error) {
	v, rest, err := readBits(b)
	return uint32(v) ^ uint32(v>>32), rest, err
}

// appendTokens appends the ids of an array.
func appendTokens(dst []uint32, b []byte) ([]uint32, []byte, error) {
	n, b, err := readArray(b)
	if err != nil {
		return dst, b, err
	}
	for range n {
		var id uint32
		switch {
		case len(b) > 2 && b[0] == 0xCD: // the two usual forms, without a call
			id, b = uint32(binary.BigEndian.Uint16(b[1:])), b[3:]
		case len(b) > 4 && b[0] == 0xCE:
			id, b = binary.BigEndian.Uint32(b[1:]), b[5:]
		default:
			if id, b, err = readToken(b); err != nil {
				return dst, b, err
			}
		}
		dst = append(dst, id)
	}
	return dst, b, nil
}

// readHash reads a block's name: an integer of either sign, a digest, or one
// in hexadecimal.
func readHash(b []byte) (uint64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.BinType:
		digest, rest, err := msgp.ReadBytesZC(b)
		if err != nil || len(digest) == 0 {
			return 0, b, errType
		}
		return lowBits(digest), rest, nil
	case msgp.StrType:
		text, rest, err := msgp.ReadStringZC(b)
		if err != nil {
			return 0, b, err
		}
		h, ok := hexBits(text)
		if !ok {
			return 0, b, errType
		}
		return h, rest, nil
	}
	return readBits(b)
}

// lowBits are the last 8 bytes of a digest read as big-endian, which is what
// vLLM sends in place of the digest by default.
func lowBits(digest []byte) (h uint64) {
	for _, c := range digest[max(0, len(digest)-8):] {
		h = h<<8 | uint64(c)
	}
	return h
}

// hexBits is lowBits of a digest in hexadecimal.
func hexBits(text []byte) (h uint64, ok bool) {
	for _, c := range text {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return 0, false
		}
		h = h<<4 | uint64(c)
	}
	return h, len(text) > 0
}

// appendHashes appends the names of an array.
func appendHashes(dst []uint64, b []byte) ([]uint64, []byte, error) {
	n, b, err := readArray(b)
	if err != nil {
		return dst, b, err
	}
	for range n {
		var h uint64
		if h, b, err = readHash(b); err != nil {
			return dst, b, err
		}
		dst = append(dst, h)
	}
	return dst, b, nil
}

// readText reads a string without copying it; nil is empty.
func readText(b []byte) (text, rest []byte, err error) {
	if msgp.IsNil(b) {
		return nil, b[1:], nil
	}
	if msgp.NextType(b) != msgp.StrType {
		return nil, b, errType
	}
	return msgp.ReadStringZC(b)
}

// readSeconds reads a time stamp, which some publishers send as an integer.
func readSeconds(b []byte) (float64, []byte, error) {
	switch msgp.NextType(b) {
	case msgp.Float64Type:
		return msgp.ReadFloat64Bytes(b)
	case msgp.Float32Type:
		v, rest, err := msgp.ReadFloat32Bytes(b)
		return float64(v), rest, err
	}
	v, rest, err := readBits(b)
	return float64(v), rest, err
}
