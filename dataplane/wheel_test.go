package dataplane

import (
	"math/rand/v2"
	"testing"
)

// twinTimer is a timer with what a dumb list of deadlines knows of it.
type twinTimer struct {
	timer
	armed    bool
	deadline int64
	notFrom  int64 // the tick it was armed in: it fires in a later one
	fired    int
}

// twinWheel arms, disarms and drops the same timers in a wheel and in a list.
type twinWheel struct {
	t      *testing.T
	wheel  wheel
	timers []*twinTimer
	rng    *rand.Rand
	nowNs  int64
}

func newTwinWheel(t *testing.T, seed uint64, n int) *twinWheel {
	w := &twinWheel{t: t, rng: rand.New(rand.NewPCG(seed, 1)), nowNs: int64(seed) * 7 * tickNs}
	w.wheel.init(w.nowNs)
	for range n {
		x := &twinTimer{}
		x.fire = func(nowNs int64) { w.fired(x, nowNs) }
		w.timers = append(w.timers, x)
	}
	return w
}

func (w *twinWheel) fired(x *twinTimer, nowNs int64) {
	if !x.armed || x.deadline > nowNs {
		w.t.Fatalf("a timer fired at %d: armed %v, deadline %d", nowNs, x.armed, x.deadline)
	}
	x.armed = false
	x.fired++
	for range w.rng.IntN(3) { // what fires may touch any timer, itself too
		w.change(w.timers[w.rng.IntN(len(w.timers))])
	}
	if w.rng.IntN(2) == 0 {
		w.change(x)
	}
}

func (w *twinWheel) change(x *twinTimer) {
	switch w.rng.IntN(8) {
	case 0:
		x.disarm()
		x.armed = false
	case 1:
		x.drop()
		x.armed = false
	default:
		// From the past to three turns ahead, mostly near.
		span := []int64{4, 100, wheelSlots, 3 * wheelSlots}[w.rng.IntN(4)] * tickNs
		at := max(w.nowNs-2*tickNs+w.rng.Int64N(span), 1)
		w.wheel.arm(&x.timer, at)
		x.armed, x.deadline, x.notFrom = true, at, w.wheel.tick
	}
}

func (w *twinWheel) advance() {
	step := []int64{tickNs / 3, tickNs, 5 * tickNs, 200 * tickNs, 3 * wheelSlots * tickNs}[min(w.rng.IntN(20), 4)]
	w.nowNs += step + w.rng.Int64N(step)
	w.wheel.advance(w.nowNs)
	last := w.nowNs / tickNs
	for i, x := range w.timers {
		if due := max(x.deadline/tickNs+1, x.notFrom+1); x.armed && due <= last {
			w.t.Fatalf("timer %d with deadline %d, due in tick %d, has not fired in tick %d", i, x.deadline, due, last)
		}
		if x.armed != (x.deadlineNs != 0) || x.armed && !x.linked {
			w.t.Fatalf("timer %d: armed %v in the list, deadline %d, linked %v in the wheel", i, x.armed, x.deadlineNs, x.linked)
		}
	}
}

func TestWheelAgainstList(t *testing.T) {
	for seed := range uint64(30) {
		w := newTwinWheel(t, seed, 1+int(seed)*3)
		for range 400 {
			for range w.rng.IntN(4) {
				w.change(w.timers[w.rng.IntN(len(w.timers))])
			}
			w.advance()
		}
		total := 0
		for _, x := range w.timers {
			total += x.fired
		}
		if total == 0 {
			t.Fatal("no timer ever fired")
		}
	}
}

// TestWheelFireDropsTheLast: what fires takes the last timer of its own slot
// out, while two timers of a later turn wait in the same slot.
func TestWheelFireDropsTheLast(t *testing.T) {
	var w wheel
	w.init(0)
	never := func(int64) { t.Error("a timer of a later turn fired") }
	far := [2]timer{{fire: never}, {fire: never}}
	last := timer{fire: never}
	first := timer{fire: func(int64) { last.drop() }}
	slot := int64(5)
	for i := range far {
		w.arm(&far[i], (slot-1+3*wheelSlots)*tickNs)
		far[i].unlink() // as a clamped timer, it waits in the slot of the first turn
		w.link(&far[i], slot)
	}
	w.arm(&first, (slot-1)*tickNs)
	w.arm(&last, (slot-1)*tickNs)
	w.advance((slot + 1) * tickNs)
	if first.linked || last.linked || !far[0].linked || !far[1].linked {
		t.Error("the wheel lost a timer")
	}
}

func TestWheelMovesAreCheap(t *testing.T) {
	var w wheel
	w.init(0)
	var x timer
	w.arm(&x, 10*tickNs)
	slot := x.slot
	w.arm(&x, 500*tickNs)
	if x.slot != slot {
		t.Error("pushing a deadline forward moved the timer; one store is enough")
	}
	w.arm(&x, 2*tickNs)
	if x.slot == slot {
		t.Error("pulling a deadline nearer did not move the timer")
	}
}

func TestWheelAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	var w wheel
	w.init(0)
	x := &timer{fire: func(int64) {}}
	now := int64(0)
	if n := testing.AllocsPerRun(2000, func() {
		w.arm(x, now+3*tickNs/2)
		now += tickNs
		w.advance(now)
	}); n != 0 {
		t.Errorf("%v allocations a tick, want 0", n)
	}
}

func BenchmarkWheelArm(b *testing.B) {
	var w wheel
	w.init(0)
	x := &timer{fire: func(int64) {}}
	now := int64(0)
	for b.Loop() {
		now += 1000
		w.arm(x, now+int64(1e9))
		w.advance(now)
	}
}
