package indexer

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// queue is a Ring.
type queue struct {
	mu    sync.Mutex
	notes []dataplane.Note // guarded by mu
}

func (q *queue) put(n dataplane.Note) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.notes = append(q.notes, n)
}

func (q *queue) Take(scratch []prefix.Hash, apply func(dataplane.Note)) ([]prefix.Hash, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.notes) == 0 {
		return scratch, false
	}
	apply(q.notes[0])
	q.notes = q.notes[1:]
	return scratch, true
}

// bell is a Bell that counts.
type bell struct {
	rung   chan struct{}
	sleeps int
}

func (b *bell) Sleep() <-chan struct{} { b.sleeps++; return b.rung }
func (b *bell) Wake()                  {}

type sweptSlot struct {
	slot       int
	generation uint32
}

// fixture is an indexer in a bubble of synctest.
type fixture struct {
	*Indexer
	t     *testing.T
	rings []*queue
	bell  *bell
	swept []sweptSlot
	sent  []dataplane.Note // that Sent got, with copies of what they borrow
	takes int              // what Sent answers
	gone  []int            // slots that Forgot got
	ttl   atomic.Int64
	began time.Time
}

func run(t *testing.T, test func(f *fixture)) {
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t: t, rings: []*queue{{}, {}}, bell: &bell{rung: make(chan struct{}, 1)}, began: time.Now()}
		f.ttl.Store(int64(time.Hour))
		f.Indexer = New(Options{
			Index: index.New(index.Options{MemoryBytes: 16 << 20}), Fleet: fleet.NewHolder(), Notes: []Ring{f.rings[0], f.rings[1]}, Bell: f.bell,
			NowNs: f.now, LearnTTL: func() time.Duration { return time.Duration(f.ttl.Load()) },
			Swept: func(slot int, generation uint32) { f.swept = append(f.swept, sweptSlot{slot, generation}) },
			Sent: func(n dataplane.Note) int {
				n.Chain, n.IDs = slices.Clone(n.Chain), slices.Clone(n.IDs)
				f.sent = append(f.sent, n)
				return f.takes
			},
			Forgot: func(slot int) { f.gone = append(f.gone, slot) },
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); f.Run(ctx) }()
		test(f)
		cancel()
		<-done
	})
}

func (f *fixture) now() int64 { return int64(time.Since(f.began)) }

// publish stores a snapshot whose slots have these generations; 0 = no node.
func (f *fixture) publish(cacheTokens int64, generations ...uint32) {
	s := &fleet.Snapshot{Default: -1, Nodes: make([]*fleet.Node, len(generations))}
	for slot, g := range generations {
		if g != 0 {
			s.Nodes[slot] = &fleet.Node{Slot: slot, Generation: g, CacheTokens: cacheTokens, Load: new(fleet.Load)}
		}
	}
	f.opt.Fleet.Store(s.Seal())
}

func chain(first uint64, n int) []prefix.Hash {
	out := make([]prefix.Hash, n)
	for i := range out {
		out[i] = prefix.Hash(first + uint64(i)*0x9e3779b97f4a7c15)
	}
	return out
}

func (f *fixture) note(ring, slot int, generation uint32, chain []prefix.Hash) {
	f.rings[ring].put(dataplane.Note{Slot: slot, Generation: generation, AtNs: f.now(), Chain: chain})
}

// after lets virtual time pass; work is done within it.
func (f *fixture) after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// held is how many leading units of the chain the index counts for a slot.
func (f *fixture) held(slot int, chain []prefix.Hash) int {
	var live index.SlotSet
	live.Add(slot)
	units := make([]uint32, slot+1)
	f.opt.Index.Match(chain, &live, units)
	return int(units[slot])
}

func (f *fixture) want(what string, got, want int) {
	f.t.Helper()
	if got != want {
		f.t.Errorf("%s: %d, want %d", what, got, want)
	}
}

