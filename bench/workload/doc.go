// Package workload makes the requests that a simulated fleet has to serve: from
// recorded traces, or drawn at random from a seed.
//
// It owns the Workload, which is immutable once made and may be shared by any number
// of runs, the readers of traces, and the synthetic days. The same arguments give the
// same workload, byte for byte. It may assume that a request's answer is as long on
// every node, and that clients do not wait for each other: arrivals are open-loop.
// It never reads a clock.
//
// Prompts are known by the contents of their blocks of 512 tokens: equal numbers are
// equal prefixes. A block that no other prompt has is virtual.Anonymous.
package workload
