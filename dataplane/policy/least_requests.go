package policy

import "warmpath/dataplane/fleet"

// leastRequests sends a request to the node with the fewest of this router's
// requests in flight.
//
// Score: requests in flight. Reasons: load, affinity, only.
type leastRequests struct{}

func openLeastRequests() ([]field, func() Policy) {
	return nil, func() Policy { return leastRequests{} }
}

func (leastRequests) Name() string { return "least_requests" }

func (leastRequests) Needs() Needs { return Needs{} }

func (leastRequests) Prepare(s *fleet.Snapshot) Prepared { return &leastRequestsPrepared{newView(s)} }

type leastRequestsPrepared struct{ view }

func (d *leastRequestsPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	byLoad(list, 0)
	byKey := d.settle(req, in, out)
	out.Reason = loadReason(out, byKey)
}
