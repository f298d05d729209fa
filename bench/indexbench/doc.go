// Package indexbench measures the prefix index on the contents of a large
// fleet: what a block at a node costs in memory, how fast reported blocks are
// stored and removed, how long a match takes, and how much a writer at full
// rate disturbs readers.
//
// It owns the made-up fleet (Contents) and the measuring. It may assume a
// machine with two cores that nobody else uses. It never asserts anything: it
// prints figures, one JSON object a line.
package indexbench
