package virtual

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"warmpath/bench/engine"
)

// load is a random workload for one engine.
type load struct {
	cfg  Config
	atNs []int64
	jobs []Job
}

// drawLoad makes prompts of a few shared beginnings and tails of their own.
func drawLoad(seed uint64, n int, perSecond float64, cfg Config) load {
	r := rand.New(rand.NewPCG(seed, 7))
	l := load{cfg: cfg.WithDefaults()}
	next, at := uint32(1000), 0.0
	for i := range n {
		at += r.ExpFloat64() / perSecond
		prompt := int32(min(40_000, max(1, math.Exp(6.8+1.1*r.NormFloat64()))))
		output := int32(min(2000, max(1, math.Exp(4.8+r.NormFloat64()))))
		shared, family := r.IntN(12), uint32(r.IntN(6))
		var contents []uint32
		for b := range (prompt + output) / int32(l.cfg.BlockTokens) {
			if int(b) < shared && b < prompt/int32(l.cfg.BlockTokens) {
				contents = append(contents, 1+family*100+uint32(b))
				continue
			}
			next++
			contents = append(contents, next)
		}
		l.atNs = append(l.atNs, int64(at*1e9))
		l.jobs = append(l.jobs, Job{ID: int32(i), Prompt: prompt, Output: output, Contents: contents})
	}
	return l
}

// times are when a request had its first token and its last.
type times struct {
	first, last int64
	cached      int
}

// virtually runs the load here.
func (l *load) virtually(t testing.TB) (got []times, busy time.Duration) {
	e := NewEngine(l.cfg, NewCache(l.cfg.Blocks(), nil, 0))
	got = make([]times, len(l.jobs))
	for next := 0; next < len(l.jobs) || e.WakeNs() != math.MaxInt64; {
		now := e.WakeNs()
		if next < len(l.jobs) && l.atNs[next] < now {
			e.Add(&l.jobs[next], l.atNs[next])
			next++
			continue
		}
		for _, o := range e.Wake(now) {
			if o.First {
				got[o.Job.ID].first, got[o.Job.ID].cached = now, o.Job.Cached()
			}
			if o.Last {
				got[o.Job.ID].last = now
			}
		}
		busy = time.Duration(e.BusyNs(now))
	}
	if e.Cache.Free() != e.Cache.Total() || e.Running() != 0 || e.Waiting() != 0 {
		t.Fatalf("at the end %d of %d blocks are free, %d run, %d wait", e.Cache.Free(), e.Cache.Total(), e.Running(), e.Waiting())
	}
	return got, busy
}

// really runs it step by step on the scheduler of the simulated engine, with real
// tokens.
func (l *load) really() []times {
	c := &l.cfg
	s := engine.NewScheduler(engine.NewCache(c.Blocks()+1, c.BlockTokens), engine.Physics{
		PrefillTokensPerSecond: c.PrefillTokensPerSecond, DecodeBaseMs: c.DecodeBaseMs, DecodePerRequestMs: c.DecodePerRequestMs,
		ContextTokens: c.ContextTokens, ChunkTokens: c.ChunkTokens, MaxRunning: c.MaxRunning,
	}, 1)
	got := make([]times, len(l.jobs))
	ids := map[*engine.Sequence]int{}
	next, now := 0, int64(0)
	for {
		for next < len(l.jobs) && l.atNs[next] <= now {
			q := &engine.Sequence{Prompt: l.prompt(next), Answer: int(l.jobs[next].Output)}
			ids[q] = next
			s.Add(q)
			next++
		}
		step, ok := s.Begin()
		if !ok {
			if next == len(l.jobs) {
				return got
			}
			now = l.atNs[next]
			continue
		}
		now += int64(step.Duration)
		for _, o := range s.End() {
			i := ids[o.Seq]
			if got[i].first == 0 {
				got[i].first, got[i].cached = now, o.Seq.Cached()
			}
			if o.Last {
				got[i].last = now
			}
		}
		s.Cache.Drain()
	}
}

// prompt gives every content tokens of its own.
func (l *load) prompt(i int) []uint32 {
	j, size := &l.jobs[i], l.cfg.BlockTokens
	tokens := make([]uint32, j.Prompt)
	for at := range tokens {
		content := uint32(1<<24 + i)
		if b := at / size; b < len(j.Contents) {
			content = j.Contents[b]
		}
		tokens[at] = content<<4 + uint32(at%16)
	}
	return tokens
}

