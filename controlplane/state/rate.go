package state

import (
	"math"

	"warmpath/dataplane/fleet"
)

// How rates are learned. Logarithms are natural, so that small differences of
// them are shares: 0.05 is 5 %.
const (
	rateSpread      = 0.35 // of one answer's logarithm about its node's, before that is known
	rateSpreadLeast = 0.05
	rateSpreadMost  = 1.0
	rateSpreadPace  = 0.1  // weight of a reading in the learned spread
	rateShared      = 0.08 // error of a reading that no number of answers takes away: they share a moment
	rateErrorMost   = 1.0
	rateFar         = 3.0 // standard errors beyond which a reading counts as if it were there
	rateShift       = 5   // such readings in a row, on one side, that are no chance
	// A node drifts by a fifth in a minute: other prompts, a burst beside them,
	// other neighbours.
	rateDriftPerNs = 0.2 * 0.2 / 60e9
	// Nodes of one model differ by that much before anything was measured: about
	// half an octave, as one generation of cards from the next.
	weightSpread = 0.5
	// Nodes are alike unless they differ by more than a quarter, which a burst does
	// to one of them for a while, beyond what is not known. Queues even out what
	// lies below.
	weightAlike = 0.25
	errorsApart = 2.0 // standard errors that tell a node apart from its like …
	errorsAlike = 1.0 // … and within which it is alike again
)

// Rate is a speed that is learned from answers as they come: a Kalman filter of
// one dimension over its logarithm. Readings of many answers count more than
// those of few, what was learned long ago counts less, and single readings that
// are far off move it little, until they are too many to be chance.
type Rate struct {
	fleet.Gauge         // tokens a second
	Error       float64 // standard error of the value's logarithm: about its relative error

	spread2 float64 // variance of one answer's logarithm; as read, so perhaps below 0
	strikes int     // readings in a row that were far off; below 0 if too low
	seenNs  int64
	apart   bool // it is told apart from its like
}

// Samples is how many answers would tell as much as is known by now; 0 = nothing is,
// or all that was is in doubt.
func (r *Rate) Samples(nowNs int64) int {
	if r.doubtful(nowNs) {
		return 0
	}
	return max(1, int(r.variance()/r.uncertainty(nowNs)))
}

// ErrorAt is Error as it has grown since the last reading: what is not measured is
// less certain by the minute. Unknown while nothing was measured.
func (r *Rate) ErrorAt(nowNs int64) fleet.Gauge {
	if !r.Known {
		return fleet.Gauge{}
	}
	return fleet.Gauge{Value: math.Sqrt(r.uncertainty(nowNs)), Known: true}
}

// variance is that of one answer's logarithm.
func (r *Rate) variance() float64 {
	return min(max(r.spread2, rateSpreadLeast*rateSpreadLeast), rateSpreadMost*rateSpreadMost)
}

// learn takes a reading that is the mean of so many answers. It reports whether
// it was one.
func (r *Rate) learn(nowNs int64, g fleet.Gauge, samples int) bool {
	if g = plausible(g); !g.Known || g.Value == 0 {
		return false
	}
	answers := float64(max(1, samples))
	if !r.Known {
		*r = Rate{Gauge: g, Error: math.Sqrt(rateSpread*rateSpread/answers + rateShared*rateShared), spread2: rateSpread * rateSpread, seenNs: nowNs}
		return true
	}
	known := r.uncertainty(nowNs)
	noise := r.variance()/answers + rateShared*rateShared
	was := math.Log(r.Value)
	off := math.Log(g.Value) - was
	if r.strike(off, rateFar*math.Sqrt(known+noise)) {
		known += off * off
	}
	most := rateFar * math.Sqrt(known+noise)
	off = min(max(off, -most), most)
	r.spread2 += rateSpreadPace * ((square(off, known+noise)-known-rateShared*rateShared)*answers - r.spread2)
	gain := known / (known + noise)
	r.Value = math.Exp(was + gain*off)
	r.Error = math.Sqrt((1 - gain) * known)
	r.seenNs = nowNs
	return true
}

// square is the square of a deviation, as a sample of a variance: what is beyond
// 1.5 standard deviations counts as if it were there, so that outliers do not make
// everything look likely, and the whole is scaled to the same mean, of a normal
// distribution.
func square(off, variance float64) float64 {
	const beyond, mean = 1.5, 0.778 // E[min(z², 1.5²)]
	return min(off*off, beyond*beyond*variance) / mean
}

// strike counts readings that are far off. It reports whether they are too many
// for chance: the node has changed.
func (r *Rate) strike(off, far float64) bool {
	switch {
	case off > far:
		r.strikes = max(r.strikes, 0) + 1
	case off < -far:
		r.strikes = min(r.strikes, 0) - 1
	default:
		r.strikes = 0
	}
	if r.strikes < rateShift && -r.strikes < rateShift {
		return false
	}
	r.strikes = 0
	return true
}

// doubt says that what was learned may not hold any more.
func (r *Rate) doubt() {
	r.Error, r.strikes = rateErrorMost, 0
}

// doubtful says that nothing is known, or nothing any more.
func (r *Rate) doubtful(nowNs int64) bool {
	return !r.Known || r.uncertainty(nowNs) >= rateErrorMost*rateErrorMost
}

// uncertainty is the square of Error as it has grown since.
func (r *Rate) uncertainty(nowNs int64) float64 {
	return min(r.Error*r.Error+rateDriftPerNs*float64(max(0, nowNs-r.seenNs)), rateErrorMost*rateErrorMost)
}

// against is a node's speed against that of its like, and whether it is told apart
// from them: its weight is 1 while it is not. If chance told equals apart, a quiet
// fleet would send every cold prompt to the node whose readings happened to be
// best, replicas would not agree, and what was once taken for slow would never be
// measured again. What is told apart stays so within a narrower bound than it took,
// so that no node goes to and fro with each reading. Of those that do differ, the
// less is known the nearer to 1: what is taken for a fast node draws load.
func (r *Rate) against(like float64, nowNs int64) (weight float64, apart bool) {
	if r.doubtful(nowNs) {
		return 1, false
	}
	within := errorsApart
	if r.apart {
		within = errorsAlike
	}
	known, off := r.uncertainty(nowNs), math.Log(r.Value/like)
	if math.Abs(off) <= weightAlike+within*math.Sqrt(known) {
		return 1, false
	}
	const prior = weightSpread * weightSpread
	return min(maxWeight, max(minWeight, math.Exp(off*prior/(prior+known)))), true
}
