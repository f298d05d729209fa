package dataplane

import (
	"warmpath/dataplane/backend"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
	"warmpath/dataplane/tally"
)

// RequestKey labels warmpath_requests_total.
type RequestKey struct {
	Model, Node string
	Code        int
}

// DecisionKey labels warmpath_decisions_total.
type DecisionKey struct {
	Policy string
	Reason policy.Reason
	Exact  Exactness
	Prefix string // hit, miss, none
}

// NodeTally is what was counted about one node.
type NodeTally struct {
	FirstEvent   tally.Histogram // seconds from dispatch to first event
	InterToken   tally.Histogram // seconds between events
	CachedTokens uint64          // as the engine says
	// For learning the node's prefill rate: uncached tokens of so many prompts,
	// and the seconds that the node spent on them.
	PrefillTokens  uint64
	PrefillSeconds float64
	Prefills       uint64
	// For learning its decode rate: tokens behind the first of so many streams,
	// and the seconds that they took.
	DecodeTokens  uint64
	DecodeSeconds float64
	Decodes       uint64
}

func newNodeTally() *NodeTally {
	return &NodeTally{FirstEvent: tally.NewHistogram(firstBounds), InterToken: tally.NewHistogram(tokenBounds)}
}

// OutputTally is what answers of one model say of their length.
type OutputTally struct {
	Tokens  uint64 // completion tokens of …
	Answers uint64 // … so many answers that said them
}

// Totals is a copy of everything the loops have counted.
type Totals struct {
	Requests  map[RequestKey]uint64
	Decisions map[DecisionKey]uint64
	Nodes     map[string]*NodeTally
	Models    map[string]*ModelTally
	Duration  tally.Histogram // whole requests, seconds
	Routing   tally.Histogram // last byte read to first byte out, seconds
	Lag       tally.Histogram // the kernel has a first event to a loop has read it, seconds
	Queue     tally.Histogram // waits for a node, seconds
	MatchErr  tally.Histogram // |predicted - actual| cached tokens

	PromptTokens  uint64
	MatchedTokens [exactnesses]uint64    // by Exactness
	UsageChecked  uint64                 // prompts whose length an engine has counted too …
	UsageWrong    uint64                 // … and counted otherwise
	WorkFull      uint64                 // prompts that found too many waiting for a worker, or waited too long
	Output        map[string]OutputTally // by model
	Retries       map[backend.Class]uint64
	BudgetEmpty   uint64
	Hedges        uint64               // requests that were sent to a second node because the first was silent …
	Holds         map[string]HoldTally // see Dataplane.Holds
	HeldBytes     int64                // bodies of what waits for a node
	HedgesWon     uint64               // … of those, the ones where the second one's answer was taken, or waited for after the first had failed
	MemoryBytes   int64                // that count against the budget
	Shed          [shedKinds]uint64    // given up for want of memory, by ShedNames
	Pauses        uint64
	Paused        int // connections to nodes that are not read now
	NotesDropped  uint64

	Identifying    int   // prompts whose tokens, units and text are held
	WithWorkers    int   // of them, waiting for a worker or with one
	EvidenceBytes  int64 // of bodies held beside them, in case that their tokens were counted wrongly
	Clients        int64
	NodeIdle       int
	Active         int64
	AcceptFailures uint64
	Refused        uint64

	Unslotted, Unfollowed uint64 // connections to nodes for which the kernel's programs had no slot, which they would not follow
}

var (
	durationBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}
	firstBounds    = []float64{.001, .0025, .005, .01, .02, .04, .06, .08, .1, .15, .25, .4, .6, .8, 1, 1.5, 2.5, 5, 7.5, 10, 20, 40, 80, 160}
	tokenBounds    = []float64{.001, .0025, .005, .0075, .01, .015, .02, .03, .04, .05, .075, .1, .15, .2, .3, .5, .75, 1, 2.5, 5, 10}
	routingBounds  = []float64{1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 3e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, .1}
	matchBounds    = []float64{0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536}
)

