package dataplane

import (
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"

	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// TestOverlayAppliedMeanwhile: a note that is applied after the index was asked,
// and before the overlay is, counts all the same: the index did not have it.
func TestOverlayAppliedMeanwhile(t *testing.T) {
	r, o, x := newRing(), &overlay{}, index.New(index.Options{MemoryBytes: index.MinMemoryBytes})
	chain, live, units := []prefix.Hash{11, 22, 33, 44}, allSlots(4), make([]uint32, 4)
	r.put(Note{Slot: 2, Chain: chain})
	o.add(r, chain, 2)
	w, applied := x.Writer(), r.applied()
	longest := x.Match(chain, live, units)
	if _, took := r.Take(nil, func(n Note) { w.Learn(n.Slot, n.Chain, n.AtNs) }); !took || longest != 0 {
		t.Fatalf("note taken: %v, %d units known before it was", took, longest)
	}
	if !r.behind(applied) {
		t.Error("the note is not said to have been pending")
	}
	if o.extend(applied, chain, longest, live, units); units[2] != 4 {
		t.Errorf("slot 2 has %d units, want 4", units[2])
	}
	// Who asks the index now has it from there.
	if r.behind(r.applied()) {
		t.Error("a note is said to be pending after it was applied")
	}
	if longest = x.Match(chain, live, units); longest != 4 {
		t.Errorf("the index knows %d units, want 4", longest)
	}
}

// TestOwnNotesAlwaysCount: what a loop has told of counts in each of its next
// decisions, whatever the indexer does meanwhile: from the overlay or from the
// index, never from neither.
func TestOwnNotesAlwaysCount(t *testing.T) {
	x := index.New(index.Options{MemoryBytes: index.MinMemoryBytes})
	l := &loop{d: &Dataplane{opt: Options{Index: x}}}
	l.notes.bell = newDoorbell()
	l.view = &view{live: *allSlots(4)}
	l.match.units, l.match.match.Tokens = make([]uint32, 4), make([]uint32, 4)
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		w, scratch := x.Writer(), []prefix.Hash(nil)
		for !stop.Load() {
			took := false
			if scratch, took = l.notes.Take(scratch, func(n Note) { w.LearnText(n.Slot, n.Chain, n.AtNs) }); !took {
				runtime.Gosched()
			}
		}
	}()
	defer func() { stop.Store(true); <-done }()
	var e exchange
	e.units = make([]prefix.Hash, 64)
	e.polReq.PromptTokens = 1 << 20
	for i := range 5000 {
		for k := range e.units {
			e.units[k] = prefix.Hash(1 + i*len(e.units) + k) // each in a place of its own
		}
		l.tell(&e, Note{Kind: NoteLearnedText, Slot: i % 4, Chain: e.units})
		for pending := true; pending; runtime.Gosched() {
			pending = l.notes.pending()
			if l.matchUnits(&e); l.match.units[i%4] != uint32(len(e.units)) {
				t.Fatalf("prompt %d: %d of %d units count at its node", i, l.match.units[i%4], len(e.units))
			}
		}
	}
}

// TestOverlayKeepsTheBeginning: where two units of one note fall on one place,
// the one that comes first in the chain keeps it, for nothing counts behind a gap.
func TestOverlayKeepsTheBeginning(t *testing.T) {
	r, o, units := newRing(), &overlay{}, make([]uint32, 1)
	chain := []prefix.Hash{5, 6, 7, 5 + overlaySlots, 8}
	r.put(Note{Chain: chain})
	o.add(r, chain, 0)
	if o.extend(r.applied(), chain, 0, allSlots(1), units); units[0] != 3 {
		t.Errorf("%d units of a chain count whose fourth falls on its first, want 3", units[0])
	}
	// What that comes to, on average over long prompts.
	rng, sum := rand.New(rand.NewPCG(1, 2)), uint32(0)
	const prompts = 100
	long := make([]prefix.Hash, overlayUnits)
	for range prompts {
		for i := range long {
			long[i] = prefix.Hash(rng.Uint64())
		}
		clear(units)
		r.put(Note{Chain: long})
		o.add(r, long, 0)
		o.extend(r.applied(), long, 0, allSlots(1), units)
		sum += units[0]
		r.Take(nil, func(Note) {})
	}
	if mean := sum / prompts; mean < 150 {
		t.Errorf("of %d units %d count on average, want at least 150", len(long), mean)
	}
}
