package kvevent

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"warmpath/bench/engine"
	"warmpath/dataplane/index"
)

// follower is a Subscriber with what the indexer does: a bounded queue, one
// goroutine that applies.
type follower struct {
	sub   *Subscriber
	queue chan Delivery
	stop  func()

	mu      sync.Mutex
	twin    *twin
	track   *Tracker
	decoder Decoder
	trusts  []Trust
}

// follow starts following a source, until the test ends.
func follow(t testing.TB, source Source, unit, room int) *follower {
	t.Helper()
	f := &follower{queue: make(chan Delivery, room), twin: newTwin()}
	f.track = NewTracker(TrackerOptions{UnitTokens: unit, Model: "sim"}, f.twin)
	sub, err := NewSubscriber(source, func(d Delivery) bool {
		select {
		case f.queue <- d:
			return true
		default:
			return false
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	f.sub = sub
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { sub.Run(ctx) })
	running.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case d := <-f.queue:
				f.apply(d)
			}
		}
	})
	f.stop = func() { cancel(); running.Wait() }
	t.Cleanup(f.stop)
	return f
}

// apply does what a delivery says, once the test lets it.
func (f *follower) apply(d Delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.Clear {
		f.track.Clear()
	}
	if d.Payload != nil {
		if b := d.Decode(&f.decoder); b != nil {
			f.track.Apply(b)
		}
		d.Release()
	}
	if n := len(f.trusts); n == 0 || f.trusts[n-1] != d.Trust {
		f.trusts = append(f.trusts, d.Trust)
	}
}

// blocks is how many copies of blocks the index has.
func (f *follower) blocks() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, b := range f.twin.blocks {
		n += b.refs[index.Device]
	}
	return n
}

// agrees reports whether the stream is live and the index has as many blocks
// as the engine.
func (f *follower) agrees(e *engine.Engine) bool {
	return f.sub.Status().Trust == Live && f.blocks() == e.State().BlocksCached && f.sub.Status().Next == e.State().NextSequence
}

