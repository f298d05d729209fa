package wire

import "encoding/binary"

// FieldID names a field that the router knows; all others are FieldOther.
type FieldID uint8

// The known fields.
const (
	FieldOther FieldID = iota
	FieldHost
	FieldContentLength
	FieldTransferEncoding
	FieldConnection
	FieldKeepAlive
	FieldProxyConnection
	FieldTE
	FieldTrailer
	FieldUpgrade
	FieldExpect
	FieldProxyAuthenticate
	FieldProxyAuthorization
	FieldXRequestID
	FieldXForwardedFor
	FieldXForwardedProto
	FieldXRealIP
	FieldForwarded
	FieldVia
	FieldContentType
	FieldContentEncoding
	FieldAuthorization
	FieldXSessionID
	FieldXPrefixTokens
	FieldXModelTier
	FieldXRequestPriority
	FieldXRoutedTo
	FieldXRequestDuration
	FieldRetryAfter
	FieldDataParallelRank // X-data-parallel-rank
	FieldHTTP2Settings
	numFields
)

// fieldNames has the names in lower case. They consist of letters, digits and
// '-' only, on which fieldID relies.
var fieldNames = [numFields]string{
	FieldHost: "host", FieldContentLength: "content-length", FieldTransferEncoding: "transfer-encoding",
	FieldConnection: "connection", FieldKeepAlive: "keep-alive", FieldProxyConnection: "proxy-connection",
	FieldTE: "te", FieldTrailer: "trailer", FieldUpgrade: "upgrade", FieldExpect: "expect",
	FieldProxyAuthenticate: "proxy-authenticate", FieldProxyAuthorization: "proxy-authorization",
	FieldXRequestID: "x-request-id", FieldXForwardedFor: "x-forwarded-for", FieldXForwardedProto: "x-forwarded-proto",
	FieldXRealIP: "x-real-ip", FieldForwarded: "forwarded", FieldVia: "via", FieldContentType: "content-type",
	FieldContentEncoding: "content-encoding", FieldAuthorization: "authorization", FieldXSessionID: "x-session-id",
	FieldXPrefixTokens: "x-prefix-tokens", FieldXModelTier: "x-model-tier", FieldXRequestPriority: "x-request-priority",
	FieldXRoutedTo: "x-routed-to", FieldXRequestDuration: "x-request-duration", FieldRetryAfter: "retry-after",
	FieldDataParallelRank: "x-data-parallel-rank", FieldHTTP2Settings: "http2-settings",
}

// Field is one field line of a head.
type Field struct {
	Name  Span
	Value Span // without white space around it
	Line  Span // the whole line with its CRLF; lines of a head follow each other without gaps
	ID    FieldID
	Drop  bool // not to be sent on: hop-by-hop, named by Connection, or a framing field's name with underscores
}

// fieldSet is a set of FieldIDs, a bit each.
type fieldSet uint64

func (s fieldSet) has(id FieldID) bool { return s>>id&1 != 0 }

// hopByHop never goes further (RFC 9110, sections 7.6.1 and 10.1.1; RFC 9112,
// section 6.1; RFC 7540, section 3.2.1). Expect is among them because the
// router answers it itself, Trailer because trailers are not relayed.
const hopByHop fieldSet = 1<<FieldTransferEncoding | 1<<FieldConnection | 1<<FieldKeepAlive | 1<<FieldProxyConnection |
	1<<FieldTE | 1<<FieldTrailer | 1<<FieldUpgrade | 1<<FieldExpect | 1<<FieldProxyAuthenticate |
	1<<FieldProxyAuthorization | 1<<FieldHTTP2Settings

// unnameable cannot be dropped by naming it in Connection: dropping it would
// change where the request goes, where it ends or who sent it.
const unnameable fieldSet = 1<<FieldHost | 1<<FieldContentLength | 1<<FieldTransferEncoding | 1<<FieldAuthorization

// The names of the framing fields with underscores in place of dashes. They mean
// nothing, but those who hand fields on as CGI variables (RFC 3875, section
// 4.1.18) cannot tell them from the real ones.
const (
	likeLength = "content_length"
	likeCoding = "transfer_encoding"
)

func mimicsFraming(name []byte) bool {
	return equalFold(name, likeLength) || equalFold(name, likeCoding)
}

// maxKnownBytes is what a folded can hold, and no known name is longer.
const maxKnownBytes = 24

// folded is a name of up to 24 bytes, in lower case: its first, middle and
// last eight bytes, which overlap if it is shorter.
type folded struct{ head, middle, tail uint64 }

// fold makes a folded of a token. It sets bit 5 of every byte: that lowers
// letters, keeps digits and '-', and maps no other token character to one of
// those, so for known names the comparison of folded values is exact.
func fold(b []byte) folded {
	const lower = lowBits * 0x20
	n := len(b)
	if n >= 8 {
		f := folded{head: binary.LittleEndian.Uint64(b) | lower, tail: binary.LittleEndian.Uint64(b[n-8:]) | lower}
		if n > 16 {
			f.middle = binary.LittleEndian.Uint64(b[8:]) | lower
		}
		return f
	}
	if n >= 4 {
		return folded{
			head: uint64(binary.LittleEndian.Uint32(b)) | lower,
			tail: uint64(binary.LittleEndian.Uint32(b[n-4:])) | lower,
		}
	}
	var f folded
	for i := range n {
		f.head = f.head<<8 | uint64(b[i]|0x20)
	}
	return f
}

type knownField struct {
	name folded
	id   FieldID
}

// sameLength has the known fields with names of one length. first and last
// have a bit for each letter (its low five bits) that such a name begins or
// ends with: they tell most unknown names without a comparison.
type sameLength struct {
	first, last uint32
	fields      []knownField
}

// known has the known fields by the length of their name.
var known = makeKnown()

func makeKnown() (t [maxKnownBytes + 1]sameLength) {
	for id, name := range fieldNames {
		if name != "" {
			k := &t[len(name)]
			k.first |= 1 << (name[0] & 31)
			k.last |= 1 << (name[len(name)-1] & 31)
			k.fields = append(k.fields, knownField{fold([]byte(name)), FieldID(id)})
		}
	}
	return t
}

// fieldID names a field; name must be a token, which is never empty.
func fieldID(name []byte) FieldID {
	if len(name) > maxKnownBytes {
		return FieldOther
	}
	k := &known[len(name)]
	if k.first>>(name[0]&31)&(k.last>>(name[len(name)-1]&31))&1 == 0 {
		return FieldOther
	}
	return k.find(name)
}

func (k *sameLength) find(name []byte) FieldID {
	f := fold(name)
	for i := range k.fields {
		if k.fields[i].name == f {
			return k.fields[i].id
		}
	}
	return FieldOther
}
