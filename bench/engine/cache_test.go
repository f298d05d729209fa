package engine

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// twinCache is Cache without cleverness: every question walks all blocks, and
// the free list is a slice.
type twinCache struct {
	hash   []uint64
	hashed []bool
	order  []int // for equal hashes: the copy stored first is found first
	refs   []int
	free   []int32
	clock  int
	events []string
}

func newTwin(count int) *twinCache {
	t := &twinCache{hash: make([]uint64, count), hashed: make([]bool, count), order: make([]int, count), refs: make([]int, count)}
	for i := 1; i < count; i++ {
		t.free = append(t.free, int32(i))
	}
	return t
}

func (t *twinCache) match(hashes []uint64) (found []int32) {
	for _, h := range hashes {
		best := -1
		for i := range t.hash {
			if t.hashed[i] && t.hash[i] == h && (best < 0 || t.order[i] < t.order[best]) {
				best = i
			}
		}
		if best < 0 {
			break
		}
		found = append(found, int32(best))
	}
	return found
}

func (t *twinCache) hold(ids []int32) {
	for _, id := range ids {
		if t.refs[id] == 0 {
			t.free = slices.DeleteFunc(t.free, func(f int32) bool { return f == id })
		}
		t.refs[id]++
	}
}

func (t *twinCache) take(n int) (ids []int32, ok bool) {
	if n > len(t.free) {
		return nil, false
	}
	for range n {
		id := t.free[0]
		t.free = t.free[1:]
		if t.hashed[id] {
			t.events = append(t.events, fmt.Sprint("removed ", t.hash[id]))
			t.hashed[id] = false
		}
		t.refs[id] = 1
		ids = append(ids, id)
	}
	return ids, true
}

func (t *twinCache) release(ids []int32) {
	for _, id := range slices.Backward(ids) {
		if t.refs[id]--; t.refs[id] == 0 {
			t.free = append(t.free, id)
		}
	}
}

func (t *twinCache) store(ids []int32, hashes []uint64) {
	for i, id := range ids {
		t.clock++
		t.hash[id], t.hashed[id], t.order[id] = hashes[i], true, t.clock
	}
	t.events = append(t.events, fmt.Sprint("stored ", hashes))
}

func (t *twinCache) clear() bool {
	if len(t.free) != len(t.hash)-1 {
		return false
	}
	clear(t.hashed)
	t.events = append(t.events, "cleared")
	return true
}

func eventTexts(events []Event) (out []string) {
	for _, ev := range events {
		switch ev.Kind {
		case BlockStored:
			out = append(out, fmt.Sprint("stored ", ev.Hashes))
		case BlockRemoved:
			out = append(out, fmt.Sprint("removed ", ev.Hashes[0]))
		case AllBlocksCleared:
			out = append(out, "cleared")
		}
	}
	return out
}

// holder is a request of the random test: what it holds and how much of it is stored.
type holder struct {
	blocks []int32
	hashes []uint64
}

