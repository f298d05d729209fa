package dataplane_test

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// What follows reads HTTP/1.1 a second time, with no code of the product: by
// the grammar of RFC 9110 and 9112, of whole buffers, and with no leniency that
// they leave to a recipient. The nodes and clients of the conformance cases see
// the router's bytes through it.

// errMore says that the bytes may be the start of a good message.
var errMore = errors.New("not whole")

// strictFault is why bytes are no message.
type strictFault string

func (f strictFault) Error() string { return string(f) }

// strictMessage is a request or an answer.
type strictMessage struct {
	method, target string
	status         int
	reason         string
	minor          int
	fields         []strictField
	trailers       []strictField
	body           string
	chunked        bool
	untilClose     bool
	persists       bool
	bytes          int // length on the wire; of the head alone as long as the body is not whole
	headBytes      int
}

type strictField struct{ name, value string }

// values returns the values of all fields of that name.
func (m *strictMessage) values(name string) (all []string) {
	for _, f := range m.fields {
		if strings.EqualFold(f.name, name) {
			all = append(all, f.value)
		}
	}
	return all
}

// options returns the lower-case elements of a field that is a list of tokens.
func (m *strictMessage) options(name string) (all []string, err error) {
	for _, v := range m.values(name) {
		for e := range strings.SplitSeq(v, ",") {
			e = strings.Trim(e, " \t")
			switch {
			case e == "":
			case !isToken(e):
				return nil, strictFault(name + " is no list of tokens")
			default:
				all = append(all, strings.ToLower(e))
			}
		}
	}
	return all, nil
}

const tokenMarks = "!#$%&'*+-.^_`|~" // RFC 9110, section 5.6.2

func isToken(s string) bool {
	for _, c := range []byte(s) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte(tokenMarks, c) >= 0) {
			return false
		}
	}
	return s != ""
}

