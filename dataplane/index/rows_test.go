package index

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"warmpath/dataplane/prefix"
)

// replaceSegment does what growth does to the segment of a key, without
// making it larger.
func replaceSegment(x *Index, key uint64) {
	d := x.table.dir.Load()
	s := d.segment(key)
	to := s.split(1)[0]
	for i := range d.segs {
		if d.segs[i].Load() == s {
			d.segs[i].Store(to)
		}
	}
	s.retired.Store(true)
}

// TestRowsAreNotMistaken lets the writer pass one row to and fro between two
// units, a held by slots 0 and 1, and b held by slots 2 and 3, and moves both
// to new segments all the time. No reader may ever see one's holders at the
// other. TestReadNotices has the interleavings that are too rare to be met here.
func TestRowsAreNotMistaken(t *testing.T) {
	rounds := 100_000
	if raceEnabled {
		rounds = 5_000
	}
	x := New(Options{})
	w := x.Writer()
	a, b := prefix.Hash(11), prefix.Hash(12)
	keyA, keyB := spread(a), spread(b)
	w.hold(keyA, 0)
	w.hold(keyB, 2)
	const length = 200 // long enough for the writer to come between
	chain := append(slices.Repeat([]prefix.Hash{a}, length), b, b)
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			live := SlotSet{0b1111}
			var units [4]uint32
			var set SlotSet
			for !stop.Load() {
				x.Match(chain, &live, units[:])
				if units[0] != length || units[1] > length || units[2] != 0 || units[3] != 0 {
					t.Errorf("Match says %v", units)
					return
				}
				if x.Holds(a, &set); set[0]&^0b0011 != 0 {
					t.Errorf("a is held by %b", set[0])
					return
				}
				if x.Holds(b, &set); set[0]&^0b1100 != 0 {
					t.Errorf("b is held by %b", set[0])
					return
				}
			}
		})
	}
	for i := range rounds {
		w.hold(keyA, 1)
		if i%3 == 0 {
			replaceSegment(x, keyA)
			replaceSegment(x, keyB)
		}
		w.release(keyA, 1)
		w.hold(keyB, 3)
		if i%3 == 1 {
			replaceSegment(x, keyA)
			replaceSegment(x, keyB)
		}
		w.release(keyB, 3)
	}
	stop.Store(true)
	wg.Wait()
	if x.rows.used != 1 {
		t.Errorf("%d chunks: the row was not passed on", x.rows.used)
	}
}

// TestReadNotices replays the dangerous interleavings of one reader step by
// step.
func TestReadNotices(t *testing.T) {
	a, b := spread(11), spread(12)
	fresh := func() (*Index, *Writer, *segment, *atomic.Uint64, uint64) {
		x := New(Options{})
		w := x.Writer()
		w.hold(a, 0)
		w.hold(a, 1)
		w.hold(b, 2)
		s, word, at := x.table.find(a)
		return x, w, s, at, word
	}
	pass := func(w *Writer) { // a's row to b
		w.release(a, 1)
		w.hold(b, 3)
	}
	var set SlotSet

	x, _, s, at, word := fresh()
	if _, ok := x.rows.read(s, at, word, set[:1]); !ok || set[0] != 0b11 {
		t.Errorf("undisturbed: %v %b", ok, set[0])
	}
	x, w, s, at, word := fresh()
	pass(w)
	if _, ok := x.rows.read(s, at, word, set[:1]); ok {
		t.Errorf("row passed on: read %b", set[0])
	}
	x, w, s, at, word = fresh()
	replaceSegment(x, a)
	pass(w)
	if at.Load() != word {
		t.Error("a replaced segment was written to")
	}
	if _, ok := x.rows.read(s, at, word, set[:1]); ok {
		t.Errorf("row passed on after the segment was replaced: read %b", set[0])
	}
	x, w, s, at, word = fresh()
	kept, _ := x.rows.read(s, at, word, set[:1])
	if !kept.standsFor(word, s) {
		t.Error("undisturbed: the kept set does not count")
	}
	pass(w)
	other, wordB, _ := x.table.find(b)
	if wordB&refMask != kept.ref || kept.standsFor(wordB, other) {
		t.Error("row passed on: the kept set still counts")
	}
	x, _, s, at, word = fresh()
	kept, _ = x.rows.read(s, at, word, set[:1])
	replaceSegment(x, a)
	if kept.standsFor(word, s) {
		t.Error("segment replaced: the kept set still counts")
	}
	x, _, s, at, word = fresh()
	c, i := x.rows.at(word & refMask)
	c.versions[i].Add(1)
	if _, ok := x.rows.read(s, at, word, set[:1]); ok {
		t.Error("read a row that is being written")
	}
}

// TestRowsAgainstSets changes counted references at random and compares them
// with the sets they stand for.
func TestRowsAgainstSets(t *testing.T) {
	s := &rows{}
	s.init(1 << 30)
	r := rand.New(rand.NewPCG(6, 6))
	slots := []int{0, 1, 2, 3, 63, 64, 255, 256, 1023}
	refs, sets := make([]uint64, 50), make([]SlotSet, 50)
	for range 5_000 {
		i, slot := r.IntN(len(refs)), slots[r.IntN(len(slots))]
		to, full := uint64(0), false
		if r.IntN(2) == 0 {
			to = s.with(refs[i], slot)
			sets[i].Add(slot)
		} else {
			if refs[i] != 0 {
				to, full = s.without(refs[i], slot)
			}
			sets[i].Remove(slot)
		}
		if to != refs[i] {
			s.release(refs[i])
			refs[i] = to
		}
		var got SlotSet
		if s.load(to, &got); got != sets[i] || full {
			t.Fatalf("got %v, want %v", got, sets[i])
		}
		distinct := map[SlotSet]uint64{}
		for k, set := range sets {
			if set.Len() < 2 {
				continue
			}
			if other, ok := distinct[set]; ok && other != refs[k] {
				t.Fatal("equal sets, different rows")
			}
			distinct[set] = refs[k]
		}
		if s.live != len(distinct) || s.sets.count != s.live {
			t.Fatalf("%d rows for %d sets", s.live, len(distinct))
		}
	}
}
