package wire

// Error is why a message was refused. Errors are static and must not be
// changed; Code tells them apart.
type Error struct {
	Status int    // what to answer with: 4xx or 5xx for requests and bodies, 502 for responses
	What   string // one plain part of a sentence, without the offending bytes
	Code   string // short snake_case name, stable, for logs and error bodies
}

func (e *Error) Error() string { return "wire: " + e.What }

// fault is one reason to refuse a head, in the form for either direction.
type fault struct{ request, response Error }

func newFault(status int, code, what string) *fault {
	return &fault{
		request:  Error{Status: status, What: what, Code: code},
		response: Error{Status: 502, What: what, Code: code},
	}
}

// Faults of lines and fields (RFC 9112, sections 2.2 and 5).
var (
	faultBareCR        = newFault(400, "bare_cr", "a carriage return without a line feed")
	faultBareLF        = newFault(400, "bare_lf", "a line feed without a carriage return")
	faultFold          = newFault(400, "folded_line", "a field line that begins with white space")
	faultFieldName     = newFault(400, "bad_field_name", "a field name that is empty, no token, or not followed at once by a colon")
	faultFieldValue    = newFault(400, "bad_field_value", "a control character in a field value")
	faultHeadTooLarge  = newFault(431, "head_too_large", "the head is too large")
	faultTooManyFields = newFault(431, "too_many_fields", "too many field lines")
)

// Faults of the first line (RFC 9112, sections 3 and 4).
var (
	faultEmptyLines  = newFault(400, "too_many_empty_lines", "too many empty lines before the request line")
	faultMethod      = newFault(400, "bad_method", "the method is no token followed by one space")
	faultMethodLong  = newFault(501, "unknown_method", "the method is too long to be known")
	faultConnect     = newFault(405, "connect_refused", "CONNECT is not served here")
	faultTarget      = newFault(400, "bad_target", "the request target is malformed")
	faultTargetLong  = newFault(414, "target_too_long", "the request target is too long")
	faultAsterisk    = newFault(400, "bad_target", "only OPTIONS may have the target *")
	faultVersion     = newFault(400, "bad_version", "the request line does not end in one space, HTTP/1.0 or HTTP/1.1, and CRLF")
	faultVersionNot1 = newFault(505, "unknown_version", "only HTTP/1.0 and HTTP/1.1 are spoken here")
	faultStatusLine  = newFault(400, "bad_status_line", "the status line is malformed")
	faultSwitch      = newFault(400, "unasked_upgrade", "a switch of protocols that was not asked for")
)

// Faults of what the fields say together (RFC 9112, sections 3.2 and 6).
var (
	faultHostMissing   = newFault(400, "missing_host", "the Host field is missing")
	faultHostTwice     = newFault(400, "several_hosts", "more than one Host field")
	faultHost          = newFault(400, "bad_host", "the Host field is empty or malformed")
	faultLengthTwice   = newFault(400, "several_content_lengths", "more than one Content-Length field")
	faultLength        = newFault(400, "bad_content_length", "Content-Length is not a decimal number below 2^63")
	faultLengthCoding  = newFault(400, "content_length_and_transfer_encoding", "both Content-Length and Transfer-Encoding")
	faultCodingTwice   = newFault(400, "several_transfer_encodings", "more than one Transfer-Encoding field")
	faultCoding        = newFault(400, "bad_transfer_encoding", "Transfer-Encoding is malformed, or chunked is not its last and only coding")
	faultCodingUnknown = newFault(501, "unknown_transfer_encoding", "a transfer coding other than chunked")
	faultCodingVersion = newFault(400, "transfer_encoding_in_1_0", "Transfer-Encoding in an HTTP/1.0 message")
	faultConnection    = newFault(400, "bad_connection", "the Connection field is no list of at most 32 tokens")
	faultExpect        = newFault(417, "unknown_expectation", "an expectation other than 100-continue")
)

// Faults of bodies (RFC 9112, sections 6.3 and 7.1).
var (
	errChunkSize    = &Error{400, "a chunk size that is not 1 to 16 hexadecimal digits below 2^63", "bad_chunk_size"}
	errChunkExt     = &Error{400, "a malformed chunk extension", "bad_chunk_extension"}
	errChunkExtLong = &Error{400, "too many bytes of chunk extensions and padding", "chunk_extensions_too_large"}
	errChunkLineEnd = &Error{400, "a chunk line or chunk that does not end in CRLF", "bad_chunk_end"}
	errTrailer      = &Error{400, "a malformed trailer field", "bad_trailer"}
	errTrailerLong  = &Error{431, "the trailer section is too large", "trailer_too_large"}
	errTruncated    = &Error{400, "the connection closed before the end of the body", "truncated_body"}
)
