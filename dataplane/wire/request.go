package wire

// Request is one request head. Spans are offsets into the buffer given to
// Parse and hold as long as those bytes stay where they are in it.
//
// A Request is owned by one goroutine, and reused: call Reset between two
// requests, so that Fields keeps its memory.
type Request struct {
	Method     Method
	MethodName Span
	Target     Span // as sent
	Path       Span // within Target; "*" as sent; empty only for absolute-form without a path, which means "/"
	Query      Span // after the '?'; empty if there is none
	Host       Span // authority of an absolute-form target, else the Host value; empty only in HTTP/1.0
	Minor      uint8
	Fields     []Field
	Body       BodyKind // BodyNone, BodyLength or BodyChunked

	ContentLength  int64 // -1 = no such field
	KeepAlive      bool  // the client lets the connection persist
	ExpectContinue bool  // a body follows, and the client waits for 100 (RFC 9110, section 10.1.1)
	Upgrade        bool  // the client asks for another protocol; never forwarded
	HeadBytes      int   // length of the head, skipped empty lines included; 0 until it is whole

	h head
}

// maxMethodBytes bounds a method; the longest registered one has 17 bytes.
const maxMethodBytes = 32

// Parse reads the head at the start of b. It returns 0 and nil as long as the
// head is not whole: call it again with all of those bytes and more behind
// them. The work of all calls together is linear in the length of the head,
// and what they return does not depend on how the bytes were split.
// Otherwise it returns the number of bytes up to and with the empty line that
// ends the head. After an error, or once the head is whole, Reset comes first.
func (r *Request) Parse(b []byte, lim *Limits) (n int, err *Error) {
	if r.h.stage == stageDone {
		panic("BUG: wire: Request.Parse after the head was whole")
	}
	limit := lim.headBytes()
	if len(b) > limit {
		b = b[:limit]
	}
	if r.h.stage < stageName {
		if f := r.parseLine(b, lim.targetBytes()); f != nil {
			return 0, &f.request
		}
	}
	if r.h.stage >= stageName {
		if cap(r.Fields) == 0 {
			r.Fields = make([]Field, 0, firstFields)
		}
		fields, f := r.h.parseFields(b, r.Fields, lim.fields())
		r.Fields = fields
		if f == nil && r.h.stage == stageDone {
			f = r.finish(b)
		}
		if f != nil {
			return 0, &f.request
		}
		if r.h.stage == stageDone {
			r.HeadBytes = int(r.h.pos)
			return r.HeadBytes, nil
		}
	}
	if len(b) == limit {
		if r.h.stage == stageTarget {
			return 0, &faultTargetLong.request
		}
		return 0, &faultHeadTooLarge.request
	}
	return 0, nil
}

// Reset makes r ready for another request; Fields keeps its memory.
func (r *Request) Reset() {
	*r = Request{Fields: r.Fields[:0], ContentLength: -1}
}

// Find returns the first field with that id, which must not be FieldOther.
func (r *Request) Find(id FieldID) (Field, bool) { return r.h.find(r.Fields, id) }

// parseLine reads empty lines and the request line; then the stage is stageName.
func (r *Request) parseLine(b []byte, targetBytes int) *fault {
	h := &r.h
	if h.stage == stageStart {
		if f := h.skipEmpty(b); f != nil || h.stage == stageStart {
			return f
		}
	}
	if h.stage == stageMethod {
		if f := r.parseMethod(b); f != nil || h.stage == stageMethod {
			return f
		}
	}
	if h.stage == stageTarget {
		if f := r.parseTarget(b, targetBytes); f != nil || h.stage == stageTarget {
			return f
		}
	}
	minor, n, f := parseVersion(b[h.pos:])
	if f != nil || n == 0 {
		return f
	}
	r.Minor = minor
	h.pos += uint32(n)
	h.start, h.stage = h.pos, stageName
	return nil
}

