// Package tokenbench measures how prompts become tokens: the tokenizer with the
// words of a text known and unknown, the way from a request's body to the hashes
// of its token units, and, in programs built with the tag hf, the library of
// Hugging Face tokenizers beside it in the same run.
//
// It owns the texts (files of this repository, and conversations made of them)
// and the measuring. It may assume that it runs in the repository's root and
// that make models has fetched the tokenizer. It never asserts anything: it
// prints figures, one JSON object a line. What is measured is the CPU time of
// the measuring thread.
package tokenbench
