package index

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"warmpath/dataplane/prefix"
)

// over takes what a slot knows over to another index, through bytes.
func over(t testing.TB, from, to *Writer, fromSlot, toSlot int, fromNs, toNs int64) (taken int) {
	t.Helper()
	for _, p := range from.Export(fromSlot, fromNs) {
		raw := AppendPiece(nil, p)
		read, err := DecodePiece(raw)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(read, p) {
			t.Fatalf("a piece of %d bytes is read as another", len(raw))
		}
		taken += to.Import(toSlot, read, toNs)
	}
	return taken
}

// TestExportSameAsHybrid takes indexes with all kinds of entries over to others,
// whose slots and clocks are different, and goes on with those.
func TestExportSameAsHybrid(t *testing.T) {
	seeds := uint64(6)
	if raceEnabled {
		seeds = 2
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 71))
		ht := newHybridTest(t, r, int64(r.Uint64()>>2))
		for range 3 {
			for range 300 {
				ht.step()
			}
			ht = overHybrid(ht, r)
			sameAsHybrid(ht)
		}
		for range 200 {
			ht.step()
			sameAsHybrid(ht)
		}
		for !ht.w.Sweep(1000) {
		}
		if s, want := ht.x.Stats(), ht.h.entries(); s.HolderUnits != int64(want) || s.Refusals+s.Forgotten != 0 {
			t.Fatalf("%d entries, want %d: %+v", s.HolderUnits, want, s)
		}
	}
}

func newHybridTest(t *testing.T, r *rand.Rand, nowNs int64) *hybridTest {
	x := New(Options{Capacity: 120})
	ht := &hybridTest{T: t, x: x, w: x.Writer(), h: newHybrid(120), r: r, nowNs: nowNs, f: &forest{r: r, depth: 50, branch: 1 + r.IntN(12)}}
	ht.w.Expire(ht.nowNs, 1e9, 0)
	return ht
}

// overHybrid takes a whole test over: slot by slot to another one.
func overHybrid(was *hybridTest, r *rand.Rand) *hybridTest {
	is := newHybridTest(was.T, r, int64(r.Uint64()>>2))
	is.f = was.f
	was.w.Expire(was.nowNs, 1<<60, 0)
	for i, j := range r.Perm(len(testSlots)) {
		from, to := testSlots[i], testSlots[j]
		for !was.w.Swept(from) {
			was.w.Sweep(1000)
		}
		over(was.T, was.w, is.w, from, to, was.nowNs, is.nowNs)
		is.h.setCapacity(to, was.h.capacity[from])
		is.w.SetCapacity(to, was.h.capacity[from])
		is.h.blocks[to] = was.h.blocks[from]
		ticks := int64(is.w.tick) - int64(was.w.tick)
		for _, e := range was.h.nodes[from] {
			is.h.nodes[to] = append(is.h.nodes[to], twinEntry{e.hash, is.w.baseNs + (was.tickOf(e.atNs)+ticks)<<tickShift, e.weight})
		}
		for u, due := range was.h.speculative[from] {
			if due > int64(was.w.tick) { // else it has lapsed and only waits for the sweep
				is.h.speculative[to][u] = due + ticks
			}
		}
	}
	return is
}

// listed is the learned units of a slot in the order in which they would go.
func listed(w *Writer, slot int) (units []Learned) {
	n := &w.nodes[slot]
	for level := range n.lists {
		for id := n.lists[level].oldest; id != 0; id = w.pool.at(id).newer() {
			e := w.pool.at(id)
			units = append(units, Learned{Unit: e.hash(), Age: w.tick - e.c, Level: uint8(e.level()), Flags: uint8(e.b >> (idBits + 1) & learnedFlags)})
		}
	}
	return units
}

