package fleet

import "sync/atomic"

// MaxSlots bounds the nodes of one snapshot. Slots are small so that sets of
// nodes are bitsets and per-node scratch is an array.
const MaxSlots = 1024

// State says where in its life a node is. state.Step in the control plane is
// the only place that changes it.
type State uint8

const (
	Joining  State = iota // known, not yet asked
	Warming               // asked, not yet answering its health route (loading weights takes minutes)
	Ready                 // takes requests
	Draining              // finishes what it has, takes nothing new
	Down                  // judged dead, hung or unhealthy, see Cause
	Gone                  // removed; its slot rests until the index has swept it
)

var stateNames = [...]string{"joining", "warming", "ready", "draining", "down", "gone"}

// String returns the name that metrics and the admin API use.
func (s State) String() string { return stateNames[s] }

// Cause says why a node is down.
type Cause uint8

const (
	CauseNone      Cause = iota // it is not
	CauseDead                   // nothing comes back from its host: what waits there waits in vain
	CauseHung                   // its host answers, and its health route may, but requests get nothing
	CauseRefused                // nothing listens there
	CauseUnhealthy              // its health route says so, or does not answer
)

var causeNames = [...]string{"", "dead", "hung", "refused", "unhealthy"}

// String returns the name that metrics and the admin API use, "" for none.
func (c Cause) String() string { return causeNames[c] }

// Breaker is the state of a node's circuit breaker, beside its State.
type Breaker uint8

const (
	Closed   Breaker = iota // requests pass
	Open                    // no requests until the open time has passed
	HalfOpen                // one probe decides
)

var breakerNames = [...]string{"closed", "open", "half_open"}

// String returns the name that metrics and the admin API use.
func (b Breaker) String() string { return breakerNames[b] }

// Trust is the state of a rank's stream of KV-cache events: how far what it
// reported can be believed.
type Trust uint8

const (
	TrustNone   Trust = iota // it has no events: what it holds is learned from what was sent there
	TrustCold                // events are expected and none has come
	TrustLive                // nothing was missed
	TrustGapped              // something was missed and is being asked for again
	TrustStale               // it has been silent, or away, for too long
)

var trustNames = [...]string{"none", "cold", "live", "gapped", "stale"}

// String returns the name that metrics and the admin API use.
func (t Trust) String() string { return trustNames[t] }

// Reports reports whether the rank's entries in the index are its own word, so
// that what is sent there is expected to be reported.
func (t Trust) Reports() bool { return t == TrustLive || t == TrustGapped }

// Gauge is a measured value that may be missing or stale. The zero Gauge is
// unknown, which is not the same as zero.
type Gauge struct {
	Value float64
	Known bool
}

// Or returns the value if it is known, else fallback.
func (g Gauge) Or(fallback float64) float64 {
	if g.Known {
		return g.Value
	}
	return fallback
}

