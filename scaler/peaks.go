package scaler

const mostPeaks = 128

// peaks are the largest of values over the time since some moment: each slot of a ring
// holds that of a short while, so that the ring spans any time that is asked for. It is a
// value: copies share nothing.
type peaks struct {
	slots        [mostPeaks]peak
	first, count int // the latest is at first+count-1
}

type peak struct {
	fromNs, toNs int64
	most         float64
}

// add takes a value of which the largest will be asked over so many seconds. Times do
// not run backwards.
func (p *peaks) add(nowNs int64, span, value float64) {
	if p.count > 0 {
		last := &p.slots[(p.first+p.count-1)%mostPeaks]
		if float64(nowNs-last.fromNs)/1e9 < span/(mostPeaks-2) {
			last.toNs, last.most = nowNs, max(last.most, value)
			return
		}
	}
	if p.count == mostPeaks {
		p.first, p.count = (p.first+1)%mostPeaks, p.count-1
	}
	p.slots[(p.first+p.count)%mostPeaks] = peak{nowNs, nowNs, value}
	p.count++
}

// since returns the largest value from a time on, at least the latest. full says whether
// values before that time were seen as well.
func (p *peaks) since(ns int64) (most float64, full bool) {
	for i := p.count - 1; i >= 0; i-- {
		s := &p.slots[(p.first+i)%mostPeaks]
		switch {
		case i == p.count-1:
			most = s.most
		case s.toNs < ns:
			return most, true
		default:
			most = max(most, s.most)
		}
		full = full || s.fromNs < ns
	}
	return most, full
}
