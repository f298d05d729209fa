// Package machine tells a benchmark how much of the machine it had.
//
// It owns the reading of the kernel's account of stolen time. It assumes Linux;
// where nobody counts, nothing is stolen. It never judges: what is too much is
// the benchmark's to say.
package machine
