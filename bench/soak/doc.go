// Package soak is a day of traffic in miniature: it runs a real router process
// before scripted nodes, breaks nodes, clients and operations at random, and
// checks every byte of every request and answer.
//
// It owns nodes, clients, the ledger that both write into, and the judge that
// says for each request whether what its client saw is explained by what the
// nodes did. Bytes follow from who they belong to (text.go): those of another
// request, node or try show, and name their owner. What a client does, what its
// node answers and which faults it meets follow from the seed, the client and
// the request's number alone (plan.go, faults.go); only times do not.
//
// It may assume loopback, Linux and the router's own time-outs, which it
// configures itself (router.go). It shares no code with the router: framing is
// read by a second, stricter reader (message.go). It never retries on behalf of
// the router, but for the one thing that HTTP leaves to clients: a request that
// met the end of an idle connection (RFC 9112, section 9.3.1).
package soak
