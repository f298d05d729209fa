package backend

import (
	"bytes"
	"errors"

	"warmpath/bench/field"
)

// maxHeadBytes bounds one request head, as the read buffer of a connection
// would otherwise grow without end.
const maxHeadBytes = 64 << 10

// maxTextBytes bounds a body that is kept.
const maxTextBytes = 4 << 20

// route is what a request asks for.
type route uint8

const (
	routeNotFound route = iota
	routeChat
	routeRender   // …/render: fixed, never a stream, for routers that ask all nodes before they choose
	routeTokenize // its body is kept
	routeFiles
	routeModels
	routeHealth
	routeMetrics
	routeVersion
	routeCount
)

// errFraming refuses a request; the connection is closed after the answer.
var errFraming = errors.New("read request: malformed or unsupported framing")

// phase is where in a request the framer stands.
type phase uint8

const (
	phaseHead phase = iota
	phaseLength
	phaseChunkSize
	phaseChunkData
	phaseLastChunk
)

// framer finds the end of each request of one connection. It accepts less
// than RFC 9112 does (no chunk extensions, no trailers, no absolute targets),
// never more.
type framer struct {
	phase     phase
	route     route
	close     bool   // the connection ends after this request
	remaining int64  // bytes of the body, or of the chunk with its CRLF
	edges     edges  // of the body
	text      []byte // the body itself, for routeTokenize with Content-Length only
}

// step consumes leading bytes of buf and reports how many. done is true when
// they end a request, whose route and close are then valid until the next
// step. consumed is 0 and done false when more bytes are needed.
func (f *framer) step(buf []byte) (consumed int, done bool, err error) {
	if f.phase == phaseHead {
		end := bytes.Index(buf, []byte("\r\n\r\n"))
		if end < 0 {
			if len(buf) > maxHeadBytes {
				return 0, false, errFraming
			}
			return 0, false, nil
		}
		if end > maxHeadBytes || !f.head(buf[:end+2]) {
			return 0, false, errFraming
		}
		consumed = end + 4
		buf = buf[consumed:]
	}
	for {
		n, more, err := f.body(buf)
		consumed += n
		buf = buf[n:]
		if err != nil {
			return consumed, false, err
		}
		if f.phase == phaseHead {
			return consumed, true, nil
		}
		if !more {
			return consumed, false, nil
		}
	}
}

// stream reports whether the request that ended asks for a stream.
func (f *framer) stream() bool { return f.edges.stream() }

// body consumes bytes of one piece of the body. more is false when the rest
// of the piece has not come. The request has ended when the phase is
// phaseHead again.
func (f *framer) body(buf []byte) (n int, more bool, err error) {
	switch f.phase {
	case phaseLength:
		n = int(min(f.remaining, int64(len(buf))))
		f.remaining -= int64(n)
		f.edges.add(buf[:n], f.remaining == 0)
		if f.route == routeTokenize {
			if len(f.text)+n > maxTextBytes {
				return 0, false, errFraming
			}
			f.text = append(f.text, buf[:n]...)
		}
		if f.remaining == 0 {
			f.phase = phaseHead
		}
		return n, false, nil
	case phaseChunkSize:
		return f.chunkSize(buf)
	case phaseChunkData:
		return f.chunkData(buf)
	case phaseLastChunk:
		if len(buf) < 2 {
			return 0, false, nil
		}
		if buf[0] != '\r' || buf[1] != '\n' {
			return 0, false, errFraming
		}
		f.phase = phaseHead
		return 2, true, nil
	default:
		panic("BUG: body called between requests")
	}
}

// chunkSize reads `hex CRLF`.
func (f *framer) chunkSize(buf []byte) (n int, more bool, err error) {
	const maxDigits = 8
	line := buf[:min(len(buf), maxDigits+2)]
	end := bytes.IndexByte(line, '\n')
	if end < 0 {
		if len(line) == maxDigits+2 {
			return 0, false, errFraming
		}
		return 0, false, nil
	}
	if end < 2 || line[end-1] != '\r' {
		return 0, false, errFraming
	}
	size := int64(0)
	for _, c := range line[:end-1] {
		digit := bytes.IndexByte([]byte("0123456789abcdef"), c|0x20)
		if digit < 0 || c < '0' {
			return 0, false, errFraming
		}
		size = size<<4 | int64(digit)
	}
	f.phase, f.remaining = phaseChunkData, size+2
	if size == 0 {
		f.phase = phaseLastChunk
	}
	return end + 1, true, nil
}

