// Package virtual is an inference engine in virtual time: the continuous batching,
// block cache and physics of the simulated engine of bench/engine, without tokens,
// HTTP or waiting. Where the other executes each step of a batch, this one takes
// rows of equal steps at once, so that an hour of a busy node takes some hundredths
// of a second.
//
// It owns the Engine, its Cache, and the Index of what all caches of a fleet hold.
// It may assume that its caller has the clock: time is an argument, in nanoseconds,
// and never runs backwards. The content of a block is a number: equal numbers mean
// an equal prefix up to the block's end, as chain hashes do.
//
// A test holds it to the other, to the nanosecond. What it leaves out: a content that
// a cache holds twice is found once only, so it is gone with that block; blocks that
// an answer fills can be found by the next prompt, but not before the following block
// is begun or the answer ends.
package virtual
