package indexer

import (
	"context"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

const (
	batchNotes   = 256                    // notes of one ring before the next ring's turn
	sweepUnits   = 4096                   // units looked at between two batches while something is to be swept
	awakeFor     = 5 * time.Millisecond   // polling goes on so long after the last note
	pollEvery    = time.Millisecond       // meanwhile
	expireEvery  = 100 * time.Millisecond // a slice of the walk over aged entries
	commandQueue = 4 * fleet.MaxSlots     // a command and an answer a slot, and room
)

// Ring is where notes come from: a *dataplane.NoteRing.
type Ring interface {
	Take(scratch []prefix.Hash, apply func(dataplane.Note)) ([]prefix.Hash, bool)
}

// Bell wakes the indexer when a note came: a *dataplane.Doorbell.
type Bell interface {
	Sleep() <-chan struct{}
	Wake()
}

// Options are fixed for the life of an Indexer.
type Options struct {
	Index    *index.Index
	Fleet    *fleet.Holder
	Notes    []Ring
	Bell     Bell
	NowNs    func() int64         // the data plane's clock
	LearnTTL func() time.Duration // age at which entries go; read again and again
	// Swept is called on the indexer's goroutine when nothing of a dropped
	// slot's tenant is left. It must not block.
	Swept func(slot int, generation uint32)
}

// Indexer applies notes. Drop may be called by any goroutine.
type Indexer struct {
	opt      Options
	writer   *index.Writer
	commands chan command
	scratch  []prefix.Hash
	snap     *fleet.Snapshot // whose capacities are set
	sweeping []command
}

type command struct {
	slot       int
	generation uint32
	keep       bool // the tenant stays: only what is known of it goes
}

// New returns an Indexer; Run makes it work.
func New(opt Options) *Indexer {
	return &Indexer{opt: opt, writer: opt.Index.Writer(), commands: make(chan command, commandQueue), snap: opt.Fleet.Load()}
}

// Drop forgets the slot's tenant, which is gone; Options.Swept follows.
func (x *Indexer) Drop(slot int, generation uint32) { x.commands <- command{slot, generation, false} }

// Clear forgets what is known of the slot's tenant, which goes on with an
// empty cache.
func (x *Indexer) Clear(slot int, generation uint32) { x.commands <- command{slot, generation, true} }

// Run works until ctx ends.
func (x *Indexer) Run(ctx context.Context) {
	expire := time.NewTicker(expireEvery)
	defer expire.Stop()
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	quietSince := time.Now()
	for {
		if x.work() {
			quietSince = time.Now()
		}
		var rung <-chan struct{}
		tick := poll.C
		if len(x.sweeping) == 0 && time.Since(quietSince) > awakeFor {
			rung, tick = x.opt.Bell.Sleep(), nil
			if x.work() { // what came before the bell was armed
				quietSince = time.Now()
				tick = poll.C
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-rung:
			quietSince = time.Now()
		case <-tick:
		case <-expire.C:
			x.writer.Expire(x.opt.NowNs(), int64(x.opt.LearnTTL()), sweepUnits)
		case c := <-x.commands:
			x.obey(c)
		}
		x.opt.Bell.Wake()
	}
}

// work applies what waits in the rings and sweeps a little; it reports whether
// there was anything to do.
func (x *Indexer) work() (busy bool) {
	x.capacities()
	for _, ring := range x.opt.Notes {
		for range batchNotes {
			var took bool
			if x.scratch, took = ring.Take(x.scratch, x.learn); !took {
				break
			}
			busy = true
		}
	}
	if len(x.sweeping) > 0 {
		x.sweep()
		busy = true
	}
	return busy
}

// learn applies one note, unless its node has gone meanwhile.
func (x *Indexer) learn(n dataplane.Note) {
	if !x.isTenant(n.Slot, n.Generation) {
		x.capacities() // the note may be of a snapshot that is newer than ours
	}
	if x.isTenant(n.Slot, n.Generation) && !x.isSweeping(n.Slot) {
		x.writer.Learn(n.Slot, n.Chain, n.AtNs)
	}
}

// isTenant reports whether the slot is that incarnation's in the snapshot.
func (x *Indexer) isTenant(slot int, generation uint32) bool {
	return slot < len(x.snap.Nodes) && x.snap.Nodes[slot] != nil && x.snap.Nodes[slot].Generation == generation
}

func (x *Indexer) isSweeping(slot int) bool {
	for _, c := range x.sweeping {
		if c.slot == slot {
			return true
		}
	}
	return false
}

// capacities bounds every node's learned entries by what its cache can hold.
func (x *Indexer) capacities() {
	snap := x.opt.Fleet.Load()
	if snap == x.snap {
		return
	}
	x.snap = snap
	for slot := range snap.Nodes {
		x.capacity(slot)
	}
}

// capacity sets what one node can hold, if that is known.
func (x *Indexer) capacity(slot int) {
	if n := x.snap.Nodes[slot]; n != nil && n.CacheTokens > 0 {
		x.writer.SetCapacity(slot, int(max(1, n.CacheTokens/prefix.TextUnitTokens)))
	}
}

func (x *Indexer) obey(c command) {
	x.writer.Drop(c.slot)
	x.sweeping = append(x.sweeping, c)
	x.sweep()
}

// sweep goes on sweeping and ends what is swept. A tenant that is gone is still
// in the snapshot until the next one is published, and until then its notes
// would be taken: its slot is not given free before.
func (x *Indexer) sweep() {
	x.writer.Sweep(sweepUnits)
	x.capacities()
	left := x.sweeping[:0]
	for _, c := range x.sweeping {
		switch {
		case !x.writer.Swept(c.slot) || !c.keep && x.isTenant(c.slot, c.generation):
			left = append(left, c)
		case c.keep:
			if x.isTenant(c.slot, c.generation) {
				x.capacity(c.slot) // which Drop had reset
			}
		default:
			x.opt.Swept(c.slot, c.generation)
		}
	}
	x.sweeping = left
}
