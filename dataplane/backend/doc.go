// Package backend keeps the connections of one event loop to the nodes: it
// dials them off the loop, enrolls them on it, keeps idle ones for reuse and
// says what a failure allows to do next.
//
// A Pool and its Conns belong to one loop; nothing here is locked. Only Dial
// starts a goroutine, because connecting blocks; what it finds out comes back
// on the loop. The package knows nothing of requests: Conn.Owner is opaque.
package backend
