package backend

import "bytes"

// How much of a body's begin and of its end is searched for the stream flag.
// Clients write it before or after the messages; between them only prompts are
// long, and searching those would cost more than all the rest of an answer. A
// search of at most searchBytes is a few vector instructions; routers that write
// bodies anew put up to a quarter of a kilobyte of options behind the flag.
const (
	searchBytes = 64
	headBytes   = searchBytes
	tailBytes   = 6*searchBytes - 5*overlap
)

var flag = []byte(`"stream":`)

// overlap lets a flag on the border of two searches be found.
const overlap = len(`"stream": true`) - 1

// edges keeps the begin and the end of a body that comes in pieces, as far as
// the search for the stream flag needs them.
type edges struct {
	found bool
	n     int                         // bytes in kept
	kept  [headBytes + tailBytes]byte // the body's begin, then its end
}

func (e *edges) reset() { e.found, e.n = false, 0 }

// add takes a piece of the body. whole says that the body ends with it.
func (e *edges) add(piece []byte, whole bool) {
	if whole && e.n == 0 { // the common case: nothing is copied
		e.found = asks(piece[:min(len(piece), headBytes)], piece[max(len(piece)-tailBytes, 0):])
		return
	}
	n := copy(e.kept[min(e.n, headBytes):headBytes], piece)
	e.n += n
	piece = piece[n:]
	if len(piece) > tailBytes {
		piece = piece[len(piece)-tailBytes:]
	}
	if over := e.n + len(piece) - len(e.kept); over > 0 {
		e.n = headBytes + copy(e.kept[headBytes:], e.kept[headBytes+over:e.n])
	}
	e.n += copy(e.kept[e.n:], piece)
}

// stream reports whether the body asks for a stream.
func (e *edges) stream() bool {
	if e.n == 0 {
		return e.found
	}
	body := e.kept[:e.n]
	// In a short body begin and end are one text.
	return asks(body[:min(e.n, headBytes)], body[max(e.n-tailBytes, 0):])
}

// asks searches a body's first headBytes and last tailBytes.
func asks(head, tail []byte) bool {
	if set(head) {
		return true
	}
	for len(tail) > searchBytes {
		if set(tail[:searchBytes]) {
			return true
		}
		tail = tail[searchBytes-overlap:]
	}
	return set(tail)
}

// set searches one text for the flag with the value true.
func set(text []byte) bool {
	at := bytes.Index(text, flag)
	if at < 0 {
		return false
	}
	return bytes.HasPrefix(bytes.TrimLeft(text[at+len(flag):], " "), []byte("true"))
}
