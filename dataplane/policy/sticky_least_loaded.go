package policy

import "warmpath/dataplane/fleet"

// sticky sends a request to the least loaded of the nodes that hold the hash
// of its first tokens, else to the least loaded of all. The caller records the
// hash for the chosen node at once, so that a burst of a new prefix does not
// scatter.
//
// Score: requests in flight. Group 0 are the holders, 1 the others.
//
// Reasons: prefix (a holder), spill (holders exist, none may take it),
// affinity, load, only.
type sticky struct{}

func openSticky() ([]field, func() Policy) {
	return nil, func() Policy { return sticky{} }
}

func (sticky) Name() string { return "sticky_least_loaded" }

func (sticky) Needs() Needs { return Needs{PrefixKey: true} }

func (sticky) Prepare(s *fleet.Snapshot) Prepared { return &stickyPrepared{newView(s)} }

type stickyPrepared struct{ view }

func (d *stickyPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	for i := range list {
		c := &list[i]
		c.Score = c.load()
		if !match.holdsAt(c.Slot) {
			c.Group = 1
		}
	}
	byKey := d.settle(req, in, out)
	out.Reason = loadReason(out, byKey)
	switch {
	case len(list) == 1:
	case match.holdsAt(out.Slot):
		out.Reason = ReasonPrefix
	case d.anyHolder(req, match):
		out.Reason = ReasonSpill
	}
}

func (d *stickyPrepared) anyHolder(req *Request, match *Match) bool {
	for _, slot := range d.roster(req.Model).warm {
		if match.holdsAt(int(slot)) {
			return true
		}
	}
	return false
}