// TestAgreesWithTheSimulatedEngine runs the same requests on both and wants every
// first and last token in the same nanosecond. (They may differ where a content lies
// twice in a cache, which these loads do not bring about.)
func TestAgreesWithTheSimulatedEngine(t *testing.T) {
	for _, c := range []struct {
		name      string
		cfg       Config
		perSecond float64
	}{
		{"idle", Config{}, 0.5},
		{"busy", Config{}, 3},
		{"overloaded", Config{}, 8},
		{"context", Config{ContextTokens: 32768}, 2},
		{"few places", Config{MaxRunning: 8}, 3},
		{"small cache", Config{CacheTokens: 48_000}, 2.5},
		{"tiny cache", Config{CacheTokens: 44_000, MaxRunning: 200}, 4},
		{"small blocks", Config{BlockTokens: 64, CacheTokens: 90_000}, 2.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := drawLoad(3, 700, c.perSecond, c.cfg)
			want := l.really()
			got, busy := l.virtually(t)
			ttft := 0.0
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("request %d of %d, that came at %d: first and last token at %+v, want %+v", i, len(got), l.atNs[i], got[i], want[i])
				}
				ttft += float64(got[i].first-l.atNs[i]) / 1e9
			}
			t.Logf("mean TTFT %.4f s, busy %v", ttft/float64(len(got)), busy)
		})
	}
}

func TestCacheHoldsWhatATableSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab, model := newTable(8), map[uint32]int32{}
		for range rapid.IntRange(1, 200).Draw(t, "operations") {
			content := rapid.Uint32Range(1, 24).Draw(t, "content")
			_, has := model[content]
			switch {
			case has:
				tab.remove(content)
				delete(model, content)
			case len(model) < 8:
				model[content] = int32(len(model) + 1)
				tab.put(content, model[content])
			}
			for c := uint32(1); c <= 24; c++ {
				if tab.get(c) != model[c] {
					t.Fatalf("content %d: %d, want %d", c, tab.get(c), model[c])
				}
			}
		}
	})
}

// TestIndexIsTheCaches compares Match with asking each cache.
func TestIndexIsTheCaches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const slots = 70
		x := NewIndex(64, slots)
		var caches []*Cache
		for s := range slots {
			caches = append(caches, NewCache(6, x, s))
		}
		for range rapid.IntRange(1, 60).Draw(t, "stores") {
			c := rapid.SampledFrom(caches).Draw(t, "cache")
			ids, ok := c.take(nil, 1)
			if !ok {
				continue
			}
			c.store(ids[0], uint32(rapid.IntRange(1, 12).Draw(t, "content")))
			c.release(ids)
		}
		contents := rapid.SliceOfN(rapid.Uint32Range(1, 12), 0, 6).Draw(t, "prompt")
		found, best := make([]uint32, slots), 0
		deepest := x.Match(contents, 1, found)
		for s, c := range caches {
			ids, _ := c.match(contents, nil)
			if int(found[s]) != len(ids) {
				t.Fatalf("slot %d: found %d, its cache has %d of %v", s, found[s], len(ids), contents)
			}
			best = max(best, len(ids))
		}
		if deepest != best {
			t.Fatalf("deepest %d, want %d", deepest, best)
		}
		for _, c := range caches {
			c.Forget()
		}
		if i := slices.IndexFunc(x.exact, func(w uint64) bool { return w != 0 }); i >= 0 {
			t.Fatalf("content %d is left", i)
		}
	})
}

func TestKillGivesAllBack(t *testing.T) {
	l := drawLoad(5, 40, 20, Config{})
	e := NewEngine(l.cfg, NewCache(l.cfg.Blocks(), nil, 0))
	began := 0
	for i := range l.jobs {
		for e.WakeNs() <= l.atNs[i] {
			for _, o := range e.Wake(e.WakeNs()) {
				if o.First {
					began++
				}
				if o.Last {
					began--
				}
			}
		}
		e.Add(&l.jobs[i], l.atNs[i])
	}
	held := e.Running() + e.Waiting()
	jobs := e.Kill(l.atNs[len(l.atNs)-1])
	for _, q := range jobs {
		if q.Began() {
			began--
		}
	}
	if len(jobs) != held || began != 0 || e.WakeNs() != math.MaxInt64 {
		t.Errorf("%d jobs of %d, %d begun too many, wakes at %d", len(jobs), held, began, e.WakeNs())
	}
}

// BenchmarkEngine is an hour of one node at 85 % of what it can do.
func BenchmarkEngine(b *testing.B) {
	for _, perSecond := range []float64{1, 3} {
		b.Run(fmt.Sprintf("rate=%v", perSecond), func(b *testing.B) {
			l := drawLoad(3, int(3600*perSecond), perSecond, Config{})
			for b.Loop() {
				for i := range l.jobs {
					j := &l.jobs[i]
					*j = Job{ID: j.ID, Prompt: j.Prompt, Output: j.Output, Contents: j.Contents}
				}
				_, busy := l.virtually(b)
				b.ReportMetric(busy.Seconds()/l.seconds(), "busy")
			}
		})
	}
}

func (l *load) seconds() float64 { return float64(l.atNs[len(l.atNs)-1]) / 1e9 }
