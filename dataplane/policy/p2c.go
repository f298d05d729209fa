package policy

import (
	"math/bits"

	"warmpath/dataplane/fleet"
)

// p2c draws two nodes from Inputs.Rand and sends the request to the one with
// fewer requests in flight.
//
// Score: requests in flight. Group 0 are the two drawn, 1 the others.
// Reasons: load, affinity, only.
type p2c struct{}

func openP2C() ([]field, func() Policy) {
	return nil, func() Policy { return p2c{} }
}

func (p2c) Name() string { return "p2c" }

func (p2c) Needs() Needs { return Needs{} }

func (p2c) Prepare(s *fleet.Snapshot) Prepared { return &p2cPrepared{newView(s)} }

type p2cPrepared struct{ view }

func (d *p2cPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	byTwo(list, in.Rand)
	byKey := d.settle(req, in, out)
	out.Reason = loadReason(out, byKey)
}

// byTwo scores candidates by load and puts all but two drawn ones into Group 1.
func byTwo(list []Candidate, random uint64) {
	byLoad(list, 1)
	n := uint64(len(list))
	first, rest := bits.Mul64(random, n)
	list[first].Group = 0
	if n == 1 {
		return
	}
	second, _ := bits.Mul64(mix(rest), n-1)
	if second >= first {
		second++
	}
	list[second].Group = 0
}