// loopTally is what one loop counts. Loop-owned.
type loopTally struct {
	requests    tally.Counters[RequestKey]
	decisions   tally.Counters[DecisionKey]
	nodes       map[string]*NodeTally
	bySlot      []*NodeTally
	nodesWere   []*fleet.Node // that bySlot was made for
	models      map[string]*ModelTally
	byModel     []*ModelTally
	duration    tally.Histogram
	routing     tally.Histogram
	lag         tally.Histogram
	queue       tally.Histogram
	matchErr    tally.Histogram
	prompt      uint64
	matched     [exactnesses]uint64
	checked     uint64                 // prompts whose length an engine has counted too …
	wrong       uint64                 // … and counted otherwise
	workFull    uint64                 // prompts that found too many waiting for a worker, or waited too long
	output      tally.Counters[string] // completion tokens by model …
	outputs     tally.Counters[string] // … and the answers that said them
	retries     [backend.Classes]uint64
	budgetEmpty uint64
	hedges      uint64
	hedgesWon   uint64
	shed        [shedKinds]uint64
}

func (t *loopTally) init() {
	t.nodes = make(map[string]*NodeTally)
	t.duration = tally.NewHistogram(durationBounds)
	t.routing = tally.NewHistogram(routingBounds)
	t.lag = tally.NewHistogram(routingBounds)
	t.queue = newQueueTally()
	t.matchErr = tally.NewHistogram(matchBounds)
}

// refresh makes room for the nodes of snap, and forgets nodes that are gone
// once there are more than a snapshot can hold.
func (t *loopTally) refresh(snap *fleet.Snapshot) {
	if len(t.nodes) > 2*fleet.MaxSlots {
		clear(t.nodes)
		t.nodesWere = nil
	}
	was := t.nodesWere
	t.nodesWere, t.bySlot = snap.Nodes, resize(t.bySlot, len(snap.Nodes))
	for slot, n := range snap.Nodes {
		if n == nil {
			t.bySlot[slot] = nil
			continue
		}
		if slot < len(was) && was[slot] != nil && was[slot].Name == n.Name {
			continue
		}
		p := t.nodes[n.Name]
		if p == nil {
			p = newNodeTally()
			t.nodes[n.Name] = p
		}
		t.bySlot[slot] = p
	}
	t.refreshModels(snap)
}

// nodeTally returns the tally of the exchange's node, nil if it is gone.
func (l *loop) nodeTally(x *exchange) *NodeTally {
	s := x.node.Slot
	if s >= len(l.tally.bySlot) || l.view.snap.Nodes[s] == nil || l.view.snap.Nodes[s].Generation != x.node.Generation {
		return nil
	}
	return l.tally.bySlot[s]
}

// learnTokensMin is the least prefill that says something about a node's rate.
const learnTokensMin = 256

func (l *loop) firstEvent(x *exchange) {
	t := l.nodeTally(x)
	if t == nil {
		return
	}
	sentNs, cameNs := l.firstEventTimes(x)
	t.FirstEvent.Observe(seconds(cameNs - sentNs))
	x.timePrefill(sentNs, cameNs)
}

// timePrefill notes what the node did for a prompt, without the way there and
// without the queue: engines prefill in the order of arrival, so the queue ended
// with the first event of the prompt before. Where several end at once, the
// others took no time of their own, and the sum is right.
func (x *exchange) timePrefill(sentNs, cameNs int64) {
	uncached := int64(x.polReq.PromptTokens) - x.matched(x.node.Slot)
	if x.passing || uncached < learnTokensMin { // of a body passed on, neither length nor time is the node's
		return
	}
	var tripNs int64
	if x.conn != nil {
		tripNs = x.conn.Line.RTTMinNs()
	}
	mark := &x.node.Load.PrefilledNs
	before := mark.Load()
	for before < cameNs && !mark.CompareAndSwap(before, cameNs) { // loops see events in another order than they came
		before = mark.Load()
	}
	x.prefilled, x.prefillNs = uncached, max(0, cameNs-max(sentNs+tripNs, before))
}

