package wire

// stage is how far the parse of a head has come.
type stage uint8

const (
	stageStart   stage = iota // before the first line
	stageMethod               // in the method
	stageTarget               // in the target
	stageVersion              // before the version of a request line
	stageReason               // in the reason of a status line
	stageName                 // at the start of a field line, or in its name
	stageValue                // behind the colon of a field line
	stageDone                 // behind the empty line
)

// head is where the parse of a head stands, so that it goes on where the
// bytes ended and never looks at a byte twice (but for the last few of a line).
type head struct {
	seen  fieldSet // known fields that occurred
	start uint32   // first byte of the line or element at hand
	pos   uint32   // next byte to look at
	colon uint32   // in stageValue: the colon
	stage stage
	empty uint8 // empty lines skipped
	reply bool  // it is a response's, in which Host means nothing

	host, length, coding Span // values of the single fields
}

// maxEmptyLines are skipped before a request line (RFC 9112, section 2.2, asks for one).
const maxEmptyLines = 4

// firstFields is the capacity of Fields at its first use.
const firstFields = 32

func (h *head) find(fields []Field, id FieldID) (Field, bool) {
	if id == FieldOther {
		panic("BUG: wire: Find of FieldOther")
	}
	if h.seen.has(id) {
		for i := range fields {
			if fields[i].ID == id {
				return fields[i], true
			}
		}
	}
	return Field{}, false
}

// parseFields reads field lines up to and with the empty line; then the stage
// is stageDone. Otherwise b ended before.
func (h *head) parseFields(b []byte, fields []Field, limit int) ([]Field, *fault) {
	start, pos, colon := int(h.start), int(h.pos), int(h.colon)
	inValue := h.stage == stageValue
	for {
		if !inValue {
			if pos = scanName(b, pos); pos == len(b) {
				break
			}
			if b[pos] != ':' || pos == start {
				return fields, h.endOfFields(b, start, pos)
			}
			if len(fields) >= limit {
				return fields, faultTooManyFields
			}
			colon = pos
			pos++
			inValue = true
		}
		pos = scanText(b, pos)
		if pos >= len(b)-1 && (pos == len(b) || b[pos] == '\r') {
			break
		}
		if b[pos] != '\r' || b[pos+1] != '\n' {
			return fields, valueFault(b[pos])
		}
		id := fieldID(b[start:colon])
		value := trim(b, colon+1, pos)
		if id != FieldOther {
			if fault := h.note(id, value); fault != nil {
				return fields, fault
			}
		}
		// Written in place: a copy of a Field just made in pieces stalls the processor.
		if len(fields) == cap(fields) {
			fields = append(fields, Field{})
		} else {
			fields = fields[:len(fields)+1]
		}
		f := &fields[len(fields)-1]
		f.Name.Start, f.Name.End = uint32(start), uint32(colon)
		f.Value.Start, f.Value.End = value.Start, value.End
		f.Line.Start, f.Line.End = uint32(start), uint32(pos+2)
		f.ID, f.Drop = id, hopByHop.has(id)
		if n := colon - start; n == len(likeLength) || n == len(likeCoding) {
			f.Drop = f.Drop || mimicsFraming(b[start:colon])
		}
		pos += 2
		start = pos
		inValue = false
	}
	h.stage = stageName
	if inValue {
		h.stage = stageValue
	}
	h.start, h.pos, h.colon = uint32(start), uint32(pos), uint32(colon)
	return fields, nil
}

// endOfFields judges a byte that ends no field name: it may begin the empty line.
func (h *head) endOfFields(b []byte, start, pos int) *fault {
	c := b[pos]
	switch {
	case c == '\r' && pos == start:
		h.start, h.pos, h.stage = uint32(start), uint32(pos), stageName
		if pos+1 == len(b) {
			return nil
		}
		if b[pos+1] != '\n' {
			return faultBareCR
		}
		h.pos, h.stage = uint32(pos+2), stageDone
		return nil
	case c == '\n' && pos == start:
		return faultBareLF
	case (c == ' ' || c == '\t') && pos == start:
		return faultFold
	}
	return faultFieldName
}

func valueFault(c byte) *fault {
	switch c {
	case '\r':
		return faultBareCR
	case '\n':
		return faultBareLF
	}
	return faultFieldValue
}

// note remembers a known field.
func (h *head) note(id FieldID, value Span) *fault {
	again := h.seen.has(id)
	h.seen |= 1 << id
	switch id {
	case FieldHost:
		if again && !h.reply {
			return faultHostTwice
		}
		h.host = value
	case FieldContentLength:
		if again {
			return faultLengthTwice
		}
		h.length = value
	case FieldTransferEncoding:
		if again {
			return faultCodingTwice
		}
		h.coding = value
	}
	return nil
}

// framing says what Content-Length and Transfer-Encoding say (RFC 9112,
// section 6.3); BodyNone and -1 if neither is there.
func (h *head) framing(b []byte, minor uint8) (BodyKind, int64, *fault) {
	coded, sized := h.seen.has(FieldTransferEncoding), h.seen.has(FieldContentLength)
	switch {
	case coded && sized:
		return 0, -1, faultLengthCoding
	case coded && minor == 0:
		return 0, -1, faultCodingVersion
	case coded:
		return BodyChunked, -1, checkCoding(h.coding.Of(b))
	case sized:
		n, ok := parseLength(h.length.Of(b))
		if !ok {
			return 0, -1, faultLength
		}
		return BodyLength, n, nil
	}
	return BodyNone, -1, nil
}

// parseLength reads 1*DIGIT below 2^63 (RFC 9110, section 8.6).
func parseLength(v []byte) (n int64, ok bool) {
	for _, c := range v {
		if !isDigit(c) || n > (1<<63-1-int64(c-'0'))/10 {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, len(v) > 0
}

// checkCoding accepts chunked alone. It tells codings we do not know (501, RFC
// 9112, section 6.1) from lists that are wrong whatever the coding (400).
func checkCoding(v []byte) *fault {
	if equalFold(v, "chunked") {
		return nil
	}
	chunked, last := 0, false
	for i := 0; i <= len(v); {
		end := i
		for end < len(v) && v[end] != ',' {
			end++
		}
		s := trim(v, i, end)
		name := s.Of(v)
		for j := range name {
			if class[name[j]]&isToken == 0 {
				if name[j] != ';' || j == 0 { // parameters belong to codings we do not know
					return faultCoding
				}
				break
			}
		}
		if len(name) == 0 {
			return faultCoding
		}
		if last = equalFold(name, "chunked"); last {
			chunked++
		}
		i = end + 1
	}
	if chunked > 1 || chunked == 1 && !last {
		return faultCoding
	}
	return faultCodingUnknown
}
