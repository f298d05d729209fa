package state_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"warmpath/controlplane/publish"
	"warmpath/controlplane/state"
	"warmpath/dataplane/fleet"
	"warmpath/dataplane/policy"
)

// loop is a closed circle of a State, its snapshots, a policy and simulated nodes:
// what the policy sends somewhere fills the cache there and comes back as a count.
type loop struct {
	t      *testing.T
	s      state.State
	now    int64
	rand   *rand.Rand
	policy policy.Policy
	lasts  int64   // how long a request takes
	rate   float64 // requests a second
	due    float64
	asked  uint64

	requests, prefill, total [5]int64
	good                     [5]int64
	held                     [5]map[uint64]int64 // conversation → when it was last used
	forgetNs                 int64               // what was not used for so long is forgotten; 0 = never
	ends                     []request
	sent                     [5]int
	peak                     [5]int64
}

type request struct {
	slot int
	atNs int64
	key  uint64
}

const (
	loopNodes   = 4
	loopTokens  = 1000           // of a prompt
	loopCache   = int64(200_000) // of a node
	loopTick    = int64(1e8)
	loopSecond  = int64(1e9)
	loopSettled = 40 // seconds that fill the old nodes' caches
)

func newLoop(t *testing.T, name string, rate float64, lasts, forgetNs int64) *loop {
	p, err := policy.New(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &loop{t: t, s: state.New(state.DefaultSettings()), now: 1, rand: rand.New(rand.NewPCG(1, 2)), policy: p, rate: rate, lasts: lasts, forgetNs: forgetNs}
	for i := range l.held {
		l.held[i] = map[uint64]int64{}
	}
	l.name(loopNodes - 1)
	for range loopSettled * 10 {
		l.tick()
	}
	return l
}

// name has the first so many nodes be there, and ready.
func (l *loop) name(count int) {
	ev := state.NodesSeen{NowNs: l.now, Source: "x"}
	for i := range count {
		ev.Specs = append(ev.Specs, state.Spec{Name: fmt.Sprint("n", i), URL: fmt.Sprint("http://n", i), Models: []string{"m"}})
	}
	l.step(ev)
	for _, spec := range ev.Specs {
		if l.s.Find(spec.Name).Health != fleet.Ready {
			l.step(state.ProbeResult{NowNs: l.now, Node: spec.Name, OK: true, Status: 200})
		}
	}
}

func (l *loop) step(ev state.Event) { l.s, _ = state.Step(l.s, ev) }

// tick is a tenth of a second: answers end, requests come, counts are told.
func (l *loop) tick() {
	l.now += loopTick
	for len(l.ends) > 0 && l.ends[0].atNs <= l.now {
		r := l.ends[0]
		l.ends = l.ends[1:]
		l.add(r.slot, -1)
		l.good[r.slot]++
	}
	snap, err := publish.Build(l.s)
	if err != nil {
		l.t.Fatal(err)
	}
	prepared, out := l.policy.Prepare(snap), &policy.Decision{}
	for l.due += l.rate / 10; l.due >= 1; l.due-- {
		l.send(prepared, out)
	}
	loads, caches := state.LoadsSeen{NowNs: l.now}, state.CachesSeen{NowNs: l.now}
	for _, n := range l.s.Nodes {
		loads.Loads = append(loads.Loads, state.LoadSeen{Node: n.Spec.Name, Requests: l.requests[n.Slot], PrefillTokens: l.prefill[n.Slot], Successes: l.good[n.Slot]})
		caches.Caches = append(caches.Caches, state.CacheSeen{Node: n.Spec.Name, Tokens: l.holds(n.Slot)})
	}
	l.step(loads)
	if l.now/loopTick%10 == 0 {
		l.step(caches)
	}
	for _, n := range l.s.Nodes {
		if n.Health == fleet.Down { // whoever is down is well again soon
			l.step(state.ProbeResult{NowNs: l.now, Node: n.Spec.Name, OK: true, Status: 200})
		}
	}
	l.step(state.Tick{NowNs: l.now})
}

// holds is what a node's cache holds: the oldest goes when it is full, or old.
func (l *loop) holds(slot int) int64 {
	held := l.held[slot]
	for key, at := range held {
		if l.forgetNs > 0 && l.now-at > l.forgetNs {
			delete(held, key)
		}
	}
	for int64(len(held))*loopTokens > loopCache {
		oldest, first := uint64(0), int64(1<<62)
		for key, at := range held {
			if at < first {
				oldest, first = key, at
			}
		}
		delete(held, oldest)
	}
	return int64(len(held)) * loopTokens
}

// send decides a request: a turn of one of many conversations, of which some begin and
// some end.
func (l *loop) send(prepared policy.Prepared, out *policy.Decision) {
	l.asked++
	key := l.asked/8 + l.rand.Uint64N(300) + 1
	match := &policy.Match{Tokens: make([]uint32, loopNodes), PrefixHolder: make([]bool, loopNodes)}
	for slot := range loopNodes {
		if _, ok := l.held[slot][key]; ok {
			match.Tokens[slot], match.PrefixHolder[slot] = loopTokens*9/10, true
		}
	}
	affinity := key * 0x9e3779b97f4a7c15
	req := &policy.Request{PromptTokens: loopTokens, OutputTokens: 100, AffinityKey: affinity, SystemKey: affinity, PrefixKey: affinity}
	loads := &policy.Loads{Requests: l.requests[:], PrefillTokens: l.prefill[:], TotalTokens: l.total[:]}
	prepared.Decide(req, match, loads, &policy.Inputs{Cursor: l.rand.Uint64(), Rand: l.rand.Uint64()}, out)
	if out.Slot < 0 {
		l.t.Fatal("no node")
	}
	l.add(out.Slot, 1)
	l.sent[out.Slot]++
	l.peak[out.Slot] = max(l.peak[out.Slot], l.requests[out.Slot])
	l.held[out.Slot][key] = l.now
	l.ends = append(l.ends, request{out.Slot, l.now + l.lasts, key})
}

func (l *loop) add(slot int, sign int64) {
	l.requests[slot] += sign
	l.total[slot] += sign * (loopTokens + 100)
	l.prefill[slot] += sign * loopTokens / 2
}

// run lets so many seconds pass, or less if until says so, and says how many.
func (l *loop) run(seconds int, until func() bool) int {
	l.sent, l.peak = [5]int{}, [5]int64{}
	for i := range seconds * 10 {
		if until() {
			return i / 10
		}
		l.tick()
	}
	return seconds
}

// share is a node's part of what was sent since run began.
func (l *loop) share(slot int) float64 {
	all := 0
	for _, sent := range l.sent {
		all += sent
	}
	return float64(l.sent[slot]) / float64(all)
}

// TestRampConverges: under every policy a node that joins a busy fleet ends its ramp,
// with little traffic and with much, with caches that keep all and with such that
// forget; and from then on it is any other.
func TestRampConverges(t *testing.T) {
	for _, name := range policy.Names() {
		for _, c := range []struct {
			rate     float64
			lasts    int64
			forgetNs int64
		}{
			{60, 2 * loopSecond, 0},
			{60, 2 * loopSecond, 20 * loopSecond},
			{2, loopSecond / 5, 0}, // most of the time nothing is in flight
		} {
			if c.rate < 10 && !slices.Contains([]string{"cost", "least_requests", "cache_aware", "weighted", "random", "round_robin"}, name) {
				continue // the others weigh loads as one of these does
			}
			t.Run(fmt.Sprintf("%s/%v", name, c), func(t *testing.T) {
				l := newLoop(t, name, c.rate, c.lasts, c.forgetNs)
				l.name(loopNodes)
				if n := l.s.Find("n3"); !n.Proof.Known {
					t.Fatal("it takes its full share at once")
				}
				ramps := func() bool { n := l.s.Find("n3"); return n.Filling || n.Proof.Known }
				took := l.run(3600, func() bool { return !ramps() })
				if ramps() {
					n := l.s.Find("n3")
					t.Fatalf("it still ramps: warmth %v, filling %v, proof %v, %d requests of %v", n.Warmth, n.Filling, n.Proof, l.sent[3], l.sent)
				}
				t.Logf("%d s, %d requests, a share of %.2f", took, l.sent[3], l.share(3))
				if c.rate < 10 {
					return
				}
				l.run(15, func() bool { return false })
				if share := l.share(3); share < 0.12 || share > 0.5 || ramps() {
					t.Errorf("a share of %.2f when the ramp is over", share)
				}
			})
		}
	}
}

// TestNoHerd: when a node joins or comes back, what is in flight there stays below
// what is in flight at the others while it ramps, under policies that would send it
// all that comes.
func TestNoHerd(t *testing.T) {
	for _, name := range []string{"cost", "least_requests", "p2c", "least_work", "least_load", "lmetric", "dynamo", "overlap", "affinity_filter"} {
		t.Run(name, func(t *testing.T) {
			l := newLoop(t, name, 60, 2*loopSecond, 0)
			l.name(loopNodes)
			for flip := range 5 {
				l.run(1, func() bool { return l.s.Find("n3").Proof.Value > 0 })
				if others := slices.Max(l.peak[:3]); l.peak[3] > others/2 {
					t.Errorf("return %d: %d in flight at it, %d at the others", flip, l.peak[3], others)
				}
				for range 3 {
					l.step(state.Failure{NowNs: l.now, Node: "n3", Class: state.Refused})
				}
				if n := l.s.Find("n3"); n.Health != fleet.Down {
					t.Fatalf("health %v", n.Health)
				}
				l.tick() // good probes bring it back
				l.tick()
			}
		})
	}
}
