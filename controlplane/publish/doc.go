// Package publish turns a state.State into the fleet.Snapshot that requests
// read.
//
// It owns the checks between the two: there is no snapshot that breaks an
// invariant, and the last good one stays in force. It never judges nodes and
// does no I/O.
package publish
