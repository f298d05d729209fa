package takeover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// Version is that of the protocol. A change of what the frames beside Hello,
// Welcome and Refusal hold is another version.
const Version = 1

// Kind says what a frame is.
type Kind byte

// The kinds of frames, in the order in which they are first sent.
const (
	Hello Kind = 1 + iota
	Welcome
	Refusal
	SocketPassed
	NodeKnown
	FetchRank
	Piece
	Tails
	RankEnd
	Ready
	Yours
	Notes

	kinds = iota + 1
)

// A frame is the length of its body (32 bits, little-endian), its kind, the
// body, and the CRC-32C of all that.
const (
	headBytes    = 5
	sumBytes     = 4
	maxBodyBytes = 1 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errFrameSum  = errors.New("a frame's checksum is wrong")
	errFrameKind = errors.New("a frame of no known kind")
)

// AppendFrame encodes a frame.
func AppendFrame(dst []byte, kind Kind, body []byte) []byte {
	if len(body) > maxBodyBytes {
		panic(fmt.Sprintf("BUG: takeover: a frame of %d bytes", len(body)))
	}
	from := len(dst)
	dst = append(binary.LittleEndian.AppendUint32(dst, uint32(len(body))), byte(kind))
	dst = append(dst, body...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

// ParseFrame reads the first frame of b, of n bytes; 0 means that more of it is
// to come. The body is a part of b.
func ParseFrame(b []byte) (kind Kind, body []byte, n int, err error) {
	if len(b) < headBytes {
		return 0, nil, 0, nil
	}
	length := binary.LittleEndian.Uint32(b)
	kind = Kind(b[4])
	switch {
	case kind == 0 || kind >= kinds:
		return 0, nil, 0, errFrameKind
	case length > maxBodyBytes:
		return 0, nil, 0, fmt.Errorf("a frame of %d bytes, %d are allowed", length, maxBodyBytes)
	}
	end := headBytes + int(length)
	if len(b) < end+sumBytes {
		return 0, nil, 0, nil
	}
	if binary.LittleEndian.Uint32(b[end:]) != crc32.Checksum(b[:end], castagnoli) {
		return 0, nil, 0, errFrameSum
	}
	return kind, b[headBytes:end], end + sumBytes, nil
}
