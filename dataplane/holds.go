package dataplane

import (
	"warmpath/dataplane/policy"
	"warmpath/dataplane/tally"
)

// HoldOutcome says what became of a request that waited for a node, or was to.
type HoldOutcome uint8

const (
	HoldNone     HoldOutcome = iota // it did not wait
	HoldWaiting                     // it waits
	HoldSent                        // a node took it
	HoldRefused                     // nodes came, and then it was known that none serves it
	HoldLate                        // none came in time (Settings.HoldNs)
	HoldTimeout                     // the request took longer than it may (Settings.RequestNs)
	HoldLeft                        // its client left
	HoldStopping                    // this process ends
	HoldFull                        // it never waited: as many did as may
	holdOutcomes
)

var holdNames = [holdOutcomes]string{"", "waiting", "sent", "refused", "late", "timeout", "left", "stopping", "full"}

// String returns the value of the label `outcome`, and of a decision's `hold`; ""
// for none.
func (h HoldOutcome) String() string { return holdNames[h] }

// HoldOutcomes are the ways in which a wait ends, for tables.
var HoldOutcomes = []HoldOutcome{HoldSent, HoldRefused, HoldLate, HoldTimeout, HoldLeft, HoldStopping, HoldFull}

// HoldTally is what was counted of the requests for one model that waited for a
// node. One that lost its node waits anew, and counts again.
type HoldTally struct {
	Now   int                  // requests that wait
	Ever  uint64               // waits that have begun
	Ended [holdOutcomes]uint64 // by HoldOutcome: those that have ended, and those that never began (HoldFull)
}

func (t *HoldTally) add(o *HoldTally) {
	t.Now += o.Now
	t.Ever += o.Ever
	for i, n := range o.Ended {
		t.Ended[i] += n
	}
}

// queueBounds are of the time that requests wait, in seconds.
var queueBounds = []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 240, 300, 450, 600, 1200}

// maxHoldTallies bounds the models whose waits are counted apart on a loop: beyond
// it those are forgotten for which nothing waits.
const maxHoldTallies = 1024

// holdTally returns the tally of x's model. Under "" are requests that name none,
// or one that no node has named.
func (l *loop) holdTally(x *exchange) *HoldTally {
	p := &l.parking
	if t := p.tallies[string(x.modelName())]; t != nil {
		return t
	}
	if p.tallies == nil {
		p.tallies = make(map[string]*HoldTally)
	}
	for name, t := range p.tallies {
		if len(p.tallies) < maxHoldTallies {
			break
		}
		if t.Now == 0 {
			delete(p.tallies, name)
		}
	}
	t := &HoldTally{}
	p.tallies[string(x.modelName())] = t
	return t
}

// Holds returns what was counted of the requests that waited for a node, by model;
// under "" of those that named none, or one that no node has named. Any goroutine
// may call it; each loop adds its part when it gets to it.
func (d *Dataplane) Holds() map[string]HoldTally {
	sum := map[string]HoldTally{}
	for _, l := range d.loops {
		d.on(l, func() { l.addHolds(sum) })
	}
	return sum
}

func (l *loop) addHolds(sum map[string]HoldTally) {
	for name, t := range l.parking.tallies {
		all := sum[name]
		all.add(t)
		sum[name] = all
	}
}

// addHolds runs on the loop.
func (t *Totals) addHolds(l *loop) {
	l.addHolds(t.Holds)
	t.Queue.Merge(&l.tally.queue)
}

func newQueueTally() tally.Histogram { return tally.NewHistogram(queueBounds) }

// recorded sees to it that x has a record, also if nothing was decided on it yet.
func (l *loop) recorded(x *exchange) {
	if x.record.seq != 0 {
		return
	}
	d := &x.decision
	d.Slot, d.Reason, d.TooLong, d.Candidates, x.considered = -1, policy.ReasonNone, false, d.Candidates[:0], 0
	l.remember(x, nil)
}

// noteWait brings x's record up to date about its waiting.
func (l *loop) noteWait(x *exchange) {
	if r := l.records.at(x.record); r != nil {
		r.noteWait(&x.wait)
	}
}

func (r *compactRecord) noteWait(w *wait) {
	r.hold, r.heldNs, r.heldSinceNs = w.how, w.spentNs, w.sinceNs
}

// heldSeconds is how long the request has waited, until now if it still does.
func (r *compactRecord) heldSeconds(nowNs int64) float64 {
	ns := r.heldNs
	if r.hold == HoldWaiting {
		ns += max(nowNs-r.heldSinceNs, 0)
	}
	return seconds(ns)
}
