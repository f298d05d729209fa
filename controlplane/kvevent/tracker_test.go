package kvevent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"

	"warmpath/scenariotest"
)

// numbers reads "1,2" or "1..4".
func numbers(text string) (out []uint64) {
	for part := range strings.SplitSeq(text, ",") {
		first, last, ok := strings.Cut(part, "..")
		if !ok {
			last = first
		}
		a, _ := strconv.ParseUint(first, 10, 64)
		z, _ := strconv.ParseUint(last, 10, 64)
		for ; a <= z && part != ""; a++ {
			out = append(out, a)
		}
	}
	return out
}

func ids(text string) (out []uint32) {
	for _, n := range numbers(text) {
		out = append(out, uint32(n))
	}
	return out
}

var mediumNames = map[string]Medium{"host": Host, "disk": Disk, "tape": OtherMedium}

// eventOf reads an event from the fields of a command: the hashes, then
// key=value.
func eventOf(t *testing.T, kind Kind, fields []string) Event {
	e := Event{Kind: kind, Merged: 1, Group: NotSaid}
	for _, f := range fields {
		key, value, ok := strings.Cut(f, "=")
		n, _ := strconv.Atoi(value)
		switch {
		case !ok:
			e.Hashes = numbers(f)
		case key == "after":
			e.Parent, e.HasParent = uint64(n), true
		case key == "tokens":
			e.Tokens = ids(value)
		case key == "size":
			e.BlockTokens = n
		case key == "medium":
			e.Medium = mediumNames[value]
		case key == "adapter":
			e.Adapter = value
		case key == "salt":
			e.Salt = value
		case key == "extra": // of each block
			for part := range strings.SplitSeq(value, ",") {
				e.extra = append(e.extra, part...)
				e.ends = append(e.ends, len(e.extra))
			}
		case key == "group":
			e.Group = n
		case key == "spec":
			e.Spec = map[string]Spec{"full": SpecFull, "partial": SpecOther}[value]
		case key == "remote":
			e.Remote = true
		default:
			t.Fatalf("field %q", f)
		}
	}
	return e
}

func TestTrackerScenarios(t *testing.T) {
	scenariotest.Run(t, "testdata/tracker.txt", func(t *testing.T, scenario scenariotest.Case) string {
		var out strings.Builder
		x := newTwin()
		o := TrackerOptions{UnitTokens: 4, Model: "m"}
		var k *Tracker
		for _, c := range scenario.Lines() {
			f := strings.Fields(c)
			if k == nil && f[0] != "unit" && f[0] != "tails" {
				k = NewTracker(o, x)
			}
			switch f[0] {
			case "unit":
				o.UnitTokens, _ = strconv.Atoi(f[1])
			case "tails":
				o.TailBytes, _ = strconv.Atoi(f[1])
			case "stored":
				k.Apply(&Batch{Events: []Event{eventOf(t, Stored, f[1:])}})
			case "removed":
				k.Apply(&Batch{Events: []Event{eventOf(t, Removed, f[1:])}})
			case "cleared":
				k.Apply(&Batch{Events: []Event{{Kind: Cleared, Merged: 1}}})
			case "holds":
				e := eventOf(t, Stored, f[1:])
				fmt.Fprintf(&out, "holds %d units\n", x.holds(chainOf(o, e.Adapter, e.Salt, e.Tokens)))
			case "blocks":
				fmt.Fprintf(&out, "blocks %v, tails %d\n", x, len(k.tails.entries))
			case "counts":
				counts := k.Counts()
				out.WriteString("counts")
				counts.Each(func(kind string, n uint64) {
					if n > 0 {
						fmt.Fprintf(&out, " %s %d", kind, n)
					}
				})
				fmt.Fprintf(&out, "; blocks +%d -%d, again %d, replaced %d, orphans %d, size %d\n",
					counts.StoredBlocks, counts.RemovedBlocks, counts.Reannounced, counts.Replaced, k.Orphans(), k.BlockTokens())
			default:
				t.Fatalf("command %q", c)
			}
		}
		return out.String()
	})
}

