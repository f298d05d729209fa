// Package state is the fleet's state machine: Step takes a State and an Event
// and returns the next State and the Effects that the caller has to carry out.
//
// It owns every judgement about a node: where in its life it is (joining,
// warming, ready, draining, down), its circuit breaker, its slot and
// generation, what it was last heard to say and whether that is still fresh, and
// how far it has shown that it can take its full share of new work.
//
// It is pure: no I/O, no clock, no goroutine, no randomness. Time is a field
// of every event. A State is a value: Step never changes its argument nor
// anything reachable from it, so that old States stay valid and may be read by
// any goroutine. The counters behind Node.Load are carried and never read.
//
// It never decides requests, never dials and never publishes: package publish
// turns a State into a fleet.Snapshot.
package state