func (h *head) skipEmpty(b []byte) *fault {
	pos := int(h.pos)
	for pos < len(b) && b[pos] == '\r' {
		if pos+1 == len(b) {
			return nil
		}
		if b[pos+1] != '\n' {
			return faultBareCR
		}
		if h.empty++; h.empty > maxEmptyLines {
			return faultEmptyLines
		}
		pos += 2
		h.pos = uint32(pos)
	}
	if pos == len(b) {
		return nil
	}
	if b[pos] == '\n' {
		return faultBareLF
	}
	h.start, h.stage = uint32(pos), stageMethod
	return nil
}

func (r *Request) parseMethod(b []byte) *fault {
	start, pos := int(r.h.start), int(r.h.pos)
	for pos < len(b) && class[b[pos]]&isToken != 0 {
		pos++
	}
	if pos-start > maxMethodBytes {
		return faultMethodLong
	}
	r.h.pos = uint32(pos)
	if pos == len(b) {
		return nil
	}
	if b[pos] != ' ' || pos == start {
		return faultMethod
	}
	r.MethodName = Span{uint32(start), uint32(pos)}
	r.Method = methodOf(b[start:pos])
	if r.Method == MethodConnect {
		return faultConnect
	}
	r.h.pos = uint32(pos + 1)
	r.h.start, r.h.stage = r.h.pos, stageTarget
	return nil
}

func (r *Request) parseTarget(b []byte, limit int) *fault {
	start, pos := int(r.h.start), int(r.h.pos)
	var found uint8
	if pos > start { // what the bytes of earlier calls were is not kept
		found = isMark
	}
	for pos < len(b) {
		c := class[b[pos]]
		if c&isTarget == 0 {
			break
		}
		found |= c
		pos++
	}
	if pos-start > limit {
		return faultTargetLong
	}
	r.h.pos = uint32(pos)
	if pos == len(b) {
		return nil
	}
	switch b[pos] {
	case ' ':
	case '\r', '\n': // a request of HTTP/0.9
		return faultVersion
	default:
		return faultTarget
	}
	r.Target = Span{uint32(start), uint32(pos)}
	if f := r.splitTarget(b, found&isMark != 0); f != nil {
		return f
	}
	r.h.pos = uint32(pos + 1)
	r.h.start, r.h.stage = r.h.pos, stageVersion
	return nil
}

// parseVersion reads what ends a request line, at the start of b; n is 0 as long as it is not whole.
func parseVersion(b []byte) (minor uint8, n int, f *fault) {
	const form = "HTTP/d.d\r\n"
	if len(b) >= len(form) && string(b[:len(form)]) == "HTTP/1.1\r\n" {
		return 1, len(form), nil
	}
	for i := range min(len(b), len(form)) {
		if form[i] == 'd' && isDigit(b[i]) || form[i] == b[i] && form[i] != 'd' {
			continue
		}
		if form[i] == '\r' && b[i] == '\n' {
			return 0, 0, faultBareLF
		}
		if form[i] == '\n' {
			return 0, 0, faultBareCR
		}
		return 0, 0, faultVersion
	}
	if len(b) < len(form) {
		return 0, 0, nil
	}
	if b[5] != '1' || b[7] > '1' {
		return 0, 0, faultVersionNot1
	}
	return b[7] - '0', len(form), nil
}

// finish draws the conclusions once all fields are there.
func (r *Request) finish(b []byte) (f *fault) {
	h := &r.h
	if h.seen.has(FieldHost) {
		if !validHost(h.host.Of(b)) {
			return faultHost
		}
		if r.Host.Len() == 0 {
			r.Host = h.host
		}
	} else if r.Minor > 0 {
		return faultHostMissing
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
	if r.Minor == 0 { // neither Upgrade nor Expect exists in 1.0: RFC 9110, sections 7.8 and 10.1.1
		return nil
	}
	r.Upgrade = c.upgrade && h.seen.has(FieldUpgrade)
	if h.seen.has(FieldExpect) {
		for i := range r.Fields {
			if r.Fields[i].ID == FieldExpect && !equalFold(r.Fields[i].Value.Of(b), "100-continue") {
				return faultExpect
			}
		}
		r.ExpectContinue = r.Body == BodyChunked || r.ContentLength > 0
	}
	return nil
}
