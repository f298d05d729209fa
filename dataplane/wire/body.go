package wire

// BodyKind says how the end of a body is known (RFC 9112, section 6.3).
type BodyKind uint8

// The kinds.
const (
	BodyNone       BodyKind = iota
	BodyLength              // Content-Length
	BodyChunked             // Transfer-Encoding: chunked
	BodyUntilClose          // responses only: what comes until the peer closes
)

// Bounds of a chunked body. Extensions and leading zeros of sizes count
// against the same bound, so that the wire form of n bytes of content never
// exceeds 6 n bytes (chunks of one byte) + MaxExtensionBytes +
// MaxTrailerBytes + the last chunk.
const (
	MaxExtensionBytes = 16 << 10 // chunk extensions and leading zeros, a message
	MaxChunkLineBytes = 2 << 10  // extension of one chunk
	MaxTrailerBytes   = 8 << 10  // trailer field lines, a message
)

// maxSizeDigits bounds a chunk size; 16 digits hold 64 bits.
const maxSizeDigits = 16

// maxPieceBytes bounds what one call looks at, so that offsets fit a Span.
const maxPieceBytes = 1 << 30

// place is where in a body the next byte lies.
type place uint8

const (
	atEnd place = iota
	inLength
	inRest       // until the peer closes
	atSize       // first digit of a chunk size
	inSize       // behind a digit of it
	atExtName    // behind ';'
	inExtName    //
	behindName   // white space behind the name
	atExtValue   // behind '='
	inExtValue   //
	behindValue  // white space behind the value
	inQuoted     // behind '"'
	inEscape     // behind '\\' in a quoted value
	behindQuoted // behind the closing '"'
	atSizeLF     // behind the CR of a chunk line
	inData       //
	atDataCR     // behind the data of a chunk
	atDataLF     //
	atTrailer    // first byte of a trailer line, or of the last line; only places of the trailer follow
	inTrailer    // in the name
	inTrailValue // behind the colon
	atTrailLF    //
	atLastLF     // behind the CR of the empty line
)

// Body finds the content and the end of one message body, in either
// direction. The zero Body is done, as that of BodyNone. It holds no buffer:
// it may be fed a byte at a time, and keeps only where it stands.
type Body struct {
	left    int64  // bytes still to come: of the body, or of the chunk
	ext     uint32 // bytes counted against MaxExtensionBytes
	line    uint32 // bytes counted against MaxChunkLineBytes
	trailer uint32 // bytes counted against MaxTrailerBytes
	digits  uint8  // of the chunk size
	at      place
	fields  bool // see TrailerFields
}

// Start begins a body; length counts for BodyLength only and must not be negative there.
func (d *Body) Start(kind BodyKind, length int64) {
	*d = Body{}
	switch kind {
	case BodyNone:
	case BodyLength:
		if length < 0 {
			panic("BUG: wire: Body.Start with a negative length")
		}
		if length > 0 {
			d.left, d.at = length, inLength
		}
	case BodyChunked:
		d.at = atSize
	case BodyUntilClose:
		d.at = inRest
	default:
		panic("BUG: wire: Body.Start with an unknown kind")
	}
}

// Next consumes n bytes of wire form from the start of b, of which data
// (offsets into b, may be empty) are content. It returns at the next boundary,
// which is the end of the data of a chunk, the start or the end of trailer
// fields at the latest: call it with the rest until n == len(b) or Done. n is 0
// only if b is empty or the body is done. Trailers are checked and passed over;
// TrailerFields tells them. Errors have status 400 (431 for trailers beyond
// their bound); in a response they mean that the node failed. After an error the
// Body must not be used before the next Start.
func (d *Body) Next(b []byte) (data Span, n int, err *Error) {
	if len(b) > maxPieceBytes {
		b = b[:maxPieceBytes]
	}
	switch d.at {
	case atEnd:
		return Span{}, 0, nil
	case inRest:
		return Span{0, uint32(len(b))}, len(b), nil
	case inLength:
		n = int(min(d.left, int64(len(b))))
		if d.left -= int64(n); d.left == 0 {
			d.at = atEnd
		}
		return Span{0, uint32(n)}, n, nil
	case atTrailer, inTrailer, inTrailValue, atTrailLF, atLastLF:
		n, err = d.nextTrailer(b)
		return Span{}, n, err
	}
	for n < len(b) && d.at < atTrailer {
		if d.at == inData {
			size := int(min(d.left, int64(len(b)-n)))
			if d.left -= int64(size); d.left == 0 {
				d.at = atDataCR
			}
			return Span{uint32(n), uint32(n + size)}, n + size, nil
		}
		if err = d.step(b[n]); err != nil {
			return Span{}, n, err
		}
		n++
	}
	return Span{}, n, nil
}

