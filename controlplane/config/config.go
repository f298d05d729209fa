package config

import (
	"net/netip"
	"time"
)

// Config is a whole configuration, checked. It is immutable: whoever holds one
// may read it for ever and may not write to it. Durations of 0 mean off, counts
// and sizes of 0 mean no bound, where the key allows 0.
type Config struct {
	Listen          string // host:port of the client side
	Admin           Admin
	Reports         Reports
	Site            Site
	StateDir        string // "" = memory only
	Seed            string // fleet seed of chain hashes; "" = made by the router
	TrustedProxies  []netip.Prefix
	Loops           int // 0 = one a CPU
	Models          []Model
	Nodes           []Node
	NodeURLsAllowed []string // CIDRs and host patterns
	Policy          Policy
	Timeouts        Timeouts
	Limits          Limits
	Retry           Retry
	Health          Health
	Breaker         Breaker
	Index           Index
	Kernel          Kernel
	Classes         []any // not available in this build: always empty
	KeysFile        string
	Tiers           []any // not available in this build: always empty
	Discovery       Discovery
	Scaler          Scaler
	Decisions       Decisions
	Log             Log
}

// Admin is the listener of metrics, health and the admin API.
type Admin struct {
	Listen string
	Token  string // required when Listen is not loopback
}

// Reports is the listener of node reports.
type Reports struct {
	Listen     string
	TokensFile string
}

// Site says where this router stands.
type Site struct{ Region, Island string }

// Model is a model that clients may name.
type Model struct {
	Name         string
	Aliases      []string
	Default      bool // for requests that name no model
	Tokenizer    string
	ChatTemplate string
}

// Node is one engine endpoint.
type Node struct {
	Name         string
	URL          string // http, as state.ParseEndpoint makes it
	Models       []string
	Engine       string // one of engine.Names
	Island       string
	Region       string
	KVEvents     KVEvents
	HashScheme   string
	PrefixTokens int
	Weight       float64
	MaxInFlight  int  // 0 = no cap
	Mark         Mark // else kernel.dscp and kernel.priority
}

// KVEvents says where an engine's cache events come from.
type KVEvents struct {
	Endpoint string
	Listen   string
	Replay   string
	Topic    string
	Ranks    int
}

// Policy names the routing rule and its parameters.
type Policy struct {
	Name   string
	Params map[string]any // bool, string, int64 or float64; only what was given
}

// AutoDuration is a duration that the router may choose itself.
type AutoDuration struct {
	Auto  bool
	Value time.Duration // used unless Auto; 0 = off
}

// Timeouts bounds every wait.
type Timeouts struct {
	Connect      time.Duration
	Head         time.Duration // a client's request head
	FirstEvent   AutoDuration
	IdleStream   time.Duration
	Hold         time.Duration // a request that waits for a node
	Identify     time.Duration // a prompt's tokens, by a worker
	Request      time.Duration
	IdleClient   time.Duration
	IdleNode     time.Duration
	DrainNode    time.Duration
	DrainProcess time.Duration
	Paths        map[string]time.Duration // by request path; overrides Request
	Classes      map[string]time.Duration // not available in this build: always empty
}

// Limits bounds what clients may use.
type Limits struct {
	Connections        int
	ConnectionsGiven   bool // by file, variable or flag; else it is lowered to what the host allows
	HeadBytes          int64
	Headers            int
	BodyBytes          int64
	RoutingWindowBytes int64
	RetryBodyBytes     int64
	HoldRequests       int   // that wait for a node
	HoldBytes          int64 // of theirs; 0 = a part of MemoryBytes
	MemoryBytes        int64 // 0 = half of what there is
}

// Retry says when a request moves to another node.
type Retry struct {
	Retries        int     // tries after the first
	Budget         float64 // share of active requests
	HoldStreamHead bool
	Hedge          AutoDuration // zero = off
}

// Health is the active probe.
type Health struct {
	Interval     time.Duration
	IntervalDown time.Duration
	Timeout      time.Duration
	Path         string
	DownAfter    int
	UpAfter      int
}

// Breaker is the circuit breaker of a node.
type Breaker struct {
	Failures            int
	Open                time.Duration
	ProbeTimeout        time.Duration
	MaxEjected          float64 // share of a model's nodes
	SlowP95OverBaseline float64 // 0 = off
	SlowP99OverBaseline float64 // 0 = off
}

// Index bounds the prefix index.
type Index struct {
	MemoryBytes     int64
	MemoBytes       int64
	SpeculativeTTL  time.Duration
	ApproximateTTL  time.Duration
	LearnedEviction string // lru, lfu, fifo, mru, filo, priority
	Sweep           time.Duration
}

// Kernel is the eBPF part.
type Kernel struct {
	Mode              string // auto, require, lite, passive, off
	RTOMin            time.Duration
	SynRTO            time.Duration
	UserTimeout       time.Duration // 0 = the host's
	NotSentLowatBytes int64         // 0 = the host's
	Mark              Mark
	// NodeLoad reads what nodes say of their load in a TCP option.
	NodeLoad bool
	XDP      XDP
}

// XDP is the guard of an interface.
type XDP struct {
	Interface    string   // "" = no guard
	Mode         string   // auto, native, generic
	Ports        []uint16 // none = the client side's
	DenyFile     string
	AllowFile    string
	SynPerSource int // a second; 0 = no bound
	SynBurst     int // 0 = twice a second's
	SynPerPort   int // a second; 0 = no cap
	Shed         ShedShare
	Pin          string // folder in a bpffs; "" = the guard ends with the process
}

// ShedShare is which share of new connections the guard drops: what the router
// finds right, or a fixed one, of which zero is none.
type ShedShare struct {
	Auto  bool
	Share float64 // used unless Auto; 0 to 1
}

// String is the value as it is configured: auto, off or the share.
func (s ShedShare) String() string {
	switch {
	case s.Auto:
		return "auto"
	case s.Share == 0:
		return "off"
	}
	return showNumber(s.Share)
}

// Discovery says where nodes come from beside the file.
type Discovery struct {
	File       string // "" = none
	DNS        []DNSName
	Register   Register
	Kubernetes Kubernetes
}

// DNSName is a name whose records are nodes.
type DNSName struct {
	Name     string
	Record   string // one of discover.Records
	Port     int    // 0 = the records', which SRV has
	Interval time.Duration
	Server   string // host:port; "" = those of the host
	// What all its nodes have.
	Models      []string
	Engine      string
	Island      string
	Region      string
	Weight      float64
	MaxInFlight int
}

// Kubernetes finds nodes by the EndpointSlices of a service; without one it does not.
type Kubernetes struct {
	Kubeconfig string // "" = the cluster that this runs in
	Context    string
	Namespace  string
	Service    string
	Selector   string // of slices, in place of Service
	Port       string // number, or name in the slices; "" = the one that they have
	// What all its nodes have.
	Models      []string
	Engine      string
	Island      string
	Region      string
	Weight      float64
	MaxInFlight int
}

// Register lets nodes register themselves.
type Register struct {
	Enabled bool
	Token   string // opens registration and nothing else
	Lease   time.Duration
}

// Decisions is the record of routing decisions.
type Decisions struct{ Keep int }

// Log is the router's own log.
type Log struct {
	Level  string // debug, info, warn, error
	Format string // text, json
}
