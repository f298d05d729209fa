// Package engine speaks the dialects of inference engines: it reads their
// metrics texts, model lists and health routes and turns them into samples
// with units, the same for every engine.
//
// It owns the tables of metric names (one an engine, with renamed fall-backs),
// the HTTP client that asks engines, and the Poller that asks a desired set of
// nodes again and again. Metrics, which are asked for each second, have a leaner way
// of their own: from one goroutine, on its own sockets (wheel.go), and where the
// engine allows it only those that are read (narrow.go). Decode and Models are pure functions over a text; the
// Prober and the Poller do the I/O.
//
// It may assume that a base URL was validated by whoever configured the node.
// It never assumes that an engine tells the truth: texts are capped, names
// may be missing, and what is missing is unknown, never zero. It never decides
// anything about a node's state; results are handed to a callback.
package engine