// until waits for a condition.
func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); !holds(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// simulated starts an engine that publishes its events, and replays them.
func simulated(t testing.TB, cfg engine.Config) *engine.Engine {
	t.Helper()
	cfg.EventsEndpoint, cfg.ReplayEndpoint, cfg.AsFastAsPossible = "tcp://127.0.0.1:0", "tcp://127.0.0.1:0", true
	e, err := engine.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// ask sends a prompt of so many blocks of 16 tokens, the first the same for
// the same name, and returns how much of it was cached.
func ask(t testing.TB, e *engine.Engine, name string, blocks int) string {
	t.Helper()
	prompt := fmt.Sprintf("%-8s", name) + strings.Repeat("abcdefgh", 8*blocks-1)
	return post(t, e, "/v1/completions", `{"prompt":"`+prompt+`","max_tokens":2}`)
}

func post(t testing.TB, e *engine.Engine, path, body string) string {
	t.Helper()
	w := httptest.NewRecorder()
	e.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	if w.Code != 200 {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

func sourceOf(e *engine.Engine) Source {
	return Source{Node: "n", Endpoint: e.EventsEndpoint(), Replay: e.ReplayEndpoint()}
}

// TestFollowsAnEngine follows a simulated engine through evictions, a reset,
// lost batches and restarts. Whatever happens, index and cache agree in the
// end.
func TestFollowsAnEngine(t *testing.T) {
	e := simulated(t, engine.Config{Name: "n", Model: "sim", Blocks: 65, MaxModelLen: 1024})
	ask(t, e, "before", 10) // nobody listens yet
	f := follow(t, sourceOf(e), 16, 100)
	until(t, "what was before", func() bool { return f.agrees(e) && f.blocks() > 9 })

	for i := range 30 { // more than the cache holds
		ask(t, e, fmt.Sprint("p", i%9), 3+i%11)
	}
	until(t, "evictions", func() bool { return f.agrees(e) })
	f.mu.Lock()
	c := f.track.Counts()
	f.mu.Unlock()
	if c.RemovedBlocks == 0 || c.Dropped != (Drops{}) || c.Replaced > 0 {
		t.Errorf("%+v", c)
	}

	post(t, e, "/reset_prefix_cache", "")
	ask(t, e, "after", 4)
	until(t, "a reset", func() bool { return f.agrees(e) })
	if n := f.blocks(); n != 4 {
		t.Errorf("%d blocks after a reset", n)
	}

	before := f.sub.Status().Gaps // what was told before the subscription stood is one
	if err := e.SetFault(engine.Fault{Kind: engine.FaultDropEvents, Count: 3}); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		ask(t, e, fmt.Sprint("q", i), 5)
	}
	until(t, "lost batches", func() bool { return f.agrees(e) })
	if st := f.sub.Status(); st.Gaps != before+1 || st.Lost != 0 || st.From != 0 || st.Restarts != 0 {
		t.Errorf("%+v", st)
	}

	for i := range 3 {
		if err := e.Restart(); err != nil {
			t.Fatal(err)
		}
		ask(t, e, fmt.Sprint("r", i), 6+i)
		until(t, "a restart", func() bool { return f.agrees(e) })
	}
	if st := f.sub.Status(); st.Restarts != 3 || st.Reconnects < 3 || st.Err != "" {
		t.Errorf("%+v", st)
	}
}

// An engine whose buffer has rolled over, and one that has none.
func TestFollowsAnEngineThatForgets(t *testing.T) {
	e := simulated(t, engine.Config{Blocks: 257, MaxModelLen: 1024, ReplayBatches: 3})
	for i := range 8 {
		ask(t, e, fmt.Sprint("p", i), 3)
	}
	f := follow(t, sourceOf(e), 16, 100)
	until(t, "the last three", func() bool { return f.sub.Status().Trust == Live && f.sub.Status().Next == e.State().NextSequence })
	if st := f.sub.Status(); st.From != e.State().NextSequence-3 || f.blocks() >= e.State().BlocksCached {
		t.Errorf("%+v, %d blocks of %d", st, f.blocks(), e.State().BlocksCached)
	}
	if err := e.SetFault(engine.Fault{Kind: engine.FaultDropEvents, Count: 5}); err != nil {
		t.Fatal(err)
	}
	for i := range 7 {
		ask(t, e, fmt.Sprint("q", i), 3)
	}
	until(t, "a gap too wide", func() bool { return f.sub.Status().Lost == 1 && f.sub.Status().Next == e.State().NextSequence })
}

// Pages of one engine gathered into larger units.
func TestFollowsInLargerUnits(t *testing.T) {
	e := simulated(t, engine.Config{Blocks: 65, MaxModelLen: 1024})
	f := follow(t, sourceOf(e), 64, 100)
	ask(t, e, "p", 9) // two units and one block
	until(t, "units", func() bool { return f.sub.Status().Next == e.State().NextSequence && f.blocks() == 2 })
}

// A consumer that is slow for a while, with a queue of one place, while more
// is published than is held for it.
func TestSlowConsumerHeals(t *testing.T) {
	e := simulated(t, engine.Config{Blocks: 1025, MaxModelLen: 1024})
	f := follow(t, sourceOf(e), 16, 1)
	until(t, "live", func() bool { return f.sub.Status().Trust == Live })
	f.sub.mu.Lock()
	f.sub.stream.mostHeld = 5
	f.sub.mu.Unlock()
	f.mu.Lock() // the consumer stands still
	for i := range 50 {
		ask(t, e, fmt.Sprint("p", i), 2)
	}
	until(t, "an overflow", func() bool { return f.sub.Status().Overflows > 0 && f.sub.Status().Trust == Gapped })
	f.mu.Unlock()
	ask(t, e, "last", 2)
	until(t, "healing", func() bool { return f.agrees(e) })
}

// Nothing is left of a subscriber that has ended, whatever it was doing.
func TestSubscriberLeavesNothing(t *testing.T) {
	e := simulated(t, engine.Config{})
	before := runtime.NumGoroutine()
	var all []*follower
	for i := range 10 {
		source := sourceOf(e)
		switch i % 5 {
		case 1:
			source.Endpoint = "tcp://127.0.0.1:1" // refuses
		case 2:
			source.Replay = "tcp://127.0.0.1:1"
		case 3:
			source.Endpoint, source.Listen = "", "tcp://127.0.0.1:0"
		case 4:
			source.Replay = source.Endpoint // of another type
		}
		all = append(all, follow(t, source, 16, 10))
	}
	until(t, "something to end", func() bool {
		connected := 0
		for _, f := range all {
			if f.sub.Status().Connected {
				connected++
			}
		}
		return connected == 6
	})
	until(t, "errors to be told", func() bool {
		return strings.Contains(all[1].sub.Status().Err, "refused") && strings.Contains(all[2].sub.Status().Err, "refused") &&
			strings.Contains(all[4].sub.Status().Err, "swapped")
	})
	for _, f := range all {
		f.stop()
	}
	until(t, "goroutines to end", func() bool { return runtime.NumGoroutine() <= before+2 }) // the engine's, of connections
}

func TestSourceCheck(t *testing.T) {
	for _, c := range []struct {
		source Source
		says   string
	}{
		{Source{Endpoint: "tcp://a:1", Replay: "tcp://a:2"}, ""},
		{Source{Listen: "tcp://*:1", Replay: "tcp://a:2", Rank: 3}, ""},
		{Source{}, "set either"},
		{Source{Endpoint: "tcp://a:1", Listen: "tcp://*:1"}, "set either"},
		{Source{Endpoint: "a:1"}, "want tcp://host:port"},
		{Source{Endpoint: "tcp://*:1"}, "has no host"},
		{Source{Endpoint: "tcp://a:1", Replay: "tcp://*:2"}, "has no host"},
		{Source{Endpoint: "ipc://a", Rank: 1}, "rank 1 needs"},
		{Source{Endpoint: "tcp://a:65535", Rank: 1}, "no port"},
	} {
		err := c.source.Check()
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.source, err, c.says)
		}
		if _, err := NewSubscriber(c.source, nil); (err == nil) != (c.says == "") {
			t.Errorf("%+v: subscriber: %v", c.source, err)
		}
	}
}
