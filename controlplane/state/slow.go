package state

import (
	"math"
	"slices"
)

// The percentiles of a node's first-event times that it is judged by. The 95th
// shows a node most of whose answers are late; the 99th one that stalls now and
// then, which the 95th does not see.
const (
	tail95 = iota
	tail99
	tails // their number
)

// tailSamples is how many answers a percentile needs: one of them lies beyond.
var tailSamples = [tails]int{20, 100}

const (
	baselineFast = 0.1          // weight of a normal reading in a baseline
	baselineSlow = 0.01         // of a slow one: a lasting change becomes normal
	peerFreshNs  = 120 * second // readings of other nodes that are older do not count
)

// tail is what is known of one percentile.
type tail struct {
	baselineSeconds float64 // what is usual; 0 = nothing was read yet
	rise            float64 // the latest reading ÷ the baseline before it
	readNs          int64   // when that was; 0 = never
	slow            int     // slow readings in a row
}

// latencySeen counts a node that is much slower than itself as failing.
func (t *step) latencySeen(n *Node, e LatencySeen) {
	t.judgeTail(n, tail95, e.P95Seconds, e.Samples, t.s.Settings.SlowP95OverBaseline)
	t.judgeTail(n, tail99, e.P99Seconds, e.P99Samples, t.s.Settings.SlowP99OverBaseline)
	t.trip(n, 0)
}

// judgeTail compares a reading with the node's own baseline, for nodes differ:
// against each other, the one with the oldest card or the longest prompts would
// be out for ever. How far the other nodes of its model are above their own
// baselines is divided out, for what slows all of them is no fault of one.
func (t *step) judgeTail(n *Node, which int, seconds float64, samples int, factor float64) {
	l := &n.life.tails[which]
	if samples < tailSamples[which] || !(seconds > 0) || math.IsInf(seconds, 0) || factor <= 0 {
		return
	}
	if l.baselineSeconds == 0 {
		*l = tail{baselineSeconds: seconds, rise: 1, readNs: t.s.NowNs}
		return
	}
	l.rise, l.readNs = seconds/l.baselineSeconds, t.s.NowNs
	weight := baselineFast
	if l.rise > factor {
		weight = baselineSlow
	}
	l.baselineSeconds += weight * (seconds - l.baselineSeconds)
	if l.rise > factor && l.rise > factor*t.peersRise(n, which) {
		l.slow++
	} else {
		l.slow = 0
	}
}

// peersRise is the median, over the other nodes of n's model that were read of
// late, of their readings ÷ their baselines; 1 if there are none, or it is less.
func (t *step) peersRise(n *Node, which int) float64 {
	var rises []float64
	group := t.group(n)
	for _, other := range t.s.Nodes {
		l := &other.life.tails[which]
		if other.Slot != n.Slot && l.readNs != 0 && t.s.NowNs-l.readNs <= peerFreshNs && t.group(other) == group {
			rises = append(rises, l.rise)
		}
	}
	if len(rises) == 0 {
		return 1
	}
	return max(1, median(rises))
}

// median sorts v.
func median(v []float64) float64 {
	slices.Sort(v)
	if len(v)%2 == 1 {
		return v[len(v)/2]
	}
	return (v[len(v)/2-1] + v[len(v)/2]) / 2
}

// slow is how many readings in a row, of the percentile that has more of them,
// were slow.
func (n *Node) slow() int { return max(n.life.tails[tail95].slow, n.life.tails[tail99].slow) }
