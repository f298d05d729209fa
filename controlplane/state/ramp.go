package state

import (
	"fmt"
	"log/slog"
	"math"

	"warmpath/dataplane/fleet"
)

// A node that has just come, or come back, takes its share of new work by steps.
// What it has shown decides, never the time: its good answers prove that it works
// (Proof), and what its cache holds says how warm it is (Warmth). Both compare it
// with its like, the nodes of its base model: where none of them has shown more,
// there is nobody who would do better, and nobody ramps. Policies turn both into
// shares, with a floor: a node that got nothing would never warm.
const (
	proofAnswers = 16 // good answers in a row that prove a node
	proofSteps   = 4  // in which its share grows meanwhile

	fillsBelow  = 0.75 // warmth below which a node that becomes ready fills
	fillsUntil  = 0.9  // warmth at which it is as warm as the others: their mixes differ
	fillGain    = 0.05 // growth of its warmth that …
	fillAnswers = 64   // … so many good answers must bring: else it holds what it will ever hold

	likeLeastTokens = 8192 // a median below that says nothing: everybody is cold
	likeLeastShare  = 0.05 // … and so does one below that share of a node's own capacity

	warmthGrain = 0.01   // smaller changes are not published
	voidNs      = second // readings of an emptied cache that are earlier may be of before
)

// CachesSeen is how much the index holds for each node, sent periodically: one event,
// since a Step for every node would copy the State for each.
type CachesSeen struct {
	NowNs  int64 // when it was counted
	Caches []CacheSeen
}

// CacheSeen is one node's part of it.
type CacheSeen struct {
	Node        string
	Incarnation uint64
	Tokens      int64 // over all ranks, reported or learned
}

func (e CachesSeen) at() int64 { return e.NowNs }

// fill is what is remembered of how a node's cache fills.
type fill struct {
	judge    bool  // since it was last compared it became ready, or its cache was emptied
	voidNs   int64 // its cache was emptied then, and no reading is of later; 0 = not so
	voidGood int64 // good answers then
	best     float64
	bestGood int64 // good answers when its warmth had last grown by fillGain, to best
}

// proof is what is remembered of a node that proves itself.
type proof struct {
	due  bool  // it is ready, but not which model it serves, nor then who is its like
	on   bool  // it does
	from int64 // good answers before those that count
}

// cachesSeen takes a count of what all nodes hold.
func (t *step) cachesSeen(e CachesSeen) {
	for _, c := range e.Caches {
		n := t.s.Find(c.Node)
		if n == nil || c.Incarnation != 0 && c.Incarnation != n.Incarnation || n.inDoubt(e.NowNs) {
			continue
		}
		cached := fleet.Gauge{Value: float64(max(0, c.Tokens)), Known: true}
		if n.unheard() {
			cached = fleet.Gauge{}
		}
		if cached != n.Cached || n.life.fill.voidNs != 0 {
			t.on(c.Node, c.Incarnation, func(n *Node) { n.Cached, n.life.fill.voidNs = cached, 0 })
		}
	}
	t.s.fills = true
}

// inDoubt says whether a count may be of before the cache was emptied. The index
// forgets at once what was learned, but what was reported only when the engine's
// next report comes, which an answer proves.
func (n *Node) inDoubt(countedNs int64) bool {
	f := &n.life.fill
	return f.voidNs != 0 && (countedNs < f.voidNs+voidNs || n.reports() && n.life.successes == f.voidGood)
}

// reports says whether the node's engine reports what it holds. What is learned of
// the others ages otherwise, so that the two do not compare.
func (n *Node) reports() bool { return n.Trust[0] != fleet.TrustNone }

// unheard says whether a rank reports what it holds and has not been heard, or not of
// late: that the index has nothing of it does not mean that it holds nothing.
func (n *Node) unheard() bool {
	for _, trust := range n.Trust {
		if trust == fleet.TrustCold || trust == fleet.TrustStale {
			return true
		}
	}
	return false
}

// void notes that the node's cache is empty.
func (t *step) void(n *Node) {
	n.Cached, n.Filling = fleet.Gauge{Known: true}, false
	n.life.fill = fill{judge: true, voidNs: t.s.NowNs, voidGood: n.life.successes}
	t.s.fills = true
}

// kind is what caches are compared within.
type kind struct {
	group   string
	reports bool
}

// warm sets every node's warmth, and begins and ends ramps by it.
func (t *step) warm() {
	t.s.fills = false
	held := map[kind][]float64{}
	kinds := make([]kind, len(t.s.Nodes))
	for i, n := range t.s.Nodes {
		kinds[i] = kind{t.group(n), n.reports()}
		if n.compares() {
			held[kinds[i]] = append(held[kinds[i]], n.Cached.Value)
		}
	}
	usualOf := usual(held)
	for i, n := range t.s.Nodes {
		others := len(held[kinds[i]])
		if n.compares() {
			others--
		}
		warmth, compared := n.warmthAgainst(usualOf[kinds[i]], others)
		if n.fillChanges(warmth, compared) {
			t.fill(t.edit(i), warmth, compared)
		}
	}
}

// compares says whether others are compared with what the node holds.
func (n *Node) compares() bool { return n.Cached.Known && n.State() == fleet.Ready }

