// Package dataplane serves requests. One event loop owns everything that a
// connection touches: buffers, pools, timers, tallies. The package imports
// nothing of the control plane and goes on serving when that is dead.
//
// The life of a request, in the order of the files:
//
//	accept.go    our own listener hands the connection to a loop
//	client.go    bytes come: head, body, next request; the only place that reads clients
//	route.go     class, identify, match, decide
//	hold.go      what no node takes waits for one that is on its way
//	parking.go   … and who of them goes first
//	holds.go     … and how that is counted
//	dispatch.go  counters up, note to the indexer, connection to the node, forward
//	inflight.go  the counters of what is in flight, and how a wrong one heals
//	relay.go     the answer: hold, relay, finish; the only place that reads nodes
//	upload.go    a body that is passed on before it is in
//	retry.go     what a failure leads to
//	evacuate.go  away from a dead node
//	hedge.go     a second try at the same time
//	memory.go    what goes when memory is short
//	answer.go    answers of the router itself
//	record.go    the decision record
//
// # States
//
// A client connection is in one state; an exchange (one request and its
// answer) belongs to it from the first byte of a head to the end of the answer:
//
//	head ──► body ──► busy ──► head …
//	  │        │        └────► draining (answer under way, then close)
//	  └────────┴─────────────► lingering (error answered, reading on to drop) ──► closed
//
// An exchange that is busy is in one phase:
//
//	parked
//	  ▲ │
//	  │ └► connecting ──► waiting ──► holding ──► relaying ──► over
//	  │         ▲            │           │
//	  └───────── retry ◄─────┴───────────┘    no retry after a byte went to the client
//
// What no node takes is parked, if one is on its way, and decided on again.
//
// # Rules that keep it correct
//
//   - A write closes the connection inside the call when the socket is broken,
//     and Closed then runs under our stack. So after every write or close the
//     code looks again at what it holds, and over ends an exchange exactly once.
//   - Counters of a node are raised in dispatch and lowered in settle, through
//     the pointer that raised them, exactly once. Each loop takes stock of what
//     its exchanges hold, and corrects its part should that rule be broken.
//   - Spans borrow: spans of a request point into exchange.head, those of a
//     response into exchange.respHead, both owned by the exchange until it ends.
//     What a read brought into loop.in is used inside the callback only. A body
//     that is lent to a connection (WriteLent) stays until it is sent, or the
//     connection closed.
//   - One clock reading a callback (loop.now) serves all of it.
package dataplane