// Notes of every ring reach the index, unless they are of another tenant.
func TestNotes(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(0, 1, 7)
		a, b := chain(1, 20), chain(2, 10)
		f.note(0, 0, 1, a)
		f.note(1, 1, 7, b)
		f.note(1, 1, 6, a)    // of the tenant before
		f.note(0, 1, 8, a)    // of one that is not published
		f.note(0, 5, 1, a)    // of no slot
		f.note(0, 1000, 1, a) // beyond the snapshot
		f.after(200 * time.Millisecond)
		f.want("a at 0", f.held(0, a), 20)
		f.want("b at 1", f.held(1, b), 10)
		f.want("a at 1", f.held(1, a), 0)
		f.want("units of slot 5", int(f.opt.Index.SlotUnits(5)), 0)
	})
}

// More notes than one batch of one ring do not keep the other ring waiting,
// and all of them are taken.
func TestManyNotes(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(0, 1)
		for i := range 10 * batchNotes {
			f.note(0, 0, 1, chain(uint64(i+10), 1))
		}
		last := chain(5, 3)
		f.note(1, 0, 1, last)
		f.after(200 * time.Millisecond)
		f.want("units", int(f.opt.Index.SlotUnits(0)), 10*batchNotes+3)
		f.want("ring 1", f.held(0, last), 3)
	})
}

// A sleeping indexer sleeps, and wakes when the bell rings.
func TestBell(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(0, 1)
		f.after(10*expireEvery + time.Millisecond)
		if f.bell.sleeps < 9 || f.bell.sleeps > 30 {
			t.Errorf("it slept %d times in 10 periods", f.bell.sleeps)
		}
		c := chain(1, 4)
		f.note(0, 0, 1, c)
		f.after(time.Millisecond)
		f.want("before the bell", f.held(0, c), 0)
		f.bell.rung <- struct{}{}
		synctest.Wait() // no time passes
		f.want("after the bell", f.held(0, c), 4)
		// For some time after it looks by itself.
		more := chain(2, 4)
		f.note(0, 0, 1, more)
		f.after(2 * pollEvery)
		f.want("just after", f.held(0, more), 4)
	})
}

// A node that is gone is swept, said to be swept once, and its slot can be
// used by the next one; but not while a snapshot still shows it.
func TestDrop(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(0, 1, 1)
		c := chain(1, 20000) // more than one turn sweeps
		f.note(0, 0, 1, c)
		f.note(0, 1, 1, c[:100])
		f.after(200 * time.Millisecond)
		f.want("before", f.held(0, c), 20000)
		f.Drop(0, 1)
		f.after(200 * time.Millisecond)
		f.want("units", int(f.opt.Index.SlotUnits(0)), 0)
		f.note(0, 0, 1, c) // a loop that has not seen that it is gone
		f.after(200 * time.Millisecond)
		f.want("units of a late note", int(f.opt.Index.SlotUnits(0)), 0)
		if len(f.swept) != 0 {
			t.Errorf("swept %v while it was published", f.swept)
		}
		f.publish(0, 0, 1)
		f.after(200 * time.Millisecond)
		f.note(0, 0, 1, c)
		f.after(200 * time.Millisecond)
		if !slices.Equal(f.swept, []sweptSlot{{0, 1}}) {
			t.Errorf("swept %v", f.swept)
		}
		f.publish(0, 2, 1)
		f.note(0, 0, 1, c) // very late
		f.note(0, 0, 2, c[:3])
		f.after(200 * time.Millisecond)
		f.want("the next tenant", f.held(0, c), 3)
		f.want("the neighbour", f.held(1, c), 100)
		f.Drop(2, 9) // one that never had anything
		f.after(200 * time.Millisecond)
		if !slices.Equal(f.swept, []sweptSlot{{0, 1}, {2, 9}}) {
			t.Errorf("swept %v", f.swept)
		}
	})
}

// An engine that restarted has lost its cache; the node goes on, with the
// capacity that it had.
func TestClear(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(100*prefix.TextUnitTokens, 1)
		c := chain(1, 50)
		f.note(0, 0, 1, c)
		f.after(200 * time.Millisecond)
		f.Clear(0, 1)
		f.Clear(0, 1)
		f.after(200 * time.Millisecond)
		f.want("units", int(f.opt.Index.SlotUnits(0)), 0)
		f.want("capacity", int(f.opt.Index.SlotCapacity(0)), 100)
		f.note(0, 0, 1, c[:7])
		f.after(200 * time.Millisecond)
		f.want("learned again", f.held(0, c), 7)
		if len(f.swept) != 0 {
			t.Errorf("swept %v", f.swept)
		}
	})
}