// Node is one engine endpoint as a request sees it. Immutable after publish,
// except for the counters behind Load.
type Node struct {
	Slot       int    // index in Snapshot.Nodes; of its first rank in the prefix index
	Ranks      int    // data-parallel ranks; rank r has the slot Slot + r to itself
	Generation uint32 // grows each time the slot is given to another node
	Name       string // what X-Routed-To says
	NameBytes  []byte // Name again, made by Seal, for writing without a copy
	URL        string // as configured, without a trailing slash
	Address    string // host:port to dial
	Host       string // value of the Host field sent to the node
	PathPrefix string // path of URL, put before the request's path; "" for none
	Engine     string // "vllm", "sglang", "tgi", "llamacpp", "openai"; "" not known yet

	State   State
	Cause   Cause // why State is Down
	Breaker Breaker
	Island  string
	Region  string

	CapacityClass float64 // configured prior; the only weight that hashing uses
	Weight        float64 // measured speed against the median of its model's nodes, 1.0 = median
	MaxInFlight   int     // 0 = no cap
	MaxModelLen   int     // tokens of prompt and answer together; 0 = unknown
	BlockTokens   int     // tokens of one KV block; 0 = unknown
	CacheTokens   int64   // tokens the KV cache can hold; 0 = unknown
	UnitTokens    int     // tokens of one index entry of its model, as Seal finds it

	Trust []Trust // by rank, immutable
	// HashScheme is what a minimal reporter of the node names prompts by, ""
	// without one; PrefixTokens is how many tokens of a prompt it hashes, 0 =
	// all.
	HashScheme   string
	PrefixTokens int
	Exact        uint32 // classes of requests whose prompts are known to be exact here, as bits

	// Learned from first events. Nodes of one model that cannot be told apart have
	// the same, and so has one that has shown nothing yet.
	PrefillTokensPerSecond Gauge
	DecodeTokensPerSecond  Gauge // of one request
	// What the node's own answers have shown, whoever it is like: time-outs follow it.
	OwnPrefillTokensPerSecond Gauge
	RoundTripSeconds          Gauge
	QueuedRequests            Gauge // as the engine says
	RunningRequests           Gauge // as the engine says
	KVUse                     Gauge // 0 … 1
	EvictedTokensPerSecond    Gauge // from BlockRemoved events
	ErrorShare                Gauge // recent answers that were failures, 0 … 1

	// A node that has come, or come back, takes its share of new work by steps.
	Warmth  Gauge // what its cache holds against what its like hold, 0 … 1
	Filling bool  // it came with much less than its like: its share follows Warmth
	Proof   Gauge // how many it has given of the good answers that it must give to count in full, 0 … 1; unknown = it must give none

	// Load holds the counters of this incarnation; never nil in a published
	// snapshot.
	Load *Load
}

// Available reports whether new requests may be sent to the node at all: it
// is ready and its breaker is not open. Its cap is the caller's to check,
// because counters move while a snapshot stands.
func (n *Node) Available() bool {
	return n != nil && n.State == Ready && n.Breaker == Closed
}

// Heard notes that something came from the node. What is noted already is not
// noted again within so short a time, so that loops which relay many streams of
// a node do not take its cache line from each other for each event.
func (l *Load) Heard(nowNs int64) {
	const grainNs = int64(10e6)
	if was := l.HeardNs.Load(); was == 0 || nowNs-was >= grainNs {
		l.HeardNs.Store(nowNs)
	}
}

// Connected notes what it took to connect to the node: less counts at once, more
// by an eighth, so that one lost packet does not pass for a long way.
func (l *Load) Connected(tookNs int64) {
	if was := l.ConnectNs.Load(); was > 0 && tookNs > was {
		tookNs = was + (tookNs-was)/8
	}
	l.ConnectNs.Store(max(tookNs, 1))
}

// Load counts what this router has in flight at one incarnation of a node.
// It fills a cache line of its own: these are the only shared words that a
// request writes on the common path. Whoever ends a request settles it,
// exactly once, through the pointer it raised it by. Each event loop checks its
// own part in the first three against the requests it really has, and corrects
// it if they differ.
type Load struct {
	Requests      atomic.Int64 // requests sent whose answer has not ended
	PrefillTokens atomic.Int64 // uncached prompt tokens sent whose first event has not come
	TotalTokens   atomic.Int64 // prompt and expected output tokens in flight
	Failures      atomic.Int64 // connect errors, resets before an answer, 5xx, error events, first-event time-outs, ever
	Consecutive   atomic.Int64 // failures since the last success; read by the breaker
	Successes     atomic.Int64 // answers that ended well, ever

	// Signs of life, in the data plane's time; 0 = none yet. Written seldom,
	// however much comes.
	HeardNs   atomic.Int64 // something came from the node, to within 10 ms
	ConnectNs atomic.Int64 // what it takes to connect: the least of late

	// Failures again by kind; written only when one happens, on a line of its
	// own.
	Refused     atomic.Int64 // no connection could be made
	Resets      atomic.Int64 // the connection broke before an answer, or within it
	ServerFails atomic.Int64 // 5xx, an answer that is not HTTP, an error event
	Silent      atomic.Int64 // no head or no first event in time
	Dead        atomic.Int64 // the node was found dead
	Healed      atomic.Int64 // times that counts of what is in flight were wrong and were corrected

	// PrefilledNs is when the latest long prompt had its first event, in the data
	// plane's time; what is learned of the next one's speed begins there.
	PrefilledNs atomic.Int64
	_           [8]byte
}
