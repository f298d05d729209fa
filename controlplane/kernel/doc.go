// Package kernel owns the kernel's programs on the router (package bpf): it loads
// what this host allows, gives the data plane slots for its connections, says how
// connections to each node are treated, and turns what the programs saw of nodes
// into views, metrics and events for state.Step.
//
// What a host allows is found by trying, and named by a tier:
//
//	full     connections are followed, segments timed, resets counted
//	lite     connections are followed: connect times, round trips, time-outs,
//	         retransmissions; first bytes are timed by the loops, and that a
//	         node is silent is found out by asking it alone
//	passive  nothing could be loaded: all times are the loops' own, and what they
//	         cannot see they ask the kernel for (TCP_INFO), connection by connection
//	off      by configuration: nothing is measured
//
// The figures are the same in each tier, their precision is not: a View says by
// whose clock they are. What is missed in user space: resets that this host sent,
// what a connection did in its last 100 ms if its node ended it, and moments
// between two looks at one of many connections.
//
// The router serves in each of them. Why it is not the first, and what to do about
// it, is said once in the log, in /api/kernel and by warmpath doctor.
//
// With kernel.node_load it also reads what nodes say of their load in band, where an
// agent (package agent) has their host say it. Without it nothing is missing but that.
//
// Goroutines: one reads events, one samples nodes each 100 ms, for which it asks
// the loops where they measure. Nothing here is on
// the path of a request, and it decides nothing about nodes: that is package state's.
package kernel
