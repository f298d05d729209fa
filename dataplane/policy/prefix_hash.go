package policy

import "warmpath/dataplane/fleet"

// prefixHash sends a request to the place of its key, unless that node is
// busier than the least loaded by more than load_margin requests; then to the
// least loaded. Without a key: the least loaded.
//
// Score: in Group 0 the node's place for the key (rank on the ring or in the
// round of modulo, weighted distance of rendezvous), in Group 1 the requests
// in flight. When the place is used, the other nodes within the margin follow
// in the order of places, then the rest by load.
//
// Reasons: affinity (the place), spill (the place is too busy), load, only.
type prefixHash struct {
	place, key int
	margin     int64
}

const (
	placeRendezvous = iota
	placeRing
	placeModulo
)

const (
	keyAffinity = iota
	keySystem
)

// prefixHashVirtual is the number of points of a node on the ring.
const prefixHashVirtual = 150

func openPrefixHash() ([]field, func() Policy) {
	p := &prefixHash{}
	return []field{
		choiceField(&p.place, "place", []string{"rendezvous", "ring", "modulo"}, "how a key is placed: rendezvous weighted by capacity class, a ring with 150 virtual nodes, or modulo"),
		choiceField(&p.key, "key", []string{"affinity", "system"}, "what is hashed: the affinity key, or the system message, else the first user text"),
		integerField(&p.margin, "load_margin", 2, 0, 1<<20, "requests in flight that the place may have above the least loaded node"),
	}, func() Policy { return p }
}

func (p *prefixHash) Name() string { return "prefix_hash" }

func (p *prefixHash) Needs() Needs { return Needs{SystemKey: p.key == keySystem} }

func (p *prefixHash) Prepare(s *fleet.Snapshot) Prepared {
	d := &prefixHashPrepared{prefixHash: *p, view: newView(s)}
	if p.place == placeRing {
		d.rings = d.newRings(s, prefixHashVirtual)
	}
	return d
}

type prefixHashPrepared struct {
	prefixHash
	view
	rings rings
}

func (d *prefixHashPrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	key := req.AffinityKey
	if d.key == keySystem {
		key = req.SystemKey
	}
	if key == 0 {
		byLoad(list, 0)
		byKey := d.settle(req, in, out)
		out.Reason = loadReason(out, byKey)
		return
	}
	switch d.place {
	case placeRing:
		d.rings.of(req.Model).byWalk(key, list)
	case placeModulo:
		d.byModulo(key, list)
	default:
		d.byDistance(key, list)
	}
	reason := d.within(list)
	d.settle(req, in, out)
	out.Reason = reason
	if len(list) == 1 {
		out.Reason = ReasonOnly
	}
}

// within applies the margin to candidates scored by place.
func (d *prefixHashPrepared) within(list []Candidate) Reason {
	least, _ := spread(list)
	first := 0
	for i := range list {
		if list[i].Score < list[first].Score {
			first = i
		}
	}
	if list[first].load()-least > float64(d.margin) {
		byLoad(list, 1)
		return ReasonSpill
	}
	for i := range list {
		if list[i].load()-least > float64(d.margin) {
			byLoad(list[i:i+1], 1)
		}
	}
	return ReasonAffinity
}
