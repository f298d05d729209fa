// Package eventloop runs non-blocking stream sockets on gnet's poller: one
// goroutine a loop, which calls handlers when a socket can be read, has taken
// what it was owed, or has ended.
//
// It stands on gnet's pkg/netpoll and not on a gnet engine, because a proxy
// needs what an engine keeps to itself: reading into the reader's own memory,
// writing from it, being told when a peer has taken what waited for it, not
// reading while it has not, and connecting without a goroutine.
//
// Sockets are registered once, edge-triggered, for everything (epoll(7)). So
// neither waiting for room nor pausing costs a system call: a Conn that is not
// to be read is simply left alone, and remembers that it has something.
//
// What the package relies on of the poller, and what Loop.SelfTest proves at
// start: the callback gets the descriptor, an edge is reported once, and
// modifying a descriptor reports what is there again.
//
// Everything but Execute, Stop and SelfTest belongs to the loop's goroutine. It
// never blocks, and knows nothing of HTTP.
package eventloop
