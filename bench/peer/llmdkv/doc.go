// Package llmdkv measures our prefix index beside that of llm-d
// (github.com/llm-d/llm-d-kv-cache) in one process: from token ids to how much
// of the prompt each node holds. It owns the comparison and nothing else; it may
// assume a quiet machine.
//
// It is a module of its own, so that the peer's many dependencies stay out of
// ours. Its one test is the measurement, started by hand, for the peer takes
// minutes to compile: it fails when the two disagree on a prompt, or when ours
// allocates, never for how long something took.
package llmdkv