// countPrefill adds what timePrefill noted, once the answer has ended: by then
// most engines have said what was in their cache, of which the index may know
// nothing. A prompt that was there whole would pass for a very fast node.
func (t *NodeTally) countPrefill(x *exchange) {
	if x.prefilled == 0 {
		return
	}
	if w := &x.watch; w.CachedTokens >= 0 && w.PromptTokens > 0 {
		if x.prefilled = w.PromptTokens - w.CachedTokens; x.prefilled < learnTokensMin {
			return
		}
	}
	t.PrefillTokens += uint64(x.prefilled)
	t.PrefillSeconds += seconds(x.prefillNs)
	t.Prefills++
}

// firstEventTimes is when the request was sent and when its first event came: by
// the kernel's clock where it saw the segment that carried the event, so that what
// a busy loop adds is not the node's. That is told apart: the router's lag.
func (l *loop) firstEventTimes(x *exchange) (sentNs, cameNs int64) {
	if c := x.conn; c != nil && c.Line.Known() {
		sentNs, cameNs = c.Line.SendNs(), c.Line.ArrivedNs(max(x.firstBack, 0))
		if lagNs := x.firstEventNs + l.d.bootNs - cameNs; cameNs > sentNs && lagNs >= 0 {
			l.tally.lag.Observe(seconds(lagNs))
			return sentNs - l.d.bootNs, cameNs - l.d.bootNs
		}
	}
	return x.sentNs, x.firstEventNs
}

// decodeTokensMin is the shortest stream that says something about a node's rate.
const decodeTokensMin = 8

// countDecode adds how fast a stream's tokens came. Where the engine does not say
// how many there were, an event is one. A stream that was not read for a while, as
// its client was slow, says nothing of the node.
func (t *NodeTally) countDecode(x *exchange) {
	tokens := x.watch.CompletionTokens
	if tokens < 0 {
		tokens = int64(x.watch.Events)
	}
	if took := x.lastTokenNs - x.firstEventNs; x.firstEventNs != 0 && x.pausedNs == 0 && tokens >= decodeTokensMin && took > 0 {
		t.DecodeTokens += uint64(tokens - 1)
		t.DecodeSeconds += seconds(took)
		t.Decodes++
	}
}

func (l *loop) nextEvent(x *exchange) {
	if t := l.nodeTally(x); t != nil {
		t.InterToken.Observe(seconds(l.now - x.lastTokenNs))
	}
}

// count adds an ended exchange to the tallies and completes its record.
func (l *loop) count(x *exchange) {
	t := &l.tally
	key := RequestKey{Code: x.status}
	if x.snap != nil && x.model >= 0 {
		key.Model = x.snap.Models[x.model].Name
	}
	hint := 0
	if x.node != nil {
		key.Node, hint = x.node.Name, x.node.Slot
	}
	if x.status != 0 { // else the client left before it had asked for anything
		t.requests.Add(hint, key, 1)
		t.duration.Observe(seconds(l.now - x.startNs))
	}
	if x.record.seq != 0 {
		l.countDecision(x)
		l.closeRecord(x)
	}
	if x.began && x.node != nil {
		l.countUsage(x)
	}
}

func (l *loop) countDecision(x *exchange) {
	t := &l.tally
	key := DecisionKey{Policy: x.set.Policy.Name(), Reason: x.decision.Reason, Exact: x.exact, Prefix: "none"}
	if (x.prefixed || len(x.units) > 0) && x.decision.Slot >= 0 {
		matched := uint64(x.matched(x.decision.Slot))
		key.Prefix = "miss"
		if matched > 0 {
			key.Prefix = "hit"
		}
		t.matched[x.exact] += matched
	}
	t.prompt += uint64(x.polReq.PromptTokens)
	t.decisions.Add(int(key.Reason), key, 1)
}

