package dataplane

import (
	"sort"
	"time"

	"warmpath/dataplane/backend"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
)

const (
	recordedCandidates = 8
	recordedPassedOver = 4
)

// Record says what was decided for one request and what became of it. It
// shares nothing with the loop that made it.
type Record struct {
	ID           string
	At           time.Time
	Model        string
	Policy       string
	Exactness    Exactness
	Inexact      string // why the prompt's tokens were not known; "" if they were, or the model has none
	PromptTokens int    // estimated, or counted where the exactness is exact
	OutputTokens int    // asked for; -1 = not said
	AffinityKey  uint64
	Pressure     float64

	Node       string // where it was sent last; "" = nowhere
	Reason     policy.Reason
	First      policy.Reason // why the first node was chosen; differs from Reason after a retry
	Candidates []RecordedCandidate
	Considered int // candidates there were; only the best are listed
	PassedOver []RecordedPassedOver
	Tries      []RecordedTry

	Ended            bool
	Status           int
	Outcome          backend.Class
	CachedTokens     int64       // as the engine said; -1 = it did not
	EnginePrompt     int64       // usage.prompt_tokens; -1 = it did not say
	Hold             HoldOutcome // whether it waited for a node, and what became of that
	HeldSeconds      float64     // for how long, until now if it still does
	RoutingSeconds   float64     // without that
	FirstEventAfter  float64     // seconds from the request's first byte; 0 = no event
	DurationSeconds  float64
	CompletionTokens int64
}

// RecordedCandidate is one node that could have been sent to, best first.
type RecordedCandidate struct {
	Node          string
	MatchedTokens int
	Score         float64
	InFlight      int64
}

// RecordedPassedOver is a node that holds a prefix of the prompt and was no
// candidate.
type RecordedPassedOver struct {
	Node          string
	MatchedTokens int
	Why           string
}

// RecordedTry is one node that the request was sent to.
type RecordedTry struct {
	Node  string
	Class backend.Class
}

// compactRecord is a Record as the loop keeps it: fixed in size, no pointers
// but to names that snapshots own.
type compactRecord struct {
	seq          uint64
	id           [maxRequestID]byte
	idLen        int
	atNs         int64
	model        string
	policy       string
	exact        Exactness
	inexact      string
	promptTokens int
	outputTokens int
	affinityKey  uint64
	pressure     float64

	node       string
	reason     policy.Reason
	first      policy.Reason
	candidates [recordedCandidates]RecordedCandidate
	nCand      int
	considered int
	passed     [recordedPassedOver]RecordedPassedOver
	nPassed    int
	tries      [maxTries]RecordedTry
	nTries     int

	ended        bool
	status       int
	outcome      backend.Class
	cached       int64
	enginePrompt int64
	completion   int64
	hold         HoldOutcome
	heldNs       int64 // before heldSinceNs
	heldSinceNs  int64 // since when it waits
	routingNs    int64
	firstEventNs int64
	durationNs   int64
}

// recordRing keeps the latest records of a loop. Loop-owned.
type recordRing struct {
	ring []compactRecord
	next uint64 // sequence of the next record; sequences start at 1
}

// recordRef names a record that may be overwritten by then.
type recordRef struct{ seq uint64 }

func (r *recordRing) init(keep int) {
	r.ring = make([]compactRecord, keep)
	r.next = 1
}

func (r *recordRing) add() (*compactRecord, recordRef) {
	c := &r.ring[r.next%uint64(len(r.ring))]
	c.seq = r.next
	r.next++
	return c, recordRef{c.seq}
}

// at returns the record, nil if there is none or it was overwritten.
func (r *recordRing) at(ref recordRef) *compactRecord {
	if ref.seq == 0 {
		return nil
	}
	if c := &r.ring[ref.seq%uint64(len(r.ring))]; c.seq == ref.seq {
		return c
	}
	return nil
}

// remember records a decision among all the candidates. What was decided on before, and has waited since, has
// a record.
func (l *loop) remember(x *exchange, candidates []policy.Candidate) {
	r := l.records.at(x.record)
	if r == nil {
		r, x.record = l.records.add()
		r.first = x.decision.Reason
	}
	r.idLen = copy(r.id[:], x.requestID())
	r.atNs = x.startNs
	r.model = ""
	if x.model >= 0 {
		r.model = x.snap.Models[x.model].Name
	}
	r.policy = x.set.Policy.Name()
	r.exact, r.inexact = x.exact, x.inexact
	r.promptTokens, r.outputTokens = x.polReq.PromptTokens, x.polReq.OutputTokens
	r.affinityKey = x.polReq.AffinityKey
	r.pressure = l.d.opt.Fleet.Pressure()
	r.node, r.reason = "", x.decision.Reason
	if x.tries == 0 {
		r.first = x.decision.Reason
	}
	r.considered = x.considered
	r.nCand = min(len(x.decision.Candidates), recordedCandidates)
	for i := range r.nCand {
		c := &x.decision.Candidates[i]
		r.candidates[i] = RecordedCandidate{x.snap.Nodes[c.Slot].Name, c.MatchedTokens, c.Score, c.InFlight}
	}
	r.nTries, r.ended, r.status, r.outcome = 0, false, 0, backend.OK
	r.cached, r.enginePrompt, r.completion = -1, -1, -1
	r.routingNs, r.firstEventNs, r.durationNs = 0, 0, 0
	r.noteWait(&x.wait)
	l.passedOver(x, r, candidates)
}

