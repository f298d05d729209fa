// Package report is the router's side of the push protocol: nodes report what
// their engine's cache holds, on a listener of its own.
//
// It owns the HTTP surface of node reports, the tokens that open it, and the
// protocol's state: one stream for each data-parallel rank of a worker, with its
// epoch, its sequence numbers, what came in parts, and its trust. stream is a
// pure state machine: no I/O, no clock, time is an argument. Server puts it
// behind HTTP.
//
// It never touches the index itself. A report that is taken becomes a Batch,
// which Index applies on the goroutine that owns the index while the report's
// sender waits: what the answer says of digests and of unknown blocks is
// therefore true of that moment. Placer is what that goroutine runs.
//
// Reports can go on in another process (handover.go): they wait while what is
// known is copied, and are sent again there.
//
// It may assume that whoever holds a worker's token speaks for that worker and
// for no other. Everything else about a report is checked before anything of it
// is applied.
package report
