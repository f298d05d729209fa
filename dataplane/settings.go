package dataplane

import (
	"net/netip"

	"warmpath/dataplane/policy"
	"warmpath/dataplane/wire"
)

// Settings are what a request is served by. A Settings is immutable once it
// was passed in; a request keeps the one it began with to its end. Times are
// nanoseconds; zero turns a time-out off unless said otherwise.
type Settings struct {
	Policy policy.Policy
	Island string // where this router stands

	Head               wire.Limits
	BodyBytes          int64 // longest request body
	RetryBodyBytes     int   // longer bodies are not held for another try
	RoutingWindowBytes int64 // of a longer body this much is waited for, where that is enough to decide; 0 = for all
	Connections        int   // client connections; those beyond get 503
	MemoryBytes        int64 // of bodies and answers that are held, see memory.go; 0 = no bound

	ConnectNs       int64            // must not be zero
	HeadNs          int64            // a request's head, and the grace of its body
	FirstEventNs    int64            // silence of a node before its first event
	FirstAuto       bool             // FirstEventNs is max(20 s, 3 × predicted)
	IdleStreamNs    int64            // silence of a node within an answer
	RequestNs       int64            // a whole request …
	RequestNsByPath map[string]int64 // … to one of these paths; 0 = no limit
	IdleClientNs    int64            // between two requests of a client
	IdleNodeNs      int64            // an unused connection to a node; below the engines' 5 s
	SpeculativeNs   int64            // how long an expected unit counts after the first token
	IdentifyNs      int64            // wait for a worker to know a prompt's tokens, before it is routed by its text; 0 = 500 ms
	Retries         int              // tries after the first
	RetryBudget     float64
	HoldRequests    int   // requests that may wait for a node, in this process; 0 = 1000, below 0 none
	HoldBytes       int64 // of their bodies, in all; 0 = a quarter of MemoryBytes, and 256 MiB where that has no bound
	HoldNs          int64 // for how long one may; 0 = 600 s
	HoldHead        bool  // hold the head of an event stream until its first event
	HedgeNs         int64 // silence before the first event after which a stream is sent to a second node too; 0 = never
	HedgeAuto       bool  // the silence is max(HedgeNs, 2 × predicted)
	TrustedSource   []netip.Prefix
}

// identifyNs is the default of Settings.IdentifyNs: a prompt of a million tokens
// that nobody has seen takes a third of it.
const identifyNs = int64(500e6)

// trusts reports whether X-Forwarded-For and X-Real-IP of that peer count.
func (s *Settings) trusts(addr netip.Addr) bool {
	for _, p := range s.TrustedSource {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// Bounds of the data plane that are not configured. Each is small against
// what the configured limits allow.
const (
	readBufferBytes     = 256 << 10           // of a loop: the most that one read of an answer brings
	clientReadBytes     = 16 << 10            // a request's head and the start of its body; the rest is read in place
	streamReadBytes     = 16 << 10            // one read of an event stream
	bodyReadBytes       = 256 << 10           // of a body, so that what is scanned next is still in a cache
	bodyRoomLeast       = 64 << 10            // room that a body gets at once, if it is announced to be so long …
	bodyRoomPerByte     = 16                  // … and per byte that has come
	readsPerTurn        = 8                   // of one connection, before others have a turn
	joinBytes           = 16 << 10            // head and body up to this are copied together into one write
	pipelineBytes       = 64 << 10            // requests a client may send ahead before its reading pauses
	keptBodyBytes       = 1 << mostBufferBits // larger body buffers are given back to the runtime
	keptBodiesBytes     = 64 << 20            // and so are those beyond so much in all, a loop
	heldStreamBytes     = 64 << 10            // of a stream before its first event; more is let through
	lingerBytes         = 1 << 20             // read and dropped after a last answer, so that it arrives
	lingerNs            = int64(2e9)
	bodyBytesPerSecond  = 8 << 10 // slowest request body
	minRetryConcurrency = 3       // retries that the budget allows however few requests run
	maxNodesLost        = 2       // a request that saw so many nodes die is not tried on another
)
