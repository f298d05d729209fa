package policy

import "warmpath/dataplane/fleet"

// cacheAware has two states. Imbalanced, when the most loaded node has more
// than balance_abs_threshold requests above the least loaded and more than
// balance_rel_threshold times as many: the least loaded. Else the longest
// match if it covers cache_threshold of the prompt, else the node with the
// most free cache.
//
// Score: requests in flight when imbalanced. Else, in Group 0, −matched tokens
// of the nodes that reach the threshold (the load orders equals), and in
// Group 1 −free cache tokens, or requests in flight where fallback says so or
// any candidate's free cache is unknown: known and unknown do not compare.
//
// Reasons: prefix, spill, affinity, load, only.
type cacheAware struct {
	threshold, relative float64
	absolute            int64
	fallback            int
}

const (
	fallbackFreeCache = iota
	fallbackLeastLoaded
)

func openCacheAware() ([]field, func() Policy) {
	p := &cacheAware{}
	return []field{
		numberField(&p.threshold, "cache_threshold", 0.3, 0, 1, "matched share of the prompt from which the match decides"),
		integerField(&p.absolute, "balance_abs_threshold", 64, 0, 1<<20, "requests between the most and the least loaded node above which loads may be imbalanced"),
		numberField(&p.relative, "balance_rel_threshold", 1.5, 1, 1e6, "ratio of the most to the least loaded node above which loads may be imbalanced"),
		choiceField(&p.fallback, "fallback", []string{"free_cache", "least_loaded"}, "where a prompt without a sufficient match goes"),
	}, func() Policy { return p }
}

func (p *cacheAware) Name() string { return "cache_aware" }

func (*cacheAware) Needs() Needs { return Needs{} }

func (p *cacheAware) Prepare(s *fleet.Snapshot) Prepared {
	d := &cacheAwarePrepared{cacheAware: *p, view: newView(s), free: make([]float64, len(s.Nodes))}
	for slot, n := range s.Nodes {
		d.free[slot] = -1
		if f := &d.nodes[slot]; n != nil && f.kvKnown && n.CacheTokens > 0 {
			d.free[slot] = float64(n.CacheTokens) * (1 - f.kvUse)
		}
	}
	return d
}

type cacheAwarePrepared struct {
	cacheAware
	view
	free []float64 // tokens of cache not in use, by slot; -1 = unknown
}

func (d *cacheAwarePrepared) Decide(req *Request, match *Match, loads *Loads, in *Inputs, out *Decision) {
	list := d.gather(req, match, loads, out)
	if list == nil {
		return
	}
	if d.imbalanced(list) {
		byLoad(list, 0)
	} else {
		d.byCache(req, list)
	}
	byKey := d.settle(req, in, out)
	out.Reason = d.prefixReason(req, match, out, byKey)
}

func (d *cacheAwarePrepared) imbalanced(list []Candidate) bool {
	least, most := spread(list)
	return most-least > float64(d.absolute) && most > d.relative*least
}

func (d *cacheAwarePrepared) byCache(req *Request, list []Candidate) {
	byFree := d.fallback == fallbackFreeCache
	for i := range list {
		byFree = byFree && d.free[list[i].Slot] >= 0
	}
	for i := range list {
		c := &list[i]
		switch {
		case c.MatchedTokens > 0 && share(req, c) >= d.threshold:
			c.Score = byMatch(c)
		case byFree:
			c.Score, c.Group = -c.room(d.free[c.Slot]), 1
		default:
			c.Score, c.Group = c.load(), 1
		}
	}
}
