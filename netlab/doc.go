// Package netlab gives tests a network of their own: two network namespaces and a
// veth between them, on which packets can be lost. Nothing of the host is touched
// but the names of the namespaces, which carry the process's id; they go with the
// test, and with them all that is in them.
//
// It needs root and ip (iproute2). Who is not root skips; root without ip fails.
//
// A socket belongs to the namespace in which it was made, whoever uses it later:
// In is enough to listen or dial there.
//
// It also knows what a test may leave out that meets an older kernel: SkipLacking.
package netlab
