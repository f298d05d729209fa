// Package proxy measures HTTP proxies side by side: how many requests each one
// carries for a second of its own CPU time, what a chunk of an event stream
// costs it, and what it adds to latency.
//
// It owns the processes it starts: fixed-answer nodes (bench/backend), one
// proxy at a time, and wrk; event streams and open loops come from bench/load,
// inside this process. The proxy has one core of its own, nodes and load share
// another; every run has a fresh proxy and a discarded warm-up, and the proxies
// take turns, so that a slow minute of the machine meets all of them. CPU time
// is user and system time of every process of the proxy, from /proc/PID/stat.
// Requests per CPU second is the honest figure: requests per second only says
// which of the two cores was full first.
//
// It may assume Linux and taskset, and wrk for requests without streams. It
// pins the calling process to the load's core. It never touches a process that
// it did not start, and listens on loopback only.
package proxy
