package kvevent

// Trust says how far what an engine's events told can be believed.
type Trust uint8

// The states of trust (design, section 7: a match counts in full, less, or
// not at all).
const (
	// Cold: nothing is known yet.
	Cold Trust = iota
	// Live: what the events said is held, is held. More may be: blocks from
	// before the first event that was seen (Status.From).
	Live
	// Gapped: events may be missing. Removals may be among them, so a block that
	// counts as held may be gone.
	Gapped
	// Stale: gapped for so long that nothing is to be believed.
	Stale
)

var trustNames = [...]string{"cold", "live", "gapped", "stale"}

// String is the state as the label of a metric.
func (t Trust) String() string { return trustNames[t] }

// Status is the state of one stream.
type Status struct {
	Trust Trust
	// Connected says that the event socket has its engine.
	Connected bool
	// Heard says that a batch has come by this connection, and First which: the
	// engine knew of the subscription, so that none behind it is lost unseen.
	Heard bool
	First uint64
	// Next is the sequence number of the next batch, and From that of the
	// first one since all was forgotten: 0 means that nothing was missed.
	Next, From uint64
	Batches    uint64 // applied
	// Gaps counts missing runs of batches (kv_event_gaps_total), Lost those of
	// them that no replay could fill, so that all was forgotten.
	Gaps, Lost uint64
	Restarts   uint64 // of the engine, as its sequence numbers tell
	Replays    uint64 // asked for
	Overflows  uint64 // batches given up because the consumer was slow
	Reconnects uint64
	Rejected   uint64 // messages that are no batch: frames or payload
	// Err is the last error of a connection, "" if the last one was good.
	Err string
}
