package state

import "warmpath/dataplane/fleet"

// Event is something that happened. NowNs of every event is the caller's
// clock in nanoseconds, from any fixed origin above zero; the State's own
// clock never runs backwards. Node names a node; an event about a node that is
// not known is ignored. Incarnation, where an event has it, is that of the
// effect it answers: an answer to an earlier incarnation is ignored; 0 is not
// checked.
type Event interface{ at() int64 }

// Served is one model as an engine names it.
type Served struct {
	ID          string
	MaxModelLen int    // tokens of prompt and answer together; 0 = not said
	Root        string // what the name stands for; "" = not said
	Parent      string // base model of an adapter; "" = not an adapter
}

// Sample is one reading of an engine's metrics. An unknown Gauge means that
// the engine did not say, never zero.
type Sample struct {
	Engine          string // "" = not recognised
	Queued          fleet.Gauge
	Running         fleet.Gauge
	KVUse           fleet.Gauge // 0 … 1
	PromptTokens    fleet.Gauge // counter
	GeneratedTokens fleet.Gauge // counter
	BlockTokens     int         // 0 = not said
	CacheTokens     int64       // 0 = not said
}

// Class says what kind of failure a request met at a node.
type Class uint8

const (
	Refused    Class = iota // the connection was refused or could not be made
	Reset                   // the connection broke before an answer
	ServerFail              // a 5xx answer, or an error event in a stream
	FirstEvent              // a head, or nothing, and then no event within the deadline
)

var classNames = [...]string{"refused", "reset", "server_error", "first_event"}

// String returns the name used in logs.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return "unknown"
}

