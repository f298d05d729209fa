// Package flow is the loops' side of what the kernel measures of connections to
// nodes: a slot of shared memory for each, in which a loop says when a request
// was sent, and the kernel says when the segments of its answer arrived.
//
// The kernel's own times are free of what user space adds: a loop that had to
// wait for a processor reads late, and would charge that to the node.
//
// A slot is three cache lines. The loop writes the first fields, twice a request,
// the kernel's programs the others, while the socket is locked; neither waits for
// the other, and what a segment touches lies in one line. The layout
// is that of struct slot in bpf/abi.h, which package controlplane/kernel checks
// against the loaded programs. Nothing here makes a system call or allocates,
// except that following a socket makes one call.
//
// A Line without a slot, for which there was no room or no kernel plane, does
// nothing and knows nothing. It never dials, and knows nothing of HTTP.
package flow
