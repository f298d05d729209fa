package dataplane

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

func newRing() *NoteRing { return &NoteRing{bell: newDoorbell()} }

// noteOf makes the i-th note of a sequence; every field follows from i.
func noteOf(i uint64, scratch []prefix.Hash) Note {
	length := int(i*i*7%97) + int(i%3)*40
	for k := range length {
		scratch = append(scratch, prefix.Hash(i<<20|uint64(k)))
	}
	var ids []uint32 // of every other note, an even or odd number
	for k := range i % 2 * (i % 7) {
		ids = append(ids, uint32(i<<8|k|1<<31))
	}
	return Note{Slot: int(i % 1024), Generation: uint32(i * 3), AtNs: int64(i) - 50, Chain: scratch, IDs: ids}
}

func checkNote(t *testing.T, got Note, i uint64) {
	t.Helper()
	want := noteOf(i, nil)
	if got.Slot != want.Slot || got.Generation != want.Generation || got.AtNs != want.AtNs || len(got.Chain) != len(want.Chain) || !slices.Equal(got.IDs, want.IDs) {
		t.Fatalf("note %d is %+v, want %+v", i, got, want)
	}
	for k := range want.Chain {
		if got.Chain[k] != want.Chain[k] {
			t.Fatalf("note %d: hash %d is %x, want %x", i, k, got.Chain[k], want.Chain[k])
		}
	}
}

// TestNoteRingAcrossGoroutines moves several rings full of notes from one
// goroutine to another that sleeps behind the doorbell whenever it can: order
// and content hold, no note is lost but those counted, no wake-up is lost.
func TestNoteRingAcrossGoroutines(t *testing.T) {
	r := newRing()
	total := uint64(60_000)
	if testing.Short() || raceEnabled {
		total = 20_000
	}
	done := make(chan struct{})
	var got uint64
	go func() {
		defer close(done)
		var scratch []prefix.Hash
		take := func() (took bool) {
			scratch, took = r.Take(scratch, func(n Note) {
				checkNote(t, n, got)
				got++
			})
			return took
		}
		for got < total {
			if take() {
				continue
			}
			rung := r.bell.Sleep()
			if !take() {
				select {
				case <-rung:
				case <-time.After(10 * time.Second):
					t.Errorf("no wake-up after note %d", got)
					return
				}
			}
			r.bell.Wake()
		}
	}()
	var scratch []prefix.Hash
	var refused uint64
	for i := range total {
		n := noteOf(i, scratch[:0])
		scratch = n.Chain
		for !r.put(n) { // full: the consumer is slow
			refused++
			select {
			case <-done:
				t.Fatal("the consumer gave up")
			case <-time.After(time.Microsecond):
			}
		}
	}
	<-done
	if r.Dropped() != refused {
		t.Errorf("%d notes counted as dropped, %d were refused", r.Dropped(), refused)
	}
	if r.pending() {
		t.Error("notes are left")
	}
}

func TestNoteRingFull(t *testing.T) {
	r := newRing()
	i := uint64(0)
	for r.put(noteOf(i, nil)) {
		i++
	}
	room := uint64(noteRingWords) - (r.head.Load() - r.tail.Load())
	refused := noteOf(i, nil)
	if need := uint64(noteHeadWords + len(refused.Chain) + (len(refused.IDs)+1)/2); need <= room {
		t.Fatalf("refused a note of %d words with %d words free", need, room)
	}
	if r.Dropped() != 1 {
		t.Fatalf("%d notes dropped, want 1", r.Dropped())
	}
	// The bound itself: a note that fills the ring to the last word fits.
	if room >= noteHeadWords && !r.put(Note{Chain: make([]prefix.Hash, room-noteHeadWords)}) {
		t.Error("a note that just fits was refused")
	}
	taken := uint64(0)
	for took := true; took; {
		_, took = r.Take(nil, func(n Note) {
			if taken < i {
				checkNote(t, n, taken)
			}
			taken++
		})
	}
	if taken < i || r.pending() {
		t.Errorf("took %d notes of %d", taken, i)
	}
	if !r.put(noteOf(i, nil)) {
		t.Error("an empty ring refused a note")
	}
}

