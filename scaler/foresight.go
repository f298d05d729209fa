package scaler

import "math"

const (
	mostPending = 128 // forecasts that wait for their time

	seenEnough = 10   // forecasts that came due, before a way to look ahead counts
	errorPace  = 0.02 // of how far each was off
	errorLeast = 1e-3
	mixPower   = 4.0 // how much more one counts that was off less
	missPace   = 0.003
	missFirst  = 30.0 // what missStart is worth, in forecasts
	missStart  = 0.1  // how far they are taken to be off, by the logarithm, before any was seen
	missMost   = 1.0  // of one

	// deviationOfMean is a normal variable's standard deviation by its mean absolute
	// deviation.
	deviationOfMean = 1.25

	stickyPace  = 0.0014 // a forecast's share of what is known: two hours of one in ten seconds
	stickyFirst = 0.3    // sum of squares that the guess is worth that departures last
)

// predictor is one way to look ahead.
type predictor int

const (
	stays     predictor = iota // the load stays as it is
	settles                    // it goes back to what is usual, as far as it used to
	goesOn                     // it goes on with its slope, which ends by and by
	yesterday                  // it changes as it did a day ago
	predictors
)

var predictorNames = [...]string{"as it is", "as usual", "by its slope", "as a day ago"}

// promise is a forecast that waits for its time.
type promise struct {
	atNs     int64
	logs     [predictors]float64 // NaN = could not be made
	mixed    float64
	usual    float64 // of then, and …
	departed float64 // … by what the load departed from what was usual when it was made
}

// foresight is how good each way to look ahead has been.
type foresight struct {
	pending [mostPending]promise // a ring
	first   int
	waiting int
	ahead   float64             // seconds, of the latest
	off     [predictors]float64 // mean absolute error of each, by the logarithm
	seen    [predictors]float64 // forecasts that came due, of each
	miss    float64             // the same of what all say together …
	misses  float64             // … of so many
	square  float64             // faded sums: of departures from the usual, squared, …
	product float64             // … and times what was left of them
}

// by is what a predictor says of the logarithm of the load in so many seconds;
// NaN if it can say nothing.
func (f *forecast) by(p predictor, ahead float64) float64 {
	switch p {
	case settles:
		return f.usual(ahead) + f.lasting()*(f.level-f.usual(0))
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

// usual is the logarithm of the load in so many seconds without what it departs by for
// a while. A mean lags behind a load that grows, and the mean of the mean as much
// behind that, which tells the growth.
func (f *forecast) usual(ahead float64) float64 {
	lag := f.slow - f.slower
	return f.slow + lag + lag/min(max(f.usualFor, usualLeast), usualSeconds)*ahead
}

// lasting is the share of a departure from the usual that is still there when a
// forecast comes due.
func (f *forecast) lasting() float64 {
	return min(1, max(0, (f.product+stickyFirst)/(f.square+stickyFirst)))
}

// promise notes what is forecast for that long ahead, to see how far off it is.
func (f *forecast) promise(ahead float64) {
	if f.seenNs == 0 || f.waiting == mostPending {
		return
	}
	p := promise{atNs: f.seenNs + int64(ahead*1e9), mixed: f.mix(ahead), usual: f.usual(ahead), departed: f.level - f.usual(0)}
	for i := range p.logs {
		p.logs[i] = f.by(predictor(i), ahead)
	}
	f.pending[(f.first+f.waiting)%mostPending] = p
	f.waiting++
	f.ahead = ahead
}

// judge compares the forecasts that are due with the level: shorter gusts are the
// queue's matter (speed.burst).
func (f *forecast) judge(nowNs int64) {
	for f.waiting > 0 && f.pending[f.first].atNs <= nowNs {
		p := &f.pending[f.first]
		f.first, f.waiting = (f.first+1)%mostPending, f.waiting-1
		f.misses++
		f.miss += (min(missMost, math.Abs(f.level-p.mixed)) - f.miss) * max(missPace, 1/(f.misses+missFirst))
		f.square += p.departed*p.departed - f.square*stickyPace
		f.product += p.departed*(f.level-p.usual) - f.product*stickyPace
		for i, log := range p.logs {
			if math.IsNaN(log) {
				continue
			}
			f.seen[i]++
			f.off[i] += (math.Abs(f.level-log) - f.off[i]) * max(errorPace, 1/f.seen[i])
		}
	}
}

// mix is the mean of what the predictors say, in which one counts the more the less it
// was off. So the forecast does not leap when another turns out to be the better.
func (f *forecast) mix(ahead float64) float64 {
	if f.seen[stays] < seenEnough {
		return f.level
	}
	sum, total := 0.0, 0.0
	for p := range predictors {
		log := f.by(p, ahead)
		if math.IsNaN(log) || f.seen[p] < seenEnough {
			continue
		}
		weight := math.Pow(max(f.off[p], errorLeast), -mixPower)
		sum += weight * log
		total += weight
	}
	return sum / total
}

// best is the predictor that was off least.
func (f *forecast) best() predictor {
	best := stays
	for p := settles; p < predictors; p++ {
		if f.seen[p] >= seenEnough && f.off[p] < f.off[best] && !math.IsNaN(f.by(p, 0)) {
			best = p
		}
	}
	return best
}

// expected is the load in so many seconds, in nodes' seconds a second.
func (f *forecast) expected(ahead float64) float64 { return math.Exp(f.mix(ahead)) }

// most is the largest load expected from now until so many seconds ahead.
func (f *forecast) most(ahead float64) float64 {
	log := math.Inf(-1)
	for i := range 5 {
		log = max(log, f.mix(ahead*float64(i)/4))
	}
	return math.Exp(log)
}

// over is the factor by which the load may exceed what is expected.
func (f *forecast) over() float64 { return math.Exp(f.miss) }
