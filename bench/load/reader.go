package load

import (
	"bytes"
	"errors"
)

// maxHeadBytes bounds a response head, and a trailer section.
const maxHeadBytes = 64 << 10

// errMalformed is any answer that RFC 9112 does not allow, or that two readers
// could read in two ways.
var errMalformed = errors.New("read answer: malformed HTTP/1.1")

// part is what the reader found.
type part uint8

const (
	partMore part = iota // nothing yet: more bytes are needed
	partHead             // a head is complete; status and framing are known
	partBody             // bytes of the body
	partEnd              // the answer is complete
)

type readState uint8

const (
	stateHead   readState = iota
	stateLength           // remaining bytes of a body with Content-Length
	stateClose            // a body that ends with the connection
	stateSize             // digits of a chunk's size
	stateExt              // chunk extension, skipped
	stateSizeLF           // LF after a chunk's size
	stateChunk            // remaining bytes of a chunk
	stateChunkCR
	stateChunkLF
	stateTrailer // start of a trailer line
	stateTrailerName
	stateTrailerLine
	stateTrailerLF
	stateLastLF
	stateEnded
)

// reader reads one response after the other of one connection, whatever pieces
// it comes in. It copies nothing but heads that came in pieces.
type reader struct {
	state readState

	// Of the response under way, valid from partHead on.
	status      int
	sse         bool // its content is an event stream
	closes      bool // the connection ends with it
	chunked     bool
	oldProtocol bool // HTTP/1.0
	keepAlive   bool
	length      int64 // Content-Length, −1 without one

	remaining int64 // of the body or of the chunk
	digits    int   // of the chunk's size so far; bytes of the trailers
	head      []byte
}

// reset prepares for the next response.
func (r *reader) reset() {
	r.state = stateHead
	r.head = r.head[:0]
}

// next consumes leading bytes of buf, which is not empty. data is the part of
// the body among them and points into buf. partEnd may come with n = 0. After
// partEnd or an error reset must be called.
func (r *reader) next(buf []byte) (n int, data []byte, p part, err error) {
	switch r.state {
	case stateHead:
		return r.readHead(buf)
	case stateLength:
		if r.remaining == 0 {
			r.state = stateEnded
			return 0, nil, partEnd, nil
		}
		n = int(min(r.remaining, int64(len(buf))))
		r.remaining -= int64(n)
		return n, buf[:n], partBody, nil
	case stateClose:
		return len(buf), buf, partBody, nil
	case stateChunk:
		n = int(min(r.remaining, int64(len(buf))))
		if r.remaining -= int64(n); r.remaining == 0 {
			r.state = stateChunkCR
		}
		return n, buf[:n], partBody, nil
	case stateEnded:
		return 0, nil, partMore, errMalformed
	default:
		return r.frame(buf)
	}
}

// pending reports whether the next call of next needs no further bytes.
func (r *reader) pending() bool { return r.state == stateLength && r.remaining == 0 }

// eof says that the connection has ended. It reports whether that completes the
// response.
func (r *reader) eof() bool {
	return r.state == stateClose || r.pending()
}

// inBody reports whether the head of the response has come.
func (r *reader) inBody() bool { return r.state != stateHead }

// frame reads the bytes between the chunks' data, up to the next data or the
// end (RFC 9112, section 7.1).
func (r *reader) frame(buf []byte) (n int, data []byte, p part, err error) {
	for i, c := range buf {
		switch r.state {
		case stateSize:
			if err := r.size(c); err != nil {
				return i, nil, partMore, err
			}
		case stateExt:
			if c == '\r' {
				r.state = stateSizeLF
			} else if c < ' ' && c != '\t' || c == 0x7f {
				return i, nil, partMore, errMalformed
			}
			if r.digits++; r.digits > maxHeadBytes {
				return i, nil, partMore, errMalformed
			}
		case stateSizeLF, stateChunkLF, stateTrailerLF, stateLastLF:
			if c != '\n' {
				return i, nil, partMore, errMalformed
			}
			if r.line() {
				return i + 1, nil, partEnd, nil
			}
			if r.state == stateChunk {
				return i + 1, nil, partMore, nil
			}
		case stateChunkCR:
			if c != '\r' {
				return i, nil, partMore, errMalformed
			}
			r.state = stateChunkLF
		case stateTrailer, stateTrailerName, stateTrailerLine:
			if err := r.trailer(c); err != nil {
				return i, nil, partMore, err
			}
		default:
			panic("BUG: load: reader frames outside of chunks")
		}
	}
	return len(buf), nil, partMore, nil
}

