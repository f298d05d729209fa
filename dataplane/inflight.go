package dataplane

import "warmpath/dataplane/fleet"

// What is in flight at a node is counted for all loops in one place, its
// fleet.Load. A count that is raised and not settled, or settled twice, would
// bend every decision about the node from then on, and have a place under its cap
// (max_in_flight) for good. So each loop takes stock of its own part again and
// again, and takes back what none of its requests holds.
//
// No loop can compare the shared counters with anything: others change them
// meanwhile, and all loops cannot be asked at one instant. So a loop compares
// only what it owns:
//
//	raised  what it has added to a Load and not taken away again
//	seen    what its live exchanges say they hold of that, as a walk over its open
//	        clients finds them
//
// At the end of a walk both are the sum over the same exchanges, if nothing is
// wrong. Nobody else writes either, and they are compared within one callback: a
// difference is never a request that comes or goes, it is a mistake. It is taken
// out of raised and, by an addition, out of the Load, which leaves alone what
// other loops have there.
//
// A walk may take several ticks, as a loop can have many clients. So what changes
// at a client that the walk has passed changes seen too. A mistake made there
// looks right until the next walk, which begins from nothing and finds it.

const (
	censusEveryNs = int64(400e6) // from the start of one walk to that of the next
	// A walk takes no more ticks than this, so that a mistake which one walk has
	// just missed is found by the next within a second of being made.
	censusTicks = 16
	// … and looks at no fewer clients a tick: some 20 µs, well within a turn (turnNs).
	censusLeast = 512
)

// amounts are what one or more tries hold of a Load.
type amounts struct{ requests, prefill, total int64 }

func (a *amounts) add(b amounts) {
	a.requests += b.requests
	a.prefill += b.prefill
	a.total += b.total
}

func (a amounts) negative() amounts { return amounts{-a.requests, -a.prefill, -a.total} }

// stake is what a loop has of the counters of one incarnation of a node.
// Loop-owned, except for what load points to.
type stake struct {
	load   *fleet.Load
	node   string
	slot   int
	raised amounts
	seen   amounts

	// Corrections that the log has not told of yet.
	wrong  amounts
	times  int
	tellNs int64 // when it may be told of again
}

// add adds to the counters that all loops share. Of each kind is left alone what
// does not change: the line is the one that all loops write.
func (s *stake) add(by amounts) {
	if by.requests != 0 {
		s.load.Requests.Add(by.requests)
	}
	if by.prefill != 0 {
		s.load.PrefillTokens.Add(by.prefill)
	}
	if by.total != 0 {
		s.load.TotalTokens.Add(by.total)
	}
}

// census is a loop's walk over its clients. Loop-owned.
type census struct {
	// stakes has one for each node of the snapshot in force that was ever sent to,
	// and for each earlier incarnation at which something was in flight at the end
	// of the last walk, or was raised since: no more than nodes, and tries under way.
	stakes  map[*fleet.Load]*stake
	pass    uint32 // number of the walk under way, else of the last
	walking bool
	next    *client // the client that the walk looks at next
	step    int     // clients a tick
	dueNs   int64   // when the next walk begins
}

// stakeIn returns the loop's stake in the node's counters.
func (l *loop) stakeIn(n *fleet.Node) *stake {
	s := l.census.stakes[n.Load]
	if s == nil {
		s = &stake{load: n.Load, node: n.Name, slot: n.Slot}
		if l.census.stakes == nil {
			l.census.stakes = make(map[*fleet.Load]*stake)
		}
		l.census.stakes[n.Load] = s
	}
	return s
}

// raise counts the request on its node.
func (x *exchange) raise() {
	x.stake = x.client.loop.stakeIn(x.node)
	x.prefill = x.uncached(x.node.Slot)
	x.total = int64(x.polReq.PromptTokens) + x.expectedOutput()
	x.move(x.holds())
}

// prefillDone lowers the count of prefill under way: the first event came.
func (x *exchange) prefillDone() {
	if x.stake != nil && x.prefill != 0 {
		x.move(amounts{prefill: -x.prefill})
		x.prefill = 0
	}
}

