package main

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What the router promises about a node whose host dies.
const (
	avoidedWithin = 300 * time.Millisecond // then nothing new goes there
	movedWithin   = 500 * time.Millisecond // then what waited is with another node
)

// A host dies until once both times were kept, but not for ever: they are those of
// a machine that has time for its programs. How long it keeps them waiting is
// measured too, and allowed on top. That no request fails holds each time.
const (
	deaths       = 5
	deathsWithin = 15 * time.Second
)

// cellFleet is a router before two engines, each on a host of its own. Where a
// request goes depends on its words alone.
func cellFleet(t *testing.T, more string, args ...string) (*serving, []*cell, []*engines) {
	t.Helper()
	cells := makeCells(t, 2)
	sims, urls := make([]*engines, len(cells)), make([]string, len(cells))
	for i, c := range cells {
		sims[i] = startEnginesAt(t, c.by(), c.address, 1, args...)
		urls[i] = sims[i].urls[0]
	}
	return serve(t, settings, "policy: {name: prefix_hash}\n", more, nodeList(urls...)), cells, sims
}

// TestDeadHost: packets to and from a node vanish. New requests avoid it, and
// those that wait there, for a head or behind one, are answered by the other
// node, in time; no client notices. A node that was silent, and alive, was not
// called dead before.
func TestDeadHost(t *testing.T) {
	r, cells, sims := cellFleet(t, "")
	began, good := time.Now(), false
	for n := 0; n < deaths && !good && time.Since(began) < deathsWithin; n++ {
		r.calm(t, "sim-0")
		d := r.die(t, cells[0], sims[0], n)
		t.Log(d)
		good = d.avoided <= avoidedWithin+d.stall && d.moved <= movedWithin+d.service+2*d.stall
		cells[0].join(t)
		r.usable(t, "sim-0")
	}
	if !good {
		t.Errorf("no death was found out within %v, and what waited there answered within %v", avoidedWithin, movedWithin)
	}
}

// death is what became of requests when their node's host died, counted from then.
type death struct {
	avoided time.Duration // when the last one began that was sent there
	moved   time.Duration // when the last that waited there was answered
	service time.Duration // what it takes to answer one
	stall   time.Duration // the longest that this machine kept a program waiting
	why     string        // as the router says
}

func (d death) String() string {
	return fmt.Sprintf("nothing new went there after %v; what waited was answered after %v, of which serving takes %v; this machine stalled for %v; %s",
		d.avoided, d.moved, d.service, d.stall, d.why)
}

// stalls measures how long this machine keeps a program waiting, until stop.
func stalls() (stop func() (longest time.Duration)) {
	end, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		const every = 5 * time.Millisecond
		tick := time.NewTicker(every)
		defer tick.Stop()
		longest, last := time.Duration(0), time.Now()
		for {
			select {
			case <-end:
				result <- longest
				return
			case <-tick.C:
				longest, last = max(longest, time.Since(last)-every), time.Now()
			}
		}
	}()
	return func() time.Duration { close(end); return <-result }
}

// die cuts sim-0 off, with requests waiting there and others coming.
func (r *serving) die(t *testing.T, c *cell, sim *engines, n int) (d death) {
	t.Helper()
	body := r.bodyFor(t, "sim-1", `,"max_tokens":4`)
	began := time.Now()
	r.ask(t, body)
	d.service = time.Since(began)

	var waiting sync.WaitGroup
	var last [2]time.Time
	for i, kind := range []struct{ fault, more string }{
		{`{"kind":"hang_before_headers","count":1}`, `,"max_tokens":4`},
		{`{"kind":"hang_after_headers","count":1}`, `,"max_tokens":4` + streaming},
	} {
		body := r.bodyFor(t, "sim-0", kind.more)
		sim.fault(t, 0, kind.fault)
		waiting.Go(func() {
			a := r.send(t.Context(), chatPath, fmt.Sprintf("waits-%d-%d", n, i), body, nil)
			last[i] = time.Now()
			if a.err != nil || a.status != http.StatusOK || a.node() != "sim-1" {
				t.Errorf("a request that waited got %d from %q, %v", a.status, a.node(), a.err)
			}
		})
		eventually(t, 5*time.Second, "it waits at sim-0", func() bool { return r.node(t, "sim-0").InFlight == int64(i+1) })
	}
	before := r.metric(t, `sentinels_total{node="sim-0",outcome="answered"}`)
	eventually(t, 5*time.Second, "sim-0 has answered three sentinels", func() bool {
		return r.metric(t, `sentinels_total{node="sim-0",outcome="answered"}`) >= before+3
	})
	if v := r.node(t, "sim-0"); v.State != "ready" {
		t.Fatalf("a silent node is %s: %s", v.State, v.Reason)
	}

	stop := r.traffic(t, n)
	stalled := stalls()
	cut := c.cut(t)
	waiting.Wait()
	d.stall = stalled()
	eventually(t, 5*time.Second, "some time more to pass", func() bool { return time.Since(cut) > 2*avoidedWithin })
	v := r.node(t, "sim-0")
	if v.Down != "dead" || v.State != "down" {
		t.Errorf("a node that is cut off is %s, %q", v.State, v.Down)
	}
	d.why = v.Reason
	for i := range last {
		d.moved = max(d.moved, last[i].Sub(cut))
		if rec := r.record(t, fmt.Sprintf("waits-%d-%d", n, i)); len(rec.Tries) != 2 || rec.Tries[0].Outcome != "dead" {
			t.Errorf("tries %v", rec.Tries)
		}
	}
	for _, id := range stop() {
		if rec := r.record(t, id); rec.Tries[0].Node == "sim-0" {
			d.avoided = max(d.avoided, rec.At.Sub(cut))
		}
	}
	return d
}

