package policy

import "warmpath/dataplane/fleet"

// roundRobin takes the nodes in turn: Inputs.Cursor modulo the number of
// candidates, in the order of slots.
//
// Score: how many turns away the node is. Reasons: load, only.
type roundRobin struct{}

func openRoundRobin() ([]field, func() Policy) {
	return nil, func() Policy { return roundRobin{} }
}

func (roundRobin) Name() string { return "round_robin" }

func (roundRobin) Needs() Needs { return Needs{} }

func (roundRobin) Prepare(s *fleet.Snapshot) Prepared { return &roundRobinPrepared{newView(s)} }

type roundRobinPrepared struct{ view }

func (d *roundRobinPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	n := len(list)
	next := int(in.Cursor % uint64(n))
	for i := range list {
		list[i].Score = float64((i - next + n) % n)
	}
	out.Reason = loadReason(out, d.settle(req, in, out))
}
