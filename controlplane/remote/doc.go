// Package remote lets a scaler run in a process of its own, beside one or more
// routers, over their admin sides.
//
// It owns one goroutine a router, which once a second claims the nodes for this
// scaler, asks which nodes the router has and what it reads of them, and then does
// what the router lacks. All of it is by level, never by difference: a router that was
// started again, or missed a call, gets everything again with the next second.
//
// Nodes are added as an operator adds them (POST /api/nodes with the admin token), not
// with the lease of a node that registers itself: if the scaler ends, be it by kill -9,
// they stay, for the engines live and serve. Only the scaler takes them out again, when
// they have been ended; after a restart it knows its own by the journal, and by the
// epoch of the journal in their names. A node that leaves is never given to a router
// that does not have it.
//
// Of two processes with one journal, such as a copied one, the routers hear the one that
// claimed first. The other one waits at its start, as a process before that was killed is
// heard for a moment still, and gives up if that one lives.
//
// What is not known is never guessed. While a router has not answered for three
// seconds, is refused, takes nodes in that it had lost, or has a former process that
// finishes its streams, the signals are missing, so that the scaler changes nothing,
// and a node that drains is empty only if every router has said so since it was asked
// to drain. A router that is gone for good has to be taken out of scaler.routers.
package remote