// isText is of VCHAR, obs-text, SP and HTAB (RFC 9110, section 5.5).
func isText(s string) bool {
	for _, c := range []byte(s) {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

func allIn(s, set string) bool { return strings.Trim(s, set) == "" }

const (
	digits    = "0123456789"
	hexDigits = digits + "abcdefABCDEF"
)

// cutLine cuts a line that ends in CRLF, and holds neither CR nor LF elsewhere.
func cutLine(b string) (text, rest string, err error) {
	at := strings.IndexAny(b, "\r\n")
	switch {
	case at < 0 || b[at] == '\r' && at+1 == len(b):
		return "", b, errMore
	case b[at] == '\n':
		return "", b, strictFault("bare LF")
	case b[at+1] != '\n':
		return "", b, strictFault("bare CR")
	}
	return b[:at], b[at+2:], nil
}

// fieldLines reads field lines up to and with the empty line.
func fieldLines(b string) (fields []strictField, rest string, err error) {
	for {
		var text string
		if text, b, err = cutLine(b); err != nil {
			return nil, b, err
		}
		if text == "" {
			return fields, b, nil
		}
		name, value, ok := strings.Cut(text, ":")
		if !ok || !isToken(name) || !isText(value) {
			return nil, b, strictFault("bad field line")
		}
		fields = append(fields, strictField{name, strings.Trim(value, " \t")})
	}
}

// readRequest reads the request at the start of b.
func readRequest(b string) (*strictMessage, error) {
	m := &strictMessage{}
	text, rest, err := cutLine(b)
	if err != nil {
		return m, err
	}
	words := strings.Split(text, " ")
	if len(words) != 3 || !isToken(words[0]) || len(words[2]) != len("HTTP/1.1") || words[2] != "HTTP/1.1" && words[2] != "HTTP/1.0" {
		return m, strictFault("bad request line")
	}
	m.method, m.target, m.minor = words[0], words[1], int(words[2][7]-'0')
	if m.fields, rest, err = fieldLines(rest); err != nil {
		return m, err
	}
	m.headBytes = len(b) - len(rest)
	m.bytes = m.headBytes
	if err := m.checkRequest(); err != nil {
		return m, err
	}
	return m, m.readBody(b, rest)
}

// checkRequest looks at what the parts of a request say together.
func (m *strictMessage) checkRequest() error {
	hosts := m.values("Host")
	switch {
	case !goodTarget(m.method, m.target):
		return strictFault("bad target")
	case len(hosts) > 1 || len(hosts) == 0 && m.minor > 0:
		return strictFault("not one Host")
	case len(hosts) == 1 && !goodHost(hosts[0]):
		return strictFault("bad Host")
	}
	for _, v := range m.values("Expect") {
		if m.minor > 0 && !strings.EqualFold(v, "100-continue") {
			return strictFault("unknown expectation")
		}
	}
	return m.checkPersistence()
}

func (m *strictMessage) checkPersistence() error {
	options, err := m.options("Connection")
	m.persists = !slices.Contains(options, "close") && (m.minor > 0 || slices.Contains(options, "keep-alive"))
	return err
}

// goodTarget is of RFC 9112, section 3.2, without authority-form: origin-form,
// absolute-form, asterisk-form, in visible ASCII and without a fragment.
func goodTarget(method, target string) bool {
	for _, c := range []byte(target) {
		if c <= ' ' || c >= 0x7f || c == '#' {
			return false
		}
	}
	if method == "CONNECT" || target == "" {
		return false
	}
	if target == "*" {
		return method == "OPTIONS"
	}
	if target[0] == '/' {
		return true
	}
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return false
	}
	if end := strings.IndexAny(rest, "/?"); end >= 0 {
		rest = rest[:end]
	}
	return goodHost(rest)
}

// goodHost is uri-host [ ":" port ], the host not empty and without
// percent-encoding; IP literals are looked at for their letters only.
func goodHost(v string) bool {
	if inside, ok := strings.CutPrefix(v, "["); ok {
		inside, after, ok := strings.Cut(inside, "]")
		return ok && inside != "" && allIn(inside, hexDigits+":.") && (after == "" || after[0] == ':' && allIn(after[1:], digits))
	}
	host, port, _ := strings.Cut(v, ":")
	return host != "" && allIn(port, digits) &&
		allIn(host, hexDigits+"ghijklmnopqrstuvwxyzGHIJKLMNOPQRSTUVWXYZ-._~!$&'()*+;=")
}

// readAnswer reads the answer at the start of b to a request of that method;
// ended says that nothing comes behind b.
func readAnswer(b, method string, ended bool) (*strictMessage, error) {
	m := &strictMessage{}
	text, rest, err := cutLine(b)
	if err != nil {
		return m, err
	}
	if len(text) < 13 || text[:7] != "HTTP/1." || text[7] != '0' && text[7] != '1' || text[8] != ' ' || text[12] != ' ' ||
		!allIn(text[9:12], digits) || text[9] < '1' || text[9] > '5' || !isText(text[13:]) {
		return m, strictFault("bad status line")
	}
	m.minor = int(text[7] - '0')
	m.status, _ = strconv.Atoi(text[9:12])
	m.reason = text[13:]
	if m.fields, rest, err = fieldLines(rest); err != nil {
		return m, err
	}
	m.headBytes = len(b) - len(rest)
	m.bytes = m.headBytes
	if err := m.checkPersistence(); err != nil {
		return m, err
	}
	if method == "HEAD" || m.status < 200 || m.status == 204 || m.status == 304 {
		return m, nil
	}
	if len(m.values("Content-Length"))+len(m.values("Transfer-Encoding")) == 0 {
		m.untilClose = true
		m.body = rest
		if !ended {
			return m, errMore
		}
		m.bytes = len(b)
		return m, nil
	}
	return m, m.readBody(b, rest)
}

// readBody reads the body that begins at rest, the end of b, by the fields; a
// Transfer-Encoding must be chunked, alone, and of HTTP/1.1 (RFC 9112, section 6).
func (m *strictMessage) readBody(b, rest string) error {
	codings, lengths := m.values("Transfer-Encoding"), m.values("Content-Length")
	switch {
	case len(codings) > 0:
		if len(lengths) > 0 || len(codings) > 1 || !strings.EqualFold(codings[0], "chunked") || m.minor == 0 {
			return strictFault("bad framing")
		}
		m.chunked = true
		left, err := m.readChunks(rest)
		if err == nil {
			m.bytes = len(b) - len(left)
		}
		return err
	case len(lengths) > 0:
		n, err := strconv.ParseUint(lengths[0], 10, 63)
		if len(lengths) > 1 || err != nil || !allIn(lengths[0], digits) {
			return strictFault("bad Content-Length")
		}
		if uint64(len(rest)) < n {
			m.body = rest
			return errMore
		}
		m.body = rest[:n]
		m.bytes = len(b) - len(rest) + int(n)
	}
	return nil
}

// readChunks reads a chunked body with its trailers (RFC 9112, section 7.1).
func (m *strictMessage) readChunks(b string) (rest string, err error) {
	for {
		var text string
		if text, b, err = cutLine(b); err != nil {
			return b, err
		}
		size, extensions, extended := strings.Cut(text, ";")
		if extended && !goodExtensions(extensions) {
			return b, strictFault("bad chunk extension")
		}
		length, e := strconv.ParseUint(size, 16, 63)
		if e != nil || !allIn(size, hexDigits) {
			return b, strictFault("bad chunk size")
		}
		if length == 0 {
			m.trailers, b, err = fieldLines(b)
			return b, err
		}
		come := min(uint64(len(b)), length)
		m.body += b[:come]
		switch b = b[come:]; {
		case strings.HasPrefix(b, "\r\n"):
			b = b[2:]
		case b == "" || b == "\r":
			return b, errMore
		default:
			return b, strictFault("no CRLF behind a chunk")
		}
	}
}

// goodExtensions is of name [ "=" value ] *( ";" name [ "=" value ] ), with the
// white space that RFC 9112, section 7.1.1, calls bad but not at the end.
func goodExtensions(s string) bool {
	const space = " \t"
	for {
		s = strings.TrimLeft(s, space)
		end := strings.IndexAny(s, " \t;=")
		if end < 0 {
			return isToken(s)
		}
		if !isToken(s[:end]) {
			return false
		}
		s = strings.TrimLeft(s[end:], space)
		if value, ok := strings.CutPrefix(s, "="); ok {
			if s, ok = cutValue(strings.TrimLeft(value, space)); !ok {
				return false
			}
			if s == "" {
				return true
			}
			s = strings.TrimLeft(s, space)
		}
		if s == "" || s[0] != ';' {
			return false
		}
		s = s[1:]
	}
}

// cutValue cuts a token or a quoted string from the start of s.
func cutValue(s string) (rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		end := strings.IndexAny(s, " \t;")
		if end < 0 {
			end = len(s)
		}
		return s[end:], isToken(s[:end])
	}
	for i := 1; i < len(s); i++ {
		switch {
		case !isText(s[i : i+1]):
			return "", false
		case s[i] == '"':
			return s[i+1:], true
		case s[i] == '\\':
			if i++; i == len(s) || !isText(s[i:i+1]) {
				return "", false
			}
		}
	}
	return "", false
}
