// Package httputilproxy is what somebody gets who writes a least-connections
// proxy with net/http/httputil.ReverseProxy and sets it up well: one processor,
// pooled copy buffers, kept connections, events passed on as they come. It is a
// peer that benchmarks measure, started as `warmbench proxy httputil`.
//
// It owns its listener and its connections to nodes. It assumes that nodes do
// not come and go, and never looks into a body.
package httputilproxy
