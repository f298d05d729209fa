package agent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"warmpath/controlplane/kvevent"
	"warmpath/controlplane/report/message"
	"warmpath/dataplane/index"
	"warmpath/dataplane/prefix"
)

// fakeEngine is an engine's cache: prompts of blocks from a small alphabet, so
// that they share prefixes.
type fakeEngine struct {
	parents map[uint64]uint64 // of every block that ever was; 0 at a root
	live    [index.Tiers]map[uint64]int
}

func newEngine() *fakeEngine {
	e := &fakeEngine{parents: map[uint64]uint64{}}
	e.clear()
	return e
}

func (e *fakeEngine) clear() {
	for i := range e.live {
		e.live[i] = map[uint64]int{}
	}
}

func blockTokens(hash uint64) []uint32 {
	ids := make([]uint32, testUnit)
	for i := range ids {
		ids[i] = uint32(hash>>32) ^ uint32(hash) + uint32(i)
	}
	return ids
}

// store makes the event of a run: a child of parent for each letter, one behind
// the other.
func (e *fakeEngine) store(medium kvevent.Medium, parent uint64, letters []uint8) kvevent.Event {
	ev := kvevent.Event{Kind: kvevent.Stored, Merged: 1, Parent: parent, HasParent: parent != 0, BlockTokens: testUnit, Medium: medium, Group: kvevent.NotSaid}
	for _, letter := range letters {
		h := uint64(prefix.NextUnit(prefix.Hash(parent+1), []uint32{uint32(letter)}, nil))
		e.parents[h] = parent
		e.live[medium][h]++
		ev.Hashes = append(ev.Hashes, h)
		ev.Tokens = append(ev.Tokens, blockTokens(h)...)
		parent = h
	}
	return ev
}

func (e *fakeEngine) remove(medium kvevent.Medium, hash uint64) kvevent.Event {
	if e.live[medium][hash]--; e.live[medium][hash] == 0 {
		delete(e.live[medium], hash)
	}
	return kvevent.Event{Kind: kvevent.Removed, Merged: 1, Hashes: []uint64{hash}, Medium: medium, Group: kvevent.NotSaid}
}

// chainOf is the own hash of a block: what a prompt that ends there has.
func (e *fakeEngine) chainOf(hash uint64) prefix.Hash {
	before := prefix.ChainStart(testSeed, []byte("m"), nil, nil)
	if p := e.parents[hash]; p != 0 {
		before = e.chainOf(p)
	}
	return prefix.NextUnit(before, blockTokens(hash), nil)
}

// place is a block in a tier.
type place struct {
	tier  kvevent.Medium
	block uint64
}

// world is a node and two routers, with a network between them that loses,
// repeats and delays.
type world struct {
	t       *rapid.T
	engine  *fakeEngine
	core    *Core
	routers []*testRouter
	old     [][]*message.Report // by router: sent before, may come again
	nowNs   int64
}

func newWorld(t *rapid.T, tb testing.TB) *world {
	epochs := 0
	w := &world{t: t, engine: newEngine(), nowNs: 1, old: make([][]*message.Report, 2)}
	w.core = NewCore(CoreOptions{
		WorkerID: "gpu", Ranks: 1, Routers: 2, MaxBlocks: 1 << 16, QueueMost: 400, PartMost: 3,
		Epoch: func() string { epochs++; return fmt.Sprint("e", epochs) }, Jitter: rand.New(rand.NewPCG(1, 2)),
	})
	for range 2 {
		w.routers = append(w.routers, newTestRouter(tb))
	}
	return w
}

func (w *world) pass(ns int64) {
	w.nowNs += ns
	for _, r := range w.routers {
		r.nowNs = w.nowNs
	}
}

// send sends the next report to a router; fate says what the network does. It
// reports whether there is nothing to send, now or later.
func (w *world) send(router int, fate string) (idle bool) {
	out, waitNs := w.core.Next(router, w.nowNs)
	if out == nil {
		w.pass(waitNs)
		return waitNs == 0
	}
	r := w.routers[router]
	copied := out.Report
	w.old[router] = append(w.old[router], &copied)
	if fate == "lost" {
		w.core.Failed(router, out, Unanswered, w.nowNs)
		return false
	}
	r.broken, r.lost = fate == "index broken", fate == "index late"
	a, failure, err := r.post(&out.Report, Encoding(len(w.old[router])%2))
	r.broken, r.lost = false, false
	switch {
	case fate == "answer lost":
		w.core.Failed(router, out, Unanswered, w.nowNs)
	case err != nil:
		if failure == Refused {
			w.t.Fatalf("refused: %v", err)
		}
		w.core.Failed(router, out, failure, w.nowNs)
	default:
		w.core.Answered(router, out, a)
	}
	return false
}

// settle lets one sync interval pass without faults.
func (w *world) settle() {
	w.pass(6e9)
	w.core.Digests()
	for router := range w.routers {
		for n := 0; !w.send(router, ""); n++ {
			if n > 10000 {
				w.t.Fatal("the two ends never stop talking")
			}
		}
	}
}

