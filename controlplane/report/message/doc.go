// Package message is the wire form of the push protocol: the reports that nodes
// send about their cache and the answers that routers give, in JSON and in
// MessagePack. Reporter and router share it, so that they cannot disagree.
//
// It owns field names, bounds of single fields, and the check of a report by
// itself. It may assume that somebody else has bounded the body's length. What
// is decoded shares nothing with the body. It does no I/O, reads no clock and
// knows nothing of streams: whether a report fits what came before is package
// report's to say.
//
// JSON writes every 64-bit hash as 16 hexadecimal digits, because a JSON number
// keeps only 53 bits at most readers; MessagePack writes it as an unsigned
// integer. A SHA-256 is 64 digits, or 32 bytes. A field that is not known is
// ignored. Of a field that is given twice the last one counts.
package message
