// Package exact proves that the router knows an engine's own tokens.
//
// It loads the configured tokenizers and chat templates, asks every node that
// serves such a model what tokens it makes of probe conversations, class of
// request by class of request, and compares id by id. Only what agrees is told
// to the State, and from there comes into snapshots; only for such nodes and
// classes does the data plane count on tokens.
//
// The proof stands until an answer contradicts it. The data plane compares the
// length of each prompt with the engine's own count and stops relying on a
// class at once when they differ; then this package asks the engine about that
// very prompt, logs the first token that differs, takes the class from that
// node, and gives it back only after a later probe, which includes that prompt.
//
// It may assume that engines answer the routes of package engine. It never
// holds a request up and never guesses: what cannot be asked is not exact.
package exact
