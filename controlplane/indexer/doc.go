// Package indexer runs the one goroutine that owns index.Writer. It takes the
// loops' notes of where prompts went, sets how much each node can hold, forgets
// nodes that are gone, and sweeps. It knows nothing of requests or sockets, and
// nobody waits for it: notes that it cannot take in time are dropped and
// counted by the rings.
package indexer
