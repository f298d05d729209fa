package kvevent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"reflect"
	"testing"

	"warmpath/bench/engine"
	"warmpath/dataplane/index"
)

// overTo makes a Tracker that goes on from another one, through bytes. Both have
// the same index.
func overTo(t testing.TB, was *Tracker, x Index) *Tracker {
	t.Helper()
	var saved Saved
	is := NewTracker(was.opt, x)
	taken := 0
	for _, tails := range was.Save(&saved) {
		raw := AppendTails(nil, tails)
		if len(raw) > 2*tailsBytes {
			t.Fatalf("%d bytes in one piece", len(raw))
		}
		read, err := DecodeTails(raw)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(read, tails) {
			t.Fatalf("%v is read as %v", tails, read)
		}
		taken += is.ImportTails(read)
	}
	if taken != len(was.tails.entries) {
		t.Fatalf("%d of %d tails", taken, len(was.tails.entries))
	}
	is.Resume(&saved)
	if is.BlockTokens() != was.BlockTokens() || is.Orphans() != was.Orphans() || is.group != was.group {
		t.Fatalf("saved %+v", saved)
	}
	return is
}

// TestTrackerGoesOn stores and evicts at random as TestTrackerAgreesWithModel
// does, and has another Tracker go on now and then.
func TestTrackerGoesOn(t *testing.T) {
	for _, page := range []int{1, 2, 3, 8, 16, 24} {
		m := &model{
			r: rand.New(rand.NewPCG(uint64(page), 2)), page: page, paths: map[uint64][]uint32{},
			parents: map[uint64]uint64{}, refs: map[uint64]int{}, names: map[string]uint64{},
		}
		x := newTwin()
		o := TrackerOptions{UnitTokens: 16, Model: "m", Seed: 7}
		k := NewTracker(o, x)
		for step := range 300 {
			if m.r.IntN(5) < 2 {
				k.Apply(&Batch{Events: []Event{m.store()}})
			} else if h, ok := m.leaf(); ok {
				m.refs[h]--
				k.Apply(&Batch{Events: []Event{{Kind: Removed, Merged: 1, Group: NotSaid, Hashes: []uint64{h}}}})
			}
			if step%30 == 29 {
				if k = overTo(t, k, x); len(k.tails.segments) > len(k.tails.entries) {
					t.Fatalf("page of %d: %d segments for %d tails", page, len(k.tails.segments), len(k.tails.entries))
				}
				m.check(t, x, k, o)
			}
		}
		if c := k.Counts(); c.Dropped != (Drops{}) || c.Replaced != 0 {
			t.Errorf("page %d: %+v", page, c)
		}
	}
}

// TestManyTails: they come in several pieces, and within the bound of the new
// Tracker.
func TestManyTails(t *testing.T) {
	x := newTwin()
	k := NewTracker(TrackerOptions{UnitTokens: 16, Model: "m"}, x)
	for block := range uint32(40_000) {
		e := Event{Kind: Stored, Merged: 1, Group: 3, Spec: SpecFull, Hashes: []uint64{uint64(block)}, Tokens: []uint32{block}, BlockTokens: 1}
		if block%15 > 0 {
			e.Parent, e.HasParent = uint64(block-1), true
		}
		k.Apply(&Batch{Events: []Event{e}})
	}
	var saved Saved
	if pieces := k.Save(&saved); len(pieces) < 3 || saved.Group != 3 || saved.BlockTokens != 1 {
		t.Errorf("%d pieces, %+v", len(pieces), saved)
	}
	overTo(t, k, x)
	small := NewTracker(TrackerOptions{UnitTokens: 16, Model: "m", TailBytes: 100_000}, x)
	for _, tails := range k.Save(&saved) {
		small.ImportTails(tails)
	}
	if used := small.tails.bytes(); used > 101_000 || len(small.tails.entries) < 500 {
		t.Errorf("%d bytes, %d tails", used, len(small.tails.entries))
	}
	askew := NewTracker(TrackerOptions{UnitTokens: 4, Model: "m"}, x)
	if n := askew.ImportTails(Tails{{Own: 1, Tokens: []uint32{1, 2, 3, 4}, Blocks: []TailBlock{{1, 1, [index.Tiers]uint16{1}}}}}); n != 0 {
		t.Error("a tail as long as a unit was taken")
	}
}

