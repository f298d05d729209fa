// Package fleetbench measures what a large fleet costs a router: the processor
// time of its control plane while nobody asks anything, how long a snapshot takes
// to publish, and what both do to the time in which requests are routed.
//
// The router is the real program, started for each run. The nodes are one other
// process, which listens on an address of its own for each of them and answers at
// once; their metrics text is as long as vLLM 0.32's and says something else each
// time that it is asked for, as a fleet at work does. Requests come from bench/load,
// in this process, as an open loop.
//
// Cases take turns, so that a slow minute of the machine meets all of them. CPU is
// user and system time from /proc/PID/stat: what other programs do meanwhile makes
// it a little worse, but not much, where wall-clock times say nothing on a busy
// machine.
//
// It may assume Linux, where all of 127.0.0.0/8 is loopback, and descriptors for
// two connections a node. It never touches a process that it did not start.
package fleetbench