type (
	// NodesSeen is the full set of nodes that one source names now. A node that
	// its source no longer names drains and goes. Of two sources that give the
	// same name or the same URL, the one heard first wins. The specs' slices are
	// the State's from then on.
	NodesSeen struct {
		NowNs  int64
		Source string
		Specs  []Spec
	}
	// NodeRemoved takes a node out, whatever its source: it drains first, or
	// goes at once with Force. A node that a source still names stays out until
	// that source drops it, or the source APISource names it anew.
	NodeRemoved struct {
		NowNs int64
		Node  string
		Force bool
	}
	// ProbeResult answers the effect Probe. OK means a 2xx answer; Status is 0
	// if there was none, and Err then says why. Local means that this host had
	// no descriptor, port or memory left to ask with, which says nothing of the
	// node.
	ProbeResult struct {
		NowNs       int64
		Node        string
		Incarnation uint64
		OK          bool
		Local       bool
		Status      int
		DurationNs  int64
		Err         string
	}
	// ModelsSeen answers AskModels, or is a reading of the poller's own accord.
	// Err is not "" if the engine could not be asked.
	ModelsSeen struct {
		NowNs       int64
		Node        string
		Incarnation uint64
		Models      []Served
		Engine      string // "" = not recognised
		Err         string
	}
	// MetricsSeen is one reading of the engine's metrics. That they could not be
	// read is no event: the last reading goes stale.
	MetricsSeen struct {
		NowNs       int64
		Node        string
		Incarnation uint64
		Sample      Sample
		Inherited   bool // read by another process: it counts only while there is none of this one's
	}
	// MetricsRead is the readings of several nodes, one event for all of them: a
	// Step for every node would copy the State for each.
	MetricsRead struct {
		NowNs    int64
		Readings []MetricsSeen
	}
	// LoadsSeen is a copy of the counters of all nodes whose counters the State does
	// not know (Node.Knows), sent periodically: one event, since a Step for every node
	// would copy the State for each.
	LoadsSeen struct {
		NowNs int64
		Loads []LoadSeen
	}
	// LoadSeen is a copy of the counters behind one Node.Load.
	LoadSeen struct {
		Node          string
		Incarnation   uint64
		Requests      int64
		PrefillTokens int64
		Failures      int64
		Consecutive   int64
		Successes     int64
	}
	// Failure reports one failure at once; it counts towards refused and hung,
	// not towards the breaker, which reads LoadsSeen.
	Failure struct {
		NowNs       int64
		Node        string
		Incarnation uint64
		Class       Class
	}
	// SilenceSeen is proof that nothing comes back from a node: what was sent to
	// it since SinceNs should have been answered by its host alone, without its
	// engine, and was not. That is a second retransmission time-out with no
	// progress on any of its connections, or sentinels (package sentinel); never
	// a reset, which is an answer, and never one time-out, which a lost packet
	// makes too.
	SilenceSeen struct {
		NowNs       int64
		Node        string
		Incarnation uint64
		SinceNs     int64  // when something came from it last
		OthersHeard bool   // something came from another node since: the way out of this host is sound
		Evidence    string // for people
	}
	// LifeSeen says that something came from a node at AtNs, be it a single
	// packet. It voids every SilenceSeen that begins before, sent already or yet
	// to come; it says nothing of the engine.
	LifeSeen struct {
		NowNs       int64
		Node        string
		Incarnation uint64
		AtNs        int64
	}
	// LatencySeen is how long first events of a node took of late, each
	// percentile over its own number of latest answers; 0 = too few for it.
	LatencySeen struct {
		NowNs       int64
		Node        string
		Incarnation uint64
		P95Seconds  float64
		Samples     int // that P95Seconds is of
		P99Seconds  float64
		P99Samples  int
	}
	// RateSeen is one measurement of a node's speed; unknown gauges leave the
	// learned rate as it is.
	RateSeen struct {
		NowNs                  int64
		Node                   string
		Incarnation            uint64
		PrefillTokensPerSecond fleet.Gauge
		PrefillSamples         int // answers that it is the mean of; 0 = one
		DecodeTokensPerSecond  fleet.Gauge
		DecodeSamples          int
		RoundTripSeconds       fleet.Gauge
		EvictedTokensPerSecond fleet.Gauge
	}
	// OutputSeen is the mean output tokens of a model's latest answers.
	OutputSeen struct {
		NowNs      int64
		Model      string
		MeanTokens float64
	}
	// TrustSeen says how far a rank's KV-cache events can be believed.
	TrustSeen struct {
		NowNs       int64
		Node        string
		Incarnation uint64
		Rank        int
		Trust       fleet.Trust
		Why         string
	}
	// ExactSeen says for which classes of requests (bits) a node's own token
	// ids were found equal to the router's.
	ExactSeen struct {
		NowNs       int64
		Node        string
		Incarnation uint64
		Classes     uint32
		Version     string // of the engine; "" = it does not say
	}
	// DrainAsked stops new requests to a node.
	DrainAsked struct {
		NowNs int64
		Node  string
	}
	// UndrainAsked takes DrainAsked back. It does not bring back a node that
	// is being removed.
	UndrainAsked struct {
		NowNs int64
		Node  string
	}
	// SlotSwept answers DropSlot: the index holds nothing of the slot any more.
	SlotSwept struct {
		NowNs      int64
		Slot       int
		Generation uint32
	}
	// Tick moves the clock; it is sent every 100 ms.
	Tick struct{ NowNs int64 }
	// ConfigChanged replaces the settings.
	ConfigChanged struct {
		NowNs    int64
		Settings Settings
	}
)

func (e NodesSeen) at() int64     { return e.NowNs }
func (e NodeRemoved) at() int64   { return e.NowNs }
func (e ProbeResult) at() int64   { return e.NowNs }
func (e ModelsSeen) at() int64    { return e.NowNs }
func (e MetricsSeen) at() int64   { return e.NowNs }
func (e MetricsRead) at() int64   { return e.NowNs }
func (e LoadsSeen) at() int64     { return e.NowNs }
func (e Failure) at() int64       { return e.NowNs }
func (e SilenceSeen) at() int64   { return e.NowNs }
func (e LifeSeen) at() int64      { return e.NowNs }
func (e LatencySeen) at() int64   { return e.NowNs }
func (e RateSeen) at() int64      { return e.NowNs }
func (e OutputSeen) at() int64    { return e.NowNs }
func (e TrustSeen) at() int64     { return e.NowNs }
func (e ExactSeen) at() int64     { return e.NowNs }
func (e DrainAsked) at() int64    { return e.NowNs }
func (e UndrainAsked) at() int64  { return e.NowNs }
func (e SlotSwept) at() int64     { return e.NowNs }
func (e Tick) at() int64          { return e.NowNs }
func (e ConfigChanged) at() int64 { return e.NowNs }