// What a node can hold is its cache's size, and the default where that is not
// known.
func TestCapacity(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(10*prefix.TextUnitTokens, 1)
		c := chain(1, 50)
		f.note(0, 0, 1, c)
		f.after(200 * time.Millisecond)
		f.want("held", f.held(0, c), 10)
		f.publish(20*prefix.TextUnitTokens, 1)
		f.note(0, 0, 1, c)
		f.after(200 * time.Millisecond)
		f.want("held by the larger", f.held(0, c), 20)
		f.publish(1, 1)
		f.after(200 * time.Millisecond)
		f.want("the least capacity", int(f.opt.Index.SlotCapacity(0)), 1)
		f.publish(0, 1, 1)
		f.note(0, 1, 1, c)
		f.after(200 * time.Millisecond)
		f.want("held where nothing is known", f.held(1, c), 50)
	})
}

// What was not used for the time to live goes; a changed time counts at once.
func TestExpiry(t *testing.T) {
	run(t, func(f *fixture) {
		f.ttl.Store(int64(10 * time.Second))
		f.publish(0, 1)
		old, used := chain(1, 5), chain(2, 5)
		f.note(0, 0, 1, old)
		f.note(0, 0, 1, used)
		for range 6 {
			f.after(2 * time.Second)
			f.note(0, 0, 1, used)
		}
		f.after(time.Second)
		f.want("old", f.held(0, old), 0)
		f.want("used", f.held(0, used), 5)
		f.ttl.Store(int64(time.Second))
		f.after(2 * time.Second)
		f.want("after the time was shortened", f.held(0, used), 0)
	})
}

// Prompts with ids go to Sent, which may take their beginning to itself; what it
// leaves is learned. Those without, of nodes that report, and of nodes that have
// gone, do not.
func TestSent(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(0, 1)
		c, ids := chain(1, 10), []uint32{5, 6, 7}
		put := func(n dataplane.Note) {
			n.AtNs, n.Chain = f.now()+int64(time.Hour), c
			f.rings[0].put(n)
			f.after(200 * time.Millisecond)
		}
		put(dataplane.Note{Generation: 2, IDs: ids})
		put(dataplane.Note{Generation: 1, Kind: dataplane.NoteExpected, IDs: ids})
		f.want("prompts that went to Sent", len(f.sent), 0)
		f.Clear(0, 1)
		f.after(200 * time.Millisecond)
		f.takes = 4
		put(dataplane.Note{Generation: 1, IDs: ids})
		if len(f.sent) != 1 || !slices.Equal(f.sent[0].IDs, ids) || !slices.Equal(f.sent[0].Chain, c) {
			t.Fatalf("sent %+v", f.sent)
		}
		f.want("units that are learned", int(f.opt.Index.SlotUnits(0)), 6)
		f.want("of the whole chain, without what Sent took", f.held(0, c), 0)
		f.want("from where it ended", f.held(0, c[4:]), 6)
		f.takes = len(c)
		put(dataplane.Note{Generation: 1, IDs: ids})
		f.want("units after all was taken", int(f.opt.Index.SlotUnits(0)), 6)
		put(dataplane.Note{Generation: 1})
		f.want("prompts that went to Sent", len(f.sent), 2)
		f.want("without ids", f.held(0, c), 10)
	})
}

// Whoever keeps something beside the index hears when it has to go.
func TestForgot(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(0, 1, 1)
		f.Clear(1, 1)
		f.Drop(0, 1)
		f.after(200 * time.Millisecond)
		if !slices.Equal(f.gone, []int{1, 0}) {
			t.Errorf("forgot %v", f.gone)
		}
	})
}

// What others change comes after the prompts that were sent before: their word
// is the newer one.
func TestNotesBeforeOthers(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(0, 1)
		f.after(time.Second) // it sleeps
		for i := range 100 {
			c := chain(uint64(i+1), 2)
			f.note(0, 0, 1, c) // it rings no bell
			var held int
			if err := f.Do(f.t.Context(), 0, 1, func(bool) { held = f.held(0, c) }); err != nil {
				t.Fatal(err)
			}
			f.want("units that were sent before", held, 2)
		}
	})
}
