package agent

import (
	"maps"
	"slices"

	"warmpath/controlplane/report/message"
	"warmpath/dataplane/index"
)

// Bounds of what is kept for one router, and of one report. The unit of weight
// is a token or a hash, 11 to 19 bytes of JSON at most, so that a report stays
// well below message.MaxBodyBytes.
const (
	queueWeight  = 4 << 20 // beyond it a full sync is sooner done
	reportWeight = 1 << 19 // of one report
	blockWeight  = 16      // of a block beside its tokens and its names
	fullHashes   = 1 << 19 // of one part of a full sync
)

// weigh is the weight of a block. Six bytes of JSON may stand for one of a name.
func weigh(b *message.Block) int {
	return blockWeight + len(b.Tokens) + (len(b.Adapter)+len(b.Salt)+len(b.Extra))/2
}

// link is what one router still has to be told: deltas in their order, or that
// nothing but a full sync will do. One report is under way at a time, and it is
// sent until the router has answered it or its content is void.
//
// Sequence numbers are given when a report is first sent. What is dropped before
// leaves no gap; what is dropped after does, and is always followed by a full
// sync.
//
// What a router asked for is described beside the queue, and outside its weight:
// a router that knows nothing of a large cache asks for more than the queue may
// hold. The order of the two does not matter, for a hash says its tokens for ever.
type link struct {
	queue    []item
	weight   int
	asked    []ask            // to be described, parents first; at most the node's live blocks
	pending  map[ask]struct{} // asked as a set
	told     bool             // the latest report was a description: the queue is next
	sending  *Outgoing
	ranks    []linkRank
	failures int // in a row
	notBefNs int64
	counts   LinkCounts
}

// linkRank is a link's view of one rank.
type linkRank struct {
	epoch string
	seq   uint64 // last one given
	full  [index.Tiers]bool
}

// LinkCounts are the figures of one router; they only grow.
type LinkCounts struct {
	Reports   uint64 // answered
	Failures  uint64
	Fulls     uint64 // full syncs begun
	Collapses uint64 // times that the queue was given up
}

// item is one report that waits. Its content is immutable and shared by links.
type item struct {
	rank   int
	report message.Report // without epoch, seq and part
	weight int
}

// ask is a block whose tokens a router has asked for.
type ask struct {
	rank int
	tier index.Tier
	hash uint64
}

// Outgoing is a report on its way to a router. Its slices must not be written
// to.
type Outgoing struct {
	Report message.Report
	rank   int
	parts  []message.Report // of the same seq, still to come
}

// begin starts a new epoch for a rank, all of it to be told anew.
func (l *link) begin(rank int, epoch string) {
	l.ranks[rank] = linkRank{epoch: epoch}
	l.drop(func(it *item) bool { return it.rank == rank })
	l.asked = slices.DeleteFunc(l.asked, func(a ask) bool { return a.rank == rank })
	maps.DeleteFunc(l.pending, func(a ask, _ struct{}) bool { return a.rank == rank })
	if l.sending != nil && l.sending.rank == rank {
		l.sending = nil
	}
	l.ranks[rank].full[index.Device] = true
}

// wantFull makes a full sync of one tier due, in place of all that waits or is
// under way for it.
func (l *link) wantFull(rank int, tier index.Tier) {
	l.ranks[rank].full[tier] = true
	l.drop(func(it *item) bool { return it.rank == rank && it.report.Tier == tier })
	if l.sending != nil && l.sending.rank == rank && l.sending.Report.Tier == tier {
		l.recall() // should it come late after all, its seq is too low by then
	}
}

// recall gives up the report under way. A router asks for a block a few times
// only, so that what was to be described still is.
func (l *link) recall() {
	if out := l.sending; out != nil && out.Report.Route == message.Sync {
		for i := range out.Report.Blocks {
			l.ask(ask{out.rank, out.Report.Tier, out.Report.Blocks[i].Hash})
		}
	}
	l.sending = nil
}

// ask notes a block that is to be described.
func (l *link) ask(a ask) {
	if _, noted := l.pending[a]; noted {
		return
	}
	l.pending[a] = struct{}{}
	l.asked = append(l.asked, a)
}

// forget drops the first asks.
func (l *link) forget(n int) {
	for _, a := range l.asked[:n] {
		delete(l.pending, a)
	}
	l.asked = l.asked[n:]
}

// push queues an item, unless a full sync will say it.
func (l *link) push(it item) {
	if l.ranks[it.rank].full[it.report.Tier] {
		return
	}
	if it.report.HasDigest { // an older digest has nothing to add
		l.drop(func(old *item) bool {
			return old.report.HasDigest && old.rank == it.rank && old.report.Tier == it.report.Tier
		})
	}
	l.queue = append(l.queue, it)
	l.weight += it.weight
}

// drop removes items from the queue.
func (l *link) drop(which func(*item) bool) {
	left := l.queue[:0]
	for i := range l.queue {
		if which(&l.queue[i]) {
			l.weight -= l.queue[i].weight
		} else {
			left = append(left, l.queue[i])
		}
	}
	clear(l.queue[len(left):])
	l.queue = left
}

// take gives the next queued report a number, nil if none waits.
func (l *link) take() *Outgoing {
	if len(l.queue) == 0 {
		return nil
	}
	it := l.queue[0]
	l.queue[0] = item{}
	l.queue = l.queue[1:]
	l.weight -= it.weight
	return l.number(it.rank, it.report, nil)
}

// number makes a report ready to be sent.
func (l *link) number(rank int, r message.Report, parts []message.Report) *Outgoing {
	k := &l.ranks[rank]
	k.seq++
	r.Epoch, r.Seq = k.epoch, k.seq
	for i := range parts {
		parts[i].Epoch, parts[i].Seq = k.epoch, k.seq
	}
	l.sending = &Outgoing{Report: r, rank: rank, parts: parts}
	return l.sending
}

// due returns a tier that is to be told whole.
func (l *link) due() (rank int, tier index.Tier, ok bool) {
	for rank := range l.ranks {
		for tier, due := range l.ranks[rank].full {
			if due {
				return rank, index.Tier(tier), true
			}
		}
	}
	return 0, 0, false
}
