// Package fleet is the picture of the fleet that a request reads: an immutable
// Snapshot of nodes and models behind one atomic pointer, and the in-flight
// counters of every node.
//
// The package owns the types only. The control plane builds a Snapshot whole,
// checks it and publishes it with Holder.Store; event loops load it once a
// request and use that value to the request's end. Nothing in a Snapshot is
// ever written after it was published, with one exception that is not part of
// it: the counters that Node.Load points to. They belong to the node's
// incarnation, not to its slot, so that a request which ends late settles the
// counters it had raised and never those of the slot's next tenant.
//
// The package never does I/O, reads no clock and knows nothing of HTTP.
package fleet
