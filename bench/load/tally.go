package load

import (
	"strconv"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// timing is a histogram of durations in ns: three significant digits up to an
// hour in a quarter of a megabyte, and the exact sum.
type timing struct {
	h   *hdrhistogram.Histogram
	sum float64
}

func newTiming() timing {
	const significantDigits = 3
	return timing{h: hdrhistogram.New(1, int64(longest), significantDigits)}
}

func (t *timing) add(ns int64) {
	ns = min(max(ns, 0), int64(longest))
	if err := t.h.RecordValue(ns); err != nil {
		panic("BUG: load: a bounded value does not fit: " + err.Error())
	}
	t.sum += float64(ns)
}

// failure is a kind of error. Statuses have their own counts.
type failure uint8

const (
	failConnect     failure = iota // no connection came about
	failClosed                     // the connection ended before the head
	failTimeout                    // not ended within the timeout
	failUnsent                     // all connections were busy until the timeout
	failMalformed                  // not HTTP/1.1, or bytes that nobody asked for
	failNotStreamed                // a stream was asked for
	failEvent                      // an error event inside a stream
	failLongLine                   // a line of a stream beyond the bound
	failStatus                     // a status other than 200; in the tally by its value
	failures
)

var failureNames = [failures]string{
	"connect", "closed", "timeout", "unsent", "malformed", "not_streamed", "error_event", "long_line", "status",
}

// tally is what a run has counted; only what is in the measured window.
type tally struct {
	ok, cut, good, unfinished int64
	failed                    [failures]int64
	statuses                  [1000]int64
	firstError                string

	ttft, itl, tpot, e2el, service timing

	promptTokens, answerTokens, cachedTokens int64
	contentEvents                            int64 // that came
	endedContents                            int64 // of ok requests
	bytes                                    int64

	late            int64
	lagMax, lagSum  int64
	dispatched      int64
	connections     int64 // opened, in and before the window
	busyMost        int   // the most requests at once
	second, tokens  int64 // the second under way since the window's begin, and its content events
	tokensMost      int64
	lastEnd         int64 // when the last request that counts ended
	chunk           timing
	streamReads     int64 // reads that brought bytes of streams' events
	chunksMerged    int64 // stamped chunks that were not the first of their read
	chunksFromAfter int64 // stamped later than they came: another host's clock
}

func newTally() *tally {
	return &tally{
		ttft: newTiming(), itl: newTiming(), tpot: newTiming(), e2el: newTiming(), service: newTiming(), chunk: newTiming(),
	}
}

// errors adds up all kinds.
func (t *tally) errors() (sum int64, kinds map[string]int64) {
	kinds = map[string]int64{}
	for kind, n := range t.failed {
		sum += n
		if n > 0 && failure(kind) != failStatus {
			kinds[failureNames[kind]] = n
		}
	}
	for status, n := range t.statuses {
		if n > 0 {
			kinds["status_"+strconv.Itoa(status)] = n
		}
	}
	return sum, kinds
}
