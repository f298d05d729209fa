package index

import (
	"sync/atomic"

	"warmpath/dataplane/fleet"
)

// Stats are the figures of an index at about one moment. Those that only grow
// count since New.
type Stats struct {
	Units       int64 // different units that some node holds
	HolderUnits int64 // pairs of a unit and a node that holds it
	Rows        int64 // different sets of two or more holders
	Bytes       int64 // allocated
	MemoryBytes int64 // what Bytes is bounded by
	Capacity    int64 // what HolderUnits is bounded by

	Learned         int64 // calls of Learn that were not refused
	Evictions       int64 // entries that went because their node was full
	MemoryEvictions int64 // … because the index was full
	Expired         int64 // … because of their age
	Swept           int64 // … because their node was dropped or shrank
	Refusals        int64 // units not learned: slot not yet swept, or no room
	Forgotten       int64 // units dropped for all holders for want of a row
}

// figures are what the writer shows of itself to other goroutines.
type figures struct {
	units, holderUnits, rows, bytes, capacity           atomic.Int64
	learned, evicted, squeezed, expired, swept, refused atomic.Int64
	forgotten                                           atomic.Int64
	slotUnits, slotCapacity                             [fleet.MaxSlots]atomic.Int64
}

// counts are the writer's own copies of what only grows.
type counts struct {
	learned, evicted, squeezed, expired, swept, refused, forgotten int64
}

// indexBytes is what an empty index and its writer take beside their tables.
const indexBytes = 160 << 10

// publish shows the totals.
func (w *Writer) publish() {
	f, t, r := &w.x.figures, &w.x.table, &w.x.rows
	set(&f.units, int64(t.units))
	set(&f.holderUnits, int64(w.pool.live))
	set(&f.rows, int64(r.live))
	set(&f.bytes, indexBytes+t.bytes+r.bytes+w.pool.bytes+w.idBytes)
	set(&f.capacity, int64(w.maximum))
	set(&f.learned, w.counts.learned)
	set(&f.evicted, w.counts.evicted)
	set(&f.squeezed, w.counts.squeezed)
	set(&f.expired, w.counts.expired)
	set(&f.swept, w.counts.swept)
	set(&f.refused, w.counts.refused)
	set(&f.forgotten, w.counts.forgotten)
}

func (w *Writer) publishSlot(slot int) {
	set(&w.x.figures.slotUnits[slot], int64(w.nodes[slot].entries.count))
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
		Units:           f.units.Load(),
		HolderUnits:     f.holderUnits.Load(),
		Rows:            f.rows.Load(),
		Bytes:           f.bytes.Load(),
		MemoryBytes:     x.options.MemoryBytes,
		Capacity:        f.capacity.Load(),
		Learned:         f.learned.Load(),
		Evictions:       f.evicted.Load(),
		MemoryEvictions: f.squeezed.Load(),
		Expired:         f.expired.Load(),
		Swept:           f.swept.Load(),
		Refusals:        f.refused.Load(),
		Forgotten:       f.forgotten.Load(),
	}
}

// SlotUnits returns how many units the index counts for a slot. Any goroutine
// may call it.
func (x *Index) SlotUnits(slot int) int64 { return x.figures.slotUnits[slot].Load() }

// SlotCapacity returns the bound of a slot's units. Any goroutine may call it.
func (x *Index) SlotCapacity(slot int) int64 { return x.figures.slotCapacity[slot].Load() }