// TestExportKeepsOrder: every order of eviction comes over as it is; another
// one keeps what would have gone first.
func TestExportKeepsOrder(t *testing.T) {
	for from := range evictions {
		for to := range evictions {
			r := rand.New(rand.NewPCG(uint64(from), uint64(to)))
			f := &forest{r: r, depth: 150, branch: 15}
			old, fresh := New(Options{Eviction: from, Capacity: 300}).Writer(), New(Options{Eviction: to, Capacity: 300}).Writer()
			nowNs := int64(1e15)
			for range 80 {
				nowNs += r.Int64N(1e9)
				if chain := f.chain(); r.IntN(3) == 0 {
					old.LearnText(3, chain, nowNs)
				} else {
					old.LearnPriority(3, chain, r.IntN(5), nowNs)
				}
			}
			if taken := over(t, old, fresh, 3, 9, nowNs, 77); taken != old.nodes[3].units.count {
				t.Fatalf("%v to %v: %d of %d units", from, to, taken, old.nodes[3].units.count)
			}
			was, is := listed(old, 3), listed(fresh, 9)
			if old.nodes[3].weight != fresh.nodes[9].weight {
				t.Fatalf("%v to %v: a weight of %d, was %d", from, to, fresh.nodes[9].weight, old.nodes[3].weight)
			}
			if from != to {
				for i := range was {
					was[i].Level, was[i].Flags, was[i].Age = 0, was[i].Flags|learnedParent|learnedForked, is[i].Age
				}
			}
			if !slices.Equal(was, is) {
				t.Fatalf("%v to %v: got %v, want %v", from, to, is, was)
			}
			// The lists of a sorted order are in the order of their ticks.
			for !fresh.Expire(77+int64(1e9), 5e9, 1000) {
			}
			for _, u := range listed(fresh, 9) {
				if to.sorted() && int64(u.Age)<<tickShift > 8e9 {
					t.Fatalf("%v to %v: a unit of %d ticks is left", from, to, u.Age)
				}
			}
		}
	}
}

// TestImportIsBounded: what does not fit is left out, what would go first before
// the rest, and the bound holds.
func TestImportIsBounded(t *testing.T) {
	old := New(Options{Capacity: 1000}).Writer()
	first, last := chainOf(1, 400), chainOf(2, 400)
	old.Learn(0, first, 1e9)
	old.Learn(0, last, 2e9)
	x := New(Options{Capacity: 500})
	w := x.Writer()
	if taken := over(t, old, w, 0, 0, 2e9, 5); taken != 500 || matchOne(x, 0, last) != 400 || matchOne(x, 0, first) != 100 {
		t.Errorf("%d units taken; %d of the last chain, %d of the first", taken, matchOne(x, 0, last), matchOne(x, 0, first))
	}
	if x.Stats().Refusals != 300 {
		t.Errorf("%+v", x.Stats())
	}

	large := New(Options{Capacity: 1 << 20, MemoryBytes: 64 << 20}).Writer()
	small := New(Options{Capacity: 1 << 20, MemoryBytes: MinMemoryBytes})
	w = small.Writer()
	for slot := range 4 {
		storeChain(large, slot, Host, chainOf(uint64(10+slot), 12_000))
		large.Learn(slot, chainOf(uint64(20+slot), 12_000), 1e9)
		large.Speculate(slot, chainOf(uint64(30+slot), 1_000), 9e9)
		over(t, large, w, slot, slot, 1e9, 1e9)
		if s := small.Stats(); s.Bytes > s.MemoryBytes || s.HolderUnits > s.Capacity {
			t.Fatalf("%+v", s)
		}
	}
	if w.Drop(0); w.Import(0, &Piece{Runs: []Run{{Blocks: []uint64{1}, Units: first[:1]}}}, 1e9) != 0 {
		t.Error("a slot that is not swept took something")
	}
	if large.Clear(1); large.Export(1, 1e9) != nil || large.Export(500, 1e9) != nil {
		t.Error("a slot without entries has something to tell")
	}
}

// TestPiecesAreSmall: a large slot becomes many pieces.
func TestPiecesAreSmall(t *testing.T) {
	w := New(Options{Capacity: 1 << 20}).Writer()
	for i := range 20 {
		chain := chainOf(uint64(i), 3000)
		w.StoredRun(0, Device, []uint64{uint64(i) * 2, uint64(i)*2 + 1}, chain, false)
		w.Learn(0, chainOf(uint64(100+i), 3000), 1e9)
	}
	pieces := w.Export(0, 1e9)
	if len(pieces) < 120_000/pieceUnits {
		t.Errorf("%d pieces", len(pieces))
	}
	for _, p := range pieces {
		if b := AppendPiece(nil, p); len(b) > MaxPieceBytes {
			t.Errorf("a piece of %d bytes, %d are allowed", len(b), MaxPieceBytes)
		}
	}
}

func somePiece() *Piece {
	return &Piece{
		Order: LFU,
		Runs: []Run{
			{Tier: Host, Blocks: []uint64{7, 8}, Units: []prefix.Hash{1, 2, 3, 4}},
			{Tier: Device, Blocks: []uint64{9}, Copies: []uint8{maxCopies}, Units: []prefix.Hash{5}},
		},
		Learned:  []Learned{{Unit: 1 << 63, Age: 300, Level: 127, Flags: learnedFlags}, {Unit: 6}},
		Expected: []Expected{{Left: 9, Units: []prefix.Hash{11, 12}}, {Left: maxLeft, Units: []prefix.Hash{13}}},
	}
}

