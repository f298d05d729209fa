package machine

import (
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Meter measures from its Start on.
type Meter struct {
	begun time.Time
	ticks int64
}

// Start begins to measure.
func Start() Meter { return Meter{time.Now(), stolen()} }

// StealPercent is the share of the processors' time, since the start, in which
// this machine wanted them and its host let it wait: what was measured meanwhile
// says as much about the neighbours. The kernel counts hundredths of a second,
// so a short time is known roughly.
func (m Meter) StealPercent() float64 {
	all := time.Since(m.begun).Seconds() * float64(runtime.NumCPU())
	if all == 0 {
		return 0
	}
	return math.Round(float64(stolen()-m.ticks)/all*100) / 100
}

// A run counts if the host took at most maxSteal percent of it. mostTries bounds
// how often one is done again.
const (
	maxSteal  = 1
	mostTries = 4
)

// Quiet runs measure until so many runs count, and returns what it returned in
// those and the largest share that was stolen from one. If none counts all do:
// then the share says what they are worth.
func Quiet(runs int, measure func() float64) (results []float64, stealPercent float64) {
	var noisy []float64
	var noise float64
	for tries := 0; len(results) < runs && tries < mostTries*runs; tries++ {
		meter := Start()
		result := measure()
		if p := meter.StealPercent(); p > maxSteal {
			noisy, noise = append(noisy, result), max(noise, p)
		} else {
			results, stealPercent = append(results, result), max(stealPercent, p)
		}
	}
	if len(results) == 0 {
		return noisy, noise
	}
	return results, stealPercent
}

// Median sorts the results of at least one run and returns the middle one.
func Median(results []float64) float64 {
	slices.Sort(results)
	return results[len(results)/2]
}

// CPUTime is what the calling thread has used so far: it must be locked to its
// goroutine. Time that was stolen counts.
func CPUTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic("BUG: machine: no clock of threads: " + err.Error())
	}
	return time.Duration(t.Nano())
}

// stolen is the time of all processors together, in hundredths of a second
// (proc_stat(5), "steal").
func stolen() int64 {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	all, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(all)
	if len(fields) < 9 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[8], 10, 64)
	return n
}