// TestNoteIDs: ids come out as they went in, odd numbers of them too, wherever
// in the ring its end falls into the note.
func TestNoteIDs(t *testing.T) {
	ids := []uint32{1<<32 - 1, 0, 3, 1 << 31, 5}
	for count := range len(ids) + 1 {
		words := uint64(noteHeadWords + 2 + (count+1)/2)
		for start := noteRingWords - words; start <= noteRingWords; start++ {
			r := newRing()
			r.head.Store(start)
			r.tail.Store(start)
			want := Note{Kind: NoteLearned, Slot: 7, Generation: 8, AtNs: 9, Chain: []prefix.Hash{10, 11}, IDs: ids[:count]}
			if !r.put(want) || !r.put(Note{Chain: []prefix.Hash{12}}) {
				t.Fatal("an empty ring refused a note")
			}
			var got Note
			r.Take(nil, func(n Note) { got = n })
			if got.Slot != 7 || got.Generation != 8 || got.AtNs != 9 || !slices.Equal(got.Chain, want.Chain) || !slices.Equal(got.IDs, want.IDs) {
				t.Errorf("%d ids from word %d: %+v, want %+v", count, start, got, want)
			}
			r.Take(nil, func(n Note) { got = n })
			if len(got.IDs) != 0 || len(got.Chain) != 1 || got.Chain[0] != 12 || r.pending() {
				t.Errorf("the note behind %d ids from word %d: %+v", count, start, got)
			}
		}
	}
}

// TestNoteIDsFull: a note fits or is dropped whole, its ids included.
func TestNoteIDsFull(t *testing.T) {
	const others = 100
	for _, c := range []struct {
		ids  int
		fits bool
	}{
		{2 * (noteRingWords - others - noteHeadWords), true},
		{2*(noteRingWords-others-noteHeadWords) - 1, true},
		{2*(noteRingWords-others-noteHeadWords) + 1, false},
	} {
		r := newRing()
		r.put(Note{Chain: make([]prefix.Hash, others-noteHeadWords)})
		if fits := r.put(Note{IDs: make([]uint32, c.ids)}); fits != c.fits || fits != (r.Dropped() == 0) {
			t.Errorf("%d ids fit: %v, want %v; %d dropped", c.ids, fits, c.fits, r.Dropped())
		}
		r.Take(nil, func(Note) {})
		if !r.put(Note{IDs: []uint32{1}}) { // into the words that are free again
			t.Error("no room after a note was taken")
		}
		last := 0
		for r.pending() {
			r.Take(nil, func(n Note) { last = len(n.IDs) })
		}
		if last != 1 {
			t.Errorf("the last note has %d ids, want 1", last)
		}
	}
}

// TestDoorbellKeepsRinging: the consumer is woken for every single note, with
// a sleep between any two of them.
func TestDoorbellKeepsRinging(t *testing.T) {
	r := newRing()
	const notes = 2000
	slept := make(chan struct{})
	go func() {
		for range notes {
			<-slept
			r.put(Note{Chain: []prefix.Hash{1}})
		}
	}()
	for i := range notes {
		rung := r.bell.Sleep()
		slept <- struct{}{}
		took := false
		for !took {
			select {
			case <-rung:
			case <-time.After(10 * time.Second):
				t.Fatalf("note %d rang no bell", i)
			}
			r.bell.Wake()
			if _, took = r.Take(nil, func(Note) {}); !took {
				rung = r.bell.Sleep() // a ring of before
				_, took = r.Take(nil, func(Note) {})
			}
		}
	}
}

