package policy

import "warmpath/dataplane/fleet"

// boundedHash is consistent hashing with bounded loads: a walk on a ring of
// 256 virtual nodes from the affinity key's place, past nodes that with this
// request would be above bound × the mean load + load_margin. Without a key:
// the least loaded.
//
// Score: the node's turn in the walk. Group 0 are the nodes within the bound,
// 1 those above it. Without a key, requests in flight.
// Reasons: affinity (the key's place), spill (walked past it), load, only.
type boundedHash struct{ bound, margin float64 }

// boundedHashVirtual is the number of points of a node on the ring.
const boundedHashVirtual = 256

func openBoundedHash() ([]field, func() Policy) {
	p := &boundedHash{}
	return []field{
		numberField(&p.bound, "bound", 1.25, 1, 1e6, "load a node may have against the mean"),
		numberField(&p.margin, "load_margin", 2, 0, 1e6, "requests a node may have beyond that, so that an idle fleet does not scatter its keys"),
	}, func() Policy { return p }
}

func (p *boundedHash) Name() string { return "bounded_hash" }

func (*boundedHash) Needs() Needs { return Needs{} }

func (p *boundedHash) Prepare(s *fleet.Snapshot) Prepared {
	d := &boundedHashPrepared{boundedHash: *p, view: newView(s)}
	d.rings = d.newRings(s, boundedHashVirtual)
	return d
}

type boundedHashPrepared struct {
	boundedHash
	view
	rings rings
}

func (d *boundedHashPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	if req.AffinityKey == 0 {
		byLoad(list, 0)
		out.Reason = loadReason(out, d.settle(req, in, out))
		return
	}
	mean := meanLoad(list) + 1/float64(len(list)) // this request included
	limit := d.bound*mean + d.margin
	for i := range list {
		if list[i].load()+1 > limit {
			list[i].Group = 1
		}
	}
	d.rings.of(req.Model).byWalk(req.AffinityKey, list)
	d.settle(req, in, out)
	switch {
	case len(list) == 1:
		out.Reason = ReasonOnly
	case out.Candidates[0].Score == 0:
		out.Reason = ReasonAffinity
	default:
		out.Reason = ReasonSpill
	}
}
