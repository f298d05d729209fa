package index

import (
	"fmt"
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
	var set holding

	x, _, s, at, word := fresh()
	if _, ok := x.rows.read(s, at, word, &set, 1); !ok || set.any[0] != 0b11 {
		t.Errorf("undisturbed: %v %b", ok, set.any[0])
	}
	x, w, s, at, word := fresh()
	pass(w)
	if _, ok := x.rows.read(s, at, word, &set, 1); ok {
		t.Errorf("row passed on: read %b", set.any[0])
	}
	x, w, s, at, word = fresh()
	replaceSegment(x, a)
	pass(w)
	if at.Load() != word {
		t.Error("a replaced segment was written to")
	}
	if _, ok := x.rows.read(s, at, word, &set, 1); ok {
		t.Errorf("row passed on after the segment was replaced: read %b", set.any[0])
	}
	x, w, s, at, word = fresh()
	chunk, i := x.rows.at(word & refMask)
	begun, ok := chunk.begin(i, at, word)
	pass(w)
	if set.copy(chunk, chunk.row(i), 1); !ok || begun.confirm(s) {
		t.Errorf("row passed on while it was read: read %b", set.any[0])
	}
	x, w, s, at, word = fresh()
	kept, _ := x.rows.read(s, at, word, &set, 1)
	if n := x.run([]prefix.Hash{11, 11, 12, 11}, &kept); n != 2 {
		t.Errorf("undisturbed: the kept set counts for %d units, want 2", n)
	}
	pass(w)
	if _, wordB, _ := x.table.find(b); wordB&refMask != kept.ref {
		t.Error("the row was not passed on")
	}
	if n := x.run([]prefix.Hash{12, 12}, &kept); n != 0 {
		t.Errorf("row passed on: the kept set still counts for %d units", n)
	}
	x, _, s, at, word = fresh()
	c, i := x.rows.at(word & refMask)
	c.versions[i].Add(1)
	if _, ok := x.rows.read(s, at, word, &set, 1); ok {
		t.Error("read a row that is being written")
	}
}

// TestWalkLooksAnew: a unit's word is frozen in a directory that a walk could
// have seen at its start, and names a row that meanwhile has become another
// unit's, which the walk reads before.
func TestWalkLooksAnew(t *testing.T) {
	x := New(Options{})
	w := x.Writer()
	a, c := prefix.Hash(11), prefix.Hash(12)
	keyA, keyC := spread(a), spread(c)
	w.hold(keyA, 0)
	w.hold(keyA, 1)
	_, word, _ := x.table.find(keyA)
	var walk Walk
	var units [4]uint32
	walk.Start(x, &SlotSet{0b1111}, units[:], nil)
	x.table.double(x.table.dir.Load())
	replaceSegment(x, keyA)
	w.release(keyA, 1)
	w.hold(keyC, 2)
	w.hold(keyC, 3)
	if _, wordC, _ := x.table.find(keyC); wordC&refMask != word&refMask {
		t.Fatal("the row was not passed on")
	}
	walk.Extend([]prefix.Hash{c})
	walk.Extend([]prefix.Hash{a})
	if n := walk.Finish(); n != 1 || units != [4]uint32{0, 0, 1, 1} {
		t.Errorf("%d: %v", n, units)
	}
}

// TestRowsAgainstSets changes counted references at random and compares them
// with the sets they stand for.
func TestRowsAgainstSets(t *testing.T) {
	s := &rows{}
	s.init(1 << 30)
	r := rand.New(rand.NewPCG(6, 6))
	at := []int{0, 1, 2, 63, 64, 255, 256, 1023, position(0, Host), position(255, Host), position(2, Disk), position(1023, Disk)}
	refs, sets := make([]uint64, 50), make([]map[int]bool, 50)
	for i := range sets {
		sets[i] = map[int]bool{}
	}
	for range 5_000 {
		i, p := r.IntN(len(refs)), at[r.IntN(len(at))]
		to, full := uint64(0), false
		if r.IntN(2) == 0 {
			to = s.with(refs[i], p)
			sets[i][p] = true
		} else {
			if refs[i] != 0 {
				to, full = s.without(refs[i], p)
			}
			delete(sets[i], p)
		}
		if to != refs[i] {
			s.release(refs[i])
			refs[i] = to
		}
		var got holderSet
		s.load(to, &got)
		for _, p := range at {
			if full || got.has(p) != sets[i][p] {
				t.Fatalf("got %v, want %v", got, sets[i])
			}
		}
		distinct := map[string]uint64{}
		for k, set := range sets {
			if len(set) < 2 {
				continue
			}
			name := fmt.Sprint(set)
			if other, ok := distinct[name]; ok && other != refs[k] {
				t.Fatal("equal sets, different rows")
			}
			distinct[name] = refs[k]
		}
		if s.live != len(distinct) || s.sets.count != s.live {
			t.Fatalf("%d rows for %d sets", s.live, len(distinct))
		}
	}
}

// TestRepeatedStep repeats a change of a set when the row that it led to has
// been freed, and when that has become another set's.
func TestRepeatedStep(t *testing.T) {
	s := &rows{}
	s.init(1 << 30)
	grow := func(positions ...int) (ref uint64) {
		for _, p := range positions {
			to := s.with(ref, p)
			s.release(ref)
			ref = to
		}
		return ref
	}
	a, b := grow(0, 1), grow(0, 1)
	other := grow(5, 6, 7)
	change := func(to, from uint64) uint64 {
		s.release(from)
		return to
	}
	a = change(s.with(a, 2), a)
	was := a
	to, _ := s.without(a, 2)
	a = change(to, a) // the row {0, 1, 2} is free now
	b = change(s.with(b, 2), b)
	if s.live != 3 {
		t.Errorf("%d rows for three sets", s.live)
	}
	to, _ = s.without(b, 2)
	b = change(to, b)
	to, _ = s.without(other, 7)
	if other = change(to, other); other != was {
		t.Fatalf("the freed row was not used again: %d, not %d", other, was)
	}
	b = change(s.with(b, 2), b)
	var set holderSet
	if s.load(b, &set); !set.has(2) || set.has(5) || a == b {
		t.Errorf("a step led to another set: %v", set)
	}
}

// TestRowsAreNarrow wants each set in the narrowest row that holds it, also
// after it shrank.
func TestRowsAreNarrow(t *testing.T) {
	s := &rows{}
	s.init(1 << 30)
	ref := uint64(0)
	step := func(to uint64) int {
		s.release(ref)
		ref = to
		c, _ := s.at(ref)
		return c.width * c.tiers
	}
	ref = s.with(ref, 1)
	for _, c := range []struct{ position, words int }{{2, 1}, {64, 4}, {1000, 16}, {position(3, Disk), 48}} {
		if got := step(s.with(ref, c.position)); got != c.words {
			t.Errorf("with %d: %d words, want %d", c.position, got, c.words)
		}
	}
	for _, c := range []struct{ position, words int }{{1000, 12}, {64, 3}, {position(3, Disk), 1}} {
		to, _ := s.without(ref, c.position)
		if got := step(to); got != c.words {
			t.Errorf("without %d: %d words, want %d", c.position, got, c.words)
		}
	}
}
