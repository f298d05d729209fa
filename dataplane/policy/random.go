package policy

import (
	"math"

	"warmpath/dataplane/fleet"
)

// random takes any node with equal chance, drawn from Inputs.Rand; a node that ramps
// with the chance of its share.
//
// Score: the node's draw, 0 … 1. Reasons: load, only.
type random struct{}

func openRandom() ([]field, func() Policy) {
	return nil, func() Policy { return random{} }
}

func (random) Name() string { return "random" }

func (random) Needs() Needs { return Needs{} }

func (random) Prepare(s *fleet.Snapshot) Prepared { return &randomPrepared{newView(s)} }

type randomPrepared struct{ view }

func (d *randomPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	for i := range list {
		c := &list[i]
		c.Score = unit(pairHash(in.Rand, d.hashes[c.Slot]))
		if c.more != 0 {
			c.Score = 1 - math.Pow(1-c.Score, c.times()) // the chance of 1 ÷ ramp of a node
		}
	}
	out.Reason = loadReason(out, d.settle(req, in, out))
}
