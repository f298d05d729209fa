package kvevent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"

	"warmpath/scenariotest"
)

// recorder is an Outlet that writes down what it is told.
type recorder struct {
	out  strings.Builder
	busy bool
	asks []uint64
	held map[uint64]string // the batches that the index would show
}

func (r *recorder) note(format string, args ...any) bool {
	if r.busy {
		return false
	}
	fmt.Fprintf(&r.out, format+"\n", args...)
	return true
}

func (r *recorder) Apply(seq uint64, payload []byte) bool {
	if !r.note("  apply %s", payload) {
		return false
	}
	if r.held == nil {
		r.held = map[uint64]string{}
	}
	r.held[seq] = string(payload)
	return true
}

func (r *recorder) Clear() bool {
	if r.note("  clear") {
		clear(r.held)
		return true
	}
	return false
}

func (r *recorder) Trust(t Trust) bool { return r.note("  trust %s", t) }

func (r *recorder) Replay(from uint64) {
	r.asks = append(r.asks, from)
	fmt.Fprintf(&r.out, "  ask %d\n", from)
}

// payloadOf is what an engine process sent as a batch.
func payloadOf(life string, seq uint64) []byte { return fmt.Appendf(nil, "%s%d", life, seq) }

// TestStreamScenarios: batches are written as the life of the engine and their
// number, "a3"; "alone" at the start is a stream without replay, and one that
// "awaits" what it goes on from is resumed as its batch "a3" would leave it.
func TestStreamScenarios(t *testing.T) {
	for _, path := range []string{"testdata/stream.txt", "testdata/handover.txt"} {
		streamScenarios(t, path)
	}
}

func streamScenarios(t *testing.T, path string) {
	scenariotest.Run(t, path, func(t *testing.T, scenario scenariotest.Case) string {
		commands := scenario.Lines()
		r := &recorder{}
		s := NewStream(r, commands[0] != "alone")
		var now time.Duration
		for _, c := range commands {
			f := strings.Fields(c)
			r.out.WriteString(c + "\n")
			switch f[0] {
			case "alone":
			case "awaits":
				s.awaiting = true
			case "resume":
				last := numbers(f[1][1:])[0]
				saved := Saved{Next: last + 1, Live: f[2] == "live", HasLast: true, Last: xxhash.Sum64(payloadOf(f[1][:1], last))}
				if !s.Resume(now, saved) {
					r.out.WriteString("  it does not fit\n")
				}
			case "begin":
				s.Begin(now)
			case "save":
				saved, ok := s.Save()
				fmt.Fprintf(&r.out, "  next %d from %d live %v, %v\n", saved.Next, saved.From, saved.Live, ok)
			case "connected":
				s.Connected(now)
			case "lost":
				s.Lost(now)
			case "live", "replayed":
				for _, seq := range numbers(f[1][1:]) {
					if f[0] == "live" {
						s.Live(now, seq, payloadOf(f[1][:1], seq))
					} else {
						if !s.Replayed(now, seq, payloadOf(f[1][:1], seq)) {
							fmt.Fprintf(&r.out, "  no room for %d\n", seq)
							break
						}
					}
				}
			case "ended":
				s.ReplayEnded(now)
			case "failed":
				s.ReplayFailed(now)
			case "resync":
				s.Resync(now)
			case "holds":
				s.mostHeld = int(numbers(f[1])[0])
			case "busy", "room":
				r.busy = f[0] == "busy"
			case "wait":
				d, err := time.ParseDuration(f[1])
				if err != nil {
					t.Fatal(err)
				}
				now = wait(t, s, now, now+d)
			case "status":
				st := s.Status()
				fmt.Fprintf(&r.out, "  %s next %d from %d batches %d gaps %d lost %d restarts %d replays %d overflows %d held %d\n",
					st.Trust, st.Next, st.From, st.Batches, st.Gaps, st.Lost, st.Restarts, st.Replays, st.Overflows, len(s.held))
			default:
				t.Fatalf("command %q", c)
			}
		}
		return r.out.String()
	})
}

// wait ticks whenever the stream wants to.
func wait(t testing.TB, s *Stream, now, until time.Duration) time.Duration {
	for ticks := 0; ; ticks++ {
		next := s.Tick(now)
		if next > until {
			return until
		}
		if next <= now && ticks > 100 || ticks > 100000 {
			t.Fatalf("tick at %v wants to be called at %v", now, next)
		}
		now = max(next, now)
	}
}

// process is the other side of a stream: a publisher with a bounded buffer.
type process struct {
	life   byte
	next   uint64
	buffer int // batches kept for replay
}

func (e *process) kept() uint64 { return e.next - min(e.next, uint64(e.buffer)) }

// TestStreamNeverBelievesTooMuch plays engine, network and consumer at random,
// then lets all be well. While the stream is live, what is applied must be a
// run of batches of one process without a hole; in the end it must be live and
// have the last batch.
func TestStreamNeverBelievesTooMuch(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		out := &recorder{}
		s := NewStream(out, seed%4 > 0)
		s.mostHeld = 1 + r.IntN(10)
		e := &process{life: 'A', buffer: []int{0, 1, 5, 1000}[r.IntN(4)]}
		w := &world{r: r, s: s, e: e, out: out}
		for range 300 {
			w.step(t)
			w.check(t, seed)
		}
		w.heal(t)
		if st := s.Status(); st.Trust != Live || st.Next != e.next && st.Next != 0 || len(s.held) > 0 {
			t.Fatalf("seed %d: in the end %+v, engine at %c%d\n%s", seed, st, e.life, e.next, out.out.String())
		}
		w.check(t, seed)
	}
}