// traffic sends short requests until stop, which waits for all of them and returns
// their ids. Each must be answered.
func (r *serving) traffic(t *testing.T, n int) (stop func() (ids []string)) {
	t.Helper()
	var under sync.WaitGroup
	var ids []string
	end, ended := make(chan struct{}), make(chan struct{})
	send := func() {
		id := fmt.Sprintf("new-%d-%d", n, len(ids))
		ids = append(ids, id)
		body := chatBody("Short "+id, `,"max_tokens":2`)
		under.Go(func() {
			if a := r.send(t.Context(), chatPath, id, body, nil); a.err != nil || a.status != http.StatusOK {
				t.Errorf("request %s got %d, %v", id, a.status, a.err)
			}
		})
	}
	go func() {
		defer close(ended)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				send()
			}
		}
	}()
	eventually(t, 5*time.Second, "requests go to both nodes", func() bool {
		return r.metric(t, `requests_total{code="200",model="sim",node="sim-0"}`) > 0
	})
	return func() []string {
		close(end)
		<-ended
		under.Wait()
		return ids
	}
}

// TestLateIsNotDead: a node whose answers take 25 to 35 ms each, one after the
// other and all at once, is never called dead, nor is one that says nothing for
// two seconds and then answers.
func TestLateIsNotDead(t *testing.T) {
	r, _, sims := cellFleet(t, "", "--decode-base-ms", "29", "--decode-per-request-ms", "0.5")
	late := func() {
		for i := range 40 {
			r.ask(t, chatBody(fmt.Sprint("One token ", i), `,"max_tokens":1`))
		}
	}
	late()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			a := r.send(t.Context(), chatPath, "", chatBody(fmt.Sprint("Many at once ", i), `,"max_tokens":1`), nil)
			if a.err != nil || a.status != http.StatusOK {
				t.Errorf("got %d, %v", a.status, a.err)
			}
		})
	}
	all.Wait()
	body := r.bodyFor(t, "sim-0", `,"max_tokens":4`)
	sims[0].fault(t, 0, `{"kind":"core_stopped"}`)
	all.Go(func() {
		if a := r.send(t.Context(), chatPath, "", body, nil); a.status != http.StatusOK || a.node() != "sim-0" {
			t.Errorf("got %d from %q, %v", a.status, a.node(), a.err)
		}
	})
	eventually(t, 10*time.Second, "twelve sentinels are answered", func() bool {
		return r.metric(t, `sentinels_total{node="sim-0",outcome="answered"}`) >= 12
	})
	sims[0].clear(t, 0)
	all.Wait()
	r.neverDead(t)
}

// TestStoppedEngineIsHung: the engine's process stands still, while the kernel of
// its host answers for it. That is hung, and never dead, however long a request
// waits there; and then it comes back.
func TestStoppedEngineIsHung(t *testing.T) {
	r, _, sims := cellFleet(t, "timeouts: {first_event: 1500ms}\nbreaker: {open: 1s}\n")
	bodies := [][]byte{
		r.bodyFor(t, "sim-0", `,"max_tokens":4`), // a whole answer, which may take its time
		r.bodyFor(t, "sim-0", `,"max_tokens":4`+streaming),
		r.bodyFor(t, "sim-0", `,"max_tokens":4`+streaming),
	}
	sims[0].signal(t, syscall.SIGSTOP)
	var all sync.WaitGroup
	for i, body := range bodies {
		all.Go(func() {
			if a := r.send(t.Context(), chatPath, fmt.Sprint("stopped-", i), body, nil); a.err != nil || a.status != http.StatusOK {
				t.Errorf("request %d got %d, %v", i, a.status, a.err)
			}
		})
	}
	eventually(t, 10*time.Second, "the node is down", func() bool { return r.node(t, "sim-0").State == "down" })
	if v := r.node(t, "sim-0"); v.Down != "hung" || !strings.HasPrefix(v.Reason, "hung: ") {
		t.Errorf("a stopped engine is %q: %s", v.Down, v.Reason)
	}
	since := time.Now()
	eventually(t, 10*time.Second, "it stays hung for a while", func() bool {
		if v := r.node(t, "sim-0"); v.Down != "hung" {
			t.Fatalf("it is %q then: %s", v.Down, v.Reason)
		}
		return time.Since(since) > 1500*time.Millisecond
	})
	if n := r.metric(t, `sentinels_total{node="sim-0",outcome="answered"}`); n < 3 || n > 16 {
		t.Errorf("%v sentinels were answered: its kernel answers, and of those that its program does not take only so many may wait", n)
	}
	sims[0].signal(t, syscall.SIGCONT)
	all.Wait()
	if rec := r.record(t, "stopped-0"); len(rec.Tries) != 1 || rec.Tries[0].Node != "sim-0" {
		t.Errorf("the whole answer came after %v", rec.Tries)
	}
	r.usable(t, "sim-0")
	r.neverDead(t)
}

// neverDead expects that nothing ever spoke for a node's being dead.
func (r *serving) neverDead(t *testing.T) {
	t.Helper()
	for _, node := range []string{"sim-0", "sim-1"} {
		if n := r.metric(t, fmt.Sprintf(`sentinels_total{node=%q,outcome="unanswered"}`, node)); n != 0 {
			t.Errorf("%v exchanges with %s were not answered", n, node)
		}
	}
	if log := r.err.String(); strings.Contains(log, "dead") {
		t.Errorf("a living node was called dead:\n%s", tail(log))
	}
}
