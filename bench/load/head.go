package load

import (
	"bytes"

	"warmpath/bench/field"
)

var (
	endOfHead = []byte("\r\n\r\n")
	crlf      = []byte("\r\n")
	eventType = []byte("text/event-stream")
)

// tokenByte marks the bytes of a token (RFC 9110, section 5.6.2).
var tokenByte = func() (table [256]bool) {
	for c := range table {
		lower := c | 0x20
		table[c] = c >= '0' && c <= '9' || lower >= 'a' && lower <= 'z' && c < 0x80 ||
			bytes.IndexByte([]byte("!#$%&'*+-.^_`|~"), byte(c)) >= 0
	}
	return table
}()

// parse reads a head whose lines all end with CRLF, and sets the state of the
// body (RFC 9112, section 6.3).
func (r *reader) parse(head []byte) bool {
	end := bytes.Index(head, crlf)
	if !r.statusLine(head[:end]) {
		return false
	}
	r.sse, r.closes, r.keepAlive, r.chunked, r.length = false, false, false, false, -1
	for rest := head[end+2:]; len(rest) > 0; {
		end = bytes.Index(rest, crlf)
		if !r.field(rest[:end]) {
			return false
		}
		rest = rest[end+2:]
	}
	r.closes = r.closes || r.oldProtocol && !r.keepAlive
	switch {
	case r.status < 200:
		return true
	case r.chunked && (r.length >= 0 || r.oldProtocol):
		return false
	case r.status == 204 || r.status == 304:
		r.state, r.remaining = stateLength, 0
	case r.chunked:
		r.state, r.remaining, r.digits = stateSize, 0, 0
	case r.length >= 0:
		r.state, r.remaining = stateLength, r.length
	default:
		r.state, r.closes = stateClose, true
	}
	return true
}

// statusLine reads `HTTP/1.x SP 3DIGIT SP [reason]`. The last space may lack,
// as it does in answers of some servers.
func (r *reader) statusLine(line []byte) bool {
	const fixed = len("HTTP/1.1 200")
	if len(line) < fixed || string(line[:7]) != "HTTP/1." || line[7] != '0' && line[7] != '1' || line[8] != ' ' {
		return false
	}
	if len(line) > fixed && line[fixed] != ' ' || !valueBytes(line[fixed:]) {
		return false
	}
	r.oldProtocol = line[7] == '0'
	r.status = 0
	for _, c := range line[9:fixed] {
		if c < '0' || c > '9' {
			return false
		}
		r.status = r.status*10 + int(c-'0')
	}
	return r.status >= 100
}

// field reads one field line. Only what the framing depends on is looked at.
func (r *reader) field(line []byte) bool {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return false
	}
	name := line[:colon]
	for _, c := range name {
		if !tokenByte[c] {
			return false
		}
	}
	value := bytes.Trim(line[colon+1:], " \t")
	if !valueBytes(value) {
		return false
	}
	switch {
	case field.Is(name, "content-length"):
		length, ok := field.Decimal(value)
		if !ok || r.length >= 0 && r.length != length {
			return false
		}
		r.length = length
	case field.Is(name, "transfer-encoding"):
		if r.chunked || !field.Is(value, "chunked") {
			return false
		}
		r.chunked = true
	case field.Is(name, "connection"):
		r.options(value)
	case field.Is(name, "content-type"):
		r.sse = len(value) >= len(eventType) && field.Is(value[:len(eventType)], string(eventType))
	}
	return true
}

// options reads the list of a Connection field.
func (r *reader) options(value []byte) {
	for len(value) > 0 {
		option := value
		if comma := bytes.IndexByte(value, ','); comma >= 0 {
			option, value = value[:comma], value[comma+1:]
		} else {
			value = nil
		}
		option = bytes.Trim(option, " \t")
		r.closes = r.closes || field.Is(option, "close")
		r.keepAlive = r.keepAlive || field.Is(option, "keep-alive")
	}
}

func valueBytes(value []byte) bool {
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
