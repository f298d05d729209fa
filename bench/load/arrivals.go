package load

import (
	"math"
	"math/rand/v2"
)

// never is later than any time.
const never int64 = math.MaxInt64

// arrivals draws the times at which the requests of an open loop are due, one
// by one, so that any duration takes the same memory.
type arrivals struct {
	next int64 // ns, absolute; never = no more
	end  int64

	start    int64
	gapNs    float64
	offset   float64 // of next since start; a float keeps a gap's fraction
	constant bool
	random   *rand.Rand
}

func newArrivals(o *Options, start, end int64) *arrivals {
	const stream = 0x9e3779b97f4a7c15 // any fixed value: the seed alone tells runs apart
	a := &arrivals{
		start: start, end: end, gapNs: 1e9 / o.Rate, constant: o.Arrivals == Constant,
		random: rand.New(rand.NewPCG(o.Seed, stream)),
	}
	if a.constant { // in the middle of its gap, so that rate × time requests fit
		a.offset = -a.gapNs / 2
	}
	a.advance()
	return a
}

// advance goes on to the next request.
func (a *arrivals) advance() {
	gap := a.gapNs
	if !a.constant {
		gap *= a.random.ExpFloat64()
	}
	a.offset += gap
	if a.next = a.start + int64(a.offset); a.next >= a.end {
		a.next = never
	}
}

// starts are the times at which the connections of a closed loop send their
// first request: spread at the beginning, and again a little after a failure, so
// that a server that refuses is not stormed. The ring has room for all
// connections, each of which is in it at most once.
type starts struct {
	at   []int64
	head int
	n    int
}

func newStarts(connections int, start, spread int64) *starts {
	s := &starts{at: make([]int64, connections), n: connections}
	for i := range s.at {
		s.at[i] = start + spread*int64(i)/int64(connections)
	}
	return s
}

// next is the time of the first start, never without one.
func (s *starts) next() int64 {
	if s.n == 0 {
		return never
	}
	return s.at[s.head]
}

func (s *starts) pop() {
	s.head = (s.head + 1) % len(s.at)
	s.n--
}

func (s *starts) push(at int64) {
	if s.n == len(s.at) {
		panic("BUG: load: more starts than connections")
	}
	s.at[(s.head+s.n)%len(s.at)] = at
	s.n++
}