func (l *loop) countUsage(x *exchange) {
	t := &l.tally
	if n := x.watch.CompletionTokens; n >= 0 && x.model >= 0 {
		name := x.snap.Models[x.model].Name
		t.output.Add(0, name, uint64(n))
		t.outputs.Add(0, name, 1)
	}
	l.checkUsage(x)
	l.countOutput(x)
	n := l.nodeTally(x)
	if n != nil {
		n.countPrefill(x)
		n.countDecode(x)
	}
	cached := x.watch.CachedTokens
	if cached < 0 {
		return
	}
	if n != nil {
		n.CachedTokens += uint64(cached)
	}
	diff := x.matched(x.node.Slot) - cached
	t.matchErr.Observe(float64(max(diff, -diff)))
}

// Totals asks every loop for a copy of its tallies and adds them up. Any
// goroutine may call it.
func (d *Dataplane) Totals() Totals {
	t := Totals{
		Output: map[string]OutputTally{}, Requests: map[RequestKey]uint64{}, Decisions: map[DecisionKey]uint64{}, Nodes: map[string]*NodeTally{}, Models: map[string]*ModelTally{}, Retries: map[backend.Class]uint64{},
		Duration: tally.NewHistogram(durationBounds), Routing: tally.NewHistogram(routingBounds), Lag: tally.NewHistogram(routingBounds), MatchErr: tally.NewHistogram(matchBounds),
		Queue: newQueueTally(), Holds: map[string]HoldTally{}, HeldBytes: d.parkedBytes.Load(),
		MemoryBytes: d.memory.Load(), Clients: d.clients.Load(), Active: d.active.Load(), AcceptFailures: d.accept.failed.Load(), Refused: d.accept.refused.Load(),
	}
	for _, l := range d.loops {
		t.NotesDropped += l.notes.Dropped()
		d.on(l, func() { t.add(l) })
	}
	return t
}

// add runs on the loop.
func (t *Totals) add(l *loop) {
	o := &l.tally
	o.requests.MergeInto(t.Requests)
	o.decisions.MergeInto(t.Decisions)
	t.Duration.Merge(&o.duration)
	t.Routing.Merge(&o.routing)
	t.Lag.Merge(&o.lag)
	t.MatchErr.Merge(&o.matchErr)
	t.PromptTokens += o.prompt
	t.UsageChecked += o.checked
	t.UsageWrong += o.wrong
	t.WorkFull += o.workFull
	t.addOutput(o)
	t.addHolds(l)
	for i, n := range o.matched {
		t.MatchedTokens[i] += n
	}
	for c, n := range o.retries {
		if n > 0 {
			t.Retries[backend.Class(c)] += n
		}
	}
	t.BudgetEmpty += o.budgetEmpty
	t.Hedges += o.hedges
	t.HedgesWon += o.hedgesWon
	for i, n := range o.shed {
		t.Shed[i] += n
	}
	t.Pauses += l.pauses
	t.Paused += l.slow
	t.Unslotted += l.share.Unslotted
	t.Unfollowed += l.share.Failed
	t.Identifying += l.identifying
	t.WithWorkers += l.withWorkers
	t.EvidenceBytes += int64(l.evidenceBytes)
	t.NodeIdle += l.pool.Idle()
	for name, n := range o.nodes {
		sum := t.Nodes[name]
		if sum == nil {
			sum = newNodeTally()
			t.Nodes[name] = sum
		}
		sum.FirstEvent.Merge(&n.FirstEvent)
		sum.InterToken.Merge(&n.InterToken)
		sum.CachedTokens += n.CachedTokens
		sum.PrefillTokens += n.PrefillTokens
		sum.PrefillSeconds += n.PrefillSeconds
		sum.Prefills += n.Prefills
		sum.DecodeTokens += n.DecodeTokens
		sum.DecodeSeconds += n.DecodeSeconds
		sum.Decodes += n.Decodes
	}
	for name, m := range o.models {
		if t.Models[name] == nil {
			t.Models[name] = newModelTally()
		}
		t.Models[name].merge(m)
	}
}

func (t *Totals) addOutput(o *loopTally) {
	tokens, answers := map[string]uint64{}, map[string]uint64{}
	o.output.MergeInto(tokens)
	o.outputs.MergeInto(answers)
	for model, n := range answers {
		sum := t.Output[model]
		t.Output[model] = OutputTally{sum.Tokens + tokens[model], sum.Answers + n}
	}
}