// warmthAgainst is what the node holds against what is usual among its like, or
// against what it can hold at all, if that is less: a small cache that is full is
// warm. Without any like it is only compared with itself; compared is false then, and
// where the like hold too little to be compared with: they are as cold as it may be.
func (n *Node) warmthAgainst(usual float64, others int) (warmth fleet.Gauge, compared bool) {
	if !n.Cached.Known {
		return fleet.Gauge{}, false
	}
	capacity := float64(n.Sample.CacheTokens) * float64(n.Ranks)
	switch {
	case others == 0 && capacity > 0:
		return fleet.Gauge{Value: min(n.Cached.Value/capacity, 1), Known: true}, false
	case others == 0 || usual < max(likeLeastTokens, likeLeastShare*capacity):
		return fleet.Gauge{Value: 1, Known: true}, false
	case capacity > 0:
		usual = min(usual, capacity)
	}
	return fleet.Gauge{Value: min(n.Cached.Value/usual, 1), Known: true}, true
}

// fillChanges says whether fill has something to do.
func (n *Node) fillChanges(warmth fleet.Gauge, compared bool) bool {
	return n.warmer(warmth) || n.Filling || n.fillJudged(warmth)
}

// fillJudged says whether it is time to say whether the node fills.
func (n *Node) fillJudged(warmth fleet.Gauge) bool {
	return n.life.fill.judge && n.Health == fleet.Ready && warmth.Known && (n.Asked || len(n.Models) > 0)
}

// warmer says whether the warmth has changed by more than a grain, or to the very end.
func (n *Node) warmer(to fleet.Gauge) bool {
	return to.Known != n.Warmth.Known || to != n.Warmth && (to.Value == 0 || to.Value == 1 || math.Abs(to.Value-n.Warmth.Value) > warmthGrain)
}

func (t *step) fill(n *Node, warmth fleet.Gauge, compared bool) {
	if n.warmer(warmth) {
		n.Warmth, t.s.dirty = warmth, true
	}
	f, holds := &n.life.fill, fmt.Sprintf("its cache holds %.0f %% of what its like hold", 100*warmth.Value)
	if n.fillJudged(warmth) {
		f.judge = false
		if !n.Filling && compared && warmth.Value < fillsBelow {
			n.Filling, t.s.dirty = true, true
			f.best, f.bestGood = warmth.Value, n.life.successes
			t.ramps(n, holds)
		}
	}
	switch {
	case !n.Filling:
	case !warmth.Known:
		t.filled(n, "what its cache holds is not known any more")
	case !compared:
		t.filled(n, "its like hold no more")
	case warmth.Value >= fillsUntil:
		t.filled(n, holds)
	case warmth.Value >= f.best+fillGain:
		f.best, f.bestGood = warmth.Value, n.life.successes
	case n.life.successes-f.bestGood >= fillAnswers:
		t.filled(n, fmt.Sprintf("%s; %d answers have not filled it further", holds, fillAnswers))
	}
}

func (t *step) filled(n *Node, reason string) {
	n.Filling, t.s.dirty = false, true
	t.ramped(n, reason)
}

// prove has a node that becomes ready, or whose breaker closes, give good answers
// before it takes its full share, if one of its like has given as many.
func (t *step) prove(n *Node, reason string) {
	n.noProof()
	if group := t.group(n); group == "" && !n.Asked {
		n.life.proof.due = true
	} else if t.proved(n, group) {
		n.life.proof, n.Proof = proof{on: true, from: n.life.successes}, fleet.Gauge{Known: true}
		t.ramps(n, reason)
	}
	t.publish = true
}

// proofDue begins a proof that waited for the node's models.
func (t *step) proofDue(n *Node) {
	if n.life.proof.due {
		t.prove(n, firstProof)
	}
}

var (
	firstProof = fmt.Sprintf("%d good answers in a row must prove it", proofAnswers)
	againProof = fmt.Sprintf("it was out; %d good answers in a row must prove it", proofAnswers)
)

func (n *Node) noProof() { n.life.proof, n.Proof = proof{}, fleet.Gauge{} }

// proved says whether a node of the group that takes its full share has given as many
// good answers since it became ready as a proof takes.
func (t *step) proved(n *Node, group string) bool {
	for _, other := range t.s.Nodes {
		if other.Slot != n.Slot && other.State() == fleet.Ready && !other.ejected() && !other.life.proof.on && !other.life.proof.due &&
			other.life.successes-other.life.readyGood >= proofAnswers && t.group(other) == group {
			return true
		}
	}
	return false
}

// count counts the answers of a node that proves itself. A failure begins anew.
func (t *step) count(n *Node, failed bool) {
	p := &n.life.proof
	if !p.on {
		return
	}
	p.from = min(p.from, n.life.successes)
	if failed {
		p.from = n.life.successes
	}
	good := n.life.successes - p.from
	if good >= proofAnswers {
		n.noProof()
		t.s.dirty = true
		t.ramped(n, fmt.Sprintf("%d good answers in a row", proofAnswers))
		return
	}
	if share := float64(good*proofSteps/proofAnswers) / proofSteps; share != n.Proof.Value {
		n.Proof.Value, t.s.dirty = share, true
	}
}

// stopRamp forgets all ramps of a node that takes nothing any more.
func (n *Node) stopRamp() {
	n.noProof()
	n.Filling = false
}

func (t *step) ramps(n *Node, reason string) {
	t.happened(n, "ramping", reason)
	t.log(slog.LevelInfo, "node ramps: it takes a part of its share", slog.String("node", n.Spec.Name), slog.String("why", reason))
}

// ramped says that a ramp is over, and whether another still lasts.
func (t *step) ramped(n *Node, reason string) {
	switch {
	case n.life.proof.on:
		reason += "; its answers still have to prove it"
	case n.Filling:
		reason += "; its cache still fills"
	}
	t.happened(n, "ramped", reason)
	t.log(slog.LevelInfo, "node has ramped", slog.String("node", n.Spec.Name), slog.String("why", reason))
}
