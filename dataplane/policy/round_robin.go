package policy

import "warmpath/dataplane/fleet"

// roundRobin takes the nodes in turn: Inputs.Cursor modulo the number of
// candidates, in the order of slots. A node that ramps takes its turn in as many of
// the rounds as its share is; in the others, each of its like has it in turn.
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
	next := turn(list, in.Cursor)
	for i := range list {
		list[i].Score = float64((i - next + n) % n)
	}
	out.Reason = loadReason(out, d.settle(req, in, out))
}

// turn is the candidate whose turn it is.
func turn(list []Candidate, cursor uint64) int {
	n := uint64(len(list))
	next, round := int(cursor%n), cursor/n
	if list[next].takes(round) || n == 1 {
		return next
	}
	next = (next + 1 + int(round%(n-1))) % len(list)
	for range list {
		if list[next].more == 0 {
			break
		}
		next = (next + 1) % len(list)
	}
	return next
}

// takes says whether a candidate takes its turn in a round: in one of so many as its
// load counts, rounded to whole rounds of a hundred.
func (c *Candidate) takes(round uint64) bool {
	if c.more == 0 {
		return true
	}
	const rounds = 100
	turns := uint64(rounds / c.times())
	at := round % rounds
	return (at+1)*turns/rounds > at*turns/rounds
}
