package wire

import "strconv"

// RequestOptions says how a request head changes on its way to a node. Nil
// slices and empty strings mean "as the client sent it". Values must be valid
// field values. Zero is a value of ContentLength and Rank: -1 is none.
type RequestOptions struct {
	PathPrefix     string // put before the path: "" or "/…" without a slash at its end
	Host           string // authority of the node; "" keeps the client's
	ContentLength  int64  // bytes of the body that follow; -1 = no such field
	Chunked        bool   // the body that follows comes in chunks; ContentLength is -1 then
	RequestID      []byte // X-Request-Id
	ForwardedFor   []byte // X-Forwarded-For, the full value
	RealIP         []byte // X-Real-IP
	ForwardedProto []byte // X-Forwarded-Proto
	Rank           int    // X-data-parallel-rank; -1 = as the client sent it
}

// AppendRequestHead appends the head of r, parsed from src, as it goes to a
// node. The request line becomes origin-form (asterisk-form stays) and
// HTTP/1.1; hop-by-hop fields and what Connection names are left out; Host and
// the framing fields are ours.
// All other lines are copied as they are and in their order, a run of them in
// one copy. src is what r was parsed from.
func AppendRequestHead(dst, src []byte, r *Request, o *RequestOptions) []byte {
	dst = append(dst, r.MethodName.Of(src)...)
	dst = append(dst, ' ')
	dst = appendTarget(dst, src, r, o.PathPrefix)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	if o.Host != "" {
		dst = append(dst, o.Host...)
	} else {
		dst = append(dst, r.Host.Of(src)...)
	}
	dst = append(dst, "\r\n"...)

	replaced := 1<<FieldHost | 1<<FieldContentLength | ifSet(o.RequestID, FieldXRequestID) |
		ifSet(o.ForwardedFor, FieldXForwardedFor) | ifSet(o.RealIP, FieldXRealIP) | ifSet(o.ForwardedProto, FieldXForwardedProto)
	if o.Rank >= 0 {
		replaced |= 1 << FieldDataParallelRank
	}
	if o.ForwardedFor != nil {
		replaced |= 1 << FieldForwarded // says the same in another way, for whoever believes it
	}
	dst = appendKept(dst, src, r.Fields, replaced)

	dst = appendField(dst, "X-Request-Id: ", o.RequestID)
	dst = appendField(dst, "X-Forwarded-For: ", o.ForwardedFor)
	dst = appendField(dst, "X-Real-IP: ", o.RealIP)
	dst = appendField(dst, "X-Forwarded-Proto: ", o.ForwardedProto)
	if o.Rank >= 0 {
		dst = appendNumber(dst, "X-data-parallel-rank: ", int64(o.Rank))
	}
	switch {
	case o.Chunked:
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	case o.ContentLength >= 0:
		dst = appendNumber(dst, "Content-Length: ", o.ContentLength)
	}
	return append(dst, "\r\n"...)
}

// appendTarget reduces absolute-form to origin-form. OPTIONS of an authority
// without path and query becomes asterisk-form (RFC 9112, section 3.2.4).
func appendTarget(dst, src []byte, r *Request, prefix string) []byte {
	rest := src[r.Path.Start:r.Target.End]
	if r.Method == MethodOptions && (len(rest) == 0 || rest[0] == '*') {
		return append(dst, '*')
	}
	dst = append(dst, prefix...)
	if r.Path.Len() == 0 {
		dst = append(dst, '/')
	}
	return append(dst, rest...)
}

// ResponseOptions says how a response head changes on its way to a client. Nil
// slices mean "as the node sent it". Zero is a value of ContentLength and
// DurationSeconds: -1 is none.
type ResponseOptions struct {
	Minor           uint8   // the client's version
	KeepAlive       bool    // the client's connection may stay open
	RequestID       []byte  // X-Request-Id
	RoutedTo        []byte  // X-Routed-To
	DurationSeconds float64 // X-Request-Duration
	Chunked         bool    // a body without a length will be sent chunked; must not be set for a 1.0 client
	ContentLength   int64   // length of a body that came without one but is held whole; -1 = not known
}

