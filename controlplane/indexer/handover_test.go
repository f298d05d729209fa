package indexer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"warmpath/dataplane"
)

// TestTap: who taps hears of each note that is applied, until it does not.
func TestTap(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(0, 1, 7)
		a := chain(1, 3)
		f.note(0, 0, 1, a)
		var heard []string
		if err := f.Tap(f.t.Context(), func(n dataplane.Note) { heard = append(heard, fmt.Sprint(n.Slot, len(n.Chain))) }); err != nil {
			t.Fatal(err)
		}
		f.note(0, 1, 7, chain(2, 5))
		f.note(1, 1, 6, a) // of the tenant before
		f.after(200 * time.Millisecond)
		if err := f.Note(f.t.Context(), dataplane.Note{Slot: 0, Generation: 1, AtNs: f.now(), Chain: chain(3, 4)}); err != nil {
			t.Fatal(err)
		}
		if err := f.Note(f.t.Context(), dataplane.Note{Slot: 0, Generation: 2, AtNs: f.now(), Chain: a}); err != nil {
			t.Fatal(err)
		}
		if err := f.Tap(f.t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		f.note(0, 0, 1, a)
		f.after(200 * time.Millisecond)
		if want := []string{"1 5", "0 4"}; !slices.Equal(heard, want) {
			t.Errorf("heard %q, want %q", heard, want)
		}
		f.want("of the note that came by no ring", f.held(0, chain(3, 4)), 4)
	})
}

// TestAttach: rings that are given later are emptied, and their times are taken
// as those of the indexer's clock.
func TestAttach(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(0, 1)
		rings, own := f.opt.Notes, f.opt.Bell
		if err := f.Attach(f.t.Context(), nil, noBell{}, 0); err != nil { // as if it had none from the start
			t.Fatal(err)
		}
		f.ttl.Store(int64(10 * time.Second))
		f.after(time.Hour)
		began := f.now() // of the data plane
		late := chain(1, 4)
		f.rings[0].put(dataplane.Note{Slot: 0, Generation: 1, AtNs: f.now() - began, Chain: late})
		f.after(time.Second)
		f.want("before the rings are known", f.held(0, late), 0)
		if err := f.Attach(f.t.Context(), rings, own, began); err != nil {
			t.Fatal(err)
		}
		f.after(5 * time.Second)
		f.want("with them", f.held(0, late), 4)
		f.after(6 * time.Second)
		f.want("after its time", f.held(0, late), 0)
	})
}
