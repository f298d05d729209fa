package zmtp

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Flags of a frame (RFC 23, section 3).
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
	flagsKnown  = flagMore | flagLong | flagCommand
)

// growBytes is how much room is made for a frame before its bytes have come,
// so that a length alone costs nothing.
const growBytes = 64 << 10

// keepBytes is the largest buffer that is kept from one message to the next.
const keepBytes = 1 << 20

// appendFrame appends a frame with its header.
func appendFrame(dst []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		dst = append(dst, flags|flagLong)
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(body)))
	} else {
		dst = append(dst, flags, byte(len(body)))
	}
	return append(dst, body...)
}

// readFrame appends the body of the next frame to c.buffer and returns its
// flags. It reads no more than the message's bound leaves.
func (c *Conn) readFrame() (flags byte, err error) {
	flags, err = c.reader.ReadByte()
	if err != nil {
		return 0, err
	}
	if flags&^flagsKnown != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return 0, fmt.Errorf("frame with flags %#x: the peer does not speak ZMTP 3", flags)
	}
	c.header = [8]byte{}
	length := c.header[7:]
	if flags&flagLong != 0 {
		length = c.header[:]
	}
	if _, err = io.ReadFull(c.reader, length); err != nil {
		return 0, unexpected(err)
	}
	size := binary.BigEndian.Uint64(c.header[:])
	if left := c.options.MaxMessageBytes - len(c.buffer); size > uint64(left) {
		return 0, fmt.Errorf("frame of %d bytes: a message may have %d in all", size, c.options.MaxMessageBytes)
	}
	return flags, c.readBody(int(size))
}

// readBody appends size bytes to c.buffer, making room as they come.
func (c *Conn) readBody(size int) error {
	for size > 0 {
		start := len(c.buffer)
		n := min(size, max(cap(c.buffer)-start, growBytes))
		if start+n > cap(c.buffer) {
			grown := make([]byte, start, max(2*cap(c.buffer), start+n))
			copy(grown, c.buffer)
			c.buffer = grown
		}
		c.buffer = c.buffer[:start+n]
		if _, err := io.ReadFull(c.reader, c.buffer[start:]); err != nil {
			return unexpected(err)
		}
		size -= n
	}
	return nil
}

// unexpected makes the end of the stream inside a frame an error of its own.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
