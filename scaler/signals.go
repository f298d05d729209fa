package scaler

// Gauge is a measured value that may be missing or old. The zero Gauge is unknown,
// which is not the same as zero.
type Gauge struct {
	Value float64 `json:"value"`
	Known bool    `json:"known"`
}

// Known is a Gauge of a value that is known.
func Known(v float64) Gauge { return Gauge{v, true} }

// Or returns the value if it is known, else fallback.
func (g Gauge) Or(fallback float64) float64 {
	if g.Known {
		return g.Value
	}
	return fallback
}

// Phase is where in its life a node is, as far as the scaler cares.
type Phase uint8

const (
	Starting Phase = iota // it was asked for, or loads its weights: it costs and serves nothing
	Ready                 // it serves
	Draining              // it finishes what it has
	Down                  // it is judged dead, hung or sick
)

var phaseNames = [...]string{"starting", "ready", "draining", "down"}

// String returns the name that the admin API uses.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "unknown"
}

// Node is one node of the pool, be it the scaler's own or not.
type Node struct {
	Name  string
	Offer string // that it was made from; "" = it is not the scaler's, and never ended by it
	Phase Phase
	// SinceNs is when it came into that phase, by Signals.NowNs's clock.
	SinceNs int64
	ByHand  bool // it drains because somebody else wanted so: it is not asked back

	InFlight int64 // requests sent to it whose answers have not ended
	// BacklogSeconds is how long its prefill will take that was sent and whose first
	// token has not come.
	BacklogSeconds Gauge
	Queued         Gauge // requests that wait in the engine, as it says
	Running        Gauge // requests that it works on, as it says
	MostRunning    Gauge // that it can work on at once
	KVUse          Gauge // 0 … 1
	Evicted        Gauge // tokens a second that its cache drops
	CacheTokens    Gauge // that its cache can hold
	Fill           Gauge // share of its cache that holds something, 0 … 1
	Busy           Gauge // share of the last interval in which it had work, 0 … 1

	PrefillTokensPerSecond Gauge   // of prompts' tokens that were in no cache
	DecodeTokensPerSecond  Gauge   // of one answer, as its latest answers were
	Weight                 float64 // speed against the median of the pool, 1.0 = median; 0 = 1.0
}

// TokenBounds are the inclusive upper bounds of Traffic.Uncached, in tokens; one
// bucket more is for what lies beyond.
var TokenBounds = []float64{64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 65536, 131072}

// TTFTBounds are the inclusive upper bounds of Traffic.TTFT, in seconds; one
// bucket more is for what lies beyond.
var TTFTBounds = []float64{.025, .05, .1, .15, .2, .3, .4, .5, .6, .8, 1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 7.5, 10, 15, 20, 30, 45, 60, 120, 300}

// Traffic is what came, and what became of it, since the Signals before.
type Traffic struct {
	SpanSeconds float64 // the time it covers; 0 = nothing is known of it

	Requests       float64 // that came, whether they were sent on or not
	PromptTokens   float64 // of those that were sent
	UncachedTokens float64 // of PromptTokens, what the chosen nodes had in no cache
	OutputTokens   float64 // generated in the span
	Answers        float64 // that ended in the span

	Uncached []float64 // of requests sent, by uncached tokens; see TokenBounds; nil = not known
	// TTFT is of first tokens that came in the span: by uncached tokens, as Uncached, and of
	// each size by seconds (TTFTBounds), one size after the other; nil = not known.
	TTFT []float64
}

// ttftBuckets are those of one size in Traffic.TTFT.
var ttftBuckets = len(TTFTBounds) + 1

// NewTTFT returns an empty Traffic.TTFT, of which TTFTBucket is an index.
func NewTTFT() []float64 { return make([]float64, (len(TokenBounds)+1)*ttftBuckets) }

// TTFTBucket is where Traffic.TTFT counts first tokens: by the bucket of their prompt's
// uncached tokens, and that of their seconds.
func TTFTBucket(size, seconds int) int { return size*ttftBuckets + seconds }

// ttftOf are the first tokens of one size, by TTFTBounds; a view.
func (t *Traffic) ttftOf(size int) []float64 {
	from := min(size*ttftBuckets, len(t.TTFT))
	return t.TTFT[from:min(from+ttftBuckets, len(t.TTFT))]
}

// ttft are those of all sizes.
func (t *Traffic) ttft() []float64 {
	all := make([]float64, ttftBuckets)
	for i, n := range t.TTFT {
		all[i%ttftBuckets] += n
	}
	return all
}

// Signals are what is known of one pool at one moment.
type Signals struct {
	// NowNs is a clock that never runs backwards, from any fixed origin above zero;
	// it does not follow the wall clock.
	NowNs   int64
	Nodes   []Node // ascending by name
	Traffic Traffic
	// Held is how many requests wait in the router because no node can take them.
	Held float64
	// Offers is what is known of the offers by now; one that is not named is as the
	// configuration has it.
	Offers []OfferStatus
	// Missing says why Traffic or Nodes cannot be believed; "" = they can.
	Missing string
}

// OfferStatus is what experience says of one offer.
type OfferStatus struct {
	Name           string `json:"name"`
	Withheld       string `json:"withheld"`           // why nothing is asked of it for now; "" = it may be asked
	Unlisted       string `json:"unlisted,omitempty"` // why its provider cannot say which nodes there are; "" = it can
	StartUpSeconds Gauge  `json:"start_up_seconds"`   // from the asking until the node served, as measured
	PricePerHour   Gauge  `json:"price_per_hour"`     // where the provider says it, it goes before the configuration
	// Uncertain is how many nodes may exist at it beyond those in Signals.Nodes: asked
	// for and unanswered, or told to end and not known to have. They count against
	// quota and budget.
	Uncertain int `json:"uncertain"`
}
