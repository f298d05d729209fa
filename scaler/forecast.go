package scaler

import "math"

const (
	dayNs       = int64(24 * 3600e9)
	dayBins     = 288 // of five minutes
	binNs       = dayNs / dayBins
	mostPending = 128 // forecasts that wait for their time

	// What a load does by itself, by its logarithm: it wanders, and so does its slope.
	wanderPerSecond = 0.002 * 0.002 // variance
	slopePerSecond  = 2e-6 * 2e-6 * 60
	slopeDamping    = 600.0 // seconds after which a slope is believed to have ended, by e
	usualSeconds    = 1800.0
	leapAt          = 3.5 // standard errors that are a leap and no noise …
	leapAfter       = 2   // … if so many in a row are, on one side

	clearly    = 0.85 // a forecast is taken before another one if its errors are less than so many times as large
	errorPace  = 0.02 // of how far forecasts were off
	errorStart = 0.1  // relative, before any was seen
)

// predictor is one way to look ahead.
type predictor int

const (
	stays     predictor = iota // the load stays as it is
	settles                    // it goes back to what it was in the last half hour
	goesOn                     // it goes on with its slope, which ends by and by
	yesterday                  // it changes as it did a day ago
	predictors
)

var predictorNames = [...]string{"as it is", "as usual", "by its slope", "as a day ago"}

// promise is a forecast that waits for its time.
type promise struct {
	atNs int64
	logs [predictors]float64 // NaN = could not be made
}

// forecast learns how a load goes on: two-state Kalman filter over its logarithm,
// the load of a day ago, and how far forecasts so far ahead were off. It is a
// value: copies share nothing.
type forecast struct {
	level, slope  float64 // of the logarithm; slope per second
	pll, pls, pss float64 // their covariance
	strikes       int
	usual         float64 // of the logarithm: mean of the last usualSeconds, …
	usualFor      float64 // … or of so many, until there are as many
	seenNs        int64   // 0 = nothing was seen
	count, work   float64
	countNs       int64 // that count and work have been gathered for

	day    [dayBins]float64 // logarithm of the mean load of each bin …
	dayOf  [dayBins]int64   // … and which it is, by binNs since the clock's origin, plus 1; 0 = none
	binLog float64          // of the bin under way: sum …
	binN   float64          // … and number

	pending [mostPending]promise // a ring
	first   int
	waiting int
	off     [predictors]float64 // mean absolute error of each, by the logarithm
	seen    [predictors]float64 // forecasts that came due, of each
	over    float64             // by what reality exceeds the forecast in one case of ten
}

// see takes what came in so many seconds: requests, and the load they were, in
// seconds of a node, of which one takes work in the mean. It waits until there are,
// or should have been, enough of them to say anything.
func (f *forecast) see(nowNs int64, seconds, requests, load, work, spread float64) {
	f.count += requests
	f.work += load
	f.countNs += int64(seconds * 1e9)
	span := float64(f.countNs) / 1e9
	expected := 0.0
	if f.seenNs != 0 {
		expected = f.now() * span / work
	}
	const enough, longest = 5, 60
	if max(f.count, expected) < enough && span < longest || span <= 0 {
		return
	}
	// Nothing at all is not minus infinity: less than half a request came.
	x := math.Log(max(f.work, work/2) / span)
	if math.IsNaN(x) || math.IsInf(x, 0) { // readings that cannot be teach nothing
		f.count, f.work, f.countNs = 0, 0, 0
		return
	}
	noise := (1 + spread) / max(.5, f.count)
	f.judge(nowNs, x)
	f.filter(nowNs, x, noise)
	f.remember(nowNs, x)
	f.count, f.work, f.countNs = 0, 0, 0
}

// filter moves level and slope.
func (f *forecast) filter(nowNs int64, x, noise float64) {
	if f.seenNs == 0 {
		f.level, f.slope, f.pll, f.pls, f.pss, f.seenNs = x, 0, noise, 0, 1e-8, nowNs
		f.usual, f.usualFor = x, 0
		return
	}
	dt := float64(nowNs-f.seenNs) / 1e9
	f.seenNs = nowNs
	keep := math.Exp(-dt / slopeDamping)
	f.level += f.slope * dt
	f.slope *= keep
	f.pll += dt*(2*f.pls+dt*f.pss) + dt*wanderPerSecond
	f.pls = keep * (f.pls + dt*f.pss)
	f.pss = keep*keep*f.pss + dt*slopePerSecond
	off := x - f.level
	if f.leaps(off, math.Sqrt(f.pll+noise)) {
		f.pll += off * off // the level is anywhere; the slope says nothing of a leap
		f.pls, f.slope = 0, 0
		f.usual, f.usualFor = x, 0
	}
	f.usualFor += dt
	f.usual += (x - f.usual) * min(1, dt/min(f.usualFor, usualSeconds))
	total := f.pll + noise
	gl, gs := f.pll/total, f.pls/total
	f.level += gl * off
	f.slope += gs * off
	f.pss -= gs * f.pls
	f.pls -= gl * f.pls
	f.pll -= gl * f.pll
}

