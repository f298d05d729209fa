// Package prompt turns a request into the hashes of its token units: the
// engine's own blocks, as far as anybody holds them.
//
// A Model has what one model's prompts need: how the engine renders them
// (package chat) and its tokenizer (package tokenize). A Walk goes through one
// prompt: Begin renders it to a rope of references and cuts the rope into
// chunks, and each Next takes some chunks, turns them into ids and the ids into
// unit hashes. So the caller can look up what it has so far, stop at the first
// unit that nobody holds, and go on later, on another goroutine if it likes.
//
// # Why chunks by themselves give the ids of the whole
//
// The text between two added tokens is encoded independently of what stands
// around it, and within it there are places that no token ever crosses, whatever
// stands left or right (package tokenize proves both for the tokenizer at hand
// when it loads it: Solid and NextCut). Chunks end in such places only. Where a
// chunk ends follows from the bytes before that place in its segment, never from
// those behind it, so a conversation that goes on is cut where it was cut before.
//
// # Memos
//
// What was seen before is not looked at again. A chunk's ids are kept under a
// 128-bit hash of its raw, still escaped bytes; the units of a whole prefix under
// a hash of all chunks up to the last border of a message; those of a whole request
// under a hash of its body, so that the same request need not even be rendered
// again. The memos are shared by all loops, are read without a lock, and are bounded
// in bytes (memo.go).
//
// The package does no I/O, reads no clock and allocates nothing for prompts that
// were seen before. A Walk is used by one goroutine at a time.
package prompt