// model is a cache as an engine has it: a tree of pages, each with all the
// tokens before it.
type model struct {
	r       *rand.Rand
	page    int
	paths   map[uint64][]uint32 // page → tokens to its end
	parents map[uint64]uint64
	refs    map[uint64]int
	names   map[string]uint64
}

// name is the engine's hash of a page.
func (m *model) name(path []uint32) uint64 {
	key := fmt.Sprint(path)
	if m.names[key] == 0 {
		m.names[key] = m.r.Uint64()
	}
	return m.names[key]
}

// store makes up a run: from the root or behind any page that is there.
func (m *model) store() Event {
	e := Event{Kind: Stored, Merged: 1, Group: NotSaid, BlockTokens: m.page}
	var path []uint32
	if held := m.held(); len(held) > 0 && m.r.IntN(6) > 0 {
		e.Parent, e.HasParent = held[m.r.IntN(len(held))], true
		path = slices.Clone(m.paths[e.Parent])
	}
	last := e.Parent
	for range 1 + m.r.IntN(2*16/m.page+1) {
		for range m.page {
			id := uint32(m.r.IntN(2)) // few, so that runs meet
			path = append(path, id)
			e.Tokens = append(e.Tokens, id)
		}
		h := m.name(path)
		e.Hashes = append(e.Hashes, h)
		m.paths[h], m.parents[h] = slices.Clone(path), last
		last = h
	}
	again := !e.HasParent && len(e.Hashes) > 1 && m.refs[e.Hashes[0]] > 0
	for _, h := range e.Hashes {
		if !again || m.refs[h] == 0 {
			m.refs[h]++
		}
	}
	return e
}

func (m *model) held() (pages []uint64) {
	for h, n := range m.refs {
		if n > 0 {
			pages = append(pages, h)
		}
	}
	slices.Sort(pages)
	return pages
}

// leaf is a page that no other page that is there follows.
func (m *model) leaf() (uint64, bool) {
	inner := map[uint64]bool{}
	pages := m.held()
	for _, h := range pages {
		inner[m.parents[h]] = true
	}
	pages = slices.DeleteFunc(pages, func(h uint64) bool { return inner[h] })
	if len(pages) == 0 {
		return 0, false
	}
	return pages[m.r.IntN(len(pages))], true
}

// TestTrackerAgreesWithModel stores and evicts at random, with pages smaller
// than, equal to, and larger than a unit, and askew to it. The index must hold
// of each prompt exactly the units that lie in pages that are there.
func TestTrackerAgreesWithModel(t *testing.T) {
	for _, page := range []int{1, 2, 3, 8, 16, 24, 32} {
		m := &model{
			r: rand.New(rand.NewPCG(uint64(page), 1)), page: page, paths: map[uint64][]uint32{},
			parents: map[uint64]uint64{}, refs: map[uint64]int{}, names: map[string]uint64{},
		}
		x := newTwin()
		o := TrackerOptions{UnitTokens: 16, Model: "m", Seed: 7}
		k := NewTracker(o, x)
		for step := range 300 {
			if m.r.IntN(3) == 0 || step > 100 && step < 150 {
				k.Apply(&Batch{Events: []Event{m.store()}})
			} else if h, ok := m.leaf(); ok {
				m.refs[h]--
				k.Apply(&Batch{Events: []Event{{Kind: Removed, Merged: 1, Group: NotSaid, Hashes: []uint64{h}}}})
			}
			if step%10 == 0 {
				m.check(t, x, k, o)
			}
		}
		if c := k.Counts(); c.Dropped != (Drops{}) || c.Replaced != 0 || c.RemovedBlocks == 0 {
			t.Errorf("page %d: %+v", page, c)
		}
	}
}

// check compares the index with the pages that are there.
func (m *model) check(t *testing.T, x *twin, k *Tracker, o TrackerOptions) {
	t.Helper()
	held := map[prefix.Hash]bool{}
	for h, b := range x.blocks {
		if m.refs[h] != b.refs[index.Device] || m.refs[h] == 0 {
			t.Fatalf("page of %d: %d references, want %d", m.page, b.refs[index.Device], m.refs[h])
		}
		for _, part := range b.parts {
			held[part] = true
		}
	}
	tails, units := 0, map[prefix.Hash]bool{}
	for _, h := range m.held() {
		path := m.paths[h]
		for _, unit := range chainOf(o, "", "", path) {
			units[unit] = true
			if !held[unit] {
				t.Fatalf("page of %d: a unit of %v is missing", m.page, path)
			}
		}
		if len(path)%o.UnitTokens != 0 {
			tails++
		}
	}
	if tails != len(k.tails.entries) || len(units) != len(held) {
		t.Fatalf("page of %d: %d tails and %d units, want %d and %d", m.page, len(k.tails.entries), len(held), tails, len(units))
	}
}

