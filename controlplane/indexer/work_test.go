package indexer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"warmpath/dataplane"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// publishRanks stores a snapshot of one node with so many ranks, from slot 0.
func (f *fixture) publishRanks(generation uint32, trust ...fleet.Trust) {
	n := &fleet.Node{Generation: generation, Ranks: len(trust), Trust: trust, Load: new(fleet.Load)}
	nodes := make([]*fleet.Node, len(trust))
	nodes[0] = n
	f.opt.Fleet.Store((&fleet.Snapshot{Default: -1, Nodes: nodes}).Seal())
}

// Try and Do run what they get on the indexer's goroutine, in order, and say
// whose the slot is.
func TestOthersWork(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(0, 3, 5)
		var got []string
		say := func(what string) func(bool) {
			return func(tenant bool) { got = append(got, fmt.Sprint(what, " ", tenant)) }
		}
		for _, w := range []struct {
			name       string
			slot       int
			generation uint32
		}{{"a", 0, 3}, {"b", 1, 3}, {"c", 1, 5}, {"d", 2, 1}, {"e", 1000, 1}} {
			if !f.Try(w.slot, w.generation, say(w.name)) {
				t.Error("there was no room")
			}
		}
		if err := f.Do(f.t.Context(), 0, 3, say("f")); err != nil { // no time passes, so it does not poll
			t.Error(err)
		}
		if want := []string{"a true", "b false", "c true", "d false", "e false", "f true"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		c := chain(1, 3)
		if err := f.Do(f.t.Context(), 1, 5, func(bool) { f.Writer().Stored(1, index.Device, 77, c) }); err != nil {
			t.Error(err)
		}
		f.want("stored", f.held(1, c), 3)
	})
}

// Whoever finds no room comes again, and ctx ends the waiting of who waits for
// it.
func TestOthersWait(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(0, 1)
		hold, held, done := make(chan struct{}), make(chan struct{}), 0
		f.Try(0, 1, func(bool) { close(held); <-hold })
		<-held
		for range workQueue {
			if !f.Try(0, 1, func(bool) { done++ }) {
				t.Fatal("there is less room than there should be")
			}
		}
		if f.Try(0, 1, func(bool) { done++ }) {
			t.Error("there is more room than there should be")
		}
		ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
		defer cancel()
		if err := f.Do(ctx, 0, 1, func(bool) { done += 1000 }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("in vain: %v", err)
		}
		waits := make(chan error)
		go func() { waits <- f.Do(f.t.Context(), 0, 1, func(bool) { done++ }) }()
		synctest.Wait()
		close(hold)
		if err := <-waits; err != nil || done != workQueue+1 {
			t.Errorf("%v, %d pieces of work done", err, done)
		}
	})
}

// What has begun when ctx ends is not waited for.
func TestOthersCancel(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(0, 1)
		hold := make(chan struct{})
		ctx, cancel := context.WithTimeout(f.t.Context(), time.Second)
		defer cancel()
		if err := f.Do(ctx, 0, 1, func(bool) { <-hold }); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		close(hold)
	})
}

// A slot that is being swept takes nothing for the tenant that goes, and for the
// one that stays at once.
func TestOthersAndSweeps(t *testing.T) {
	run(t, func(f *fixture) {
		f.publish(0, 1, 1)
		var got []bool
		note := func(tenant bool) { got = append(got, tenant) }
		f.Clear(0, 1)
		f.Drop(1, 1)
		synctest.Wait()
		f.Try(0, 1, note)
		f.Try(1, 1, note)
		f.publish(0, 1)
		f.after(200 * time.Millisecond)
		f.publish(0, 1, 2)
		f.Try(1, 2, note)
		f.after(200 * time.Millisecond)
		if !slices.Equal(got, []bool{true, false, true}) {
			t.Errorf("tenants: %v", got)
		}
	})
}

// A prompt of a rank that reports counts until it is reported or overdue, and
// the first token shortens the wait.
func TestExpected(t *testing.T) {
	run(t, func(f *fixture) {
		f.publishRanks(1, fleet.TrustLive)
		put := func(kind dataplane.NoteKind, until time.Duration, chain []prefix.Hash) {
			f.rings[0].put(dataplane.Note{Kind: kind, Generation: 1, AtNs: f.now() + int64(until), Chain: chain})
			f.after(200 * time.Millisecond)
		}
		c, d := chain(1, 8), chain(2, 8)
		put(dataplane.NoteExpected, 10*time.Second, c)
		put(dataplane.NoteExpected, 10*time.Second, d)
		f.want("expected", f.held(0, c), 8)
		put(dataplane.NoteBegun, 2*time.Second, c[2:]) // the first two are held by others, too
		if err := f.Do(f.t.Context(), 0, 1, func(bool) { f.Writer().Stored(0, index.Device, 1, c[:4]) }); err != nil {
			t.Fatal(err)
		}
		f.after(3 * time.Second)
		f.want("reported", f.held(0, c), 4)
		f.want("not begun", f.held(0, d), 8)
		f.after(10 * time.Second)
		f.want("reported, later", f.held(0, c), 4)
		f.want("overdue", f.held(0, d), 0)
	})
}

