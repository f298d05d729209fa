package scaler

import "math"

// chunkTokens is what engines compute of prompts in one step by default (vLLM's
// max_num_batched_tokens with chunked prefill).
const chunkTokens = 2048

// decodeDoubles is the number of requests in a step that double its time, until
// nodes have shown theirs.
const decodeDoubles = 16.0

// leastMostRunning is what an engine can work on at once, until more was seen.
const leastMostRunning = 64.0

// demand is what requests ask for.
type demand struct {
	uncached float64   // tokens of a prompt that no cache has, mean
	prompt   float64   // tokens of a prompt, mean
	output   float64   // tokens of an answer, mean
	shares   []float64 // of requests, by uncached tokens (TokenBounds); sums to 1
}

// speed is what one node of weight 1 can do. A step of its engine takes base +
// each × running seconds, and what its prompt tokens cost.
type speed struct {
	burst      float64 // by how much more arrivals bunch than if each came by itself; 1 or more
	prefill    float64 // tokens a second
	base, each float64 // seconds of a decode step, and more for each request in it
	most       float64 // requests that it works on at once
}

// known reports whether enough is known to predict anything.
func (d *demand) known() bool { return d.uncached > 0 && d.output > 0 && len(d.shares) > 0 }

func (v *speed) known() bool { return v.prefill > 0 && v.each >= 0 && v.base+v.each > 0 }

// work is how many seconds of a node one request takes when the node works on as
// much at once as it can.
func (v *speed) work(d *demand) float64 {
	return d.uncached/v.prefill + d.output*(v.base/v.most+v.each)
}

// fleet is a number of nodes under a load.
type fleet struct {
	utilisation float64 // of what the nodes can do at most; 1 and above: the queue grows
	running     float64 // requests at a node, mean
	waits       float64 // probability that a request waits at all
	decay       float64 // of the wait's tail, per second
	step        float64 // seconds of one decode step
}

// under predicts n nodes (of weight 1; fractions are fine) under so many requests
// a second. Requests are sent to the node with the least prefill waiting, which is
// nearly one queue before n servers, so it is the wait of M/G/n: Erlang's C, with
// an exponential tail whose pace Allen and Cunneen's factor corrects for how much
// service times differ.
func (v *speed) under(d *demand, perSecond, n float64) fleet {
	each := perSecond / n
	f := fleet{utilisation: each * v.work(d)}
	free := 1 - each*d.uncached/v.prefill - each*d.output*v.each
	f.running = v.most
	if free > 0 {
		f.running = min(v.most, v.base*each*d.output/free)
	}
	f.step = v.base + v.each*max(1, f.running)
	if f.utilisation >= 1 {
		f.waits = 1
		return f
	}
	f.waits = erlangC(n, n*f.utilisation)
	mean, square := v.service(d, f.step)
	f.decay = n * (1 - f.utilisation) / mean * 2 / (max(1, square/(mean*mean)) * max(1, v.burst))
	return f
}

// service returns the first two moments of how long a prompt keeps a node from the
// next one.
func (v *speed) service(d *demand, step float64) (mean, square float64) {
	for i, share := range d.shares {
		s := v.own(tokensOf(i), step)
		mean += share * s
		square += share * s * s
	}
	return mean, square
}

// own is how long a prompt of so many uncached tokens takes on an idle node: its
// prefill, and the decode step of each chunk.
func (v *speed) own(tokens, step float64) float64 {
	return tokens/v.prefill + step*math.Ceil(max(1, tokens)/chunkTokens)
}

// goal is when a first token is in time.
type goal struct {
	seconds  float64 // within them, …
	slowdown float64 // … or within so many times what the prompt takes on an idle node; 0 = never
}

// of is the goal for a prompt of so many uncached tokens, in seconds.
func (g goal) of(v *speed, tokens float64) float64 {
	if g.slowdown == 0 {
		return g.seconds
	}
	return max(g.seconds, g.slowdown*v.own(tokens, v.base+v.each))
}

// late predicts the share of requests whose first token is not in time.
func (v *speed) late(d *demand, f fleet, g goal) float64 {
	share := 0.0
	for i, of := range d.shares {
		if of > 0 {
			tokens := tokensOf(i)
			share += of * f.waitsOver(g.of(v, tokens)-v.own(tokens, f.step)-f.step/2)
		}
	}
	return share
}

// waitsOver is the probability that a request waits for longer.
func (f *fleet) waitsOver(seconds float64) float64 {
	switch {
	case seconds <= 0 || f.utilisation >= 1:
		return 1
	default:
		return f.waits * math.Exp(-f.decay*seconds)
	}
}

// hopeless is the share of requests that come late on however many nodes.
func (v *speed) hopeless(d *demand, g goal) float64 {
	share := 0.0
	for i, of := range d.shares {
		if tokens := tokensOf(i); v.own(tokens, v.base+v.each) >= g.of(v, tokens) {
			share += of
		}
	}
	return share
}