// What is kept of pages inside a unit is bounded, and comes back.
func TestTailsAreBounded(t *testing.T) {
	x := newTwin()
	k := NewTracker(TrackerOptions{UnitTokens: 16, Model: "m", TailBytes: 100_000}, x)
	block := uint64(1)
	for i := uint32(0); i < 10_000; i++ {
		e := Event{Kind: Stored, Merged: 1, Group: NotSaid, Hashes: []uint64{block}, Tokens: []uint32{i}, BlockTokens: 1}
		k.Apply(&Batch{Events: []Event{e}})
		block++
	}
	full := k.Counts().Dropped[NoRoom]
	if used := k.tails.bytes(); full == 0 || used > 101_000 || len(k.tails.entries) < 500 {
		t.Fatalf("%d refused, %d bytes, %d tails", full, used, len(k.tails.entries))
	}
	for b := range block {
		k.Apply(&Batch{Events: []Event{{Kind: Removed, Merged: 1, Group: NotSaid, Hashes: []uint64{b}}}})
	}
	if len(k.tails.entries) != 0 || len(k.tails.free) != len(k.tails.segments) {
		t.Errorf("%d tails left, %d of %d segments free", len(k.tails.entries), len(k.tails.free), len(k.tails.segments))
	}
	k.Clear()
	if k.tails.bytes() > 100_000 || x.clears != 1 {
		t.Errorf("%d bytes after Clear", k.tails.bytes())
	}
}

// quiet is an Index that allocates nothing.
type quiet struct{ known, full bool }

func (q *quiet) StoredRun(_ int, _ index.Tier, blocks []uint64, _ []prefix.Hash, _ bool) (known, replaced int) {
	if q.full {
		return 0, 0
	}
	return len(blocks), 0
}
func (q *quiet) RemovedRun(_ int, _ index.Tier, blocks []uint64) int { return len(blocks) }
func (q *quiet) Last(int, uint64) (prefix.Hash, bool)                { return 1, q.known }
func (q *quiet) Clear(int)                                           {}

// Where the index has no room, a run ends.
func TestFullIndex(t *testing.T) {
	k := NewTracker(TrackerOptions{UnitTokens: 4, Model: "m"}, &quiet{full: true})
	e := Event{Kind: Stored, Merged: 1, Group: NotSaid, Hashes: []uint64{1, 2}, Tokens: make([]uint32, 8), BlockTokens: 4}
	k.Apply(&Batch{Events: []Event{e}})
	if c := k.Counts(); c.Dropped[NoRoom] != 1 || c.Stored != 0 {
		t.Errorf("%+v", c)
	}
}

// *index.Writer is what a Tracker writes to.
var _ Index = (*index.Writer)(nil)

func TestTrackerAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	b, err := new(Decoder).Decode(commonBatch(256, 16))
	if err != nil {
		t.Fatal(err)
	}
	for unit, most := range map[int]float64{16: 0, 8: 0} {
		k := NewTracker(TrackerOptions{UnitTokens: unit, Model: "m"}, &quiet{})
		if n := testing.AllocsPerRun(20, func() { k.Apply(b) }); n > most {
			t.Errorf("unit of %d: %v allocations", unit, n)
		}
	}
	k := NewTracker(TrackerOptions{UnitTokens: 64, Model: "m"}, &quiet{})
	back := &Batch{Events: []Event{{Kind: Removed, Merged: 1, Group: NotSaid, Hashes: b.Events[1].Hashes}}}
	if n := testing.AllocsPerRun(20, func() { k.Apply(b); k.Apply(back) }); n > 0 {
		t.Errorf("pages of a quarter unit: %v allocations", n)
	}
}
