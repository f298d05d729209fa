// Package stamp lets a node write into each chunk when it sent it, and a client
// on the same host read how long the chunk took.
//
// It owns the clock that both read and the field's form. It assumes Linux, and
// that both ends run on one host: CLOCK_MONOTONIC of two machines does not
// compare. It opens nothing and allocates nothing.
package stamp