// line goes on after the end of a line and reports whether the response ended.
func (r *reader) line() (ended bool) {
	switch r.state {
	case stateSizeLF:
		r.digits = 0
		if r.remaining == 0 {
			r.state = stateTrailer
		} else {
			r.state = stateChunk
		}
	case stateChunkLF:
		r.state, r.remaining, r.digits = stateSize, 0, 0
	case stateTrailerLF:
		r.state = stateTrailer
	case stateLastLF:
		r.state = stateEnded
		return true
	}
	return false
}

// size takes one byte of a chunk's size.
func (r *reader) size(c byte) error {
	const most = 15 // hexadecimal digits that cannot overflow
	var digit byte
	switch {
	case c >= '0' && c <= '9':
		digit = c - '0'
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		digit = c | 0x20 - 'a' + 10
	case r.digits > 0 && c == '\r':
		r.state = stateSizeLF
		return nil
	case r.digits > 0 && c == ';':
		r.state = stateExt
		return nil
	default:
		return errMalformed
	}
	if r.digits++; r.digits > most {
		return errMalformed
	}
	r.remaining = r.remaining<<4 | int64(digit)
	return nil
}

// trailer takes one byte of the trailer section; its fields are skipped.
func (r *reader) trailer(c byte) error {
	if r.digits++; r.digits > maxHeadBytes {
		return errMalformed
	}
	switch {
	case r.state == stateTrailer && c == '\r':
		r.state = stateLastLF
	case r.state == stateTrailer && tokenByte[c]:
		r.state = stateTrailerName
	case r.state == stateTrailerName && c == ':':
		r.state = stateTrailerLine
	case r.state == stateTrailerName && tokenByte[c]:
	case r.state == stateTrailerLine && c == '\r':
		r.state = stateTrailerLF
	case r.state == stateTrailerLine && (c >= ' ' && c != 0x7f || c == '\t'):
	default:
		return errMalformed
	}
	return nil
}

// readHead waits for a whole head. Heads of interim answers are skipped.
func (r *reader) readHead(buf []byte) (n int, data []byte, p part, err error) {
	head := buf
	if len(r.head) > 0 {
		before := len(r.head)
		r.head = append(r.head, buf[:min(len(buf), maxHeadBytes+1)]...)
		end := bytes.Index(r.head[max(0, before-3):], endOfHead)
		if end < 0 {
			return r.incomplete(len(buf))
		}
		end += max(0, before-3) + len(endOfHead)
		n, head = end-before, r.head[:end]
	} else {
		end := bytes.Index(buf, endOfHead)
		if end < 0 {
			r.head = append(r.head, buf[:min(len(buf), maxHeadBytes+1)]...)
			return r.incomplete(len(buf))
		}
		n = end + len(endOfHead)
		head = buf[:n]
	}
	if len(head) > maxHeadBytes || !r.parse(head[:len(head)-2]) {
		return n, nil, partMore, errMalformed
	}
	r.head = r.head[:0]
	if r.status < 200 {
		if r.status == 101 { // nobody asked for another protocol
			return n, nil, partMore, errMalformed
		}
		return n, nil, partMore, nil
	}
	return n, nil, partHead, nil
}

func (r *reader) incomplete(n int) (int, []byte, part, error) {
	if len(r.head) > maxHeadBytes {
		return n, nil, partMore, errMalformed
	}
	return n, nil, partMore, nil
}