// chunkData skips a chunk's data and checks the CRLF behind it.
func (f *framer) chunkData(buf []byte) (n int, more bool, err error) {
	if f.remaining > 2 {
		n = int(min(f.remaining-2, int64(len(buf))))
		f.remaining -= int64(n)
		f.edges.add(buf[:n], false)
		buf = buf[n:]
	}
	if f.remaining > 2 || len(buf) < 2 {
		return n, false, nil
	}
	if buf[0] != '\r' || buf[1] != '\n' {
		return n, false, errFraming
	}
	f.phase = phaseChunkSize
	return n + 2, true, nil
}

// head reads the request line and the fields, each ended by CRLF, and sets
// the phase of the body.
func (f *framer) head(head []byte) bool {
	end := bytes.Index(head, []byte("\r\n"))
	if !f.requestLine(head[:end]) {
		return false
	}
	head = head[end+2:]
	length, chunked, hosts := int64(-1), false, 0
	for len(head) > 0 {
		end = bytes.Index(head, []byte("\r\n"))
		name, value, ok := splitField(head[:end])
		if !ok {
			return false
		}
		head = head[end+2:]
		switch {
		case field.Is(name, "content-length"):
			if length >= 0 {
				return false
			}
			if length, ok = field.Decimal(value); !ok {
				return false
			}
		case field.Is(name, "transfer-encoding"):
			if chunked || !field.Is(value, "chunked") {
				return false
			}
			chunked = true
		case field.Is(name, "connection"):
			f.close = f.close || field.Is(value, "close")
		case field.Is(name, "host"):
			hosts++
		}
	}
	if chunked && length >= 0 || hosts != 1 {
		return false
	}
	switch {
	case chunked:
		f.phase = phaseChunkSize
	case length >= 0: // 0 too: body then ends the request without a byte
		f.phase, f.remaining = phaseLength, length
	default:
		f.phase, f.remaining = phaseLength, 0
	}
	return true
}

// requestLine reads `METHOD SP target SP HTTP/1.1`.
func (f *framer) requestLine(line []byte) bool {
	method, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok {
		return false
	}
	target, version, ok := bytes.Cut(rest, []byte(" "))
	if !ok || string(version) != "HTTP/1.1" || len(target) == 0 || target[0] != '/' {
		return false
	}
	for _, c := range target {
		if !alphanumeric(c) && bytes.IndexByte([]byte("/-_.?=&"), c) < 0 {
			return false
		}
	}
	path, _, _ := bytes.Cut(target, []byte("?"))
	f.close = false
	f.edges.reset()
	f.text = f.text[:0]
	switch string(method) {
	case "POST":
		f.route = routeNotFound
		switch {
		case string(path) == "/tokenize":
			f.route = routeTokenize
		case bytes.HasPrefix(path, []byte("/v1/")) && bytes.HasSuffix(path, []byte("/render")):
			f.route = routeRender
		case bytes.HasPrefix(path, []byte("/v1/")):
			f.route = routeChat
		}
	case "GET":
		f.route = getRoute(path)
	default:
		return false
	}
	return true
}

func getRoute(path []byte) route {
	switch string(path) {
	case "/v1/models":
		return routeModels
	case "/v1/files":
		return routeFiles
	case "/health":
		return routeHealth
	case "/metrics":
		return routeMetrics
	case "/version":
		return routeVersion
	default:
		return routeNotFound
	}
}

// splitField splits `name: value` and refuses what RFC 9110, section 5 does
// not allow in either.
func splitField(line []byte) (name, value []byte, ok bool) {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return nil, nil, false
	}
	name, value = line[:colon], bytes.Trim(line[colon+1:], " \t")
	for _, c := range name {
		if !alphanumeric(c) && c != '-' && c != '_' {
			return nil, nil, false
		}
	}
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return nil, nil, false
		}
	}
	return name, value, true
}

func alphanumeric(c byte) bool {
	lower := c | 0x20
	return c >= '0' && c <= '9' || lower >= 'a' && lower <= 'z'
}
