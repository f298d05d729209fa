// Package scan finds, in the JSON body of a request, what routing needs
// (model, stream flag, spans of the prompt, …) in one resumable pass, without
// decoding the body and without allocating once its buffers are warm.
//
// A Scanner may assume that the body only grows between two calls of Scan and
// that bytes once seen do not change; the body may move in memory. Results are
// offsets into the body, never copies. The package is pure: no I/O, no time.
// It is strict RFC 8259: no NaN, no byte-order mark, no trailing commas, no
// control characters in strings, valid UTF-8. A lone surrogate escape is
// grammatical (RFC 8259, section 8.2) and is accepted, as Go and Python do.
// Beyond the grammar, the top level must be an object, and Limits hold.
//
// Keys are compared decoded. Where a key occurs twice in an object that is
// looked at, the last value counts, even if it is null or unusable. A value of
// a type that its key cannot have is no error here, the engine will answer it:
// the key counts as absent. That goes for a list as a whole:
//
//   - model, user, cache_salt, session_id: a string
//   - stream: true or false
//   - max_tokens, max_completion_tokens, prefix_len: an integer written
//     without sign, fraction and exponent, below 2⁶³
//   - tools: an array
//   - messages: a non-empty array of objects; input may be one too
//   - prompt and input: a string, or a non-empty array of strings only, of
//     token ids only (integers below 2³²), or of arrays of token ids only
//   - system, instructions, content: a string or an array of parts; a part is
//     text if it is an object whose type is text, input_text or output_text
//     and whose text is a string; whatever else stands there is PartOther
//
// Should a body have several of them, messages goes before a list of input
// items, prompt before other input, system before instructions unless it is
// empty, and max_completion_tokens before max_tokens.
//
// Most bytes of a large body are the insides of strings. On amd64 with
// AVX2 or AVX-512 they are checked in blocks of 64 bytes (text_amd64.s),
// quotes, escapes and UTF-8 alike; elsewhere, and with the build
// tag purego, in plain Go with the same results (text.go).
package scan