// passedOver records the nodes that hold a prefix but were no candidates, and
// why: the other half of what explains a decision.
func (l *loop) passedOver(x *exchange, r *compactRecord, candidates []policy.Candidate) {
	r.nPassed = 0
	if len(x.units) == 0 {
		return
	}
	for i := range candidates {
		l.match.considered[candidates[i].Slot] = l.cursor
	}
	for slot, tokens := range l.match.match.Tokens {
		if tokens == 0 || r.nPassed == recordedPassedOver || l.match.considered[slot] == l.cursor {
			continue
		}
		n := x.snap.Nodes[slot]
		r.passed[r.nPassed] = RecordedPassedOver{n.Name, int(tokens), whyNot(n, l.match.loads.Requests[slot])}
		r.nPassed++
	}
}

func whyNot(n *fleet.Node, requests int64) string {
	switch {
	case n.State != fleet.Ready:
		return n.State.String()
	case n.Breaker != fleet.Closed:
		return "breaker " + n.Breaker.String()
	case n.MaxInFlight > 0 && requests >= int64(n.MaxInFlight):
		return "at max_in_flight"
	default:
		return "not eligible under the policy, the model or its context length"
	}
}

// sentTo adds a try to the record.
func (l *loop) sentTo(x *exchange, reason policy.Reason) {
	r := l.records.at(x.record)
	if r == nil {
		return
	}
	r.node, r.reason = x.node.Name, reason
	if reason != policy.ReasonRetry {
		r.first = reason
	}
}

// close completes the record at the exchange's end.
func (l *loop) closeRecord(x *exchange) {
	r := l.records.at(x.record)
	if r == nil {
		return
	}
	r.nTries = x.tries
	for i, t := range x.tried[:x.tries] {
		r.tries[i] = RecordedTry{t.name, t.class}
	}
	r.ended, r.status, r.outcome = true, x.status, x.outcome
	if x.began {
		r.cached, r.enginePrompt, r.completion = x.watch.CachedTokens, x.watch.PromptTokens, x.watch.CompletionTokens
	}
	if n := x.counted(); n > 0 { // what the decision only estimated
		r.promptTokens = n
	}
	r.routingNs = x.routedNs
	if x.firstEventNs > 0 {
		r.firstEventNs = x.firstEventNs - x.startNs
	}
	r.durationNs = l.now - x.startNs
}

// expand makes a Record that shares nothing with the ring.
func (d *Dataplane) expand(c *compactRecord) Record {
	return Record{
		ID: string(c.id[:c.idLen]), At: d.WallTime(c.atNs), Model: c.model, Policy: c.policy, Exactness: c.exact, Inexact: c.inexact,
		PromptTokens: c.promptTokens, OutputTokens: c.outputTokens, AffinityKey: c.affinityKey, Pressure: c.pressure,
		Node: c.node, Reason: c.reason, First: c.first,
		Candidates: append([]RecordedCandidate(nil), c.candidates[:c.nCand]...), Considered: c.considered,
		PassedOver: append([]RecordedPassedOver(nil), c.passed[:c.nPassed]...),
		Tries:      append([]RecordedTry(nil), c.tries[:c.nTries]...),
		Ended:      c.ended, Status: c.status, Outcome: c.outcome, Hold: c.hold, HeldSeconds: c.heldSeconds(d.nowNs()),
		CachedTokens: c.cached, EnginePrompt: c.enginePrompt, CompletionTokens: c.completion,
		RoutingSeconds: seconds(c.routingNs), FirstEventAfter: seconds(c.firstEventNs), DurationSeconds: seconds(c.durationNs),
	}
}

func seconds(ns int64) float64 { return float64(ns) * 1e-9 }

// Records returns the latest records of all loops, newest first, at most n.
// Any goroutine may call it; each loop hands out copies when it gets to it.
func (d *Dataplane) Records(n int) []Record {
	var all []Record
	for _, l := range d.loops {
		d.on(l, func() {
			r := &l.records
			for seq := r.next - 1; seq > 0 && r.next-seq <= uint64(min(n, len(r.ring))); seq-- {
				if c := r.at(recordRef{seq}); c != nil {
					all = append(all, d.expand(c))
				}
			}
		})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].At.After(all[j].At) })
	return all[:min(n, len(all))]
}

// RecordOf returns the latest record of a request id.
func (d *Dataplane) RecordOf(id string) (rec Record, ok bool) {
	for _, l := range d.loops {
		d.on(l, func() {
			r := &l.records
			for seq := r.next - 1; seq > 0 && r.next-seq <= uint64(len(r.ring)); seq-- {
				c := r.at(recordRef{seq})
				if c != nil && string(c.id[:c.idLen]) == id {
					if e := d.expand(c); !ok || e.At.After(rec.At) {
						rec, ok = e, true
					}
					return
				}
			}
		})
	}
	return rec, ok
}

// on runs f on the loop and waits for it; it does not run f if the loops ended.
func (d *Dataplane) on(l *loop, f func()) {
	done := make(chan struct{})
	err := l.el.Execute(func() {
		defer close(done)
		l.now = d.nowNs()
		f()
	})
	if err != nil {
		return
	}
	select {
	case <-done:
	case <-d.stopped:
	}
}
