// Package backend is a node that answers at once and always the same: the
// cheapest possible engine, so that a benchmark measures the proxy before it.
//
// It owns its listeners, one gnet engine, and the framing of the requests it
// reads. Every POST under /v1 gets one fixed chat completion of BodyBytes
// bytes, or, if its body asks for a stream, a stream of events at a fixed pace,
// each of which says when it was sent; GET /v1/files gets BodyBytes bytes too.
// /health, /v1/models, /version and /metrics answer as vLLM does, with fixed
// figures, so that routers which probe their nodes are content. It looks at
// nothing of a body but whether its begin or its end asks for a stream, unless
// Options.Tokens names the tokens of those sent to /tokenize, and keeps no
// counters.
package backend
