// Package zmtp speaks as much of the ZeroMQ message transport protocol 3.0 as
// a subscriber of KV-cache events needs: the NULL mechanism over TCP and unix
// sockets, and the socket types SUB and DEALER on our side.
//
// It owns the framing and its bounds: a peer can make it hold at most
// Options.MaxMessageBytes, can stall nobody but itself, and is given up after
// Options.HandshakeTimeout when it does not greet. It may assume that one
// goroutine receives on a Conn. It never reconnects, never queues and starts
// no goroutine.
//
// Sources: RFC 23 (ZMTP 3.0) for greeting, framing and the NULL mechanism;
// RFC 37 (ZMTP 3.1) for PING and PONG, which libzmq sends when heartbeats are
// set; RFC 28 and 29 for the socket types. A general library is not used
// because the one for Go takes a frame's length from the peer as it is (one
// header of nine bytes ends the process), greets inside its accept loop, and
// cannot be interrupted while it greets.
package zmtp
