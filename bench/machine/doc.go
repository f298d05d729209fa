// Package machine tells a benchmark how much of the machine it had.
//
// It owns the reading of the kernel's accounts of used and of stolen time, and the
// rule which runs count. It assumes Linux; where nobody counts, nothing is stolen. It never
// measures anything itself.
package machine
