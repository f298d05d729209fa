package indexbench

import (
	"time"

	"warmpath/bench/machine"
	"warmpath/controlplane/kvevent"
	"warmpath/dataplane/index"
)

const blockTokens = 16

// events measures the writer with what engines send, decoded: an event is a
// chain that is stored, or the last blocks of an old one that are removed. The
// time of making the events up does not count, that of chaining their tokens
// does. First every node of an empty index is filled, then each removes as much
// as it stores.
func (m *measurement) events() error {
	x := index.New(index.Options{MemoryBytes: int64(m.Nodes)*int64(m.Blocks)*80 + 64<<20})
	f := &eventFleet{Nodes: m.Nodes, Blocks: m.Blocks, writer: x.Writer()}
	for node := range m.Nodes {
		f.trackers = append(f.trackers, kvevent.NewTracker(kvevent.TrackerOptions{
			Slot: node, UnitTokens: blockTokens, Model: "m",
		}, f.writer))
	}
	m.index = x
	for k := 0; k < m.Blocks; k += chainBlocks {
		for node := range m.Nodes {
			f.store(node, k/chainBlocks)
		}
	}
	if err := m.print(f.stored.result("events: store, until all nodes are full")); err != nil {
		return err
	}
	f.stored, f.removed = cost{}, cost{}
	start := time.Now()
	for k := f.perNode(); time.Since(start) < time.Duration(m.Runs)*m.Duration; k++ {
		for node := range m.Nodes {
			f.remove(node, k-f.perNode())
			f.store(node, k)
		}
	}
	if err := m.print(f.stored.result("events: store, at nodes that remove as much")); err != nil {
		return err
	}
	return m.print(f.removed.result("events: remove, at nodes that store as much"))
}

// eventFleet makes up events: like Contents, with tokens.
type eventFleet struct {
	Nodes, Blocks int
	writer        *index.Writer
	trackers      []*kvevent.Tracker
	batch         kvevent.Batch
	names         [chainBlocks]uint64
	tokens        [chainBlocks * blockTokens]uint32
	stored        cost
	removed       cost
}

// cost is what so many blocks took.
type cost struct {
	blocks int
	took   time.Duration
}

func (c *cost) result(subject string) Result {
	ns := float64(c.took.Nanoseconds()) / float64(c.blocks)
	return Result{Subject: subject, NsPerOp: ns, BlocksPerS: 1e9 / ns}
}

// perNode is how many chains a node holds.
func (f *eventFleet) perNode() int { return (f.Blocks + chainBlocks - 1) / chainBlocks }

// seed is that of a chain of a node: of three one is held by eight nodes, one by two,
// one by one.
func (f *eventFleet) seed(node, chain int) uint64 {
	holders := [...]int{8, 2, 1}[chain%3]
	return mix(uint64(node/holders)<<8|uint64(holders)) + uint64(chain)<<20
}

// name makes the names of a chain's blocks.
func (f *eventFleet) name(node int, seed uint64) {
	for i := range f.names {
		f.names[i] = block(node, mix(seed+uint64(i)))
	}
}

func (f *eventFleet) store(node, chain int) {
	seed := f.seed(node, chain)
	f.name(node, seed)
	for i := range f.tokens {
		f.tokens[i] = uint32(mix(seed+uint64(i)) % 128_000)
	}
	f.apply(&f.stored, node, kvevent.Event{
		Kind: kvevent.Stored, Merged: 1, Group: kvevent.NotSaid, BlockTokens: blockTokens,
		Hashes: f.names[:], Tokens: f.tokens[:],
	})
}

func (f *eventFleet) remove(node, chain int) {
	f.name(node, f.seed(node, chain))
	f.apply(&f.removed, node, kvevent.Event{Kind: kvevent.Removed, Merged: 1, Group: kvevent.NotSaid, Hashes: f.names[:]})
}

func (f *eventFleet) apply(c *cost, node int, e kvevent.Event) {
	f.batch.Events = append(f.batch.Events[:0], e)
	start := machine.CPUTime()
	f.trackers[node].Apply(&f.batch)
	c.took += machine.CPUTime() - start
	c.blocks += chainBlocks
}