// check compares the node, the engine and the routers.
func (w *world) check(unknown map[place]bool) {
	for tier := range index.Tier(index.Tiers) {
		live := w.core.caches[0].shelves[tier].live
		for router, r := range w.routers {
			held := r.blocks(0, tier)
			for h := range live {
				if !held[h] && w.rooted(live, h) {
					w.t.Fatalf("router %d: block %x of tier %s is missing", router, h, tier)
				}
			}
			for h := range held {
				if live[h] == nil {
					w.t.Fatalf("router %d: block %x of tier %s is held by mistake", router, h, tier)
				}
				if last, _ := r.writer.Last(3, h); last != w.engine.chainOf(h) {
					w.t.Fatalf("router %d: block %x stands for another prefix", router, h)
				}
			}
		}
		for h := range live {
			if w.engine.live[tier][h] == 0 {
				w.t.Fatalf("the node claims block %x of tier %s by mistake", h, tier)
			}
		}
		for h := range w.engine.live[tier] {
			if live[h] == nil && !unknown[place{kvevent.Medium(tier), h}] {
				w.t.Fatalf("the node misses block %x of tier %s", h, tier)
			}
		}
	}
}

// rooted reports whether a block can be placed: its chain is live up to the
// root, in its tier.
func (w *world) rooted(live map[uint64]*entry, h uint64) bool {
	for ; h != 0; h = w.engine.parents[h] {
		if live[h] == nil {
			return false
		}
	}
	return true
}

// TestConverge: whatever happened before, one sync interval without faults makes
// both routers hold what the node says.
func TestConverge(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(rt, t)
		unknown := map[place]bool{} // stored before events were missing: nobody can know
		batch := func(events ...kvevent.Event) { w.core.Events(0, &kvevent.Batch{Events: events}) }
		forget := func() {
			for tier, live := range w.engine.live {
				for h := range live {
					unknown[place{kvevent.Medium(tier), h}] = true
				}
			}
		}
		media := rapid.SampledFrom([]kvevent.Medium{kvevent.Device, kvevent.Device, kvevent.Host})
		fates := rapid.SampledFrom([]string{"", "", "", "lost", "answer lost", "index broken", "index late"})
		router := rapid.IntRange(0, 1)
		rt.Repeat(map[string]func(*rapid.T){
			"store": func(rt *rapid.T) {
				medium := media.Draw(rt, "medium")
				letters := rapid.SliceOfN(rapid.Uint8Range(1, 3), 1, 5).Draw(rt, "blocks")
				ev := w.engine.store(medium, 0, letters)
				batch(ev)
				for _, h := range ev.Hashes {
					delete(unknown, place{medium, h})
				}
				// A run that starts with a known block and has several is taken for
				// told again, so the engine has no second copies of it here.
				for _, h := range ev.Hashes {
					w.engine.live[medium][h] = w.core.caches[0].shelves[medium].live[h].refs
				}
			},
			"again": func(rt *rapid.T) { // another copy of one block
				medium := media.Draw(rt, "medium")
				if h, ok := w.pick(rt, medium); ok && w.engine.parents[h] != 0 {
					w.engine.live[medium][h]++
					batch(kvevent.Event{
						Kind: kvevent.Stored, Merged: 1, Hashes: []uint64{h}, Parent: w.engine.parents[h], HasParent: true,
						Tokens: blockTokens(h), BlockTokens: testUnit, Medium: medium, Group: kvevent.NotSaid,
					})
					if unknown[place{medium, h}] {
						w.engine.live[medium][h] = 1
						delete(unknown, place{medium, h})
					}
				}
			},
			"remove": func(rt *rapid.T) {
				medium := media.Draw(rt, "medium")
				if h, ok := w.pick(rt, medium); ok {
					batch(w.engine.remove(medium, h))
				}
			},
			"clear":         func(*rapid.T) { w.engine.clear(); clear(unknown); batch(kvevent.Event{Kind: kvevent.Cleared}) },
			"restart":       func(*rapid.T) { w.engine.clear(); clear(unknown); w.core.Restarted(0) },
			"events lost":   func(*rapid.T) { forget(); w.core.Void(0) },
			"flush":         func(*rapid.T) { w.core.Flush() },
			"digest":        func(*rapid.T) { w.core.Digests() },
			"time":          func(rt *rapid.T) { w.pass(rapid.Int64Range(1, 20e9).Draw(rt, "ns")) },
			"send":          func(rt *rapid.T) { w.send(router.Draw(rt, "router"), fates.Draw(rt, "fate")) },
			"send more":     func(rt *rapid.T) { w.send(router.Draw(rt, "router"), ""); w.send(router.Draw(rt, "router"), "") },
			"router begins": func(rt *rapid.T) { w.routers[router.Draw(rt, "router")].restart(t) },
			"old report": func(rt *rapid.T) {
				to := router.Draw(rt, "router")
				if n := len(w.old[to]); n > 0 {
					_, _, _ = w.routers[to].post(w.old[to][rapid.IntRange(0, n-1).Draw(rt, "report")], JSON)
				}
			},
		})
		w.settle()
		w.check(unknown)
	})
}

// pick chooses a live block.
func (w *world) pick(rt *rapid.T, medium kvevent.Medium) (uint64, bool) {
	var list []uint64
	for h := range w.engine.live[medium] {
		list = append(list, h)
	}
	if len(list) == 0 {
		return 0, false
	}
	slices.Sort(list)
	return rapid.SampledFrom(list).Draw(rt, "block"), true
}
