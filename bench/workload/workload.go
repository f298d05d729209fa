package workload

import (
	"cmp"
	"slices"
)

// BlockTokens is the size of the blocks that contents are of.
const BlockTokens = 512

// Request is one request.
type Request struct {
	AtNs     int64 // when it comes, from the workload's start
	Prompt   int32 // tokens
	Output   int32 // tokens of its answer
	Key      uint64
	Contents []uint32 // of the full blocks of prompt and then answer; those beyond are anonymous
}

// Mark is something that happens to the load, unforeseen.
type Mark struct {
	AtNs int64
	Name string
}

// Workload is what comes in a span of time.
type Workload struct {
	Name      string
	SpanNs    int64
	MeasureNs int64     // what comes before is there to learn from and is not measured
	Requests  []Request // by AtNs
	Contents  int       // all contents are below it, but for anonymous ones
	Marks     []Mark
}

// Longest returns the tokens of the longest prompt with its answer.
func (w *Workload) Longest() int {
	longest := 0
	for i := range w.Requests {
		longest = max(longest, int(w.Requests[i].Prompt+w.Requests[i].Output))
	}
	return longest
}

// Until returns the workload up to a time; the whole for 0.
func (w *Workload) Until(ns int64) *Workload {
	if ns <= 0 || ns >= w.SpanNs {
		return w
	}
	cut := *w
	cut.SpanNs = ns
	cut.Requests = w.Requests[:w.before(ns)]
	cut.Marks = slices.DeleteFunc(slices.Clone(w.Marks), func(m Mark) bool { return m.AtNs >= ns })
	return &cut
}

// before returns how many requests come before a time.
func (w *Workload) before(ns int64) int {
	n, _ := slices.BinarySearchFunc(w.Requests, ns, func(r Request, ns int64) int { return cmp.Compare(r.AtNs, ns) })
	return n
}

// sort brings the requests into the order of their arrival. Equal times keep no order
// of their own: that is given by what differs.
func (w *Workload) sort() {
	slices.SortFunc(w.Requests, func(a, b Request) int {
		if a.AtNs != b.AtNs {
			return cmp.Compare(a.AtNs, b.AtNs)
		}
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Prompt, b.Prompt), cmp.Compare(a.Output, b.Output))
	})
}

// mix is the finalizer of splitmix64: it makes keys of numbers.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