type world struct {
	r         *rand.Rand
	s         *Stream
	e         *process
	out       *recorder
	now       time.Duration
	connected bool
	missed    bool // the stream cannot know of what the engine did last
	answered  int  // asks that were answered
}

// step does one thing that can happen.
func (w *world) step(t *testing.T) {
	w.now = wait(t, w.s, w.now, w.now+time.Duration(w.r.IntN(20)*w.r.IntN(20))*time.Millisecond)
	switch n := w.r.IntN(20); {
	case n < 8:
		w.publish(w.connected && w.r.IntN(6) > 0)
	case n == 8:
		w.e.life, w.e.next, w.missed = w.e.life+1, 0, true
		w.disconnect()
	case n == 9:
		w.disconnect()
	case n < 13:
		w.connect()
	case n == 13:
		w.out.busy = !w.out.busy
	case n == 14:
		w.s.Resync(w.now)
	default:
		w.answer(w.r.IntN(3))
	}
}

func (w *world) publish(arrives bool) {
	seq := w.e.next
	w.e.next++
	if arrives {
		w.s.Live(w.now, seq, payloadOf(string(w.e.life), seq))
		w.missed = false
	} else {
		w.missed = true
	}
}

func (w *world) connect() {
	if !w.connected {
		w.connected = true
		w.s.Connected(w.now)
	}
}

func (w *world) disconnect() {
	if w.connected {
		w.connected = false
		w.s.Lost(w.now)
	}
}

// answer answers the last ask: not, in part, or in full.
func (w *world) answer(how int) {
	if w.answered == len(w.out.asks) {
		return
	}
	w.answered = len(w.out.asks)
	from := w.out.asks[len(w.out.asks)-1]
	for seq := max(from, w.e.kept()); seq < w.e.next; seq++ {
		if how == 1 && w.r.IntN(4) == 0 {
			continue // lost in the answer
		}
		for !w.s.Replayed(w.now, seq, payloadOf(string(w.e.life), seq)) {
			w.out.busy = false // sooner or later
		}
		if w.answered != len(w.out.asks) {
			return // another one is wanted
		}
	}
	if how == 0 {
		w.s.ReplayFailed(w.now)
	} else {
		w.s.ReplayEnded(w.now)
	}
}

// heal lets everything work until nothing more happens.
func (w *world) heal(t *testing.T) {
	w.out.busy = false
	for range 20 {
		w.connect()
		w.publish(true)
		w.now = wait(t, w.s, w.now, w.now+31*time.Second)
		w.answer(2)
		w.answer(2)
		w.answer(2)
	}
}

// check looks at what is applied. Between a restart and the first sign of it
// a stream may believe in the former process.
func (w *world) check(t *testing.T, seed uint64) {
	t.Helper()
	var seqs []uint64
	lives := map[byte]bool{}
	for seq, payload := range w.out.held {
		seqs = append(seqs, seq)
		lives[payload[0]] = true
	}
	slices.Sort(seqs)
	whole := len(seqs) == 0 || seqs[len(seqs)-1]-seqs[0]+1 == uint64(len(seqs))
	st := w.s.Status()
	if !whole || len(lives) > 1 {
		t.Fatalf("seed %d: applied %v of %d lives\n%s", seed, seqs, len(lives), w.out.out.String())
	}
	if len(seqs) > 0 && (st.From != seqs[0] || st.Next != seqs[len(seqs)-1]+1) && !w.s.clear {
		t.Fatalf("seed %d: %+v, applied %d to %d\n%s", seed, st, seqs[0], seqs[len(seqs)-1], w.out.out.String())
	}
	if st.Trust == Live && !w.missed && w.connected && len(lives) == 1 && !lives[w.e.life] && !w.s.clear && !w.out.busy {
		t.Fatalf("seed %d: live on a process that is gone\n%s", seed, w.out.out.String())
	}
}

// What waits for a replay or a busy consumer is bounded by count and bytes.
func TestHeldBatchesAreBounded(t *testing.T) {
	for _, size := range []int{1, maxHeldBytes / 8} {
		r := &recorder{}
		s := NewStream(r, true)
		s.Connected(0)
		most := min(maxHeld, maxHeldBytes/size)
		for seq := range uint64(most + 2) {
			s.Live(0, seq, make([]byte, size))
		}
		if st := s.Status(); len(s.held) != most || st.Overflows == 0 || s.heldBytes > maxHeldBytes {
			t.Errorf("%d batches of %d bytes held, %d given up", len(s.held), size, st.Overflows)
		}
	}
}

func TestStreamAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := NewStream(&silent{}, true)
	s.Connected(0)
	s.ReplayEnded(0)
	payload := commonBatch(3, 16)
	seq := uint64(0)
	if n := testing.AllocsPerRun(100, func() { s.Live(time.Second, seq, payload); seq++ }); n != 0 || s.Status().Batches < 100 {
		t.Errorf("a live batch allocates %v times, %d applied", n, s.Status().Batches)
	}
}

// silent is an Outlet that takes everything.
type silent struct{}

func (*silent) Apply(uint64, []byte) bool { return true }
func (*silent) Clear() bool               { return true }
func (*silent) Trust(Trust) bool          { return true }
func (*silent) Replay(uint64)             {}
