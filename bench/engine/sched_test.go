package engine

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"warmpath/scenariotest"
)

// world is the scheduler of one scenario.
type world struct {
	s     *Scheduler
	seqs  map[string]*Sequence
	names map[*Sequence]string
	ids   map[uint64]string // block names by hash, in order of appearance
	now   time.Duration
	trace strings.Builder
}

// args reads key=value fields.
func args(fields []string) map[string]string {
	m := map[string]string{}
	for _, f := range fields {
		k, v, _ := strings.Cut(f, "=")
		m[k] = v
	}
	return m
}

func (w *world) number(m map[string]string, key string, otherwise int) int {
	n, err := strconv.Atoi(m[key])
	if err != nil {
		return otherwise
	}
	return n
}

// command runs one line of a scenario.
func (w *world) command(t *testing.T, line string) {
	fields := strings.Fields(line)
	m := args(fields[1:])
	switch fields[0] {
	case "new":
		p := Config{}.withDefaults().Physics
		p.ChunkTokens, p.MaxRunning = w.number(m, "chunk", 2048), w.number(m, "running", 64)
		p.ContextTokens = float64(w.number(m, "context", -1))
		w.s = NewScheduler(NewCache(w.number(m, "blocks", 100), w.number(m, "size", 16)), p, 0)
		w.seqs, w.names, w.ids, w.now = map[string]*Sequence{}, map[*Sequence]string{}, map[uint64]string{}, 0
	case "add":
		q := &Sequence{Prompt: make([]uint32, w.number(m, "prompt", 16)), Answer: w.number(m, "answer", 1), Salt: m["salt"]}
		shared := w.number(m, "shared", 0)
		for i := range q.Prompt {
			q.Prompt[i] = uint32(i)
			if i >= shared {
				q.Prompt[i] += uint32(1000 * (len(w.seqs) + 1))
			}
		}
		w.seqs[fields[1]], w.names[q] = q, fields[1]
		w.s.Add(q)
	case "abort":
		fmt.Fprintf(&w.trace, "abort %s %v\n", fields[1], w.s.Abort(w.seqs[fields[1]]))
	case "clear":
		fmt.Fprintf(&w.trace, "clear %v\n", w.s.Cache.Clear())
	case "step":
		for range w.number(m, "times", 1) {
			w.step()
		}
	case "state":
		c := w.s.Cache
		fmt.Fprintf(&w.trace, "running %d waiting %d free %d of %d, hashed %d, queried %d hit %d preempted %d\n", w.s.Running(), w.s.Waiting(),
			c.Free(), c.Total(), c.Hashed(), w.s.Counters.QueriedTokens, w.s.Counters.HitTokens, w.s.Counters.Preemptions)
	default:
		t.Fatalf("unknown command %q", line)
	}
}

// step runs one step and traces time, work, tokens and events.
func (w *world) step() {
	st, outputs, ok := w.s.Step()
	if !ok {
		fmt.Fprintln(&w.trace, "idle")
		return
	}
	w.now += st.Duration
	fmt.Fprintf(&w.trace, "%.3fms prefill %d decode %d requests %d:", float64(w.now.Microseconds())/1000, st.PrefillTokens, st.DecodeTokens, st.Requests)
	for _, o := range outputs {
		fmt.Fprintf(&w.trace, " %s#%d", w.names[o.Seq], o.Seq.Generated())
		if o.Last {
			fmt.Fprint(&w.trace, ".")
		}
	}
	for _, ev := range w.s.Cache.Drain() {
		switch ev.Kind {
		case BlockStored:
			fmt.Fprintf(&w.trace, " +%s", w.blocks(ev.Hashes))
			if ev.HasParent {
				fmt.Fprintf(&w.trace, "<%s", w.blocks([]uint64{ev.Parent}))
			}
		case BlockRemoved:
			fmt.Fprintf(&w.trace, " -%s", w.blocks(ev.Hashes))
		case AllBlocksCleared:
			fmt.Fprint(&w.trace, " cleared")
		}
	}
	fmt.Fprintln(&w.trace)
}

// blocks names hashes b1, b2, … as they appear.
func (w *world) blocks(hashes []uint64) string {
	var names []string
	for _, h := range hashes {
		if w.ids[h] == "" {
			w.ids[h] = fmt.Sprint("b", len(w.ids)+1)
		}
		names = append(names, w.ids[h])
	}
	return strings.Join(names, ",")
}

// TestScenarios replays testdata/sched.txt: commands, and what the engine did.
func TestScenarios(t *testing.T) {
	w := &world{}
	scenariotest.Run(t, "testdata/sched.txt", func(t *testing.T, c scenariotest.Case) string {
		w.trace.Reset()
		for _, command := range c.Lines() {
			w.command(t, command)
		}
		return w.trace.String()
	})
}

// TestSchedulerKeepsItsBooks runs random load with too few blocks, aborts
// included, and checks that nothing leaks and that every answer is complete.
func TestSchedulerKeepsItsBooks(t *testing.T) {
	preemptions := int64(0)
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 2))
		p := Config{}.withDefaults().Physics
		p.ChunkTokens, p.MaxRunning = 24, 6
		s := NewScheduler(NewCache(20, 4), p, 0) // 76 tokens
		var open []*Sequence
		done := map[*Sequence]bool{}
		for step := 0; step < 3000 && (step < 600 || len(open) > 0); step++ {
			if step < 600 && rng.IntN(3) == 0 {
				q := &Sequence{Prompt: make([]uint32, 1+rng.IntN(40)), Answer: 1 + rng.IntN(30)}
				for i := range q.Prompt {
					q.Prompt[i] = uint32(rng.IntN(2) * (i / 8))
				}
				s.Add(q)
				open = append(open, q)
			}
			if _, ok := s.Begin(); !ok {
				continue
			}
			if rng.IntN(20) == 0 {
				q := open[rng.IntN(len(open))]
				if s.Abort(q) {
					done[q] = true
				}
			}
			for _, o := range s.End() {
				if done[o.Seq] {
					t.Fatalf("seed %d: a token after the end", seed)
				}
				if o.Last {
					done[o.Seq] = true
					if o.Seq.Generated() != o.Seq.Answer {
						t.Fatalf("seed %d: %d of %d tokens", seed, o.Seq.Generated(), o.Seq.Answer)
					}
				}
			}
			open = deleteDone(open, done)
		}
		if len(open) > 0 || s.Running() > 0 || s.Waiting() > 0 || s.Cache.Free() != s.Cache.Total() {
			t.Fatalf("seed %d: %d open, %d running, %d waiting, %d of %d blocks free",
				seed, len(open), s.Running(), s.Waiting(), s.Cache.Free(), s.Cache.Total())
		}
		preemptions += s.Counters.Preemptions
	}
	if preemptions == 0 {
		t.Error("no run was short of blocks: the test does not reach preemption")
	}
}

func deleteDone(open []*Sequence, done map[*Sequence]bool) []*Sequence {
	keep := open[:0]
	for _, q := range open {
		if !done[q] {
			keep = append(keep, q)
		}
	}
	return keep
}
