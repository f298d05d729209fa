package policy

import (
	"math"
	"slices"
)

// gather starts a decision: it lists the nodes that may take the request, in
// the order of their slots, with what they hold and what they have in flight.
// It returns nil, and says whether the prompt is too long, if there is none.
func (v *view) gather(req *Request, match *Match, loads *Loads, out *Decision) []Candidate {
	out.Slot, out.Reason, out.TooLong = -1, ReasonNone, false
	r := v.roster(req.Model)
	list := slices.Grow(out.Candidates[:0], len(r.open))
	prompt, least := max(req.PromptTokens, 0), req.LeastTokens
	if least <= 0 {
		least = prompt
	}
	every := !r.capped && Fits(least, req.OutputTokens, r.shortest)
	for _, open := range r.open { // what is known of a node is looked up only where it matters
		slot := int(open)
		inFlight := at(loads.Requests, slot)
		if !every && !v.nodes[slot].takes(inFlight, least, req.OutputTokens) {
			continue
		}
		matched := 0
		if tokens := match.matchedAt(slot); tokens > 0 {
			matched = v.nodes[slot].servable(tokens, prompt)
		}
		list = list[:len(list)+1]
		c := &list[len(list)-1] // field by field: a Candidate made to be copied takes four times as long
		c.Slot, c.MatchedTokens, c.InFlight = slot, matched, inFlight
		c.Score, c.Group, c.more, c.tie = 0, 0, 0, 0
	}
	if v.ramping {
		v.ramp(list, prompt)
	}
	out.Candidates = list
	if len(list) == 0 {
		// A node that is down today may fit the prompt tomorrow: only a prompt
		// that no node in any state could take is too long.
		out.TooLong = r.nodes > 0 && r.longest < math.MaxInt && !Fits(least, req.OutputTokens, r.longest)
		return nil
	}
	return list
}

// uncached is how many tokens of the prompt the node would have to prefill:
// never less than one, because the last token is always computed.
func uncached(req *Request, c *Candidate) float64 {
	return float64(max(req.PromptTokens-c.MatchedTokens, 1))
}

// share is the matched part of the prompt, 0 … 1.
func share(req *Request, c *Candidate) float64 {
	if req.PromptTokens <= 0 {
		return 0
	}
	return float64(c.MatchedTokens) / float64(req.PromptTokens)
}

// settle orders the candidates that a policy has scored, as far as Ordered, and
// chooses the first. It reports whether the affinity key had to choose between
// equals.
func (v *view) settle(req *Request, in *Inputs, out *Decision) (byKey bool) {
	list := out.Candidates
	front := lead(list, byScore)
	for from := 0; from < len(front); {
		to := from + 1
		for to < len(front) && byScore.compare(&front[from], &front[to]) == 0 {
			to++
		}
		if to-from > 1 {
			v.breakTie(req, in, front[from:to])
			byKey = byKey || from == 0 && req.AffinityKey != 0
		}
		from = to
	}
	out.Slot = list[0].Slot
	return byKey
}

// breakTie orders equals by rendezvous of the affinity key, so that replicas
// agree. A request without a key has nothing to be found again by: its random
// bits stand in, so that such requests spread.
func (v *view) breakTie(req *Request, in *Inputs, equals []Candidate) {
	key := req.AffinityKey
	if key == 0 {
		key = in.Rand
	}
	for i := range equals {
		equals[i].tie = v.tieDistance(key, equals[i].Slot)
	}
	lead(equals, byTie)
}

// lead moves the Ordered best candidates to the front, in order, with all that
// equal the last of them, and returns these. A fleet of hundreds is not sorted
// for the sake of alternatives that no retry reaches.
func lead(list []Candidate, by order) []Candidate {
	if len(list) <= Ordered {
		sort(list, by)
		return list
	}
	var best [Ordered]*Candidate // ascending
	n := 0
	for i := range list {
		c := &list[i]
		if n == Ordered && !by.less(c, best[Ordered-1]) {
			continue
		}
		if n < Ordered {
			n++
		}
		at := n - 1
		for at > 0 && by.less(c, best[at-1]) {
			best[at] = best[at-1]
			at--
		}
		best[at] = c
	}
	last := *best[Ordered-1]
	front := list[:toFront(list, by, &last, true)]
	sort(front[:toFront(front, by, &last, false)], by)
	return front
}

// toFront moves those better than a candidate, or also those as good, to the front, and
// returns how many they are.
func toFront(list []Candidate, by order, than *Candidate, orEqual bool) int {
	front := 0
	for i := range list {
		c := &list[i]
		if by.less(than, c) || !orEqual && !by.less(c, than) {
			continue
		}
		if i != front {
			list[front], list[i] = list[i], list[front]
		}
		front++
	}
	return front
}

