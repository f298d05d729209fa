package scaler

import "math"

const (
	dayNs   = int64(24 * 3600e9)
	dayBins = 288 // of five minutes
	binNs   = dayNs / dayBins

	// What a load does by itself, by its logarithm: it wanders, and so does its slope.
	// How much it wanders is learned (wander); these are variances a second.
	wanderStart, wanderLeast, wanderMost = 0.004 * 0.004, 0.001 * 0.001, 0.02 * 0.02
	slopePerSecond                       = 5e-11
	slopeDamping                         = 600.0 // seconds after which a slope is believed to have ended, by e
	usualSeconds                         = 1800.0
	usualLeast                           = 60.0 // seconds of which a mean tells a slope

	leapAt    = 3.5 // standard errors that are a leap and no noise …
	leapAfter = 2   // … if so many in a row are, on one side

	burstPace   = 0.02
	burstMost   = 60.0 // of one reading: a leap is no bunching
	burstEnough = 20   // requests; a handful says nothing of bunching
)

// forecast learns how a load goes on: a two-state Kalman filter over its logarithm,
// its mean, the load of a day ago, and how far forecasts so far ahead were off. It is a
// value: copies share nothing.
type forecast struct {
	level, slope  float64 // of the logarithm; slope per second
	pll, pls, pss float64 // their covariance
	strikes       int     // readings in a row that were far off, with their sign
	fall          fall
	slow, slower  float64 // mean of the logarithm over usualSeconds, and the mean of that
	usualFor      float64 // over so many seconds, until there are as many
	seenNs        int64   // 0 = nothing was seen
	last          float64 // reading
	burst         float64 // variance of readings against that of arrivals that know nothing of each other
	count, work   float64
	countNs       int64 // that count and work have been gathered for

	day    [dayBins]float64 // logarithm of the mean load of each bin …
	dayOf  [dayBins]int64   // … and which it is, by binNs since the clock's origin, plus 1; 0 = none
	binLog float64          // of the bin under way: sum …
	binN   float64          // … and number

	foresight
}

// newForecast has seen nothing.
func newForecast() forecast {
	return forecast{burst: 1, foresight: foresight{miss: missStart}}
}

// see takes what came in so many seconds: requests, and the load they were, in
// seconds of a node, of which one takes work in the mean; spread is the variance of
// that among requests against the mean's square. It waits until there are, or should
// have been, enough of them to say anything.
func (f *forecast) see(nowNs int64, seconds, requests, load, work, spread float64) {
	f.count += requests
	f.work += load
	f.countNs += int64(seconds * 1e9)
	span := float64(f.countNs) / 1e9
	expected := 0.0 // requests
	if f.seenNs != 0 {
		expected = f.now() * span / work
	}
	const enough, longest = 5, 60
	if max(f.count, expected) < enough && span < longest || span <= 0 {
		return
	}
	// Nothing at all is not minus infinity: less than half a request came.
	x := math.Log(max(f.work, work/2) / span)
	came := f.count
	noise := (1 + spread) / max(.5, came)
	if came < enough && expected >= enough { // so few come by chance as seldom as the expected number says
		noise = (1 + spread) / expected
	}
	f.count, f.work, f.countNs = 0, 0, 0
	if math.IsNaN(x) || math.IsInf(x, 0) || math.IsNaN(noise) || math.IsInf(noise, 0) {
		return // readings that cannot be teach nothing
	}
	if off := x - f.last; f.seenNs != 0 && came >= burstEnough {
		f.burst += (min(off*off/2/noise, burstMost) - f.burst) * burstPace
	}
	f.last = x
	f.filter(nowNs, x, noise*max(1, f.burst))
	f.judge(nowNs)
	f.remember(nowNs, x)
}

// filter moves level and slope.
func (f *forecast) filter(nowNs int64, x, noise float64) {
	if f.seenNs == 0 {
		f.level, f.slope, f.pll, f.pls, f.pss, f.seenNs = x, 0, noise, 0, 1e-8, nowNs
		f.slow, f.slower, f.usualFor = x, x, 0
		return
	}
	dt := float64(nowNs-f.seenNs) / 1e9
	f.seenNs = nowNs
	keep := math.Exp(-dt / slopeDamping)
	f.level += f.slope * dt
	f.slope *= keep
	f.pll += dt*(2*f.pls+dt*f.pss) + dt*f.wander()
	f.pls = keep * (f.pls + dt*f.pss)
	f.pss = keep*keep*f.pss + dt*slopePerSecond
	off := x - f.level
	if f.leaps(off, math.Sqrt(f.pll+noise)) {
		f.pll += off * off // the level is anywhere; the slope says nothing of a leap
		f.pls, f.slope = 0, 0
		f.slow, f.slower, f.usualFor = x, x, 0
	}
	f.usualFor += dt
	share := min(1, dt/min(f.usualFor, usualSeconds))
	f.slow += (x - f.slow) * share
	f.slower += (f.slow - f.slower) * share
	total := f.pll + noise
	gl, gs := f.pll/total, f.pls/total
	f.level += gl * off
	f.slope += gs * off
	f.pss -= gs * f.pls
	f.pls -= gl * f.pls
	f.pll -= gl * f.pll
}

// wander is the variance that the logarithm of the load gathers each second: half of
// what it was off when it was taken for what it had been, as the other half is noise
// that the level followed.
func (f *forecast) wander() float64 {
	if f.seen[stays] < seenEnough || f.ahead <= 0 {
		return wanderStart
	}
	deviation := deviationOfMean * f.off[stays]
	return min(wanderMost, max(wanderLeast, deviation*deviation/f.ahead/2))
}

// leaps reports whether the load has leapt: it was far off more than once, or has been
// below for so long that no noise is. A load that stopped is seen in a few readings,
// none of which is far off where arrivals bunch: any one bunch may be late.
func (f *forecast) leaps(off, deviation float64) bool {
	switch {
	case off > leapAt*deviation:
		f.strikes = max(f.strikes, 0) + 1
	case off < -leapAt*deviation:
		f.strikes = min(f.strikes, 0) - 1
	default:
		f.strikes = 0
	}
	if off > 0 {
		f.fall = fall{}
	} else {
		f.fall.add(-off, deviation)
	}
	if f.strikes < leapAfter && -f.strikes < leapAfter && !f.fall.certain() {
		return false
	}
	f.strikes, f.fall = 0, fall{}
	return true
}

// fall is how far readings in a row were below what the load was taken for.
type fall struct {
	readings  int
	sum       float64 // of how far, each by its precision, …
	precision float64 // … and of that: one over its variance
}

func (f *fall) add(off, deviation float64) {
	f.readings++
	f.sum += off / (deviation * deviation)
	f.precision += 1 / (deviation * deviation)
}

func (f *fall) certain() bool {
	return f.readings >= leapAfter && f.sum > leapAt*math.Sqrt(f.precision)
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

// now is the load at present.
func (f *forecast) now() float64 { return math.Exp(f.level) }
