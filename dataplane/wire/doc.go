// Package wire is HTTP/1.1 framing over []byte, in both directions: request
// and response heads, the end of message bodies, and the heads sent on.
//
// It is as strict as RFC 9110 and RFC 9112 allow: whatever two parsers could
// read in two ways is refused. Spans are offsets into the caller's buffer;
// nothing is copied, and nothing is allocated once the Fields of a Request or
// Response have grown to their usual number.
//
// It may assume that the bytes of a buffer it is called with again have only
// grown, not changed; they may have moved in memory. It never touches sockets
// or clocks, never decodes, normalises or re-orders what it reads, and never
// decides what happens to a message: it says where its parts lie and where it
// ends.
package wire
