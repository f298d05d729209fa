package wire

// Response is one response head, final or interim. Ownership and the life of
// spans are those of Request.
type Response struct {
	Status int // 100 to 599, never 101
	Minor  uint8
	Reason Span // may be empty
	Fields []Field
	Body   BodyKind // BodyNone for HEAD, 1xx, 204 and 304 whatever the fields say

	ContentLength int64 // -1 = no such field; in answers to HEAD and in 304 what a GET would have got
	KeepAlive     bool  // the node lets the connection persist after this response
	EventStream   bool  // Content-Type is text/event-stream
	HeadBytes     int   // 0 until the head is whole

	h head
}

// Parse reads the head at the start of b, an answer to a request of that
// method, in the manner of Request.Parse. Every error has status 502. Interim
// (1xx) responses have no body, and another head follows. 101 is an error:
// Upgrade is never forwarded, so no node can have been asked to switch.
func (r *Response) Parse(b []byte, lim *Limits, request Method) (n int, err *Error) {
	if r.h.stage == stageDone {
		panic("BUG: wire: Response.Parse after the head was whole")
	}
	limit := lim.headBytes()
	if len(b) > limit {
		b = b[:limit]
	}
	if r.h.stage < stageName {
		if f := r.parseLine(b); f != nil {
			return 0, &f.response
		}
	}
	if r.h.stage >= stageName {
		if cap(r.Fields) == 0 {
			r.Fields = make([]Field, 0, firstFields)
		}
		fields, f := r.h.parseFields(b, r.Fields, lim.fields())
		r.Fields = fields
		if f == nil && r.h.stage == stageDone {
			f = r.finish(b, request)
		}
		if f != nil {
			return 0, &f.response
		}
		if r.h.stage == stageDone {
			r.HeadBytes = int(r.h.pos)
			return r.HeadBytes, nil
		}
	}
	if len(b) == limit {
		return 0, &faultHeadTooLarge.response
	}
	return 0, nil
}

// Reset makes r ready for another response; Fields keeps its memory.
func (r *Response) Reset() {
	*r = Response{Fields: r.Fields[:0], ContentLength: -1}
}

// Find returns the first field with that id, which must not be FieldOther.
func (r *Response) Find(id FieldID) (Field, bool) { return r.h.find(r.Fields, id) }

// parseLine reads the status line (RFC 9112, section 4); then the stage is stageName.
func (r *Response) parseLine(b []byte) *fault {
	const form = "HTTP/1.d ddd "
	h := &r.h
	if h.stage == stageStart {
		for i := range min(len(b), len(form)) {
			if form[i] == 'd' && isDigit(b[i]) || form[i] == b[i] && form[i] != 'd' {
				continue
			}
			return faultStatusLine
		}
		if len(b) < len(form) {
			return nil
		}
		r.Minor = b[7] - '0'
		r.Status = int(b[9]-'0')*100 + int(b[10]-'0')*10 + int(b[11]-'0')
		if r.Minor > 1 || r.Status < 100 || r.Status > 599 {
			return faultStatusLine
		}
		h.pos, h.start, h.stage = uint32(len(form)), uint32(len(form)), stageReason
		h.reply = true
	}
	pos := scanText(b, int(h.pos))
	h.pos = uint32(pos)
	if pos >= len(b)-1 && (pos == len(b) || b[pos] == '\r') {
		return nil
	}
	if b[pos] != '\r' || b[pos+1] != '\n' {
		return valueFault(b[pos])
	}
	r.Reason = Span{h.start, h.pos}
	h.pos += 2
	h.start, h.stage = h.pos, stageName
	return nil
}

// finish draws the conclusions once all fields are there.
func (r *Response) finish(b []byte, request Method) (f *fault) {
	h := &r.h
	if r.Status == 101 {
		return faultSwitch
	}
	if r.Body, r.ContentLength, f = h.framing(b, r.Minor); f != nil {
		return f
	}
	var c connection
	if h.seen.has(FieldConnection) {
		if c, f = readConnection(b, r.Fields); f != nil {
			return f
		}
	}
	r.KeepAlive = c.persists(r.Minor)
	switch {
	case r.Status < 200 || r.Status == 204:
		// Such a response must not have these fields (RFC 9110, section 8.6;
		// RFC 9112, section 6.1): a node that sends them may send a body too.
		if r.Body == BodyChunked || r.ContentLength > 0 {
			r.KeepAlive = false
		}
		r.Body, r.ContentLength = BodyNone, -1
	case request == MethodHead || r.Status == 304:
		r.Body = BodyNone
	case r.Body == BodyNone:
		r.Body = BodyUntilClose
		r.KeepAlive = false
	}
	if f, ok := r.Find(FieldContentType); ok {
		r.EventStream = isEventStream(f.Value.Of(b))
	}
	return nil
}

// isEventStream looks at the media type, without its parameters.
func isEventStream(v []byte) bool {
	const name = "text/event-stream"
	if len(v) < len(name) || !equalFold(v[:len(name)], name) {
		return false
	}
	return len(v) == len(name) || v[len(name)] == ';' || v[len(name)] == ' ' || v[len(name)] == '\t'
}
