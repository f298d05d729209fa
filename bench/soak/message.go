package soak

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// maxHeadBytes bounds a head that is read.
const maxHeadBytes = 32 << 10

// field is one field line; the name is in lower case.
type field struct{ name, value string }

// head is the start of a message.
type head struct {
	line   string // request or status line
	fields []field
}

// all returns the values of a field.
func (h *head) all(name string) []string {
	var values []string
	for i := range h.fields {
		if h.fields[i].name == name {
			values = append(values, h.fields[i].value)
		}
	}
	return values
}

// one returns the value of a field that must occur once.
func (h *head) one(name string) (string, error) {
	values := h.all(name)
	if len(values) != 1 {
		return "", fmt.Errorf("%d fields %s: %q", len(values), name, values)
	}
	return values[0], nil
}

func (h *head) has(name string) bool { return len(h.all(name)) > 0 }

// closes reports whether Connection says that the connection ends.
func (h *head) closes() bool {
	for _, v := range h.all("connection") {
		for option := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(option), "close") {
				return true
			}
		}
	}
	return false
}

// errFraming is wrapped by all errors about what a message says, as opposed to
// those of its connection.
var errFraming = errors.New("framing")

func framing(format string, values ...any) error {
	return fmt.Errorf("%w: %s", errFraming, fmt.Sprintf(format, values...))
}

// readHead reads a head: lines that end in CRLF, an empty one at the end. io.EOF
// means that the connection ended before the first byte.
func readHead(r *bufio.Reader) (*head, error) {
	h := &head{}
	for total := 0; ; {
		line, err := readLine(r)
		if err != nil {
			if err == io.EOF && (h.line != "" || len(line) > 0) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if total += len(line); total > maxHeadBytes {
			return nil, framing("a head of more than %d bytes", maxHeadBytes)
		}
		switch {
		case h.line == "":
			if len(line) == 0 {
				return nil, framing("an empty first line")
			}
			h.line = string(line)
		case len(line) == 0:
			return h, nil
		default:
			name, value, ok := strings.Cut(string(line), ":")
			if !ok || name == "" || strings.ContainsAny(name, " \t\"(),/:;<=>?@[\\]{}") {
				return nil, framing("field line %q", line)
			}
			h.fields = append(h.fields, field{strings.ToLower(name), strings.Trim(value, " \t")})
		}
	}
}

// readLine reads one line and returns it without its CRLF. Of a line that is cut
// off it returns the start with the error.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, framing("a line of more than %d bytes", len(line))
	case err != nil:
		return line, err
	case len(line) < 2 || line[len(line)-2] != '\r':
		return nil, framing("a line %q that does not end in CRLF", line)
	}
	line = line[:len(line)-2]
	if bytes.ContainsAny(line, "\r\x00") {
		return nil, framing("control characters in the line %q", line)
	}
	return line, nil
}

// bodyKind says how the end of a body is known.
type bodyKind uint8

const (
	bodyNone bodyKind = iota
	bodyLength
	bodyChunked
	bodyUntilClose
)

// bodyOf says how the body of a message is framed; none is what a message
// without framing fields has.
func bodyOf(h *head, none bodyKind) (kind bodyKind, length int64, err error) {
	lengths, codings := h.all("content-length"), h.all("transfer-encoding")
	switch {
	case len(lengths)+len(codings) > 1:
		return 0, 0, framing("Content-Length %q and Transfer-Encoding %q", lengths, codings)
	case len(codings) == 1:
		if !strings.EqualFold(codings[0], "chunked") {
			return 0, 0, framing("Transfer-Encoding %q", codings)
		}
		return bodyChunked, 0, nil
	case len(lengths) == 1:
		n, err := strconv.ParseUint(lengths[0], 10, 62)
		if err != nil {
			return 0, 0, framing("Content-Length %q", lengths)
		}
		return bodyLength, int64(n), nil
	}
	return none, 0, nil
}

// body reads the content of one body. Read returns io.EOF where the framing says
// that it ends, io.ErrUnexpectedEOF where the connection ended before that.
type body struct {
	r      *bufio.Reader
	kind   bodyKind
	left   int64 // of the body, or of the chunk
	inside bool  // a chunk was begun
	done   bool
}

func (b *body) Read(p []byte) (int, error) {
	if b.done || b.kind == bodyNone {
		return 0, io.EOF
	}
	if b.kind == bodyUntilClose {
		n, err := b.r.Read(p)
		b.done = err == io.EOF
		return n, err
	}
	if b.left == 0 {
		if err := b.next(); err != nil {
			return 0, err
		}
	}
	n, err := b.r.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// next goes to the next content, or says that there is none.
func (b *body) next() error {
	if b.kind == bodyLength {
		b.done = true
		return io.EOF
	}
	if b.inside {
		if line, err := readLine(b.r); err != nil || len(line) > 0 {
			return cutOr(err, "%q behind the data of a chunk", line)
		}
	}
	line, err := readLine(b.r)
	if err != nil {
		return cutOr(err, "")
	}
	digits, _, _ := strings.Cut(string(line), ";")
	n, err := strconv.ParseUint(digits, 16, 40)
	if err != nil {
		return framing("chunk size %q", line)
	}
	if n > 0 {
		b.left, b.inside = int64(n), true
		return nil
	}
	for { // trailers
		line, err := readLine(b.r)
		switch {
		case err != nil:
			return cutOr(err, "")
		case len(line) == 0:
			b.done = true
			return io.EOF
		case !bytes.Contains(line, []byte(":")):
			return framing("trailer %q", line)
		}
	}
}

// cutOr returns the connection's error, or what is wrong with the framing.
func cutOr(err error, format string, values ...any) error {
	switch {
	case err == nil:
		return framing(format, values...)
	case err == io.EOF:
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendChunked appends content in chunks that end at the given places, which
// ascend, with an extension where one is given, and the trailers.
func appendChunked(dst, content []byte, ends []int, extension, trailers string) []byte {
	start := 0
	chunk := func(end int) {
		if end > start {
			dst = strconv.AppendInt(dst, int64(end-start), 16)
			dst = append(append(dst, extension...), "\r\n"...)
			dst = append(append(dst, content[start:end]...), "\r\n"...)
			start = end
		}
	}
	for _, end := range ends {
		chunk(end)
	}
	chunk(len(content))
	return append(append(append(dst, "0\r\n"...), trailers...), "\r\n"...)
}
