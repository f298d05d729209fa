package wire

import "strconv"

// Continue is the interim response that lets a client send its body.
const Continue = "HTTP/1.1 100 Continue\r\n\r\n"

// ChunkEnd ends the data of a chunk, LastChunk a chunked body (without trailers).
const (
	ChunkEnd  = "\r\n"
	LastChunk = "0\r\n\r\n"
)

// AppendChunkHead appends the line before the data of a chunk of n bytes; n
// must be positive, because an empty chunk would end the body.
func AppendChunkHead(dst []byte, n int) []byte {
	if n <= 0 {
		panic("BUG: wire: AppendChunkHead of an empty chunk")
	}
	dst = strconv.AppendUint(dst, uint64(n), 16)
	return append(dst, "\r\n"...)
}

// SimpleOptions describes an answer of the router itself.
type SimpleOptions struct {
	ContentType       string // "" = no such field
	Body              []byte
	RequestID         []byte // X-Request-Id; nil = none
	RetryAfterSeconds int    // Retry-After; 0 = none
	Allow             string // Allow, which 405 must have (RFC 9110, section 15.5.6); "" = none
	Minor             uint8  // the client's version
	KeepAlive         bool   // the client's connection may stay open
	Head              bool   // answers HEAD: Content-Length is that of Body, which is left out
}

// AppendSimple appends a whole final answer with that status (200 to 599);
// 204 and 304 are sent without content.
func AppendSimple(dst []byte, status int, o *SimpleOptions) []byte {
	if status < 200 || status > 599 {
		panic("BUG: wire: AppendSimple of status " + strconv.Itoa(status))
	}
	dst = appendStatus(dst, status)
	dst = append(dst, StatusText(status)...)
	dst = append(dst, "\r\n"...)
	empty := status == 204 || status == 304
	if !empty {
		if o.ContentType != "" {
			dst = append(dst, "Content-Type: "...)
			dst = append(dst, o.ContentType...)
			dst = append(dst, "\r\n"...)
		}
		dst = appendNumber(dst, "Content-Length: ", int64(len(o.Body)))
	}
	dst = appendField(dst, "X-Request-Id: ", o.RequestID)
	if o.RetryAfterSeconds > 0 {
		dst = appendNumber(dst, "Retry-After: ", int64(o.RetryAfterSeconds))
	}
	if o.Allow != "" {
		dst = append(dst, "Allow: "...)
		dst = append(dst, o.Allow...)
		dst = append(dst, "\r\n"...)
	}
	dst = appendConnection(dst, o.Minor, o.KeepAlive)
	dst = append(dst, "\r\n"...)
	if empty || o.Head {
		return dst
	}
	return append(dst, o.Body...)
}

// ValidRequestID reports whether a client's X-Request-Id may be kept: 1 to 128
// bytes of letters, digits, '.', '_', ':' and '-'. Others are replaced, since
// ids end up in logs, URLs and other heads.
func ValidRequestID(id []byte) bool {
	if len(id) == 0 || len(id) > 128 {
		return false
	}
	for _, c := range id {
		if toLower(c)-'a' >= 26 && !isDigit(c) && c != '.' && c != '_' && c != ':' && c != '-' {
			return false
		}
	}
	return true
}

var statusTexts = map[int]string{
	100: "Continue", 101: "Switching Protocols", 102: "Processing", 103: "Early Hints",
	200: "OK", 201: "Created", 202: "Accepted", 203: "Non-Authoritative Information", 204: "No Content",
	205: "Reset Content", 206: "Partial Content",
	300: "Multiple Choices", 301: "Moved Permanently", 302: "Found", 303: "See Other", 304: "Not Modified",
	305: "Use Proxy", 307: "Temporary Redirect", 308: "Permanent Redirect",
	400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden", 404: "Not Found",
	405: "Method Not Allowed", 406: "Not Acceptable", 407: "Proxy Authentication Required", 408: "Request Timeout",
	409: "Conflict", 410: "Gone", 411: "Length Required", 412: "Precondition Failed", 413: "Content Too Large",
	414: "URI Too Long", 415: "Unsupported Media Type", 416: "Range Not Satisfiable", 417: "Expectation Failed",
	421: "Misdirected Request", 422: "Unprocessable Content", 425: "Too Early", 426: "Upgrade Required",
	428: "Precondition Required", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
	500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
	504: "Gateway Timeout", 505: "HTTP Version Not Supported", 511: "Network Authentication Required",
}

// StatusText returns the reason phrase of a status (RFC 9110, section 15; RFC
// 6585, 8297 and 8470), "" if it is not known.
func StatusText(status int) string { return statusTexts[status] }
