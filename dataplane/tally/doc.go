// Package tally holds counters and histograms that one event loop owns. The
// loop writes them without locks or atomics; whoever wants to read asks the
// loop for a copy. Nothing here allocates once a series exists.
package tally
