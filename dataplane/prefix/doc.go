// Package prefix turns a scanned request into identities of its prompt:
//
//   - the affinity key, stable across the turns of a conversation and the same
//     on every replica, for placing requests by hashing;
//   - the system key, which is the same for all conversations of one system
//     prompt;
//   - the text chain, whose n-th Hash identifies the first n units of the
//     prompt's raw bytes, for looking up who holds how much of it.
//
// It owns the definition of these three and nothing else. It may assume that
// spans come from package scan: strings are valid, and raw bytes hold no
// control characters outside of JSON white space. It never allocates once its
// scratch is warm, never copies a prompt, does no I/O and knows no time.
package prefix