// TestCacheEqualsTwin drives the cache and its twin with the same random
// requests, few hashes and few blocks, so that evictions, shared blocks and
// several copies of one hash are frequent.
func TestCacheEqualsTwin(t *testing.T) {
	const blocks = 24
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c, twin := NewCache(blocks, 4), newTwin(blocks)
		var held []holder
		for step := range 400 {
			switch op := rng.IntN(10); {
			case op < 6:
				want := make([]uint64, 1+rng.IntN(6))
				for i := range want {
					want[i] = uint64(i)*8 + uint64(rng.IntN(3))
				}
				asked := want[:len(want)-rng.IntN(2)]
				hits, twinHits := c.Match(asked), twin.match(asked)
				if !slices.Equal(hits, twinHits) {
					t.Fatalf("seed %d step %d: match %v, twin %v", seed, step, hits, twinHits)
				}
				if need := len(want) - len(hits) + c.heldNeeded(hits); need > c.Free() {
					continue
				}
				c.Hold(hits)
				twin.hold(hits)
				all, ok := c.Take(hits, len(want)-len(hits))
				fresh, twinOK := twin.take(len(want) - len(hits))
				if ok != twinOK || !slices.Equal(all[len(hits):], fresh) {
					t.Fatalf("seed %d step %d: take %v %v, twin %v %v", seed, step, all, ok, fresh, twinOK)
				}
				if n := len(want) - len(hits); n > 0 && rng.IntN(4) > 0 {
					c.Store(all[len(hits):], Event{Hashes: want[len(hits):], Tokens: make([]uint32, 4*n)})
					twin.store(fresh, want[len(hits):])
				}
				held = append(held, holder{blocks: all, hashes: want})
			case op < 9 && len(held) > 0:
				i := rng.IntN(len(held))
				c.Release(held[i].blocks)
				twin.release(held[i].blocks)
				held = slices.Delete(held, i, i+1)
			case op == 9 && rng.IntN(8) == 0:
				if a, b := c.Clear(), twin.clear(); a != b {
					t.Fatalf("seed %d step %d: clear %v, twin %v", seed, step, a, b)
				}
			}
			compareTwin(t, c, twin, seed, step)
		}
	}
}

func compareTwin(t *testing.T, c *Cache, twin *twinCache, seed uint64, step int) {
	t.Helper()
	if got := eventTexts(c.Drain()); !reflect.DeepEqual(got, twin.events) {
		t.Fatalf("seed %d step %d: events %v, twin %v", seed, step, got, twin.events)
	}
	twin.events = nil
	hashed := 0
	for i, h := range twin.hashed {
		if h {
			hashed++
			if got, want := c.Match(twin.hash[i:i+1]), twin.match(twin.hash[i:i+1]); !slices.Equal(got, want) {
				t.Fatalf("seed %d step %d: hash %d is at %v, twin %v", seed, step, twin.hash[i], got, want)
			}
		}
	}
	if c.Free() != len(twin.free) || c.Hashed() != hashed {
		t.Fatalf("seed %d step %d: %d free %d hashed, twin %d %d", seed, step, c.Free(), c.Hashed(), len(twin.free), hashed)
	}
}

func TestChainDependsOnEverything(t *testing.T) {
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	base := extendChain(nil, rootHash(1, "", ""), tokens, 4)
	if len(base) != 2 {
		t.Fatalf("%d hashes of 9 tokens in blocks of 4, want 2", len(base))
	}
	if again := extendChain(base[:1:1], rootHash(1, "", ""), tokens, 4); !slices.Equal(again, base) {
		t.Errorf("extending block by block gives %v, at once %v", again, base)
	}
	for name, root := range map[string]uint64{
		"seed": rootHash(2, "", ""), "salt": rootHash(1, "x", ""), "adapter": rootHash(1, "", "x"),
	} {
		if other := extendChain(nil, root, tokens, 4); other[0] == base[0] || other[1] == base[1] {
			t.Errorf("another %s leaves a hash unchanged", name)
		}
	}
	if rootHash(1, "ab", "c") == rootHash(1, "a", "bc") {
		t.Error("salt and adapter run together")
	}
}

func TestCachePanicsOnMisuse(t *testing.T) {
	for name, f := range map[string]func(){
		"too small":    func() { NewCache(1, 16) },
		"release free": func() { NewCache(4, 16).Release([]int32{1}) },
		"store free":   func() { NewCache(4, 1).Store([]int32{1}, Event{Hashes: []uint64{1}, Tokens: []uint32{1}}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

func BenchmarkCacheLongPrompt(b *testing.B) {
	tokens := make([]uint32, 32_768)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	s := NewScheduler(NewCache(4096, 16), Config{}.withDefaults().Physics, 0)
	for b.Loop() {
		s.Add(&Sequence{Prompt: tokens, Answer: 1})
		for {
			if _, _, ok := s.Step(); !ok {
				break
			}
		}
		s.Cache.Drain()
	}
}