func TestPieceRefuses(t *testing.T) {
	good := AppendPiece(nil, somePiece())
	for i := range good {
		if _, err := DecodePiece(good[:i]); err == nil && i != 1 && !bytes.Equal(AppendPiece(nil, mustPiece(t, good[:i])), good[:i]) {
			t.Errorf("the first %d of %d bytes are taken", i, len(good))
		}
	}
	for want, b := range map[string][]byte{
		"ends inside":        {},
		"no eviction order":  {99},
		"section is empty":   {0, sectionLearned, 0},
		"no section 9":       {0, 9, 1},
		"no tier 3":          append([]byte{0, sectionRun, 1, 3, 0, 1}, make([]byte, 16)...),
		"marked by 2":        append([]byte{0, sectionRun, 1, 0, 2, 1}, make([]byte, 16)...),
		"no units":           append([]byte{0, sectionRun, 1, 0, 0, 0}, make([]byte, 16)...),
		"copies where":       append([]byte{0, sectionRun, 1, 0, 1, 1}, bytes.Repeat([]byte{200}, 17)...),
		"no level 128":       append(append([]byte{0, sectionLearned, 1}, make([]byte, 8)...), 128, 0, 0),
		"no flags":           append(append([]byte{0, sectionLearned, 1}, make([]byte, 8)...), 0, 16, 0),
		"due already":        append([]byte{0, sectionExpected, 1, 0}, make([]byte, 8)...),
		"is the most":        {0, sectionRun, 0xFF, 0xFF, 0xFF, 0xFF, 0x0F},
		"more than":          append([]byte{0}, bytes.Repeat(append([]byte{sectionExpected, 0x80, 0x40, 1}, make([]byte, 8<<13)...), 4)...),
		"ends inside a sect": {0, sectionRun, 5, 0, 0, 1, 1, 2, 3},
	} {
		if _, err := DecodePiece(b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

func mustPiece(t *testing.T, b []byte) *Piece {
	t.Helper()
	p, err := DecodePiece(b)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// FuzzPiece: no bytes harm an index, whatever they say, and what is read is read
// as it would be written.
func FuzzPiece(f *testing.F) {
	f.Add(AppendPiece(nil, somePiece()))
	w := New(Options{Capacity: 100, Eviction: Priority}).Writer()
	w.LearnPriority(0, chainOf(1, 50), 3, 1e9)
	w.Speculate(0, chainOf(2, 5), 2e9)
	storeChain(w, 0, Disk, chainOf(3, 20))
	for _, p := range w.Export(0, 1e9) {
		f.Add(AppendPiece(nil, p))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePiece(b)
		if err != nil {
			return
		}
		if again := mustPiece(t, AppendPiece(nil, p)); len(p.Learned) == 0 && !reflect.DeepEqual(p, again) {
			t.Fatal("written and read again it is another")
		}
		x := New(Options{Capacity: 100, MemoryBytes: MinMemoryBytes, Eviction: LFU})
		w := x.Writer()
		w.Learn(1, chainOf(4, 80), 1e9)
		for range 2 {
			w.Import(1, p, 2e9)
		}
		w.Learn(1, chainOf(5, 80), 3e9)
		over(t, w, w, 1, 2, 3e9, 3e9)
		for !w.Expire(1e18, 1, 10_000) {
		}
		w.Drop(1)
		w.Drop(2)
		if s := x.Stats(); !w.Sweep(1<<30) || x.Stats().HolderUnits+x.Stats().Units != 0 {
			t.Fatalf("left over: %+v", s)
		}
	})
}

// BenchmarkExport takes a node of 50,000 blocks over.
func BenchmarkExport(b *testing.B) {
	const blocks = 50_000
	old, fresh := New(Options{}).Writer(), New(Options{}).Writer()
	storeChain(old, 0, Device, chainOf(1, blocks))
	var encoded [][]byte
	b.Run("export", func(b *testing.B) {
		for b.Loop() {
			encoded = encoded[:0]
			for _, p := range old.Export(0, 1) {
				encoded = append(encoded, AppendPiece(nil, p))
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
	})
	b.Run("import", func(b *testing.B) {
		for b.Loop() {
			taken := 0
			for _, raw := range encoded {
				p, err := DecodePiece(raw)
				if err != nil {
					b.Fatal(err)
				}
				taken += fresh.Import(0, p, 1)
			}
			if taken != blocks {
				b.Fatalf("%d blocks came over", taken)
			}
			b.StopTimer()
			fresh.Clear(0)
			fresh.Sweep(1 << 30)
			b.StartTimer()
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/blocks, "ns/block")
	})
}
