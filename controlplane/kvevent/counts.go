package kvevent

// Reason says why an event, or a part of it, does not count.
type Reason uint8

// The reasons, in the order in which an event meets them.
const (
	Truncated     Reason = iota // the payload ends inside an event: it and all behind it are lost
	TooMany                     // beyond maxEvents in one batch
	Malformed                   // a field has a wrong type, or an event no tag
	UnknownTag                  // an event of a kind that is not known here
	OtherGroup                  // a cache group that holds only parts of prefixes, or a second full one
	RemoteBlocks                // not the engine's own memory
	UnknownMedium               // a medium that is not known here
	Placeholder                 // no blocks or no tokens: an offload that names blocks only
	Unaligned                   // tokens are not blocks times block size
	SelfParent                  // a block that follows itself
	Orphan                      // the block before the run is not known
	NoRoom                      // in the index, or for a partial unit: the rest of the run is left out
	UnknownBlock                // the removal of a block that is not known; counted by block
	reasons
)

var reasonNames = [reasons]string{
	"truncated", "too_many", "malformed", "unknown_tag", "other_group", "remote", "unknown_medium",
	"placeholder", "unaligned", "self_parent", "orphan", "no_room", "unknown_block",
}

// String is the reason as the label of a metric.
func (r Reason) String() string { return reasonNames[r] }

// Drops counts what did not count, by Reason.
type Drops [reasons]uint64

// Counts are the figures of one rank since its Tracker was made; they only
// grow. Events are those of the wire.
type Counts struct {
	Batches                 uint64
	Stored, Removed, Clears uint64 // events that counted
	StoredBlocks            uint64
	RemovedBlocks           uint64
	Reannounced             uint64 // blocks told again, not stored again
	Replaced                uint64 // blocks whose name meant other tokens before
	Dropped                 Drops
}

// Each gives every kind of event with its count: the samples of
// kv_events_total{node,kind}.
func (c *Counts) Each(yield func(kind string, events uint64)) {
	yield("stored", c.Stored)
	yield("removed", c.Removed)
	yield("cleared", c.Clears)
	for r, n := range c.Dropped {
		yield(Reason(r).String(), n)
	}
}