// Ranks have what is theirs: notes, work and sweeps of one do not touch the
// other.
func TestRanks(t *testing.T) {
	run(t, func(f *fixture) {
		f.publishRanks(4, fleet.TrustLive, fleet.TrustNone, fleet.TrustNone)
		c := chain(1, 5)
		f.note(0, 1, 4, c)
		f.note(0, 2, 4, c[:3])
		f.note(0, 2, 3, c) // of the tenant before
		if err := f.Do(f.t.Context(), 0, 4, func(bool) { f.Writer().Stored(0, index.Device, 1, c[:1]) }); err != nil {
			t.Fatal(err)
		}
		f.after(200 * time.Millisecond)
		for rank, want := range []int{1, 5, 3} {
			f.want(fmt.Sprint("rank ", rank), f.held(rank, c), want)
		}
		f.Clear(1, 4)
		f.after(200 * time.Millisecond)
		for rank, want := range []int{1, 0, 3} {
			f.want(fmt.Sprint("after rank 1 was cleared: rank ", rank), f.held(rank, c), want)
		}
	})
}

// heard is what Echo was told.
type heard struct {
	slot       int
	generation uint32
	class      uint8
	ok         bool
}

// A prompt's first unit that a live rank did not hold must come back, within a
// second of the first token.
func TestEcho(t *testing.T) {
	run(t, func(f *fixture) {
		f.publishRanks(6, fleet.TrustLive, fleet.TrustLive)
		var got []heard
		f.opt.Echo = func(slot int, generation uint32, class uint8, ok bool) {
			got = append(got, heard{slot, generation, class, ok})
		}
		next := uint64(0)
		send := func(rank int, class uint8, echo bool, until time.Duration) []prefix.Hash {
			next++
			c := chain(next, 4)
			f.rings[0].put(dataplane.Note{Kind: dataplane.NoteExpected, Slot: rank, Generation: 6, AtNs: f.now() + int64(time.Minute), Chain: c})
			f.rings[0].put(dataplane.Note{Kind: dataplane.NoteBegun, Slot: rank, Generation: 6, AtNs: f.now() + int64(until), Chain: c, Class: class, Echo: echo})
			f.after(20 * time.Millisecond)
			return c
		}
		report := func(rank int, chain []prefix.Hash) {
			if err := f.Do(f.t.Context(), rank, 6, func(bool) { f.Writer().Stored(rank, index.Device, uint64(chain[0]), chain) }); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(what string, want ...heard) {
			t.Helper()
			f.after(1200 * time.Millisecond)
			if !slices.Equal(got, want) {
				t.Errorf("%s: heard %v, want %v", what, got, want)
			}
			got = nil
		}
		report(1, send(1, 3, true, time.Second))
		expect("reported", heard{1, 6, 3, true})
		send(0, 2, true, 10*time.Millisecond) // it lapses long before it is looked at, but for the first unit
		expect("not reported", heard{0, 6, 2, false})
		report(0, send(0, 2, true, time.Second)[:1])
		expect("the first unit alone", heard{0, 6, 2, true})
		report(0, send(0, 2, true, time.Second)[1:])
		expect("all but the first", heard{0, 6, 2, false})
		send(0, 1, false, time.Second)
		expect("a block that is not full")
		report(0, send(0, 1, true, time.Second))
		send(1, 7, true, time.Second)
		report(0, send(0, 5, true, time.Second))
		expect("three at once", heard{0, 6, 1, true}, heard{1, 6, 7, false}, heard{0, 6, 5, true})
		send(0, 1, true, time.Second)
		f.publishRanks(6, fleet.TrustGapped, fleet.TrustLive)
		expect("a rank of which something may have been missed")
		f.publishRanks(6, fleet.TrustLive, fleet.TrustLive)
		send(0, 1, true, time.Second)
		f.publishRanks(7, fleet.TrustLive, fleet.TrustLive)
		expect("another tenant")
	})
}

// Beyond a bound no more echoes are awaited.
func TestEchoBound(t *testing.T) {
	run(t, func(f *fixture) {
		f.publishRanks(1, fleet.TrustLive)
		heard := 0
		f.opt.Echo = func(int, uint32, uint8, bool) { heard++ }
		c := chain(1, maxEchoes+10)
		for i := range c {
			f.rings[0].put(dataplane.Note{Kind: dataplane.NoteBegun, Generation: 1, AtNs: f.now(), Chain: c[i : i+1], Echo: true})
		}
		f.after(2 * time.Second)
		f.want("echoes", heard, maxEchoes)
		f.rings[0].put(dataplane.Note{Kind: dataplane.NoteBegun, Generation: 1, AtNs: f.now(), Echo: true}) // of nothing
		f.rings[0].put(dataplane.Note{Kind: dataplane.NoteBegun, Generation: 1, AtNs: f.now(), Chain: c[:1], Echo: true})
		f.after(2 * time.Second)
		f.want("echoes, later", heard, maxEchoes+1)
	})
}

// What a rank with exact prompts can hold is counted in units of tokens.
func TestExactCapacity(t *testing.T) {
	run(t, func(f *fixture) {
		s := &fleet.Snapshot{Default: -1, Nodes: []*fleet.Node{{Generation: 1, Exact: 1, UnitTokens: 16, CacheTokens: 160, Load: new(fleet.Load)}}}
		f.opt.Fleet.Store(s.Seal())
		f.after(20 * time.Millisecond)
		f.want("capacity", int(f.opt.Index.SlotCapacity(0)), 10)
	})
}