// MustClose reports whether the end of the body can only be told to the client
// by closing its connection: it has no length and is not sent chunked.
func (o *ResponseOptions) MustClose(r *Response) bool {
	return (r.Body == BodyChunked || r.Body == BodyUntilClose) && !o.Chunked && o.ContentLength < 0
}

// AppendResponseHead appends the head of r, parsed from src, as it goes to a
// client, who must be sent the body in the form that the head announces: with
// the node's length if there is one; else chunked if o.Chunked; else with
// o.ContentLength if that is known; else until the connection closes, which
// MustClose tells. Hop-by-hop fields and what Connection names are left out,
// all else is copied as in AppendRequestHead. Interim responses keep only
// fields of the node; they must not be sent to a 1.0 client.
func AppendResponseHead(dst, src []byte, r *Response, o *ResponseOptions) []byte {
	dst = appendStatus(dst, r.Status)
	dst = append(dst, r.Reason.Of(src)...)
	dst = append(dst, "\r\n"...)
	if r.Status < 200 {
		dst = appendKept(dst, src, r.Fields, 1<<FieldContentLength)
		return append(dst, "\r\n"...)
	}
	replaced := 1<<FieldContentLength | ifSet(o.RequestID, FieldXRequestID) | ifSet(o.RoutedTo, FieldXRoutedTo)
	if o.DurationSeconds >= 0 {
		replaced |= 1 << FieldXRequestDuration
	}
	dst = appendKept(dst, src, r.Fields, replaced)
	dst = appendField(dst, "X-Request-Id: ", o.RequestID)
	dst = appendField(dst, "X-Routed-To: ", o.RoutedTo)
	if o.DurationSeconds >= 0 {
		dst = append(dst, "X-Request-Duration: "...)
		dst = strconv.AppendFloat(dst, o.DurationSeconds, 'f', 6, 64)
		dst = append(dst, "\r\n"...)
	}
	switch {
	case r.Body == BodyNone || r.Body == BodyLength:
		if r.ContentLength >= 0 {
			dst = appendNumber(dst, "Content-Length: ", r.ContentLength)
		}
	case o.Chunked:
		if o.Minor == 0 {
			panic("BUG: wire: a chunked body for an HTTP/1.0 client")
		}
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	case o.ContentLength >= 0:
		dst = appendNumber(dst, "Content-Length: ", o.ContentLength)
	}
	dst = appendConnection(dst, o.Minor, o.KeepAlive && !o.MustClose(r))
	return append(dst, "\r\n"...)
}

// appendKept copies the lines that stay.
func appendKept(dst, src []byte, fields []Field, replaced fieldSet) []byte {
	if len(fields) == 0 {
		return dst
	}
	run := fields[0].Line.Start
	for i := range fields {
		if f := &fields[i]; f.Drop || replaced.has(f.ID) {
			dst = append(dst, src[run:f.Line.Start]...)
			run = f.Line.End
		}
	}
	return append(dst, src[run:fields[len(fields)-1].Line.End]...)
}

func ifSet(value []byte, id FieldID) fieldSet {
	if value == nil {
		return 0
	}
	return 1 << id
}

// appendField appends a field; prefix is its name, a colon and a space.
func appendField(dst []byte, prefix string, value []byte) []byte {
	if value == nil {
		return dst
	}
	dst = append(dst, prefix...)
	dst = append(dst, value...)
	return append(dst, "\r\n"...)
}

func appendNumber(dst []byte, prefix string, n int64) []byte {
	dst = append(dst, prefix...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, "\r\n"...)
}

// appendStatus appends a status line up to the reason.
func appendStatus(dst []byte, status int) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	return append(dst, ' ')
}

// appendConnection says what the client's version does not take for granted (RFC 9112, section 9.3).
func appendConnection(dst []byte, minor uint8, keepAlive bool) []byte {
	if !keepAlive {
		return append(dst, "Connection: close\r\n"...)
	}
	if minor == 0 {
		return append(dst, "Connection: keep-alive\r\n"...)
	}
	return dst
}
