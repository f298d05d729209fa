package policy

import "warmpath/dataplane/fleet"

// session sends all requests of a session to one node, the rendezvous place of
// its key weighted by capacity class, whatever the loads; while that node may
// take nothing, to the next in rendezvous order. Without a session: the least
// loaded.
//
// Score: rendezvous distance, or requests in flight without a session.
// Reasons: session, load, affinity, only.
type session struct{}

func openSession() ([]field, func() Policy) {
	return nil, func() Policy { return session{} }
}

func (session) Name() string { return "session" }

func (session) Needs() Needs { return Needs{SessionKey: true} }

func (session) Prepare(s *fleet.Snapshot) Prepared { return &sessionPrepared{newView(s)} }

type sessionPrepared struct{ view }

func (d *sessionPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	if req.SessionKey == 0 {
		byLoad(list, 0)
		byKey := d.settle(req, in, out)
		out.Reason = loadReason(out, byKey)
		return
	}
	d.byDistance(req.SessionKey, list)
	d.settle(req, in, out)
	out.Reason = ReasonSession
	if len(list) == 1 {
		out.Reason = ReasonOnly
	}
}
