// Package hf tokenises with Hugging Face's own Rust library, through the
// library of the Go module github.com/daulet/tokenizers and a few C entry
// points of ours in it (shim.rs).
//
// It owns the handle of a loaded tokenizer.json. It is the oracle that package
// tokenize is tested against, and the slow path where tokenize refuses a
// vocabulary: 2 to 4 MB/s on one thread, so never on an event loop.
//
// It exists in builds with the tag hf and cgo only, which need the library
// that `make libtokenizers` builds. In all other builds Available is false and
// Load fails with ErrUnavailable, so that callers need no tags of their own.
//
// It never changes ids for speed or convenience, never downloads, and never
// gives a wrong or shortened answer in silence: text after a NUL counts, text
// that is no UTF-8 is an error, and no ids for some text is an error.
package hf