func FuzzTails(f *testing.F) {
	f.Add(AppendTails(nil, Tails{{Own: 5, Tokens: []uint32{1, 2, 70000}, Blocks: []TailBlock{{7, 1, [index.Tiers]uint16{1, 0, 9}}, {8, 3, [index.Tiers]uint16{0, 1, 0}}}}}))
	f.Add(AppendTails(nil, nil))
	f.Add([]byte{0x91, 0x93, 1, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		tails, err := DecodeTails(b)
		if err != nil {
			return
		}
		again, err := DecodeTails(AppendTails(nil, tails))
		if err != nil || !reflect.DeepEqual(again, tails) {
			t.Fatalf("%v is read as %v, %v", tails, again, err)
		}
		k := NewTracker(TrackerOptions{UnitTokens: 8, Model: "m"}, &quiet{})
		k.ImportTails(tails)
		overTo(t, k, &quiet{})
		for i := range tails {
			for _, block := range tails[i].Blocks {
				k.tails.forget(block.Name)
			}
		}
		if len(k.tails.entries) != 0 || len(k.tails.free) != len(k.tails.segments) {
			t.Fatalf("%d tails left", len(k.tails.entries))
		}
	})
}

// TestSubscriberGoesOn: a second Subscriber takes a stream over while its engine
// is at work, again and again, and misses nothing.
func TestSubscriberGoesOn(t *testing.T) {
	for _, replay := range []bool{true, false} {
		t.Run(fmt.Sprint("replay ", replay), func(t *testing.T) {
			e := simulated(t, engine.Config{Blocks: 200, MaxModelLen: 1024})
			source := Source{Node: "n", Endpoint: e.EventsEndpoint()}
			if replay {
				source.Replay = e.ReplayEndpoint()
			}
			was := follow(t, source, 16, 100)
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
						ask(t, e, fmt.Sprint(i%50), 2+i%5)
					}
				}
			}()
			until(t, "it is live", func() bool { return was.sub.Status().Trust == Live && was.sub.Status().Next > provenBy })
			source.Awaits = true
			for range 4 {
				is := follow(t, source, 16, 100)
				until(t, "the next subscription", func() bool { return is.sub.Status().Heard })
				was.handTo(t, is)
				was.stop()
				was = is
				from := was.sub.Status().Next
				until(t, "it goes on", func() bool { return was.sub.Status().Next > from+20 })
			}
			close(stop)
			<-stopped
			until(t, "the index agrees with the engine", func() bool { return was.agrees(e) })
			if s := was.sub.Status(); s.Gaps+s.Lost+s.Restarts != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// handTo makes another follower go on.
func (f *follower) handTo(t *testing.T, to *follower) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), overlap)
	defer cancel()
	f.sub.Pause(ctx, to.sub.Status().First)
	until(t, "all that was delivered is applied", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.track.Counts().Batches == f.sub.Status().Batches
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	saved, ok := f.sub.Save()
	to.mu.Lock()
	for name, block := range f.twin.blocks {
		mine := *block // f goes on for a moment
		to.twin.blocks[name] = &mine
	}
	for _, tails := range f.track.Save(&saved) {
		to.track.ImportTails(tails)
	}
	to.track.Resume(&saved)
	to.mu.Unlock()
	f.sub.Unpause()
	if !ok || !to.sub.Resume(saved) {
		t.Fatalf("saved %+v, %v", saved, ok)
	}
}

// TestListeningGoesOn: the socket that engines connect to is handed over, so that
// one which comes between two processes finds the next.
func TestListeningGoesOn(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	endpoint := "tcp://" + l.Addr().String()
	source := Source{Node: "n", Listen: endpoint, Bind: func(context.Context, string, string) (net.Listener, error) {
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return net.FileListener(f)
	}}
	was := follow(t, source, 16, 100)
	first := connectPublisher(t, endpoint, "")
	for block := range uint64(provenBy + 3) {
		first.publish(t, block+1)
	}
	until(t, "it is live", func() bool { return was.sub.Status().Next == first.next })
	source.Awaits = true
	is := follow(t, source, 16, 100)
	was.handTo(t, is)
	was.stop()
	again := connectPublisher(t, endpoint, "") // as an engine does whose connection has ended
	again.next = first.next
	again.publish(t, 1000)
	until(t, "the next process goes on", func() bool { return is.blocks() == provenBy+4 && is.sub.Status().Trust == Live })
	if s := is.sub.Status(); s.Gaps+s.Lost+s.Restarts != 0 {
		t.Errorf("%+v", s)
	}
}