// nextTrailer consumes trailer fields, or bytes of the line that ends them.
func (d *Body) nextTrailer(b []byte) (n int, err *Error) {
	d.fields = len(b) > 0 && d.at != atLastLF && (d.at != atTrailer || b[0] != '\r')
	for n < len(b) && d.at != atEnd && !(d.fields && n > 0 && d.at == atTrailer && b[n] == '\r') {
		if err = d.step(b[n]); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// TrailerFields reports whether the bytes that the last call of Next consumed
// are trailer fields. What is left of a body without them is a body without
// trailers.
func (d *Body) TrailerFields() bool { return d.fields }

// Done reports whether the body is whole; further bytes belong to the next message.
func (d *Body) Done() bool { return d.at == atEnd }

// End is told that the peer closed its side. It returns nil if the body may
// end there: it is done, or goes on until the close and is done now.
func (d *Body) End() *Error {
	if d.at == atEnd || d.at == inRest {
		d.at = atEnd
		return nil
	}
	return errTruncated
}

// step takes one byte of chunked framing (RFC 9112, section 7.1). White space
// is taken where the grammar has it, but not before the first extension: there
// parsers differ.
func (d *Body) step(c byte) *Error {
	switch d.at {
	case atSize, inSize:
		return d.stepSize(c)
	case atSizeLF:
		if c != '\n' {
			return errChunkLineEnd
		}
		d.line, d.digits = 0, 0
		if d.at = inData; d.left == 0 {
			d.at = atTrailer
		}
	case atDataCR:
		if c != '\r' {
			return errChunkLineEnd
		}
		d.at = atDataLF
	case atDataLF:
		if c != '\n' {
			return errChunkLineEnd
		}
		d.at = atSize
	case atTrailer, inTrailer, inTrailValue, atTrailLF, atLastLF:
		return d.stepTrailer(c)
	default:
		return d.stepExtension(c)
	}
	return nil
}

func (d *Body) stepSize(c byte) *Error {
	if v := hexValue(c); v < 16 {
		if d.digits++; d.digits > maxSizeDigits || d.left > (1<<63-1)>>4 {
			return errChunkSize
		}
		if d.left == 0 && d.digits > 1 { // the digit before was a leading zero
			if d.ext++; d.ext > MaxExtensionBytes {
				return errChunkExtLong
			}
		}
		d.left = d.left<<4 | int64(v)
		d.at = inSize
		return nil
	}
	if d.at == atSize {
		return errChunkSize
	}
	switch c {
	case '\r':
		d.at = atSizeLF
	case '\n':
		return errChunkLineEnd
	case ';':
		return d.stepExtension(c)
	default:
		return errChunkSize
	}
	return nil
}

// stepExtension takes one byte of *( ";" BWS name [ BWS "=" BWS value ] BWS )
// and of the CR behind it (RFC 9112, section 7.1.1).
func (d *Body) stepExtension(c byte) *Error {
	d.ext++
	if d.line++; d.line > MaxChunkLineBytes || d.ext > MaxExtensionBytes {
		return errChunkExtLong
	}
	token := class[c]&isToken != 0
	space := c == ' ' || c == '\t'
	switch at := d.at; {
	case at == inQuoted && c == '"':
		d.at = behindQuoted
	case at == inQuoted && c == '\\':
		d.at = inEscape
	case at == inQuoted && class[c]&isQuoted != 0:
	case at == inEscape && (class[c]&isQuoted != 0 || c == '"' || c == '\\'):
		d.at = inQuoted
	case at == inQuoted || at == inEscape:
		return errChunkExt
	case token && (at == atExtName || at == inExtName):
		d.at = inExtName
	case token && (at == atExtValue || at == inExtValue):
		d.at = inExtValue
	case space && (at == atExtName || at == atExtValue || at == behindName || at == behindValue):
	case space && at == inExtName:
		d.at = behindName
	case space && (at == inExtValue || at == behindQuoted):
		d.at = behindValue
	case c == '=' && (at == inExtName || at == behindName):
		d.at = atExtValue
	case c == '"' && at == atExtValue:
		d.at = inQuoted
	case c == ';' && at != atExtName && at != atExtValue:
		d.at = atExtName
	case c == '\r' && (at == inExtName || at == inExtValue || at == behindQuoted):
		d.at = atSizeLF
	default:
		return errChunkExt
	}
	return nil
}

// stepTrailer takes one byte of the trailer section (RFC 9112, section 7.1.2),
// whose lines follow the rules of field lines.
func (d *Body) stepTrailer(c byte) *Error {
	if d.trailer++; d.trailer > MaxTrailerBytes {
		return errTrailerLong
	}
	switch {
	case d.at == atTrailer && c == '\r':
		d.at = atLastLF
	case (d.at == atTrailer || d.at == inTrailer) && class[c]&isToken != 0:
		d.at = inTrailer
	case d.at == inTrailer && c == ':':
		d.at = inTrailValue
	case d.at == inTrailValue && c == '\r':
		d.at = atTrailLF
	case d.at == inTrailValue && (c >= ' ' && c != 0x7f || c == '\t'):
	case d.at == atTrailLF && c == '\n':
		d.at = atTrailer
	case d.at == atLastLF && c == '\n':
		d.at = atEnd
	default:
		return errTrailer
	}
	return nil
}
