package policy

import "warmpath/dataplane/fleet"

// Request is what a policy may know of a request.
type Request struct {
	Model        int    // index in Snapshot.Models; -1 = any node
	PromptTokens int    // of the whole prompt, exact or estimated
	LeastTokens  int    // the fewest it can have, for the context length; 0 = PromptTokens is exact
	OutputTokens int    // max_tokens of the request; -1 = not given
	AffinityKey  uint64 // 0 = the request has none
	SystemKey    uint64 // key of the system message, else of the first user text; 0 = none
	PrefixKey    uint64 // hash of the first L tokens, for sticky_least_loaded; 0 = none
	SessionKey   uint64 // hash of the session id or user; 0 = none
	Island       string // where this router stands; "" = not said
}

// Match says, by slot, how many leading tokens of the prompt each node holds.
// PrefixHolder says, by slot, whether the node is known to hold Request.PrefixKey.
// Slices may be shorter than the snapshot's Nodes: what is missing is zero.
type Match struct {
	Tokens       []uint32
	PrefixHolder []bool
}

// Loads are the router's own counters of every node by slot, read once by the
// caller so that one decision sees one picture.
type Loads struct {
	Requests      []int64
	PrefillTokens []int64
	TotalTokens   []int64
}

// Inputs are the impure inputs of a decision.
type Inputs struct {
	NowNs    int64
	Cursor   uint64  // grows by one a decision of this loop; for round_robin
	Rand     uint64  // uniform random bits
	Pressure float64 // ρ: moving average of the share of nodes with queued prefill
}

// Reason says why a node was chosen. The names are fixed by the metrics.
type Reason uint8

const (
	ReasonNone     Reason = iota
	ReasonPrefix          // it holds the prompt's prefix
	ReasonLoad            // it is the least loaded
	ReasonAffinity        // the affinity key points to it
	ReasonSession         // the session points to it
	ReasonSpill           // a holder of the prefix was passed over
	ReasonRetry           // an earlier alternative failed
	ReasonOnly            // there was no other
	ReasonPinned          // the client named it
	ReasonProbe           // half-open probe
)

var reasonNames = [...]string{"none", "prefix", "load", "affinity", "session", "spill", "retry", "only", "pinned", "probe"}

// String returns the name used in metrics and decision records.
func (r Reason) String() string { return reasonNames[r] }

// Candidate is one node that was considered. Candidates are tried by Group,
// within a group by Score, and where scores are equal in the rendezvous order
// of the request's affinity key.
type Candidate struct {
	Slot          int
	MatchedTokens int     // what the engine can take from its cache: never the whole prompt
	Score         float64 // lower is better in every policy; what it counts is the policy's to say
	InFlight      int64   // requests of this router, as Loads had them
	Group         uint8   // a lower group goes before a higher one whatever the scores

	more float32 // how often its load counts beyond once, while it ramps
	tie  float64 // place in the rendezvous order; set only where scores are equal
}

// Ordered is how many of a Decision's candidates, from the first on, are in the
// order in which they would be tried. Those behind them are worse than all of
// these, but in no particular order: retries seldom come so far.
const Ordered = 8

// Decision is the outcome of one Decide. Its slices are reused by the next
// Decide into the same value.
type Decision struct {
	Slot       int // -1: no node is available
	Reason     Reason
	Candidates []Candidate // best first: the chosen node, then the alternatives; see Ordered
	TooLong    bool        // nodes serve the model, but prompt and answer fit none of them, whatever their state
}

// Needs are the inputs of a decision that the caller may leave out, as they
// cost something to make, unless the policy asks for them.
type Needs struct {
	SystemKey  bool // Request.SystemKey
	PrefixKey  bool // Request.PrefixKey and Match.PrefixHolder
	SessionKey bool // Request.SessionKey, for which a body may have to be waited
}

// Policy is one routing rule with its parameters.
type Policy interface {
	// Name is the rule's name in the configuration.
	Name() string
	// Needs says which inputs it reads that cost something to make.
	Needs() Needs
	// Prepare does what depends on the snapshot alone.
	Prepare(*fleet.Snapshot) Prepared
}

// Prepared decides requests against one snapshot. It is immutable and may be
// used by any number of loops at once.
type Prepared interface {
	// Decide fills out. It neither allocates (once out's slices are warm) nor
	// keeps any argument.
	Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision)
}
