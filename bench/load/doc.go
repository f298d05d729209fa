// Package load sends HTTP requests to one address and measures the answers,
// streams of server-sent events above all: an open loop with given arrivals, or
// a closed loop with given concurrency.
//
// It owns its connections, one epoll loop on one thread of its own, and its
// histograms. One thread carries tens of thousands of streams, because a
// goroutine a stream would take the very processor time that is measured.
// Nothing is allocated for a request once connections and buffers are there,
// and memory does not grow with the duration.
//
// # Times
//
// Open loop: arrivals are drawn beforehand from the seed, and every latency
// counts from the time at which its request was due, whenever it could be sent.
// So a server that stalls shows in all requests that were due meanwhile, not
// only in those that it held. Requests that were sent late are counted. One that
// could not be sent within the timeout is an error, "unsent".
//
// Closed loop: a request is due when the one before it on its connection ended.
//
// # What counts
//
// Open loop: all requests that were due after the warm-up, to their end; the run
// lasts until the last of them has ended or timed out. Closed loop: all that
// ends, and each event that comes, between warm-up and end; what is under way
// then is left ("unfinished").
//
// A request is ok when its answer has status 200, came whole and, if it is a
// stream, ended with its last event ([DONE], message_stop, response.completed).
// An answer that began with status 200 and broke off is cut. Everything else is
// an error, by kind.
//
// scripts/load_check.sh compares the figures with those of other generators.
//
// It may assume Linux. It speaks HTTP/1.1 without TLS, follows no redirects,
// and never sends a request twice: one that meets the end of a connection that the
// server just gave up is an error ("closed"), as it would be a lost request.
package load
