package dataplane

// A timer wheel of one loop: O(1) to arm, disarm and move, no allocation. A
// connection has one timer; what it means follows from the connection's state.
// Deadlines are kept exact in the timer and only looked at when the wheel
// comes round, so a timer may fire up to one tick late and never early.

const (
	tickNs     = int64(25e6) // the loops' tick; time-outs are exact to this
	wheelSlots = 1024        // 25.6 s a turn; farther deadlines go round again
)

// timer is embedded in what it times. Loop-owned.
type timer struct {
	deadlineNs int64 // 0 = not armed
	slot       int32
	linked     bool
	next, prev *timer
	fire       func(nowNs int64)
}

type wheel struct {
	slots   [wheelSlots]timer // list heads
	running timer             // head of the list that is being run
	tick    int64             // number of the last tick that was run
}

func (w *wheel) init(nowNs int64) {
	w.tick = nowNs / tickNs
	for i := range w.slots {
		h := &w.slots[i]
		h.next, h.prev = h, h
	}
}

// arm sets t to fire once at deadlineNs. A timer that is already in the wheel
// and would fire earlier stays where it is: when it comes up before its
// deadline it is moved. So pushing a deadline forward costs one store.
func (w *wheel) arm(t *timer, deadlineNs int64) {
	t.deadlineNs = deadlineNs
	tick := max(deadlineNs/tickNs+1, w.tick+1)
	if t.linked {
		if w.due(t) <= tick {
			return
		}
		t.unlink()
	}
	w.link(t, tick)
}

// due returns the tick at which the wheel looks at t next.
func (w *wheel) due(t *timer) int64 {
	ahead := (int64(t.slot) - w.tick) & (wheelSlots - 1)
	if ahead == 0 {
		ahead = wheelSlots
	}
	return w.tick + ahead
}

func (w *wheel) link(t *timer, tick int64) {
	tick = min(tick, w.tick+wheelSlots)
	t.slot = int32(tick & (wheelSlots - 1))
	h := &w.slots[t.slot]
	t.prev, t.next = h.prev, h
	h.prev.next, h.prev = t, t
	t.linked = true
}

// disarm makes t not fire. It stays linked, which costs one look later.
func (t *timer) disarm() { t.deadlineNs = 0 }

// drop takes t out of the wheel, for good when its owner ends.
func (t *timer) drop() {
	t.deadlineNs = 0
	if t.linked {
		t.unlink()
	}
}

func (t *timer) unlink() {
	t.prev.next, t.next.prev = t.next, t.prev
	t.next, t.prev, t.linked = nil, nil, false
}

// advance fires what is due at nowNs.
func (w *wheel) advance(nowNs int64) {
	last := nowNs / tickNs
	if last-w.tick > wheelSlots { // the loop stood still for a whole turn: look at each slot once
		w.tick = last - wheelSlots
	}
	for w.tick < last {
		w.tick++
		w.run(&w.slots[w.tick&(wheelSlots-1)], nowNs)
	}
}

// run looks at every timer of one slot. They are taken out first: a timer that
// fires may arm, move or drop any other, and may land in this slot again, a turn
// ahead.
func (w *wheel) run(h *timer, nowNs int64) {
	if h.next == h {
		return
	}
	due := &w.running
	due.next, due.prev = h.next, h.prev
	due.next.prev, due.prev.next = due, due
	h.next, h.prev = h, h
	for due.next != due {
		t := due.next
		t.unlink()
		switch {
		case t.deadlineNs == 0:
		case t.deadlineNs > nowNs:
			w.link(t, t.deadlineNs/tickNs+1)
		default:
			t.deadlineNs = 0
			t.fire(nowNs)
		}
	}
}