func TestOverlayExtendsWhilePending(t *testing.T) {
	r, o := newRing(), &overlay{}
	chain := []prefix.Hash{11, 22, 33, 44}
	units := make([]uint32, 4)
	extend := func(longest int) []uint32 {
		clear(units)
		o.extend(r.applied(), chain, longest, allSlots(len(units)), units)
		return units
	}
	if !r.put(Note{Slot: 2, Chain: chain}) {
		t.Fatal("full")
	}
	o.add(r, chain, 2)
	if got := extend(0); got[2] != 4 {
		t.Fatalf("slot 2 has %d units while the note is pending, want 4", got[2])
	}
	// What the index knows already is extended, not counted twice.
	clear(units)
	units[2] = 2
	if o.extend(r.applied(), chain, 2, allSlots(len(units)), units); units[2] != 4 {
		t.Errorf("2 known units became %d, want 4", units[2])
	}
	// A unit that another slot got later is no longer counted for the first.
	r.put(Note{Slot: 1, Chain: chain[:2]})
	o.add(r, chain[:2], 1)
	if got := extend(0); got[1] != 2 || got[2] != 0 {
		t.Errorf("units %v after the start went to slot 1 too, want 2 there", got)
	}
	// A slot beyond the snapshot of the request is left out.
	r.put(Note{Slot: 9, Chain: chain[:1]})
	o.add(r, chain[:1], 9)
	extend(0)
	for r.pending() {
		r.Take(nil, func(Note) {})
	}
	if got := extend(0); got[0]|got[1]|got[2]|got[3] != 0 {
		t.Errorf("units %v after all notes were applied, want none", got)
	}
}

func TestOverlayCollision(t *testing.T) {
	r, o := newRing(), &overlay{}
	first := prefix.Hash(5)
	second := first + overlaySlots // the same place
	for slot, h := range []prefix.Hash{first, second} {
		r.put(Note{Slot: slot, Chain: []prefix.Hash{h}})
		o.add(r, []prefix.Hash{h}, slot)
	}
	units := make([]uint32, 2)
	o.extend(r.applied(), []prefix.Hash{first}, 0, allSlots(len(units)), units)
	if units[0] != 0 {
		t.Error("a unit that was pushed out still counts")
	}
	o.extend(r.applied(), []prefix.Hash{second}, 0, allSlots(len(units)), units)
	if units[1] != 1 {
		t.Error("the younger unit was forgotten")
	}
}

func TestOverlaySeen(t *testing.T) {
	o := &overlay{}
	if o.seen(7, 1, 1, 0) {
		t.Fatal("seen before it was there")
	}
	for _, c := range []struct {
		slot int
		gen  uint32
		at   int64
		want bool
	}{{1, 1, recentNs - 1, true}, {1, 1, recentNs, false}, {2, 1, recentNs, false}, {2, 2, recentNs, false}, {2, 2, recentNs + 1, true}} {
		if got := o.seen(7, c.slot, c.gen, c.at); got != c.want {
			t.Errorf("slot %d generation %d at %d: seen %v, want %v", c.slot, c.gen, c.at, got, c.want)
		}
	}
}

func TestNotesAndOverlayAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	r, o := newRing(), &overlay{}
	chain := make([]prefix.Hash, 256)
	units := make([]uint32, 8)
	scratch := make([]prefix.Hash, 0, 256)
	rng := rand.New(rand.NewPCG(1, 2))
	apply := func(Note) {}
	if n := testing.AllocsPerRun(1000, func() {
		for i := range chain {
			chain[i] = prefix.Hash(rng.Uint64())
		}
		o.seen(chain[255], 1, 1, 1)
		r.put(Note{Slot: 1, Chain: chain})
		o.add(r, chain, 1)
		o.extend(r.applied(), chain, 0, allSlots(len(units)), units)
		scratch, _ = r.Take(scratch, apply)
	}); n != 0 {
		t.Errorf("%v allocations a note, want 0", n)
	}
}

func BenchmarkNote(b *testing.B) {
	r, o := newRing(), &overlay{}
	chain := make([]prefix.Hash, 64)
	scratch := make([]prefix.Hash, 0, 64)
	for b.Loop() {
		r.put(Note{Slot: 1, Chain: chain})
		o.add(r, chain, 1)
		scratch, _ = r.Take(scratch, func(Note) {})
	}
}

// allSlots is the set of the first n slots.
func allSlots(n int) *index.SlotSet {
	var s index.SlotSet
	for slot := range n {
		s.Add(slot)
	}
	return &s
}
