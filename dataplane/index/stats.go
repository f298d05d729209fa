package index

import (
	"sync/atomic"

	"warmpath/dataplane/fleet"
)

// Stats are the figures of an index at about one moment. Those that only grow
// count since New.
type Stats struct {
	Units       int64 // different units that some node holds
	HolderUnits int64 // entries: units or blocks held by a node, in a tier
	Speculative int64 // of them: units dispatched and not reported yet
	Rows        int64 // different sets of two or more holders
	Bytes       int64 // allocated
	MemoryBytes int64 // what Bytes is bounded by
	Capacity    int64 // what HolderUnits is bounded by

	Learned         int64 // calls of Learn that were not refused
	Speculated      int64 // calls of Speculate that were not refused
	Stored          int64 // blocks that became known
	Removed         int64 // known blocks that their engine removed
	UnknownRemovals int64 // removals of blocks that were not known
	Confirmed       int64 // speculative units that were reported

	Evictions            int64 // learned units that went because their node was full
	MemoryEvictions      int64 // entries that went because the index was full …
	SpeculativeEvictions int64 // … of them speculative
	ReportedEvictions    int64 // … of them reported
	Expired              int64 // learned units that went because of their age
	Lapsed               int64 // speculative units that were not reported in time
	Swept                int64 // entries that went because their node was dropped, cleared or shrank
	Refusals             int64 // units not taken: slot not yet swept, or no room
	Forgotten            int64 // units dropped for all holders for want of a row
}

// figures are what the writer shows of itself to other goroutines.
type figures struct {
	units, holderUnits, speculative, rows, bytes, capacity   atomic.Int64
	learned, speculated, stored, removed, unknown, confirmed atomic.Int64
	evicted, squeezed, squeezedSpeculative, squeezedReported atomic.Int64
	expired, lapsed, swept, refused, forgotten               atomic.Int64
	slotUnits, slotCapacity                                  [fleet.MaxSlots]atomic.Int64
}

// counts are the writer's own copies of what only grows.
type counts struct {
	learned, speculated, stored, removed, unknown, confirmed int64
	evicted, squeezed, squeezedSpeculative, squeezedReported int64
	expired, lapsed, swept, refused, forgotten               int64
}

// indexBytes is what an empty index and its writer take beside their tables.
const indexBytes = 700 << 10

// publish shows the totals.
func (w *Writer) publish() {
	f, t, r, c := &w.x.figures, &w.x.table, &w.x.rows, &w.counts
	set(&f.units, int64(t.units))
	set(&f.holderUnits, int64(w.pool.live))
	set(&f.speculative, int64(w.wheel.units.count))
	set(&f.rows, int64(r.live))
	set(&f.bytes, indexBytes+t.bytes+r.bytes+w.pool.bytes+w.idBytes)
	set(&f.capacity, int64(w.maximum))
	set(&f.learned, c.learned)
	set(&f.speculated, c.speculated)
	set(&f.stored, c.stored)
	set(&f.removed, c.removed)
	set(&f.unknown, c.unknown)
	set(&f.confirmed, c.confirmed)
	set(&f.evicted, c.evicted)
	set(&f.squeezed, c.squeezed)
	set(&f.squeezedSpeculative, c.squeezedSpeculative)
	set(&f.squeezedReported, c.squeezedReported)
	set(&f.expired, c.expired)
	set(&f.lapsed, c.lapsed)
	set(&f.swept, c.swept)
	set(&f.refused, c.refused)
	set(&f.forgotten, c.forgotten)
}

func (w *Writer) publishSlot(slot int) {
	set(&w.x.figures.slotUnits[slot], int64(w.nodes[slot].held()))
}

// set stores what has changed; a load is cheaper than a store that all cores
// must see.
func set(figure *atomic.Int64, value int64) {
	if figure.Load() != value {
		figure.Store(value)
	}
}

// Stats returns the figures. Any goroutine may call it.
func (x *Index) Stats() Stats {
	f := &x.figures
	return Stats{
		Units:                f.units.Load(),
		HolderUnits:          f.holderUnits.Load(),
		Speculative:          f.speculative.Load(),
		Rows:                 f.rows.Load(),
		Bytes:                f.bytes.Load(),
		MemoryBytes:          x.options.MemoryBytes,
		Capacity:             f.capacity.Load(),
		Learned:              f.learned.Load(),
		Speculated:           f.speculated.Load(),
		Stored:               f.stored.Load(),
		Removed:              f.removed.Load(),
		UnknownRemovals:      f.unknown.Load(),
		Confirmed:            f.confirmed.Load(),
		Evictions:            f.evicted.Load(),
		MemoryEvictions:      f.squeezed.Load(),
		SpeculativeEvictions: f.squeezedSpeculative.Load(),
		ReportedEvictions:    f.squeezedReported.Load(),
		Expired:              f.expired.Load(),
		Lapsed:               f.lapsed.Load(),
		Swept:                f.swept.Load(),
		Refusals:             f.refused.Load(),
		Forgotten:            f.forgotten.Load(),
	}
}

// SlotUnits returns how many units the index knows of a slot: learned and
// speculative ones, and reported blocks of all tiers. Any goroutine may call it.
func (x *Index) SlotUnits(slot int) int64 { return x.figures.slotUnits[slot].Load() }

// SlotCapacity returns the bound of a slot's learned units. Any goroutine may call it.
func (x *Index) SlotCapacity(slot int) int64 { return x.figures.slotCapacity[slot].Load() }
