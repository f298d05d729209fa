// Package publish turns a state.State into the fleet.Snapshot that requests
// read, and stores it.
//
// It owns the checks between the two: a snapshot that breaks an invariant is
// never stored, the last good one stays in force. It never judges nodes and
// does no I/O.
package publish