// ttft predicts the time to first token that the share q of requests has.
func (v *speed) ttft(d *demand, f fleet, q float64) float64 {
	if f.utilisation >= 1 {
		return math.Inf(1)
	}
	low, high := 0.0, 1.0
	for v.late(d, f, goal{seconds: high}) > 1-q && high < 3600 {
		high *= 2
	}
	for range 30 {
		if mid := (low + high) / 2; v.late(d, f, goal{seconds: mid}) > 1-q {
			low = mid
		} else {
			high = mid
		}
	}
	return high
}

// need is the fewest nodes on which no more than the share late of requests comes
// after target, beyond those that would on any number; most+1 if so many are not
// enough.
func (v *speed) need(d *demand, perSecond float64, g goal, late float64, most int) int {
	limit := late
	if hopeless := v.hopeless(d, g); hopeless > 0 {
		limit = hopeless + max(late-hopeless, late/4)
	}
	low, high := max(1, int(perSecond*v.work(d))), most+1
	for low < high {
		n := (low + high) / 2
		if f := v.under(d, perSecond, float64(n)); f.utilisation < 1 && v.late(d, f, g) <= limit {
			high = n
		} else {
			low = n + 1
		}
	}
	return low
}

// tokensOf is a typical number of tokens of a bucket of TokenBounds.
func tokensOf(bucket int) float64 {
	switch last := len(TokenBounds) - 1; {
	case bucket > last:
		return TokenBounds[last] * 1.25
	case bucket == 0:
		return TokenBounds[0] / 2
	default:
		return (TokenBounds[bucket-1] + TokenBounds[bucket]) / 2
	}
}

// erlangC is the probability that a request finds all n servers busy, offered
// servers' worth of work (Erlang 1917). Between whole n it is interpolated by the
// logarithm.
func erlangC(n, offered float64) float64 {
	if n < 1 {
		n = 1
	}
	below := math.Floor(n)
	low := erlangWhole(int(below), min(offered, below))
	if below == n {
		return low
	}
	high := erlangWhole(int(below)+1, min(offered, below+1))
	return math.Exp(math.Log(low) + (n-below)*(math.Log(high)-math.Log(low)))
}

// erlangWhole is by the recursion of Erlang's B, which does not overflow.
func erlangWhole(n int, offered float64) float64 {
	if offered >= float64(n) {
		return 1
	}
	b := 1.0
	for k := 1; k <= n; k++ {
		b = offered * b / (float64(k) + offered*b)
	}
	return max(b/(1-offered/float64(n)*(1-b)), 1e-300)
}

// decodeFit learns how long a decode step takes with so many requests in it: a
// straight line by least squares, over which old readings fade.
type decodeFit struct {
	n, x, y, xx, xy float64 // weighted sums: of one, of requests, of seconds …
}

const (
	fitFade  = 3600.0 // seconds in which a reading's weight falls to 1/e
	fitPrior = 4.0    // readings that the shape known beforehand is worth, at both its ends
	fitSpan  = 64.0   // where its far end lies
	// fitBehind is the prefill, in seconds, that may wait at a node whose reading counts.
	fitBehind = 2.0
	// What lies beyond these is no engine's decode step, in seconds and requests.
	fitStepLeast, fitStepMost, fitRunningMost = 1e-5, 10.0, 1e5
)

// fade lets what is known count less.
func (f *decodeFit) fade(seconds float64) {
	keep := math.Exp(-seconds / fitFade)
	f.n, f.x, f.y, f.xx, f.xy = f.n*keep, f.x*keep, f.y*keep, f.xx*keep, f.xy*keep
}

// add takes one reading: with so many requests a step took so long.
func (f *decodeFit) add(running, seconds float64) {
	f.n++
	f.x += running
	f.y += seconds
	f.xx += running * running
	f.xy += running * seconds
}

// line returns what a step takes with nobody in it, and more for each request;
// neither is negative. ok is false while nothing is known. As long as all readings
// were made with about as many requests they fit any line through them, so it is
// held near one of a usual shape, by two readings that were not made.
func (f *decodeFit) line() (base, each float64, ok bool) {
	if f.n == 0 {
		return 0, 0, false
	}
	g := *f
	unit := (g.y / g.n) / (1 + g.x/g.n/decodeDoubles)
	for _, running := range []float64{0, fitSpan} {
		seconds := unit * (1 + running/decodeDoubles)
		g.n += fitPrior
		g.x += fitPrior * running
		g.y += fitPrior * seconds
		g.xx += fitPrior * running * running
		g.xy += fitPrior * running * seconds
	}
	each = (g.n*g.xy - g.x*g.y) / (g.n*g.xx - g.x*g.x)
	base = (g.y - each*g.x) / g.n
	switch {
	case each < 0:
		each, base = 0, g.y/g.n
	case base < 0:
		base, each = 0, g.xy/g.xx
	}
	return base, each, true
}