// sort is an insertion sort, the fastest for the few that come here.
func sort(list []Candidate, by order) {
	for i := 1; i < len(list); i++ {
		c := list[i]
		at := i
		for at > 0 && by.less(&c, &list[at-1]) {
			list[at] = list[at-1]
			at--
		}
		list[at] = c
	}
}

// order says what candidates are compared by. It is no func value: candidates
// would escape through one to the heap.
type order uint8

const (
	byScore order = iota // group, then score
	byTie                // place in the rendezvous order
)

func (by order) compare(a, b *Candidate) int {
	if by == byTie {
		if a.tie == b.tie {
			return a.Slot - b.Slot
		}
		return sign(a.tie, b.tie)
	}
	if a.Group != b.Group {
		return int(a.Group) - int(b.Group)
	}
	return sign(a.Score, b.Score)
}

// less reports whether compare is negative. It is cheaper, which matters where hundreds
// are looked at.
func (by order) less(a, b *Candidate) bool {
	if by == byTie {
		return a.tie < b.tie || a.tie == b.tie && a.Slot < b.Slot
	}
	return a.Group < b.Group || a.Group == b.Group && a.Score < b.Score
}

func sign(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// loadReason is the reason of a policy that looks at loads: load, or affinity
// where the key chose between equals.
func loadReason(out *Decision, byKey bool) Reason {
	switch {
	case len(out.Candidates) == 1:
		return ReasonOnly
	case byKey:
		return ReasonAffinity
	}
	return ReasonLoad
}

// prefixReason is the reason of a policy that looks at matches: prefix if no
// node of the model holds more than the chosen one, spill if one does, whether
// it was passed over for its load or because it may not take requests.
func (v *view) prefixReason(req *Request, match *Match, out *Decision, byKey bool) Reason {
	if len(out.Candidates) == 1 {
		return ReasonOnly
	}
	chosen := match.matchedAt(out.Slot)
	for _, slot := range v.roster(req.Model).warm {
		if match.matchedAt(int(slot)) > chosen {
			return ReasonSpill
		}
	}
	if chosen > 0 {
		return ReasonPrefix
	}
	return loadReason(out, byKey)
}

// byLoad scores candidates by their loads and puts them into group.
func byLoad(list []Candidate, group uint8) {
	for i := range list {
		list[i].Score, list[i].Group = list[i].load(), group
	}
}

// byMatch is the score of "longest match first, then least loaded": the load
// counts less than one token, so it orders equals only.
func byMatch(c *Candidate) float64 {
	load := c.load()
	return load/(1+load) - float64(c.MatchedTokens)
}

// busy is how many requests the node works on or has waiting: the larger of
// this router's own and of what the engine says. The gauge sees other routers,
// the counter sees the last second, and their sum would count most requests
// twice. Without a gauge the counter stands alone.
func (v *view) busy(c *Candidate) float64 {
	return max(float64(c.InFlight), v.nodes[c.Slot].engineLoad) * c.times()
}

// spread returns the smallest and the largest load.
func spread(list []Candidate) (least, most float64) {
	least = list[0].load()
	most = least
	for i := range list {
		load := list[i].load()
		if load < least { // min and max would mind NaN, which it never is
			least = load
		}
		if load > most {
			most = load
		}
	}
	return least, most
}

// meanLoad returns the mean load.
func meanLoad(list []Candidate) float64 {
	sum := 0.0
	for i := range list {
		sum += list[i].load()
	}
	return sum / float64(len(list))
}

// home is the island that holds the longest prefix, and how many tokens of it.
// A node that drains or rests behind its breaker still speaks for its island,
// as long as another of its nodes is a candidate. Among equals the router's own island is home,
// else the first by name. No match: ("", 0).
func (v *view) home(req *Request, match *Match, list []Candidate) (island string, tokens uint32) {
	for _, slot := range v.roster(req.Model).warm {
		island, tokens = v.warmer(req, match, int(slot), island, tokens)
	}
	if tokens == 0 || slices.ContainsFunc(list, func(c Candidate) bool { return v.nodes[c.Slot].island == island }) {
		return island, tokens
	}
	island, tokens = "", 0
	for i := range list {
		island, tokens = v.warmer(req, match, list[i].Slot, island, tokens)
	}
	return island, tokens
}

// warmer returns the better of an island and that of the node in slot.
func (v *view) warmer(req *Request, match *Match, slot int, island string, tokens uint32) (string, uint32) {
	held, own := match.matchedAt(slot), v.nodes[slot].island
	switch {
	case held == 0 || held < tokens:
		return island, tokens
	case held > tokens:
		return own, held
	case island != req.Island && (own == req.Island || own < island):
		return own, held
	}
	return island, tokens
}