// settle lowers what raise raised, exactly once, on the incarnation it was
// raised on.
func (x *exchange) settle() {
	if x.stake == nil {
		return
	}
	x.move(x.holds().negative())
	x.stake, x.prefill = nil, 0
}

// part settles a try whose node has ended the connection and so works on it no
// more, though what came before has yet to go to a slow client.
func (x *exchange) part(nowNs int64) {
	if x.partedNs == 0 {
		x.partedNs = nowNs
	}
	x.settle()
}

// holds is what the try under way has raised and not settled.
func (x *exchange) holds() amounts { return amounts{1, x.prefill, x.total} }

// counts reports whether the try under way is counted there.
func (x *exchange) counts(load *fleet.Load) bool { return x.stake != nil && x.stake.load == load }

// move changes the counters of x's node. Nothing else does, but for the census.
func (x *exchange) move(by amounts) {
	s := x.stake
	s.add(by)
	s.raised.add(by)
	if x.client.pass == x.client.loop.census.pass {
		s.seen.add(by)
	}
}

// opened makes a client known to the census. It stands where no walk comes any
// more, at the list's start, and holds nothing yet: it counts as seen.
func (s *census) opened(c *client) { c.pass = s.pass }

// leaves lets the walk go on behind a client that leaves the list.
func (s *census) leaves(c *client) {
	if s.next == c {
		s.next = c.next
	}
}

// takeStock begins a walk if one is due, or goes on with it, and corrects what
// was found wrong at its end. It is called where no callback of a connection is
// on the stack: an exchange is whole then.
func (l *loop) takeStock() {
	s := &l.census
	if !s.walking {
		if l.now < s.dueNs {
			return
		}
		l.beginCensus(max(int(l.clients.Load())/censusTicks+1, censusLeast))
	}
	for range s.step {
		if s.next == nil {
			break
		}
		c := s.next
		s.next = c.next
		c.pass = s.pass
		if x := c.x; x != nil {
			x.beSeen()
			if x.rival != nil {
				x.rival.beSeen()
			}
		}
	}
	if s.next == nil {
		l.endCensus()
	}
}

func (x *exchange) beSeen() {
	if x.stake != nil {
		x.stake.seen.add(x.holds())
	}
}

// beginCensus begins a walk of so many clients a tick. New ones are put before
// its start, so that it does not grow.
func (l *loop) beginCensus(step int) {
	s := &l.census
	s.pass++
	s.walking, s.next, s.step = true, l.open.first, step
	s.dueNs = l.now + censusEveryNs
	for _, k := range s.stakes {
		k.seen = amounts{}
	}
}

// endCensus corrects what differs, all clients having been seen, and forgets the
// stakes in incarnations that are gone.
func (l *loop) endCensus() {
	s := &l.census
	s.walking = false
	nodes := l.d.opt.Fleet.Load().Nodes
	for load, k := range s.stakes {
		if wrong := k.raised; wrong != k.seen {
			wrong.add(k.seen.negative())
			k.heal(wrong)
		}
		gone := k.raised == amounts{} && (k.slot >= len(nodes) || nodes[k.slot] == nil || nodes[k.slot].Load != load)
		if k.times > 0 && (gone || l.now >= k.tellNs) {
			l.tellHealed(k)
		}
		if gone {
			delete(s.stakes, load)
		}
	}
}

// heal takes back what was raised too much, or gives what was settled too much.
func (s *stake) heal(wrong amounts) {
	s.add(wrong.negative())
	s.raised = s.seen
	s.load.Healed.Add(1)
	s.wrong.add(wrong)
	s.times++
}

// healedEveryNs is the least time between two lines in the log about one loop's
// part in one node: a mistake that every request makes must not fill a disk.
const healedEveryNs = int64(60e9)

func (l *loop) tellHealed(k *stake) {
	l.d.opt.Log.Error("counters of what is in flight at a node were wrong and are corrected; this is a mistake in the router",
		"node", k.node, "requests", k.wrong.requests, "prefill_tokens", k.wrong.prefill, "total_tokens", k.wrong.total, "times", k.times)
	k.wrong, k.times, k.tellNs = amounts{}, 0, l.now+healedEveryNs
}
