// Package scenario runs a router, a scaling law and a fleet of simulated nodes in
// virtual time: hours in seconds.
//
// It owns the world: the lives of nodes from the moment they are asked of an offer
// until they end, the routing of requests by the router's own policies on a snapshot
// as the router would have it, the signals that a law sees, and the report of what
// became of it all. Engines are those of bench/virtual, requests those of
// bench/workload. What decides how many nodes there are is a Law; the world carries
// its orders out as far as quota, outages and the most nodes allow, and never tells
// it what is to come.
//
// It may assume that the workload fits the engines' caches. The same configuration
// gives the same report, byte for byte. It never reads a clock and does no I/O but to
// the writers that it is given.
//
// What it leaves out of a router: time on the network, limits and classes, time-outs
// of clients (a request waits for its first token as long as it takes), and the ramp
// of nodes that have just come. A node that dies is known to be dead at once.
//
// # What counts
//
// A request attains its target if its first token comes within it: Target.TTFTSeconds
// after it came to the router, or, where prompts are so long that no engine could,
// Target.OwnFactor times what an idle node takes to prefill the whole prompt, if that
// is more. Lost requests attain nothing. A request is lost if no node could take it
// for too long, if too many waited for one, if the node that streamed its answer died,
// or if its answer has not ended long after the workload has.
//
// GPU-hours are the time of all nodes from when they were asked of their provider
// until they ended or died, starting and draining included, between
// Workload.MeasureNs and its end. Nodes that are there at the start cost from the
// start on.
//
// An event is over when, of the requests that come in any 30 s, 99 % attain their
// target, and have for 60 s.
package scenario
