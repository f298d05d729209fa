// Package tokenize turns text into the token ids that Hugging Face tokenizers
// would give, in pure Go, from a model's own tokenizer.json.
//
// It owns exactness: [Load] accepts a tokenizer only if every setting in its
// file is one whose effect on ids is reproduced here, and names the first one
// that is not by an *[Unsupported] error. What it accepts gives the ids of
// encode(text, add_special_tokens=false), byte for byte.
//
// The stages of [Tokenizer.Append] follow the Hugging Face ones:
//
//  1. The raw text is split at the added tokens that are matched as they stand
//     (added.go, trie.go).
//  2. Each piece between them is normalised by itself (nfc.go) and split
//     at the added tokens that are matched in normalised text.
//  3. What remains goes, piece by piece, to the model's pieceEncoder, the seam
//     between the families of models. byteLevel (bytelevel.go) cuts a piece
//     into pre-tokens (split.go and the files named split_*), looks each up
//     among the whole words of the vocabulary (words.go), then in a cache
//     shared by all goroutines (cache.go), and merges pairs only for what
//     neither holds (merge.go). sentencePiece (the files named spm*) has no
//     pre-tokens; it finds places that no merge can join, and treats the text
//     between them in the same way.
//
// A text need not be encoded as a whole: [Tokenizer.Solid] tells which added
// tokens (solid.go), and [Tokenizer.NextCut] which places in plain text
// (cut.go), divide it into parts whose ids make up those of the whole.
//
// It may assume that text is UTF-8, and reads invalid bytes as U+FFFD the way
// Rust and Python replace them. It never allocates once its scratch is warm,
// takes no lock to read, does no I/O and knows no time. Character classes are
// those of the reference implementation (classes_table.go), not of the
// Unicode tables of the Go release that compiles it. Ids of texts with real
// models are compared with the reference by package hf, those of a tiny model
// in testdata by this package's own tests.
package tokenize