// leaps reports whether the load has leapt: it was far off more than once.
func (f *forecast) leaps(off, deviation float64) bool {
	switch {
	case off > leapAt*deviation:
		f.strikes = max(f.strikes, 0) + 1
	case off < -leapAt*deviation:
		f.strikes = min(f.strikes, 0) - 1
	default:
		f.strikes = 0
	}
	if f.strikes < leapAfter && -f.strikes < leapAfter {
		return false
	}
	f.strikes = 0
	return true
}

// remember files the load for the day after.
func (f *forecast) remember(nowNs int64, x float64) {
	number := nowNs / binNs
	i := int(number % dayBins)
	if f.dayOf[i] != number+1 {
		f.dayOf[i], f.binLog, f.binN = number+1, 0, 0
	}
	f.binLog += x
	f.binN++
	f.day[i] = f.binLog / f.binN
}

// dayAgo is the logarithm of the load a day before that time, between bins.
func (f *forecast) dayAgo(ns int64) (log float64, ok bool) {
	at := float64(ns-dayNs)/float64(binNs) - .5
	if at < 0 {
		return 0, false
	}
	low := int64(at)
	a, okA := f.bin(low)
	b, okB := f.bin(low + 1)
	if !okA || !okB {
		return 0, false
	}
	return a + (b-a)*(at-float64(low)), true
}

func (f *forecast) bin(number int64) (log float64, ok bool) {
	i := int(number % dayBins)
	return f.day[i], f.dayOf[i] == number+1
}

// by is what a predictor says of the logarithm of the load in so many seconds;
// NaN if it can say nothing.
func (f *forecast) by(p predictor, ahead float64) float64 {
	switch p {
	case settles:
		return f.usual
	case goesOn:
		return f.level + f.slope*slopeDamping*-math.Expm1(-ahead/slopeDamping)
	case yesterday:
		then, ok := f.dayAgo(f.seenNs)
		later, okLater := f.dayAgo(f.seenNs + int64(ahead*1e9))
		if !ok || !okLater {
			return math.NaN()
		}
		return f.level + later - then
	default:
		return f.level
	}
}

// promise notes what is forecast for that long ahead, to see how far off it is.
func (f *forecast) promise(ahead float64) {
	if f.seenNs == 0 || f.waiting == mostPending {
		return
	}
	p := promise{atNs: f.seenNs + int64(ahead*1e9)}
	for i := range p.logs {
		p.logs[i] = f.by(predictor(i), ahead)
	}
	f.pending[(f.first+f.waiting)%mostPending] = p
	f.waiting++
}

// judge compares the forecasts that are due with the load x that came: its gusts are
// part of what must be carried.
func (f *forecast) judge(nowNs int64, x float64) {
	for f.waiting > 0 && f.pending[f.first].atNs <= nowNs {
		p := &f.pending[f.first]
		f.first, f.waiting = (f.first+1)%mostPending, f.waiting-1
		if best := p.logs[f.best()]; !math.IsNaN(best) {
			f.exceeded(x - best)
		}
		for i, log := range p.logs {
			if math.IsNaN(log) {
				continue
			}
			f.seen[i]++
			f.off[i] += (math.Abs(x-log) - f.off[i]) * max(errorPace, 1/f.seen[i])
		}
	}
}

// exceeded learns the ninth decile of errors, by steps that are nine times as long
// upwards as downwards.
func (f *forecast) exceeded(by float64) {
	const most, step = 1.0, 0.0008
	if by > f.over {
		f.over = min(most, f.over+step*9)
	} else {
		f.over = max(0, f.over-step)
	}
}

// best is the predictor that was off least.
func (f *forecast) best() predictor {
	best, least := stays, f.off[stays]
	for p := settles; p < predictors; p++ {
		// One that has not shown itself yet, or cannot speak now, is not taken.
		if f.seen[p] >= 10 && f.off[p] < least*clearly && !math.IsNaN(f.by(p, 0)) {
			best, least = p, f.off[p]
		}
	}
	return best
}

// most is the largest load expected from now until so many seconds ahead, in nodes'
// seconds a second, and how it was found.
func (f *forecast) most(ahead float64) (load float64, by predictor) {
	by = f.best()
	log := math.Inf(-1)
	for i := range 5 {
		if at := f.by(by, ahead*float64(i)/4); at > log {
			log = at
		}
	}
	return math.Exp(log), by
}

// now is the load at present.
func (f *forecast) now() float64 { return math.Exp(f.level) }
