package agent

import (
	"crypto/sha256"
	"math/rand/v2"
	"time"

	"warmpath/controlplane/kvevent"
	"warmpath/controlplane/report/message"
	"warmpath/dataplane/index"
)

const (
	backoffFirst = 100 * time.Millisecond // doubling with each failure …
	backoffMost  = 5 * time.Second
	refusedPause = 15 * time.Second // after an answer that repeating will not change soon
)

// CoreOptions are fixed for the life of a Core.
type CoreOptions struct {
	WorkerID  string
	Model     string // "" = the one that the node serves
	Ranks     int
	Routers   int
	MaxBlocks int           // live blocks that are tracked, of one rank
	QueueMost int           // tokens and hashes that wait for one router; 0 = 2^22
	PartMost  int           // hashes of one part of a full sync; 0 = 2^19
	Epoch     func() string // a new epoch, random
	Jitter    *rand.Rand    // spreads retries
}

// Core is what a node knows and what its routers have still to be told. It is
// pure but for the randomness it is given, and used by one goroutine at a time.
type Core struct {
	opt    CoreOptions
	caches []*cache // by rank
	quiet  []bool   // by rank
	links  []*link  // by router
}

// NewCore returns a Core of which every router has to be told everything.
func NewCore(o CoreOptions) *Core {
	if o.QueueMost == 0 {
		o.QueueMost = queueWeight
	}
	if o.PartMost == 0 {
		o.PartMost = fullHashes
	}
	c := &Core{opt: o}
	for range o.Ranks {
		c.caches = append(c.caches, newCache(o.MaxBlocks))
	}
	c.quiet = make([]bool, o.Ranks)
	for range o.Routers {
		c.links = append(c.links, &link{ranks: make([]linkRank, o.Ranks), pending: map[ask]struct{}{}})
	}
	for rank := range o.Ranks {
		c.Restarted(rank)
	}
	return c
}

// Events applies a batch of the engine's events. The batch is not kept.
func (c *Core) Events(rank int, b *kvevent.Batch) {
	for i := range b.Events {
		if b.Events[i].Kind == kvevent.Cleared {
			c.Void(rank)
		} else {
			c.caches[rank].apply(&b.Events[i])
		}
	}
}

// Restarted says that the rank's engine is another process: what it held is
// gone, and a new epoch says so to every router.
func (c *Core) Restarted(rank int) {
	c.caches[rank].void()
	epoch := c.opt.Epoch()
	for _, l := range c.links {
		l.begin(rank, epoch)
	}
}

// Void forgets what a rank holds: its engine has cleared its cache, or events
// are missing, so that nobody knows what is still there.
func (c *Core) Void(rank int) {
	cache := c.caches[rank]
	cache.void()
	cache.counts.Voided++
	for _, l := range c.links {
		for tier := range cache.shelves {
			if cache.shelves[tier].used {
				l.wantFull(rank, index.Tier(tier))
			}
		}
	}
}

// Quiet says whether a rank's engine has not been heard for so long that nobody
// should vouch for what it holds: then there are no digests, and routers draw
// their conclusion from the silence.
func (c *Core) Quiet(rank int, quiet bool) { c.quiet[rank] = quiet }

// Flush queues what has changed since the last flush.
func (c *Core) Flush() {
	for rank := range c.caches {
		c.flush(rank)
	}
}

func (c *Core) flush(rank int) {
	for tier := range c.caches[rank].shelves {
		stored, evicted := c.caches[rank].shelves[tier].flush()
		report := message.Report{WorkerID: c.opt.WorkerID, Rank: rank, Model: c.opt.Model, Tier: index.Tier(tier)}
		for len(stored) > 0 {
			n, weight := fitting(stored)
			report.Route, report.Blocks = message.Stored, stored[:n:n]
			c.push(item{rank, report, weight})
			stored = stored[n:]
		}
		report.Blocks = nil
		for len(evicted) > 0 {
			n := min(len(evicted), reportWeight)
			report.Route, report.Evicted.Short = message.Eviction, evicted[:n:n]
			c.push(item{rank, report, n})
			evicted = evicted[n:]
		}
	}
}

// fitting is how many blocks fit into one report, at least one.
func fitting(blocks []message.Block) (n, weight int) {
	for n < len(blocks) {
		w := weigh(&blocks[n])
		if n > 0 && weight+w > reportWeight {
			break
		}
		n, weight = n+1, weight+w
	}
	return n, weight
}

// push queues an item for every router. A router that has fallen too far behind
// is told the whole instead, when it is back.
func (c *Core) push(it item) {
	for _, l := range c.links {
		l.push(it)
		if l.weight > c.opt.QueueMost {
			c.collapse(l)
		}
	}
}

func (c *Core) collapse(l *link) {
	l.counts.Collapses++
	l.recall()
	for rank, cache := range c.caches {
		for tier := range cache.shelves {
			if cache.shelves[tier].used {
				l.wantFull(rank, index.Tier(tier))
			}
		}
	}
}

// Digests queues the digests of all that is live, after a flush.
func (c *Core) Digests() {
	c.Flush()
	for rank, cache := range c.caches {
		for tier := range cache.shelves {
			if s := &cache.shelves[tier]; s.used && !c.quiet[rank] {
				c.push(item{rank, message.Report{
					Route: message.Sync, WorkerID: c.opt.WorkerID, Rank: rank, Model: c.opt.Model, Tier: index.Tier(tier),
					HasDigest: true, Digest: s.digest,
				}, 1})
			}
		}
	}
}

