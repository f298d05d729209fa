// Package eventloop runs non-blocking stream sockets: one goroutine a loop,
// which calls handlers when a socket can be read, has taken what it was owed, or
// has ended.
//
// It is no general engine, because a proxy needs what an engine keeps to itself:
// reading into the reader's own memory, writing from it, being told when a peer
// has taken what waited for it, not reading while it has not, connecting without
// a goroutine, and sleeping without a detour through the Go scheduler.
//
// Sockets are registered once, edge-triggered, for everything (epoll(7)). So
// neither waiting for room nor pausing costs a system call: a Conn that is not
// to be read is simply left alone, and remembers that it has something.
//
// Everything but Execute, Stop and SelfTest belongs to the loop's goroutine. It
// never blocks, and knows nothing of HTTP. SelfTest proves at start that the
// kernel reports sockets as relied on: containers' stand-ins for one differ.
package eventloop
