package state

import (
	"fmt"
	"log/slog"
	"slices"
)

// life is what Step remembers of a node beyond what a snapshot shows. Times
// are nanoseconds of the events' clock; 0 = never.
type life struct {
	probeNextNs int64
	probeOutNs  int64 // sent then and not answered …
	probeForNs  int64 // … which it may be for so long
	probes      uint64
	bad, good   int // probes in a row
	refusals    int // requests in a row that found no listener
	everReady   bool
	noRoute     bool // it has no health route, as the last probe found
	noRouteSaid bool
	refused     bool // while down: its process was away, so its cache is gone

	askNextNs int64
	askFailed int // in a row

	failures, successes int64 // as LoadSeen last said
	failuresAtClose     int64 // older failures do not count for the breaker
	readyGood           int64 // successes when it became ready
	breakerNs           int64 // when Breaker last changed
	panicSaid           bool
	trial               trial
	proof               proof
	fill                fill
	tails               [tails]tail

	heardNs     int64 // when something came from it last, as far as events say
	silentNs    int64 // since when nothing came, as was proved; 0 = it is not silent
	silenceSaid bool  // … and it stays in use all the same, which was logged

	firstEvents int // first-event time-outs in a row
	hung        bool
	hungNs      int64
	movedNs     int64 // engine's tokens moved
	progressNs  int64 // they moved, or nothing ran

	drainAsked  bool
	drainNs     int64
	idle        bool // no requests were in flight after the drain began
	drainedSaid bool

	errors, answers float64 // decaying counts
	countedNs       int64
	roundTripNs     int64
	evictedNs       int64
}

// step is one call of Step in progress. s is a shallow copy of the argument:
// slices are cloned before they are first written.
type step struct {
	s        State
	effects  []Effect
	ownNodes bool
	ownSlots bool
	publish  bool // now, not with the next Tick
}

// Step returns the State after ev, and what is to be done about it. It is a
// function of its arguments, apart from the identity of new Node.Load
// pointers, and leaves s and all that s points to unchanged. The caller must
// use the returned State from then on.
func Step(s State, ev Event) (State, []Effect) {
	t := step{s: s}
	t.s.NowNs = max(s.NowNs, ev.at())
	switch e := ev.(type) {
	case NodesSeen:
		t.nodesSeen(e)
	case NodeRemoved:
		t.nodeRemoved(e)
	case SlotSwept:
		t.slotSwept(e)
	case ConfigChanged:
		t.s.Settings, t.s.fewer, t.publish = e.Settings, true, true
		t.s.masked = nil // what the file names counts again
		t.reconcile()
	case MetricsRead:
		for _, seen := range e.Readings {
			t.aboutNode(seen)
		}
	case LoadsSeen:
		t.loadsSeen(e)
	case LoadsSaid:
		t.loadsSaid(e)
	case CachesSeen:
		t.cachesSeen(e)
	case OutputSeen:
		t.outputSeen(e)
	case ExpectSeen:
		t.expectSeen(e)
	case Tick:
		t.tick()
	default:
		t.aboutNode(ev)
	}
	if t.publish {
		t.s.dirty = false
		t.s.Version++
		t.effects = append(t.effects, Publish{})
	}
	return t.s, t.effects
}

// aboutNode handles the events that concern one node as it is.
func (t *step) aboutNode(ev Event) {
	switch e := ev.(type) {
	case ProbeResult:
		t.on(e.Node, e.Incarnation, func(n *Node) { t.probed(n, e) })
	case ModelsSeen:
		t.on(e.Node, e.Incarnation, func(n *Node) { t.modelsSeen(n, e) })
	case MetricsSeen:
		t.on(e.Node, e.Incarnation, func(n *Node) { t.metricsSeen(n, e) })
	case Failure:
		t.on(e.Node, e.Incarnation, func(n *Node) { t.failed(n, e) })
	case SilenceSeen:
		t.on(e.Node, e.Incarnation, func(n *Node) { t.silenceSeen(n, e) })
	case LifeSeen:
		t.on(e.Node, e.Incarnation, func(n *Node) { t.lifeSeen(n, e) })
	case LatencySeen:
		t.on(e.Node, e.Incarnation, func(n *Node) { t.latencySeen(n, e) })
	case RateSeen:
		t.on(e.Node, e.Incarnation, func(n *Node) { t.rateSeen(n, e) })
	case TrustSeen:
		t.on(e.Node, e.Incarnation, func(n *Node) { t.trustSeen(n, e) })
	case ExactSeen:
		t.on(e.Node, e.Incarnation, func(n *Node) { t.exactSeen(n, e) })
	case DrainAsked:
		t.on(e.Node, 0, func(n *Node) { n.life.drainAsked = true; t.setDrain(n) })
	case UndrainAsked:
		t.on(e.Node, 0, func(n *Node) { n.life.drainAsked = false; t.setDrain(n) })
	default:
		panic(fmt.Sprintf("BUG: state event of type %T", ev))
	}
}

// on runs f on a copy of the named node's record that is part of the new
// State. f may remove the node.
func (t *step) on(name string, incarnation uint64, f func(*Node)) {
	i, ok := slices.BinarySearchFunc(t.s.Nodes, name, byName)
	if !ok || incarnation != 0 && incarnation != t.s.Nodes[i].Incarnation {
		return
	}
	f(t.edit(i))
}

// edit replaces record i by a copy and returns it.
func (t *step) edit(i int) *Node {
	t.unshareNodes()
	n := *t.s.Nodes[i]
	t.s.Nodes[i] = &n
	return &n
}

func (t *step) unshareNodes() {
	if !t.ownNodes {
		t.s.Nodes, t.ownNodes = slices.Clone(t.s.Nodes), true
	}
}

func (t *step) unshareSlots() {
	if !t.ownSlots {
		t.s.Slots, t.ownSlots = slices.Clone(t.s.Slots), true
	}
}

func (t *step) do(e Effect) { t.effects = append(t.effects, e) }

func (t *step) log(level slog.Level, message string, attrs ...slog.Attr) {
	t.do(Log{Level: level, Message: message, Attrs: attrs})
}
