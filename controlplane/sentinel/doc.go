// Package sentinel finds out whether the host of a silent node is still there.
//
// A request that a node has acknowledged has nothing in flight, so no time-out
// of the kernel's ever fires for it when the host dies. So, while requests are at
// a node from which nothing came for 100 ms, it is asked in a way that its kernel
// alone answers: by a SYN. A SYN-ACK or a reset proves the host alive, whatever
// the engine does; the connection is ended without a byte, for an engine that
// hangs must not matter.
//
// One exchange is up to five SYNs, each from a new socket, since the kernel
// repeats a lost one only after a second. They go out at equal distances and are
// judged together: that none was answered within 130 ms, or four times what
// connecting to the node usually takes if that is more, and nothing else was
// heard, is what state.SilenceSeen calls proof. So a node is known to be dead 230
// to 250 ms after its death, while four lost packets of five, in either
// direction, are none; nor is an answer that takes 35 ms, or 100.
//
// Bounds: one goroutine, but for looking up names; one exchange a node at once;
// 128 sockets in all. A socket that was answered counts until the node's program
// has taken and closed it: of a program that takes none any more, as one that is
// stopped, no more than eight are open, so that its queue of connections is not
// filled up by being asked. It is then not asked until they are ten seconds old.
//
// The package judges no node: package state does. It sends no byte, and nothing
// to nodes that are idle: health probes do.
package sentinel