// Next returns the report that is to be sent to a router now, the same again
// until it is answered, nil if there is none before waitNs have passed (0: until
// something happens).
func (c *Core) Next(router int, nowNs int64) (out *Outgoing, waitNs int64) {
	l := c.links[router]
	if nowNs < l.notBefNs {
		return nil, l.notBefNs - nowNs
	}
	if l.sending != nil {
		return l.sending, 0
	}
	if rank, tier, due := l.due(); due {
		return c.full(l, rank, tier), 0
	}
	if l.told = !l.told || len(l.queue) == 0; l.told {
		if out := c.describe(l); out != nil {
			return out, 0
		}
	}
	return l.take(), 0
}

// full makes a full sync of one tier. It carries the digest, so that the router
// proves at once that it has understood.
func (c *Core) full(l *link, rank int, tier index.Tier) *Outgoing {
	c.flush(rank) // so that what follows is told as a change of this set
	l.ranks[rank].full[tier] = false
	l.counts.Fulls++
	s := &c.caches[rank].shelves[tier]
	hashes := s.all()
	count := max(1, (len(hashes)+c.opt.PartMost-1)/c.opt.PartMost)
	parts := make([]message.Report, count)
	for i := range parts {
		n := min(len(hashes), c.opt.PartMost)
		parts[i] = message.Report{
			Route: message.Sync, WorkerID: c.opt.WorkerID, Rank: rank, Model: c.opt.Model, Tier: tier,
			Part: i + 1, Parts: count, Full: true, Active: message.Hashes{Short: hashes[:n:n]},
		}
		hashes = hashes[n:]
	}
	last := &parts[count-1]
	last.HasDigest, last.Digest = true, s.digest
	return l.number(rank, parts[0], parts[1:])
}

// Answered takes a router's answer to a report. An answer to a report that is
// no longer to be sent is ignored.
func (c *Core) Answered(router int, out *Outgoing, a *message.Answer) {
	l := c.links[router]
	l.failures, l.notBefNs = 0, 0
	l.counts.Reports++
	if l.sending != out {
		return
	}
	l.sending = nil
	if len(out.parts) > 0 {
		l.sending = &Outgoing{Report: out.parts[0], rank: out.rank, parts: out.parts[1:]}
		return
	}
	tier := out.Report.Tier
	// A router that has not applied what it answers has lost a part of it.
	if a.Want == message.WantFull || a.Seq < out.Report.Seq {
		l.wantFull(out.rank, tier)
		return
	}
	c.want(l, out.rank, tier, a.WantBlocks)
}

// want notes what a router asks for. Only live blocks are noted, so that there
// are never more asks than those.
func (c *Core) want(l *link, rank int, tier index.Tier, hashes []uint64) {
	for _, hash := range hashes {
		if c.caches[rank].shelves[tier].live[hash] != nil && len(l.asked) < c.opt.MaxBlocks*c.opt.Ranks {
			l.ask(ask{rank, tier, hash})
		}
	}
}

// describe makes a report of the tokens of blocks that a router asked for, nil
// if there are none. Those that have gone meanwhile are left out.
func (c *Core) describe(l *link) *Outgoing {
	for len(l.asked) > 0 {
		of := l.asked[0]
		var blocks []message.Block
		n := 0
		for weight := 0; n < len(l.asked) && l.asked[n].rank == of.rank && l.asked[n].tier == of.tier; n++ {
			e := c.caches[of.rank].shelves[of.tier].live[l.asked[n].hash]
			if e == nil {
				continue
			}
			w := weigh(&e.block)
			if len(blocks) > 0 && weight+w > reportWeight {
				break
			}
			blocks, weight = append(blocks, e.block), weight+w
		}
		l.forget(n)
		if len(blocks) > 0 {
			return l.number(of.rank, message.Report{
				Route: message.Sync, WorkerID: c.opt.WorkerID, Rank: of.rank, Model: c.opt.Model, Tier: of.tier, Blocks: blocks,
			}, nil)
		}
	}
	return nil
}

// Failure says how a report failed.
type Failure uint8

const (
	Unanswered Failure = iota // no answer, or one that asks to try again: the same report is sent again
	WrongEpoch                // the router takes our epoch for one that has ended
	Refused                   // sending the same again would be refused again
)

// Failed says that a report was not taken.
func (c *Core) Failed(router int, out *Outgoing, why Failure, nowNs int64) {
	l := c.links[router]
	l.counts.Failures++
	l.failures++
	pause := min(backoffFirst<<min(l.failures-1, 10), backoffMost)
	if why == Refused {
		pause = refusedPause
	}
	pause = pause/2 + time.Duration(c.opt.Jitter.Int64N(int64(pause)))
	l.notBefNs = nowNs + int64(pause)
	if l.sending != out || why == Unanswered {
		return
	}
	if why == WrongEpoch {
		l.begin(out.rank, c.opt.Epoch())
	}
	c.collapse(l)
}

// Status is a copy of figures for logs.
type Status struct {
	Live    int // blocks, of all ranks
	Cache   Counts
	Routers []LinkCounts
}

// Status sums up.
func (c *Core) Status() Status {
	var s Status
	for _, cache := range c.caches {
		s.Live += cache.len()
		s.Cache.Stored += cache.counts.Stored
		s.Cache.Removed += cache.counts.Removed
		s.Cache.Ignored += cache.counts.Ignored
		s.Cache.Overflow += cache.counts.Overflow
		s.Cache.Voided += cache.counts.Voided
	}
	for _, l := range c.links {
		s.Routers = append(s.Routers, l.counts)
	}
	return s
}

func hashed(b []byte) []byte {
	sum := sha256.Sum256(b)
	return sum[:]
}
