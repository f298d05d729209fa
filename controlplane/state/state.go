package state

import (
	"slices"
	"strings"

	"warmpath/dataplane/fleet"
)

// Bounds beside fleet.MaxSlots.
const (
	MaxModels  = 1024 // of one node, and of output means kept
	maxSources = 16
	maxSpecs   = 2 * fleet.MaxSlots // of one source
)

// Settings are the parts of the configuration that Step needs. They are
// immutable once passed in.
type Settings struct {
	Seed uint64 // of chain hashes

	ProbeIntervalNs     int64 // of a ready node
	ProbeIntervalDownNs int64 // of a node that does not answer
	ProbeTimeoutNs      int64
	HealthPath          string
	DownAfter           int // failed probes in a row
	UpAfter             int // good probes in a row

	BreakerFailures     int // failures in a row that open it
	BreakerOpenNs       int64
	BreakerProbeNs      int64   // how long half-open waits for its probe
	MaxEjected          float64 // share of a model's nodes that passive judgements may take out
	SlowP95OverBaseline float64 // p95 above this many times the baseline is a failure; 0 = off
	SlowP99OverBaseline float64 // and so is p99 above this many times its own
	FirstEventFailures  int     // first-event time-outs in a row that mean hung
	HungAfterNs         int64   // tokens standing still this long while requests run mean hung; 0 = off

	DrainNodeNs int64 // longest drain of one node; 0 = no limit
	StaleNs     int64 // metrics older than this are unknown

	Models []ModelSpec
}

// ModelSpec is a model that the configuration names.
type ModelSpec struct {
	Name    string
	Aliases []string
	Default bool
}

// DefaultSettings are the settings of a configuration without keys.
func DefaultSettings() Settings {
	const second = int64(1e9)
	return Settings{
		ProbeIntervalNs: 15 * second, ProbeIntervalDownNs: 2 * second, ProbeTimeoutNs: 5 * second,
		HealthPath: "/health", DownAfter: 3, UpAfter: 2,
		BreakerFailures: 5, BreakerOpenNs: 60 * second, BreakerProbeNs: 10 * second,
		MaxEjected: 0.5, SlowP95OverBaseline: 3, SlowP99OverBaseline: 2, FirstEventFailures: 2, HungAfterNs: 30 * second,
		DrainNodeNs: 1800 * second, StaleNs: 5 * second,
	}
}

// Node is one node's record. It is immutable: Step replaces records, never
// changes them.
type Node struct {
	Spec        Spec
	Source      string
	Endpoint    Endpoint
	Slot        int // of its first rank; the others' follow
	Ranks       int
	Generation  uint32      // of all its slots
	Incarnation uint64      // grows over all nodes, never reused
	Load        *fleet.Load // of this incarnation; never read by Step

	Health   fleet.State // Joining, Warming, Ready or Down: what it would be if it did not drain
	Cause    fleet.Cause // why Health is Down
	Breaker  fleet.Breaker
	Drain    bool
	Removing bool   // it goes when it is idle
	Reason   string // why it is in this state, for people
	// History is what became of it, oldest first: the last 32 changes. It goes on when
	// a node of that name comes back. Immutable.
	History []Change
	// BreakerReason is why Breaker changed last, for people; "" = it never did.
	BreakerReason string

	Models []Served // what it serves, ascending by ID
	Asked  bool     // it was asked for its models at least once
	Engine string   // "" = not known

	Sample      Sample // the last good reading
	SampleNs    int64  // when; 0 = never
	SampleFresh bool
	Said        Said // what it said in band last; see Queue

	Requests      int64 // as LoadSeen last said
	PrefillTokens int64
	ErrorShare    fleet.Gauge

	Prefill                Rate        // of prompts' tokens that were in no cache
	Decode                 Rate        // of one answer
	PrefillTokensPerSecond fleet.Gauge // what decisions take for Prefill; see weigh
	DecodeTokensPerSecond  fleet.Gauge
	RoundTripSeconds       fleet.Gauge
	EvictedTokensPerSecond fleet.Gauge
	Weight                 float64 // 1.0 = median of its model's nodes

	Cached  fleet.Gauge // tokens that the index holds for all its ranks, as CachesSeen last said
	Warmth  fleet.Gauge // that against what its like hold, 0 … 1
	Filling bool        // it became ready with much less than its like, and ramps by its Warmth
	Proof   fleet.Gauge // how many it has given of the good answers that it must give to count in full, 0 … 1, by steps; unknown = it must give none

	Trust   []fleet.Trust // by rank; immutable, replaced whole
	Exact   uint32        // classes of requests whose prompts are known exactly, as bits
	Version string        // of the engine, as a proof of exactness saw it; "" = not known

	life life
}

// Slot is one place in the snapshot.
type Slot struct {
	Generation uint32 // of its present or latest tenant; 0 = never had one
	Tenant     string // "" = none
	Resting    bool   // its tenant is gone and the index has not swept it yet
}

// Model is what is known of one model.
type Model struct {
	Name       string
	MeanOutput float64 // running mean of output tokens; 0 = none seen yet
}

// State is the whole fleet. The zero State is not usable; begin with New.
type State struct {
	NowNs    int64  // the latest time of any event
	Version  uint64 // grows with each Publish
	Settings Settings
	Nodes    []*Node  // ascending by name
	Slots    []Slot   // by slot
	Outputs  []Model  // ascending by name; bounded by MaxModels
	Pressure float64  // moving average (30 s) of the share of nodes with queued prefill
	Expected Expected // as ExpectSeen last said; immutable
	Gone     []Gone   // the last 64 nodes that went and have not come back, the latest last; immutable

	sources     []source
	masked      []string // names that NodeRemoved took out although a source other than APISource has them; ascending
	incarnation uint64
	dirty       bool  // a snapshot would show something new; published with the next Tick
	rates       bool  // a learned rate changed since the weights were made
	fills       bool  // what nodes hold changed since their warmth was set
	fewer       bool  // a node went out since it was last looked whether too many are
	shortNs     int64 // when a probe last could not be sent, for want of something of this host's own; 0 = not of late
	pressedNs   int64
	waiting     bool // a node found no slot; tried again when one is swept
}

// source is one source of nodes and its latest full set.
type source struct {
	name  string
	specs []Spec
}

// New returns a State without nodes.
func New(settings Settings) State { return State{Settings: settings} }

// State says where in its life the node is: Health, overlaid by draining. A
// node that is down is down, whether it drains or not.
func (n *Node) State() fleet.State {
	if n.Drain && n.Health != fleet.Down {
		return fleet.Draining
	}
	return n.Health
}

// Find returns the record of the named node, nil if there is none.
func (s *State) Find(name string) *Node {
	if i, ok := slices.BinarySearchFunc(s.Nodes, name, byName); ok {
		return s.Nodes[i]
	}
	return nil
}

func byName(n *Node, name string) int { return strings.Compare(n.Spec.Name, name) }

// BaseModel is the model whose prompts a node serves, by the name that the
// configuration has for it if it has one: an engine can have one model under
// several names, and adapters of it. What it holds is filed under this name. ""
// while none is known.
func (n *Node) BaseModel(configured []ModelSpec) (name string) {
	for i := range n.Models {
		if n.Models[i].Parent != "" {
			continue
		}
		id := n.Models[i].ID
		if slices.ContainsFunc(configured, func(m ModelSpec) bool { return m.Name == id }) {
			return id
		}
		if name == "" {
			name = id
		}
	}
	return name
}
